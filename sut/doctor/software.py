"""Python, the packages of a run, and the client's library."""

import re
import sys
from collections.abc import Callable, Iterator

from harness.files import ROOT
from harness.record.provenance import PACKAGES, package_version
from sut.doctor.finding import Finding, Level, ok

_REMEDY = "run ./setup.sh"
_LOADGEN = "mlcommons-loadgen"
_PIN = re.compile(r"(?m)^([a-z0-9_.-]+)==([^\s;]+)")


def software_findings(
    versions: Callable[[str], str | None] = package_version, python: tuple[int, ...] = sys.version_info[:3]
) -> Iterator[Finding]:
    """Python, LoadGen, and the other packages that the project pins."""
    yield _python(python)
    pins = pinned_versions()
    found = {name: versions(name) for name in pins}
    missing = sorted(name for name, version in found.items() if version is None)
    others = sorted(
        f"{name} {have}, pinned {pins[name]}"
        for name, have in found.items()
        if have not in (None, pins[name])
    )
    if missing:
        yield Finding("error", "packages", f"not installed: {', '.join(missing)}", _REMEDY)
    if others:
        yield Finding("warning", "packages", f"other versions than tested: {', '.join(others)}", _REMEDY)
    if not missing and not others:
        yield ok("packages", f"{len(pins)} at their pinned versions, {_LOADGEN} {found[_LOADGEN]} among them")


def pinned_versions() -> dict[str, str]:
    """What a run needs, and run.json records, from the requirements that ./setup.sh installs."""
    pins = dict(_PIN.findall((ROOT / "requirements/run.txt").read_text(encoding="utf-8")))
    return {name: pins[name] for name in PACKAGES if name in pins}


def client_finding(*, compiled: bool) -> Finding:
    """Whether the client reads in C."""
    if compiled:
        return ok("client", "paced streams are read in C")
    text = "its C library is not compiled: a paced event takes up to a third more CPU time"
    return Finding("warning", "client", text, "apt install gcc libc6-dev, then run ./setup.sh")


def _python(version: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, version))
    if (3, 11) <= version < (3, 14):
        return ok("Python", text)
    level: Level = "error" if version < (3, 11) else "warning"
    return Finding(level, "Python", f"{text}, expected 3.11 to 3.13", "install one, then run ./setup.sh")
