"""The lag of LoadGen's schedule from means: on made-up rows, and against LoadGen's trace of a real run."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from harness.record.journal import COMPLETE, FIRST_TOKEN, LOADGEN_CALL_ROW, QUERY_ROW
from harness.report.client_overhead import lag_warnings, mean_schedule_lag
from tests.runs import ROOT, quick_conf, small_dataset
from tests.stub import StubServer

FIGURE = "Mean First Token latency (ns)"
START = 2**62 // 3  # sums of such clock values outgrow 64 bits
MS = 1_000_000


def rows_and_reports(ttft_ns, failure=0):
    rows = np.zeros(len(ttft_ns), dtype=QUERY_ROW)
    rows["query_id"] = np.arange(len(rows))
    rows["issued_ns"] = START + np.arange(len(rows)) * MS
    rows["failure"] = failure
    reports = np.zeros(2 * len(rows), dtype=LOADGEN_CALL_ROW)
    reports["query_id"] = np.tile(rows["query_id"][::-1], 2)  # in another order
    reports["kind"] = np.repeat([FIRST_TOKEN, COMPLETE], len(rows))
    reports["reported_ns"][: len(rows)] = (rows["issued_ns"] + ttft_ns)[::-1]
    return rows, reports


def test_the_means_differ_by_the_lag():
    rows, reports = rows_and_reports(np.arange(1, 7) * 10 * MS)
    assert mean_schedule_lag(rows, reports, {FIGURE: 35 * MS + 80_000}) == pytest.approx(80_000, abs=1)


@pytest.mark.parametrize(
    ("failure", "missing", "figures"), [(3, 0, {FIGURE: 1}), (0, 1, {FIGURE: 1}), (0, 0, {})]
)
def test_unlike_means_give_nothing(failure, missing, figures):
    rows, reports = rows_and_reports(np.full(6, MS), failure)
    assert mean_schedule_lag(rows, reports[missing:], figures) is None
    assert mean_schedule_lag(rows[:0], reports[:0], figures) is None


@pytest.mark.parametrize(
    ("lag_ns", "limit_ns", "warned"),
    [(None, 3e9, False), (9e6, None, False), (29e6, 3e9, False), (31e6, 3e9, True)],
)
def test_one_percent_of_the_ttft_limit_is_too_late(lag_ns, limit_ns, warned):
    assert bool(lag_warnings(lag_ns, limit_ns)) == warned


TRACED = """
import sys
from harness.cli.run_flags import parse_options
from harness.config.plan import resolve_plan
from harness.report.console import RunConsole
from sut.run import run
if __name__ == "__main__":
    sys.exit(RunConsole().finish(run(resolve_plan(parse_options(sys.argv[1:])), trace=True)))
"""


@pytest.mark.engine
def test_loadgens_own_trace_says_the_same(tmp_path):
    """The trace has for each query by how much its issue was late; it costs time, so runs go without it."""
    dataset, _ = small_dataset(tmp_path)
    (tmp_path / "traced.py").write_text(TRACED)
    with StubServer(event_delay_s=0.05) as server:  # a figure with an answer's time in it would be far off
        conf = quick_conf(tmp_path, 100, 1500)
        words = ["--scenario", "server", "--user-conf", conf, "--max-new-tokens", 4]
        words += ["--server-url", server.url, "--input-file", dataset, "--output-dir", tmp_path]
        done = subprocess.run(
            [sys.executable, tmp_path / "traced.py", *map(str, words)],
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
    assert done.returncode in (0, 4), done.stderr
    log_dir = tmp_path / "server/performance"
    derived = json.loads((log_dir / "run.json").read_text())["schedule_lag_mean_ns"]
    trace = (log_dir / "mlperf_log_trace.json").read_text()
    late = [int(ns) for ns in re.findall(r'"name":"Sample".*?"issue_start_ns":(\d+)', trace)]
    assert len(late) > 50
    # Beyond the trace's figure there is the call in which LoadGen stamps the first token: some us.
    # Its thread may stand still in it; an answer takes 150 ms and more.
    assert -5_000 < derived - np.mean(late) < 50 * MS
    shown = re.search(r"schedule lag +([\d.]+)\n", done.stdout)
    assert float(shown[1]) == pytest.approx(derived / MS, rel=0.01)
