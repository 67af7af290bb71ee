"""MLCommons's own checker of Endpoints trees, in a process of its own."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from harness.endpoints.checks.finding import OFFICIAL, Finding, Severity, finding

_PROGRAM, _PACKAGE = "endpoints-submission-cli", "submission_checker"
_SCRIPT = f"""
import sys
from pathlib import Path
from {_PACKAGE}.checker import SubmissionChecker
sys.stdout.write(SubmissionChecker(Path(sys.argv[1])).run().model_dump_json())
"""
_LIMIT_S = 600.0
_SEVERITIES = {"error": Severity.ERROR, "warning": Severity.WARNING}


class _Result(msgspec.Struct):
    rule: str
    message: str
    severity: str
    path: str | None = None
    spec_ref: str = ""
    fix: str | None = None


class _Report(msgspec.Struct):
    submission_path: str
    results: list[_Result] = []


def interpreter() -> str | None:
    """The interpreter that can import the checker: this one, or that of the program on PATH."""
    if find_spec(_PACKAGE) is not None:
        return sys.executable
    program = shutil.which(_PROGRAM)
    beside = Path(program).resolve().parent / "python" if program else None
    return str(beside) if beside is not None and beside.exists() else None


def check_officially(tree: Path) -> Iterator[Finding]:
    """Errors and warnings of MLCommons's checker; one line where it cannot be asked."""
    python = interpreter()
    if python is None:
        yield finding(
            "official-checker", ".", "MLCommons's checker is not installed: its rules were not checked"
        )
        return
    try:
        done = subprocess.run(
            [python, "-P", "-c", _SCRIPT, tree],
            capture_output=True,
            timeout=_LIMIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        report = msgspec.json.decode(done.stdout, type=_Report) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        yield finding("official-checker", ".", f"MLCommons's checker gave no report: {error}", remedy="")
        return
    if report is None:
        last = " ".join(done.stderr.decode(errors="replace").strip().splitlines()[-1:])
        text = f"MLCommons's checker ended with code {done.returncode}: {last}"
        # It would end so at MLCommons, too, unless it is its installation that is broken.
        is_broken = "ImportError" in last or "ModuleNotFound" in last
        weight = Severity.UNKNOWN if is_broken else Severity.ERROR
        yield finding("official-checker", ".", text, remedy="", severity=weight)
        return
    for one in report.results:
        if (severity := _SEVERITIES.get(one.severity)) is not None:
            yield _finding(tree, one, severity)


def _finding(tree: Path, one: _Result, severity: Severity) -> Finding:
    path = Path(one.path) if one.path else tree
    where = path.relative_to(tree).as_posix() if path.is_relative_to(tree) else path.name
    return Finding(one.rule, where, one.message, "", one.fix or "", severity, one.spec_ref, OFFICIAL)
