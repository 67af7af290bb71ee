"""What the machine refuses, as one line with a remedy."""

import errno
import json
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


EVERY_PROGRAM = """
import io, json, runpy, sys
from contextlib import redirect_stderr, redirect_stdout
import harness.cli.main

mains, seen = [], []
harness.cli.main.run_main = mains.append
for program, *words in json.load(sys.stdin):
    runpy.run_path(program, run_name="__main__")
    for given in (words, ["--help"]):
        with redirect_stderr(io.StringIO()) as stderr, redirect_stdout(io.StringIO()):
            try:
                code = mains[-1](given)
            except SystemExit as end:
                code = end.code
        seen.append([code, stderr.getvalue()])
print(json.dumps(seen))
"""


def test_the_wrong_interpreter_is_named_in_one_line_and_help_works_there():
    """With an interpreter that has the standard library alone."""
    command = [sys.executable, "-S", "-c", EVERY_PROGRAM]
    done = subprocess.run(
        command, input=json.dumps(PROGRAMS), capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    seen = json.loads(done.stdout)
    for (program, *_), (code, said), helped in zip(PROGRAMS, seen[::2], seen[1::2], strict=True):
        (line,) = said.splitlines()
        assert line.startswith(f"{program}: error: {sys.executable} cannot run this: ")
        assert "./setup.sh" in line
        assert ".venv/bin/python" in line
        assert (code, helped) == (EXIT_USAGE, [0, ""])


@pytest.mark.parametrize("error", [ImportError("cannot import name x"), ModuleNotFoundError(name="sut.gone")])
def test_a_mistake_of_the_program_is_not_explained_away(error):
    assert explained(error) is None
