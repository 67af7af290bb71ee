"""When the client was the bottleneck: stretches of time, from CPU seconds and from late reports; the lag of
LoadGen's schedule from means, on made-up rows and against LoadGen's trace of a real run."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from harness.analysis.client_overhead import (
    ClientReadings,
    client_load,
    client_share,
    lag_warnings,
    late_tokens_text,
    load_warnings,
    mean_schedule_lag,
    share_warnings,
)
from harness.record.journal import COMPLETE, FIRST_TOKEN, LOADGEN_CALL_ROW
from harness.record.run_record import Bottleneck, ClientLoad
from tests.records import rows_with
from tests.runs import ROOT, quick_conf, small_dataset
from tests.stub import StubServer

START = 2**62 // 3  # sums of such clock values outgrow 64 bits
SECOND, MS = 10**9, 10**6
LIMIT_NS = 3_000 * MS


def read(*shares, **others):
    """The readings of a run whose processes used ``shares[i]`` of a core in second i."""
    used = np.cumsum([[0] * len(shares[0]), *shares], axis=0) * SECOND
    cpu = np.column_stack([START + SECOND * np.arange(len(used)), used.astype(np.int64)])
    return ClientReadings(cpu, **others)


def reports(*seconds):
    """Ten reports in each second, ``seconds[i]`` ms late in second i; one of the ten is always in time."""
    rows = [
        (0, 1, START + i * SECOND + j * MS - late * MS * (j > 0), START + i * SECOND + j * MS)
        for i, late in enumerate(seconds)
        for j in range(10)
    ]
    return np.array(rows, dtype=LOADGEN_CALL_ROW)


NONE = reports()
IDLE = read((0.1, 0.1))


def test_shares_by_process():
    load = client_load(read((0.2, 0.5, 0.1), (0.1, 0.75, 0.2)), NONE, START, None)
    assert load.cores == pytest.approx({"LoadGen": 0.2, "worker 0": 0.75, "worker 1": 0.2})
    assert load.bottlenecks == tuple(load_warnings(load)) == ()
    (line,) = load_warnings(client_load(read((0.1, 0.1), gc_runs=3), NONE, START, None))
    assert "ran 3 times" in line


@pytest.mark.parametrize(
    ("shares", "stretches"),
    [
        ([0.5, 1.0, 0.5], []),  # a single second
        ([0.5, 0.99, 0.97, 0.5], [(1, 3, "98%")]),
        ([0.99, 0.99, 0.5, 0.99, 0.99, 0.1, 0.1, 0.1, 0.99, 0.99], [(0, 5, "99%"), (8, 10, "99%")]),
    ],
)
def test_a_worker_without_rest(shares, stretches):
    load = client_load(read(*((0.1, share) for share in shares)), NONE, START, LIMIT_NS)
    expected = [(first, last, f"worker 0 used {share} of a core") for first, last, share in stretches]
    assert [(s.from_s, s.to_s, s.reason) for s in load.bottlenecks] == expected


def test_late_reports():
    """One percent of the TTFT limit of 3 s is 30 ms."""
    late = reports(1, 1, 31, 45, 1, 1, 1, 1, 200)
    load = client_load(IDLE, late, START, LIMIT_NS)
    assert [(s.from_s, s.to_s) for s in load.bottlenecks] == [(2, 4), (8, 9)]
    assert "45.00 ms" in load.bottlenecks[0].reason
    assert client_load(IDLE, late, START, None).bottlenecks == ()


def machine(others, *waited):
    """Rows for readings like IDLE: other programs took ``others`` cores, processes waited these parts."""
    seconds = np.arange(2)[:, None] * SECOND
    return (seconds * np.array([[others + 0.2, *waited]])).astype(np.int64)


@pytest.mark.parametrize(
    ("shares", "waited", "blamed"),
    [
        ((0.1, 0.1), (0.3, 0.1), True),
        ((0.1, 0.1), (0.005, 0.001), False),  # none waited for a core
        ((0.1, 0.9), (0.3, 0.1), False),  # a worker had much to do itself
    ],
)
def test_a_busy_machine_is_no_slow_client(shares, waited, blamed):
    load = client_load(read(shares, machine=machine(1.8, *waited)), reports(99), START, LIMIT_NS)
    (stretch,), (line,) = load.bottlenecks, load_warnings(load)
    assert stretch.machine is blamed
    assert line.startswith("the machine was busy from 0 s") is blamed
    remedy = next(share_warnings(client_share(reports(99)), LIMIT_NS, load))
    assert ("workers" in remedy) is not blamed
    if blamed:
        assert "other programs took 1.8 cores, and LoadGen waited for one 30% of the time" in line


BUSY, OWN = Bottleneck(0, 1, "other programs", machine=True), Bottleneck(2, 3, "it is slow")


def test_what_was_busy_at_another_time_is_not_blamed():
    others = np.array([[0, 0, 0], *[[2.0, 0.3, 0.1]] * 3]) * SECOND  # in the first second alone
    late = reports(1, 1, 99)
    readings = read(*[(0.1, 0.1)] * 3, machine=others.astype(np.int64))
    load = client_load(readings, late, START, LIMIT_NS)
    assert [(one.from_s, one.machine) for one in load.bottlenecks] == [(2, False)]


@pytest.mark.parametrize(
    ("stretches", "remedy"),
    [
        (None, "give it more cores or workers"),
        ((), "give it more cores or workers"),
        ((BUSY, OWN), "give it more cores or workers"),
        ((BUSY,), "the machine was busy with other programs; give the client cores of its own"),
    ],
)
def test_the_remedy_of_a_late_client(stretches, remedy):
    load = None if stretches is None else ClientLoad({}, stretches)
    (line,) = share_warnings(client_share(reports(99)), LIMIT_NS, load)
    assert line == (f"the client added 99.00 ms at p99, more than 30.00 ms (1% of the TTFT limit): {remedy}")


@pytest.mark.parametrize(
    ("late", "waited", "throttled", "remedy"),
    [
        (100, (0.3, 0.1), 0.0, ""),  # a moment
        (101, (0.3, 0.1), 0.0, "give the client cores of its own"),
        (101, (0.005, 0.001), 0.0, "give it more cores or workers"),
        (101, (0.3, 0.1), 0.25, "raise the quota of CPU time"),
    ],
)
def test_late_tokens_have_their_remedy_while_the_run_lasts(late, waited, throttled, remedy):
    readings = read((0.1, 0.1), machine=machine(1.8, *waited), throttled=throttled)
    text = late_tokens_text(late, 1000, readings)
    assert remedy in text and bool(text) == bool(remedy)
    assert ("LoadGen waited for one 30% of the time" in text) == ("its own" in remedy)
    assert not text or "10% of the first tokens to LoadGen more than 1% of" in text


@pytest.mark.parametrize(("late", "tokens", "part"), [(1, 5, ""), (4, 4, ""), (5, 5, "100%"), (5, 0, "100%")])
def test_of_few_first_tokens_one_pause_makes_a_tenth_late(late, tokens, part):
    """At the end of a run tokens may be reported late that arrived before, and no other comes."""
    text = late_tokens_text(late, tokens, read((0.1, 0.1), machine=machine(1.8)))
    assert part in text and bool(text) == bool(part)
    assert (
        late_tokens_text(late, tokens, ClientReadings(IDLE.cpu[:1])) == ""
    )  # nothing is known of its time yet


def test_threads_that_wait_together_wait_all_of_the_time():
    """Those of LoadGen's process are two or more; their waits are added in /proc."""
    readings = read((0.1, 0.1), machine=machine(1.8, 2.16, 0.1))
    load = client_load(readings, reports(99), START, LIMIT_NS)
    assert "LoadGen waited for one 100% of the time" in next(load_warnings(load))


