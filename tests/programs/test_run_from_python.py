"""``run(plan)`` as a library: the page's program as written, a quiet run, an interrupted one."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.runs import ROOT, quick_conf, run_here, small_dataset
from tests.stub import Fault, StubServer

PAGE = ROOT / "docs/guide/python.md"


def python(folder, program, *words):
    """The program in a folder that has the checkout's data sets and settings."""
    for name in ("datasets", "configs"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "my_run.py").write_text(program)
    return subprocess.Popen(
        [sys.executable, "my_run.py", *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.engine
def test_the_program_of_the_page(tmp_path):
    """With its plot where matplotlib is installed."""
    program, plot = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text())
    with_plot = (
        subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True).returncode == 0
    )
    out, err = python(tmp_path, program + plot * with_plot).communicate(timeout=300)
    assert "Traceback" not in err
    assert re.fullmatch(r"VALID [\d.]+ tokens/s\n\d+ latencies, the longest [\d.]+ s\n", out)
    assert (tmp_path / "latencies.png").exists() == with_plot


PROGRAM = """
import sys
from harness.config.run_options import RunOptions
from harness.config.run_plan import resolve_plan
from sut.run import run

if __name__ == "__main__":
    url, data, conf = sys.argv[1:]
    for tokens in (8, 9):
        options = RunOptions(input_file=data, server_url=url, user_conf=conf, max_new_tokens=tokens)
        record = run(resolve_plan(options), on_progress=lambda snapshot: print("progress", flush=True))
        print(record.verdict.result, record.exit_code, record.files["run record"], flush=True)
"""


@pytest.mark.engine
def test_two_runs_of_one_process_are_quiet_and_the_interrupted_one_returns_its_record(tmp_path, capfd):
    """KeyboardInterrupt is Python's own; the program continues with the record.

    Another process's run into their folder is refused, and they lose nothing.
    """
    dataset, _ = small_dataset(tmp_path)
    with StubServer(faults=lambda request: Fault.SILENT if request.asked_tokens == 9 else None) as server:
        program = python(tmp_path, PROGRAM, server.url, dataset, quick_conf(tmp_path))
        lines = filter(lambda line: line != "progress\n", iter(program.stdout.readline, ""))
        path = tmp_path / "mlperf_results/gpt-oss-120b/offline/performance/run.json"
        assert next(lines) == f"VALID 0 {path}\n"
        assert program.stdout.readline() == "progress\n"
        where = ("--server-url", server.url, "--input-file", dataset)
        other = run_here(capfd, tmp_path / "mlperf_results/gpt-oss-120b", *where)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=300)
    assert (out.splitlines()[-1], err) == (f"INTERRUPTED 130 {path}", "")
    assert (other.code, "another run is writing there" in other.stderr) == (2, True)
    assert len(list(path.parents[1].glob("performance.*"))) == 1  # of the first run
    assert json.loads(path.read_text())["interrupted_by"] == "SIGINT"


FULL = """
import errno, sys
from harness.config.run_options import RunOptions
from harness.config.run_plan import resolve_plan
from sut.run import run

def keep(line):
    raise OSError(errno.ENOSPC, "No space left on device", "mine.log")

if __name__ == "__main__":
    url, data, conf = sys.argv[1:]
    options = RunOptions(input_file=data, server_url=url, user_conf=conf, max_new_tokens=8)
    record = run(resolve_plan(options), on_line=keep)
    print(record.verdict.result, record.exit_code, record.verdict.reasons, flush=True)
"""


@pytest.mark.engine
def test_a_run_that_its_caller_ended_by_an_error_has_its_verdict(tmp_path):
    """The last line of progress met the same full disk, and the run was left without its verdict."""
    dataset, _ = small_dataset(tmp_path)
    conf = quick_conf(tmp_path)
    with StubServer(gate=lambda request: request.index < 9) as server:
        program = python(tmp_path, FULL, server.url, dataset, conf)
        out, err = program.communicate(timeout=300)
    assert out.startswith("INVALID 4 ") and "mine.log" in out, err
    record = json.loads((tmp_path / "mlperf_results/gpt-oss-120b/offline/performance/run.json").read_text())
    assert record["verdict"]["result"] == "INVALID"
