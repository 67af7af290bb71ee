"""End to end: real LoadGen runs of full size, build, check, and MLCommons's own checker."""

import re
import subprocess
import sys

import pytest

from tests.harness.submission.building import write_info
from tests.harness.submission.checks.official_checker import ask, needs_official
from tests.harness.submission.full_runs import run_all
from tests.runs import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]  # five minutes, and more where a run is repeated


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every run with the official counts; min_duration alone is 0, for a test must end."""
    path = tmp_path_factory.mktemp("full")
    run_all(path)
    write_info(path)
    return path


@pytest.fixture(scope="module")
def built(folder):
    words = ["build", "--results", folder / "results", "--submission", folder / "submission.toml"]
    words += ["--servers-moved"]  # one stub for each run, each with its port
    command = [sys.executable, ROOT / "prepare_submission.py", *words, "--output", folder / "submission"]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_only_issue_is_min_duration(built):
    assert (built.returncode, built.stderr) == (5, "")
    *issues, count = [
        line for line in built.stdout.splitlines() if line.startswith("closed/") or " issues" in line
    ]
    assert count.startswith("2 issues (GPU hours: 2), ")
    assert [re.search(r"\[(\S+)\]", line)[1] for line in issues] == ["min-duration"] * 2


@needs_official
def test_the_official_checker_reports_nothing_else(built, folder):
    done = ask(folder / "submission")
    errors = [line for line in done.stderr.splitlines() if " ERROR]" in line]
    named = ("Test duration less than 600s", "Some performance checks", "NoResults", "SUMMARY")
    assert errors
    assert [line for line in errors if not any(name in line for name in named)] == []
