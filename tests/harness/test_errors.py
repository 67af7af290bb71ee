"""What the machine refuses, as one line with a remedy."""

import errno
import subprocess
import sys

import pytest

from harness.errors import EXIT_INVALID, EXIT_USAGE, explained, machine_failure
from tests.harness.cli.test_main import PROGRAMS
from tests.runs import ROOT


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/d/run.json"),
            "/d/run.json: No space left on device; free space there or choose another --output-dir",
        ),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "Too many open files; allow more open files (ulimit -n)",
        ),
        (OSError(errno.EXDEV, "Cross-device"), "Cross-device; check the machine's limits and disks"),
        (OSError("no number"), "no number; check the machine's limits and disks"),
        (MemoryError(), "out of memory; free memory, or lift the limit on it (ulimit -v)"),
    ],
)
def test_one_line(error, line):
    failure = machine_failure(error)
    assert str(failure) == line
    assert failure.exit_code == EXIT_INVALID


def outside_the_environment(*words):
    """With an interpreter that has the standard library alone."""
    command = [sys.executable, "-S", str(ROOT / words[0]), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")


@pytest.mark.parametrize("words", PROGRAMS, ids=lambda words: words[0])
def test_the_wrong_interpreter_is_named_in_one_line(words):
    done = outside_the_environment(*words)
    assert done.returncode == EXIT_USAGE
    (line,) = done.stderr.splitlines()
    assert "./setup.sh" in line
    assert ".venv/bin/python" in line
    helped = outside_the_environment(words[0], "--help")
    assert (helped.returncode, helped.stderr) == (0, "")


@pytest.mark.parametrize("error", [ImportError("cannot import name x"), ModuleNotFoundError(name="sut.gone")])
def test_a_mistake_of_the_program_is_not_explained_away(error):
    assert explained(error) is None
