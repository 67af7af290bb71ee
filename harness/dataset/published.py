"""Whether a dataset is the published file, by the checksums of datasets/manifest.tsv."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness.config.benchmark import DatasetRule
from harness.files import ROOT, digest_of

_OTHER = " is not the published "
_MANIFEST = ROOT / "datasets/manifest.tsv"


class _Published(NamedTuple):
    what: str
    """as `datasets/download.sh --what`"""
    kind: str
    """md5 or sha256"""
    digest: str


def other_than_published(
    benchmark: str, rule: DatasetRule, path: Path, digest: Callable[[Path, str], str] = digest_of
) -> str:
    """Why the file is not the published one; "" where it is, or no checksum of that is known.

    ``digest`` of a file by its kind. Raises OSError.
    """
    published = _published(benchmark, rule.file)
    if published is None:
        return ""
    found = digest(path, published.kind)
    if found == published.digest:
        return ""
    return (
        f"{path}{_OTHER}{rule.file} ({published.kind} {found}, expected {published.digest}), and results of "
        f"other prompts are not the benchmark's: fetch it with datasets/download.sh --benchmark {benchmark} "
        f"--what {published.what}, unless this is the same data in another form"
    )


def names_other_file(warning: str) -> bool:
    """Whether a warning of a run is that of ``other_than_published``."""
    return _OTHER in warning


def _published(benchmark: str, file: str) -> _Published | None:
    """None where no checksum is known, and in a copy without the manifest."""
    if not _MANIFEST.is_file():
        return None
    for line in _MANIFEST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        of, what, _, path, checksum, _ = line.split("\t")
        kind, _, digest = checksum.partition(":")
        if (of, path) == (benchmark, file) and digest:
            return _Published(what, kind, digest)
    return None
