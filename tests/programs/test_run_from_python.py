"""``run(plan)`` as a library: the page's program as written, a quiet run, an interrupted one."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.runs import ROOT, quick_conf, small_dataset
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
from harness.config.options import RunOptions
from harness.config.plan import resolve_plan
from sut.run import run

if __name__ == "__main__":
    url, data, conf, *rest = sys.argv[1:]
    options = RunOptions(input_file=data, server_url=url, user_conf=conf, max_new_tokens=8)
    for _ in range(int(rest[0])):
        record = run(resolve_plan(options), on_progress=lambda snapshot: print("progress", flush=True))
        print(record.verdict.result, record.exit_code, record.files["run record"], flush=True)
"""


def test_two_runs_of_one_process_are_quiet(tmp_path):
    dataset, _ = small_dataset(tmp_path)
    with StubServer() as server:
        program = python(tmp_path, PROGRAM, server.url, dataset, quick_conf(tmp_path), 2)
        out, err = program.communicate(timeout=300)
    lines = [line for line in out.splitlines() if line != "progress"]
    path = tmp_path / "mlperf_results/offline/performance/run.json"
    assert (lines, err) == ([f"VALID 0 {path}"] * 2, "")


def test_an_interrupted_run_returns_its_record(tmp_path):
    """KeyboardInterrupt is Python's own; the program continues with the record."""
    dataset, _ = small_dataset(tmp_path)
    with StubServer(faults=lambda request: Fault.SILENT if request.index else None) as server:
        program = python(tmp_path, PROGRAM, server.url, dataset, quick_conf(tmp_path), 1)
        assert program.stdout.readline() == "progress\n"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=300)
    path = tmp_path / "mlperf_results/offline/performance/run.json"
    assert out.splitlines()[-1] == f"INTERRUPTED 130 {path}", err
    assert json.loads(path.read_text())["interrupted_by"] == "SIGINT"