def test_one_late_report_is_no_stretch():
    rows = reports(1, 1)
    rows["arrived_ns"][3] -= 500 * MS
    assert client_load(IDLE, rows, START, LIMIT_NS).bottlenecks == ()


def test_many_stretches_are_summed_up():
    load = client_load(IDLE, reports(*([99, 1, 1, 1] * 9), 99, 99), START, LIMIT_NS)
    lines = list(load_warnings(load))
    assert (len(load.bottlenecks), len(lines)) == (10, 5)
    assert lines[0].startswith("the client was the bottleneck from 0 s to 1 s: ")
    assert lines[3].startswith("the client was the bottleneck from 36 s to 38 s: ")  # the longest
    assert "6 shorter stretches" in lines[-1]
    assert len(list(load_warnings(ClientLoad({}, (Bottleneck(1, 2, "why"),))))) == 1


FIGURE = "Mean First Token latency (ns)"


def rows_and_reports(ttft_ns, failure=0):
    count = np.arange(len(ttft_ns))
    rows = rows_with(len(count), query_id=count, issued_ns=START + count * MS, failure=failure)
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
    assert any(lag_warnings(lag_ns, limit_ns)) == warned


TRACED = """
import sys
from harness.config.run_options import parse_options
from harness.config.run_plan import resolve_plan
from harness.report.run_console import RunConsole
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


@pytest.mark.parametrize(("throttled", "told"), [(0.25, True), (0.005, False)])
def test_a_quota_of_cpu_time_is_not_taken_for_other_programs(throttled, told):
    """The kernel counts the time in which a quota keeps a process from running as waiting for a core."""
    readings = read((0.1, 0.1), machine=machine(1.8, 0.36, 0.1), throttled=throttled)
    load = client_load(readings, reports(99), START, LIMIT_NS)
    remedy = next(share_warnings(client_share(reports(99)), LIMIT_NS, load))
    assert ("raise the quota of CPU time" in remedy) is told
    assert any("used up in 25% of its" in line for line in load_warnings(load)) is told
    assert any("other programs" in line for line in load_warnings(load)) is not told
