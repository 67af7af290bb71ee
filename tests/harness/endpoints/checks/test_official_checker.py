"""Where MLCommons's checker is found, and what its answer says."""

import sys

import pytest

from harness.endpoints.checks.finding import OFFICIAL, Severity
from harness.endpoints.checks.official_checker import check_officially, interpreter

PROGRAM = "endpoints-submission-cli"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As pipx installs it: in an environment of its own, with a link in a folder of PATH."""
    apart, linked = tmp_path / "apart/bin", tmp_path / "bin"
    for folder in (apart, linked):
        folder.mkdir(parents=True)
    (apart / PROGRAM).touch(mode=0o755)
    (linked / PROGRAM).symlink_to(apart / PROGRAM)
    monkeypatch.setattr("sys.path", [])
    monkeypatch.delitem(sys.modules, "submission_checker", raising=False)  # another test may have imported it
    monkeypatch.setenv("PATH", str(linked))
    return apart / "python"


def answering(python, script):
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def test_it_is_found_beside_its_program(installed):
    assert interpreter() is None
    answering(installed, "")
    assert interpreter() == str(installed)


def test_what_it_says_has_its_own_words(installed, tmp_path):
    """Infos are none; a path is of the tree, where it lies in it."""
    power = f'"rule": "power", "message": "no", "path": "{tmp_path}/results/a", "fix": "do"'
    results = f'{{{power}, "severity": "error", "spec_ref": "§4.5"}}, '
    results += '{"rule": "src", "message": "few", "severity": "warning"}, '
    results += '{"rule": "docs", "message": "fine", "severity": "info"}'
    answering(installed, f'echo \'{{"submission_path": "x", "results": [{results}]}}\'')
    power, src = check_officially(tmp_path)
    assert (power.rule, power.path, power.got, power.remedy) == ("power", "results/a", "no", "do")
    assert (power.severity, power.section, power.source) == (Severity.ERROR, "§4.5", OFFICIAL)
    assert (src.path, src.remedy, src.severity) == (".", "", Severity.WARNING)


@pytest.mark.parametrize(
    ("script", "severity", "said"),
    [
        ("echo text", Severity.UNKNOWN, "gave no report"),
        (
            "echo Traceback >&2; echo RecursionError: deep >&2; exit 1",
            Severity.ERROR,
            "code 1: RecursionError: deep",
        ),
        ("echo ImportError: no >&2; exit 1", Severity.UNKNOWN, "code 1: ImportError"),
        ("echo ModuleNotFoundError: no >&2; exit 1", Severity.UNKNOWN, "code 1: ModuleNotFoundError"),
        (r"printf '\377' >&2; exit 2", Severity.ERROR, "code 2: \ufffd"),
    ],
)
def test_without_a_report_it_is_said_why(installed, tmp_path, script, severity, said):
    """A checker whose installation is broken says nothing of the tree."""
    answering(installed, script)
    (line,) = check_officially(tmp_path)
    assert line.rule == "official-checker" and said in line.got and line.severity is severity
