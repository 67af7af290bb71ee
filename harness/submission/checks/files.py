"""Checks of all files of a tree: kind, name, size and encoding, and no run submitted twice."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.compliance.registry import TESTS
from harness.files import ACCURACY, ACCURACY_LOG, ACCURACY_TEXT, DETAIL, PERFORMANCE, sha256_of
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES
from harness.submission.accuracy_files import parse_accuracy
from harness.submission.checks.check_context import CheckContext
from harness.submission.checks.issue import Issue
from harness.submission.layout import DIVISIONS, ScenarioDir
from harness.submission.secrets import find_secrets

_OF_RANDOM_SAMPLES = frozenset(name for name, test in TESTS.items() if not test.every_sample)


def check_files(root: Path, most_bytes: int) -> Iterator[Issue]:
    """Names, kinds and sizes of everything below the divisions."""
    for path in sorted(path for name in DIVISIONS for path in (root / name).rglob("*")):
        what = _issue(path, most_bytes)
        if what:
            yield Issue("files", path.relative_to(root).as_posix(), what)


def check_secrets(root: Path) -> Iterator[Issue]:
    """Secrets in any file: the place and the kind, never the text."""
    for found in find_secrets(sorted(root.rglob("*"))):
        where = f"{found.path.relative_to(root).as_posix()}:{found.line}"
        yield Issue("secret", where, f"looks like {found.kind}")


def _issue(path: Path, most_bytes: int) -> str:
    if path.is_symlink():
        return "is a symbolic link"
    if path.name.startswith("."):
        return "has a name with a leading dot"
    if " " in path.name:
        return "has a name with a space"
    if path.is_file() and path.stat().st_size > most_bytes:
        return f"has {path.stat().st_size} bytes, expected {most_bytes} or less"
    return ""


def check_encoding(context: CheckContext) -> Iterator[Issue]:
    """The text files that the official checker reads as UTF-8."""
    names = [PERFORMANCE / DETAIL, ACCURACY / DETAIL, ACCURACY / ACCURACY_TEXT]
    names += [Path(name, test.verify_file) for name, test in TESTS.items()]
    for name in names:
        path = context.dir.path / name
        if path.is_file() and not _is_text(path):
            yield context.issue("encoding", name, "is not UTF-8")


def _is_text(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            for _ in file:
                continue
    except UnicodeDecodeError:
        return False
    return True


def check_repeats(root: Path, scenario_dirs: Sequence[ScenarioDir]) -> Iterator[Issue]:
    """Detail and accuracy logs hold times and tokens, so those of two runs are never equal.

    A greedy model gives the same answers again: scores may be equal, and so may the answers to the few
    samples of a test such as TEST06, which LoadGen draws by the same seed in every scenario.
    """
    seen: dict[str, tuple[Path, Path]] = {}
    for folder in scenario_dirs:
        for path in _run_files(folder):
            run = folder.path / path.relative_to(folder.path).parts[0]
            for key in _fingerprints(path):
                first, first_run = seen.setdefault(key, (path, run))
                if first_run != run:
                    by_chance = path.name == ACCURACY_LOG and run.name in _OF_RANDOM_SAMPLES
                    other = first.relative_to(root).as_posix()
                    text = f"equals {other}" if by_chance else f"is of the same run as {other}"
                    yield Issue("repeat", folder.relative(path), text, is_warning=by_chance)


def _run_files(folder: ScenarioDir) -> list[Path]:
    names = (DETAIL, ACCURACY_LOG, ACCURACY_TEXT)
    return sorted(path for name in names for path in folder.path.rglob(name))


def _fingerprints(path: Path) -> tuple[str, ...]:
    """The digest of a log; for accuracy.txt, the hashes of the full log in it."""
    if path.name == ACCURACY_TEXT:
        text = path.read_text(encoding="utf-8", errors="replace")
        return tuple(f"full log {found}" for found in parse_accuracy(text, ()).hashes)
    return () if path.stat().st_size <= EMPTY_LOG_BYTES else (sha256_of(path),)
