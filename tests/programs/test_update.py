"""A checkout that is updated while a program of it works: nothing more of it is loaded."""

import subprocess
import sys

import pytest

from harness.errors import EXIT_THRESHOLD
from harness.files import REPORT
from tests.runs import ACCURACY, PERFORMANCE, ROOT, SAMPLES, quick_conf
from tests.stub import StubServer

# As after a change of every module: one that is loaded behind the first query is another version's.
UPDATED = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv.pop(1))
updated, program = Path(sys.argv.pop(1)), sys.argv.pop(1)

class OtherVersion:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("harness", "sut") and updated.exists():
            raise ImportError(f"{name} is of another version")

sys.meta_path.insert(0, OtherVersion())
from harness.cli.main import run_main

run_main(__import__(program).main)
"""

TEST = ("--test", "TEST07", "--rehearsal", "--input-file", SAMPLES / "compliance_sample.parquet")


@pytest.mark.engine
@pytest.mark.parametrize(
    ("words", "left", "code"),
    [
        (("run_mlperf", "--input-file", PERFORMANCE), f"offline/performance/{REPORT}", 0),
        (("run_mlperf", "--accuracy", "--input-file", ACCURACY), f"offline/accuracy/{REPORT}", 0),
        (("run_compliance", *TEST), f"offline/TEST07/run/{REPORT}", EXIT_THRESHOLD),  # a stub's answers fail
        (("run_eval", "--input-file", ACCURACY), "rows.parquet", 0),
    ],
)
def test_an_update_costs_a_run_that_has_begun_nothing(words, left, code, tmp_path):
    updated = tmp_path / "updated"

    def gate(request):
        if request.index > 0:  # behind the trial request
            updated.touch()
        return True

    program, *flags = words
    if program == "run_eval":
        flags += ["--output", tmp_path / left]
    else:
        flags += ["--user-conf", quick_conf(tmp_path), "--results", tmp_path]
    with StubServer(gate=gate) as stub:
        flags += ["--server-url", stub.url, "--max-new-tokens", 4]
        given = [sys.executable, "-c", UPDATED, ROOT, updated, program, *flags]
        done = subprocess.run([*map(str, given)], capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert updated.exists()
    assert done.returncode == code, done.stderr
    assert "another version" not in done.stderr
    assert (tmp_path / left).is_file()
