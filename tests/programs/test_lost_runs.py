"""Runs that lose something while they last: what they say at once, how they end, what their record keeps."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

import find_peak
import run_mlperf as one_run
from harness.files import PROGRESS
from sut.supervisor import alarms
from tests.kit import wait_until
from tests.runs import ROOT, FinishedRun, command, main_here, quick_conf, run_mlperf, small_dataset
from tests.stub import Fault, StubServer
from tests.sut.servers.test_health import metrics

TOKENS = 5


def where(tmp_path, *stubs, rows=12):
    dataset, _ = small_dataset(tmp_path, rows=rows)
    urls = [word for stub in stubs for word in ("--server-url", stub.url)]
    return (*urls, "--input-file", dataset, "--max-new-tokens", TOKENS)


def one_is_cut(request):
    """The ninth query; before it comes the trial."""
    return Fault.CUT_CHUNKED if request.index == 9 else None


def lines(run):
    return [json.loads(line) for line in (run.log_dir / PROGRESS).read_text().splitlines()]


def kinds(run):
    return [event["kind"] for event in run.record["events"]]


def test_the_last_line_of_an_interrupted_run_has_the_counts_of_its_record(tmp_path):
    """However short after the last look it ends, here before the first. LoadGen has got the eight answers."""
    with StubServer(gate=lambda request: request.index <= 8) as stub:
        flags = ("--user-conf", quick_conf(tmp_path), "--max-concurrency", 4)
        words = command(tmp_path, *flags, *where(tmp_path, stub))
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: len(stub.requests) == 13)  # one is the trial
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=300)
    run = FinishedRun(process.returncode, *said, tmp_path / "offline/performance")
    last, statistics = lines(run)[-1], run.record["statistics"]
    assert (run.result, last["issued"], last["failed"]) == ("INTERRUPTED", 12, 0)
    assert (last["completed"], last["in_flight"]) == (statistics["completed"], run.record["unanswered"])
    assert sum(row.get("reported_done_ns") is not None for row in run.requests) == 8


NO_LIMITS = {
    "target_latency_percentile = 0": "is 0, expected 0.0001 to 99.9999",
    "target_latency_percentile = 1e-300": "is 1e-300, expected 0.0001 to 99.9999",
    "target_latency_percentile = 100": "is 100, expected 0.0001 to 99.9999",
    "ttft_latency = 0": "is 0, which is a limit for LoadGen, and no answer keeps it",
    "tpot_latency = 0": "is 0, which is a limit for LoadGen, and no answer keeps it",
}


@pytest.mark.parametrize(("program", "command"), [(one_run, ()), (find_peak, ("search",))])
@pytest.mark.parametrize("row", NO_LIMITS)
def test_limits_that_loadgen_does_not_have_are_refused(tmp_path, capfd, row, program, command):
    """A search divided by them, and the pages and tables of all runs where one had them."""
    conf = quick_conf(tmp_path)
    conf.write_text(f"{conf.read_text()}\n*.Server.{row}\n")
    with StubServer() as stub:
        flags = ("--scenario", "server", "--user-conf", conf, "--dry-run")
        words = map(str, (*command, *where(tmp_path, stub), *flags, "--output-dir", tmp_path / "runs"))
        code, _, stderr = main_here(capfd, program.main, [*words])
    assert code == 2
    assert f"gpt-oss-120b.Server.{row.partition(' ')[0]} {NO_LIMITS[row]}" in stderr.splitlines()[-1]


def test_a_defect_of_what_only_watches_a_run_does_not_end_it(tmp_path, monkeypatch, capfd):
    """It would cost a night; the warning of it is in the record."""
    monkeypatch.setattr(alarms.Alarms, "look", lambda watching, snapshot: {}["new"])
    with StubServer() as stub:
        run = run_mlperf(tmp_path, *where(tmp_path, stub), here=capfd)
    assert (run.code, run.result) == (0, "VALID")
    text = "a defect of this program (KeyError: 'new'): no progress and alarms of some seconds"
    assert text in run.record["warnings"]


@pytest.mark.engine
@pytest.mark.parametrize("stops", [True, False])
def test_a_run_over_its_latency_limit(tmp_path, stops):
    """No query keeps the limit of 3 s, and 662 are needed before one may be over it."""
    flag, seconds = (("--stop-when-lost",), 60) if stops else ((), 6)
    with StubServer(first_delay_s=3.2) as stub:
        run = run_mlperf(
            tmp_path,
            *where(tmp_path, stub),
            *flag,
            scenario="server",
            qps=100,
            duration_ms=seconds * 1000,
            percentile=99,
        )
    assert run.code == 4
    record, (event,) = run.record, run.record["events"]
    assert event["kind"] == "lost" and "queries over the TTFT limit, " in event["text"]
    assert event["text"].endswith("none may be") is not stops
    assert lines(run)[-1]["lost"]
    assert ("lost: " in record["verdict"]["reasons"][0]) is stops
    assert ("(ended by --stop-when-lost at 0:" in record["verdict"]["reasons"][0]) is stops
    assert (record["statistics"]["queries"] < 100 * seconds) is stops
    assert "find_peak.py search" in run.stdout and "--start-qps" in run.stdout
    assert any(line.startswith("[") and "] lost: " in line for line in run.stdout.splitlines())
    assert "find_peak.py search" in run.stderr.partition("lost: ")[2]


@pytest.mark.engine
def test_a_hang_names_no_rate_to_try(tmp_path):
    """From the 300th query on no more is answered: 3 s later they are late."""
    with StubServer(gate=lambda request: request.index < 300) as stub:
        flags = (*where(tmp_path, stub), "--stop-when-lost")
        limits = {"scenario": "server", "qps": 100, "duration_ms": 30_000, "percentile": 99}
        run = run_mlperf(tmp_path, *flags, **limits)
    (event,) = run.record["events"]
    assert (event["kind"], event["server"]) == ("lost", stub.url)
    assert f"the rate need not be the cause: nothing has arrived from {stub.url} for " in run.stderr
    assert "find_peak.py" not in run.stdout + run.stderr


@pytest.mark.engine
@pytest.mark.parametrize("stops", [True, False])
def test_a_failed_query_of_a_performance_run(tmp_path, stops):
    flag, rows = (("--stop-when-lost",), 400) if stops else ((), 24)
    with StubServer(event_delay_s=0.05, faults=one_is_cut) as stub:
        flags = (*where(tmp_path, stub, rows=rows), "--max-concurrency", 2, *flag)
        run = run_mlperf(tmp_path, *flags)
    assert run.code == 4
    assert kinds(run) == ["lost"]
    assert ("lost: 1 query failed (truncated)" in run.record["verdict"]["reasons"][0]) is stops
    assert (run.record["statistics"]["completed"] < rows - 1) is stops
    assert "find_peak.py" not in run.stdout  # another rate would not help
    said = r"lost: 1 query failed \(truncated\)" + ("" if stops else r"; the first: \S")
    assert re.search(said, run.stdout + run.stderr)


@pytest.mark.engine
def test_a_failed_query_of_an_accuracy_run_loses_nothing(tmp_path):
    """It can be resumed."""
    with StubServer(faults=one_is_cut) as stub:
        run = run_mlperf(tmp_path, "--accuracy", *where(tmp_path, stub), "--stop-when-lost")
    assert run.record["statistics"]["queries"] == 12
    assert kinds(run) == []
    assert "Resume it with" in run.stdout


@pytest.mark.engine
def test_a_replica_that_died_is_the_first_reason(tmp_path):
    with StubServer() as one, StubServer(event_delay_s=0.2) as other:
        finished = []
        flags = (*where(tmp_path, one, other, rows=64), "--max-concurrency", 8)
        thread = threading.Thread(target=lambda: finished.append(run_mlperf(tmp_path, *flags)))
        thread.start()
        wait_until(lambda: len(other.requests) > 3)
        other.stop()
        thread.join()
        (run,) = finished
        assert run.code == 4
        first, second, *_ = run.record["verdict"]["reasons"]
        assert first.startswith(f"replica {other.url} died at 0:0")
        assert first.endswith("(connection refused)")
        assert "failed" in second
        (out,) = [event for event in run.record["events"] if event["kind"] == "server_out"]
        assert (out["server"], out["at_s"] >= 0) == (other.url, True)
        assert not [text for text in run.record["warnings"] if "out of use" in text]
        result = run.stdout.partition("Result:")[2].splitlines()
        assert "died at" in result[1]


@pytest.mark.engine
@pytest.mark.parametrize("stops", [True, False])
def test_a_server_that_updates_its_weights_loses_a_performance_run(tmp_path, stops):
    """The metrics show it after 5 s; of two servers the other one gets what is left."""
    flag = ("--stop-when-lost",) if stops else ()

    seen = threading.Event()

    def page():
        if len(two.requests) > 9:
            seen.set()
        return metrics(b"0.31844050899962895", b"0.25362533700536005" if seen.is_set() else b"")

    def gate(request):  # however late the page is read
        return request.index < 100 or seen.is_set()

    with (
        StubServer(event_delay_s=0.05) as one,
        StubServer(event_delay_s=0.05, metrics=page, gate=gate) as two,
    ):
        flags = (*where(tmp_path, one, two, rows=400), "--max-concurrency", 4, *flag)
        run = run_mlperf(tmp_path, *flags)
        assert len(two.requests) < 150
        assert (len(one.requests) > 250) is not stops
    words = f"{two.url}: weight updates tried in the run 0 is now 1, and its answers may be of either"
    assert run.code == 4
    assert sorted(kinds(run)) == ["lost", "server_out"]  # the same moment
    assert f"] lost: {words}; start it as it was" in run.stdout
    assert run.record["verdict"]["reasons"][0].startswith(f"lost: {words}") is stops
    assert "find_peak.py" not in run.stdout + run.stderr


def page(standing):
    """SGLang's page of two ranks: the second shows no sign of life from the time in ``standing`` on."""
    count = [0.0, 0.0]

    def serve():
        now = time.monotonic()
        count[0] = now
        count[1] = standing[0] if standing else now
        return "".join(
            f'sglang:num_running_reqs{{dp_rank="{rank}"}} {rank * 3}\n'
            f'sglang:scheduler_idle_seconds_total{{dp_rank="{rank}"}} {count[rank]}\n'
            for rank in range(2)
        ).encode()

    return serve


@pytest.mark.engine  # a minute, in which the rank shows no sign of life
def test_a_dead_rank_is_named_and_ends_the_run(tmp_path):
    """Its requests never end; the other rank has none and lives. What was answered is resumed."""
    standing = []  # the time of its last sign of life

    def answers(request):
        if request.index < 9:
            return True
        standing.append(time.monotonic())
        return False

    with StubServer(metrics=page(standing), gate=answers) as stub:
        flags = (*where(tmp_path, stub), "--max-concurrency", 2, "--progress-timeout", 60)
        run = run_mlperf(tmp_path, "--accuracy", *flags)
        assert run.code == 4
        name = f"dp_rank 1 of {stub.url} stands since 0:"
        assert run.record["verdict"]["reasons"][0].startswith(f"ended early: {name}")
        assert name in run.stderr
        *_, alarm = (line for line in lines(run) if line["standing"])
        assert name in alarm["standing"]
        assert alarm["remaining_s"] is None
        assert sorted(kinds(run)) == ["rank_stands", "silence"]  # the other rank has no requests
        assert "no estimate: nothing has arrived for" in run.stdout
    assert run.record["statistics"]["completed"] == 8
    assert "Resume it with" in run.stdout
    assert [rank["rank"] for rank in run.record["server_load"]["ranks"]] == [0, 1]


@pytest.mark.engine
def test_servers_that_refuse_and_show_no_work_end_the_run(tmp_path, capfd, monkeypatch):
    """As SGLang after SIGTERM whose scheduler has ended: 503 from /health, the same metrics for ever."""
    monkeypatch.setattr(alarms, "_GONE_S", 12.0)
    ended = []  # the time of its last work

    def answers(request):
        if request.index >= 5 and not ended:
            ended.append(time.monotonic())
            stub.options = replace(stub.options, healthy=False)
        return not ended

    last_page = b'# TYPE\nsglang:num_running_reqs{model_name="m"} 2\n'
    with StubServer(metrics=lambda: last_page, gate=answers) as stub:
        flags = (*where(tmp_path, stub), "--max-concurrency", 2)
        run = run_mlperf(tmp_path, "--accuracy", *flags, here=capfd)
        asked = time.monotonic() - ended[0]
    assert run.code == 4
    reason = run.record["verdict"]["reasons"][0]
    assert re.match(r"ended early: nothing has arrived for \d+ s, no server shows work, and ", reason)
    assert reason.endswith(f"{stub.url}: /health answered 503; restart the servers and repeat the command")
    assert asked < 60  # not after --progress-timeout
    assert "silence" in kinds(run)
    assert run.record["statistics"]["completed"] == 4
    assert "Resume it with" in run.stdout


STUB = """
import os, signal, sys
from tests.stub import StubServer
def answers(request):
    if request.index == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGSTOP)
    return True
with StubServer(event_delay_s=0.05, gate=answers) as stub:
    print(stub.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def stub_process(stops_at=-1):
    """A server in a process of its own, which is stopped by that request."""
    words = [sys.executable, "-c", STUB, str(stops_at)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.engine  # half a minute, in which one of three servers sends nothing
def test_one_stopped_server_of_three_is_named(tmp_path):
    dataset, _ = small_dataset(tmp_path)
    finished = []
    with ExitStack() as stack:
        servers = [stack.enter_context(stub_process(stops_at)) for stops_at in (-1, 20, -1)]
        stopped, url = servers[1]
        urls = [word for _, one in servers for word in ("--server-url", one)]
        flags = (*urls, "--input-file", dataset, "--max-new-tokens", TOKENS)
        limits = {"scenario": "server", "qps": 10, "duration_ms": 50_000, "report": True}
        thread = threading.Thread(target=lambda: finished.append(run_mlperf(tmp_path, *flags, **limits)))
        thread.start()
        progress = tmp_path / "server" / "performance" / PROGRESS
        wait_until(lambda: progress.exists() and "nothing arrives" in progress.read_text())
        os.kill(stopped.pid, signal.SIGCONT)
        thread.join()
    (run,) = finished
    said = rf"nothing arrives from {url} since [\d:]+ with \d+ requests \(/health gave no answer within 2 s\)"
    assert re.search(rf"\] {said}, ", run.stdout)
    assert {line["standing"] for line in lines(run)} > {""} and "more server" not in run.stdout
    assert f"nothing arrives from {url} with" in run.stderr and "restart the server" in run.stderr
    # On a busy machine it answers all of them between two looks.
    assert re.search(rf"{url} (works again|has no more requests) after", run.stderr)
    assert [
        (event["kind"], event["server"]) for event in run.record["events"] if event["kind"] != "lost"
    ] == [
        ("silence", url),
        ("silence_ends", url),
    ]
    (warning,) = (text for text in run.record["warnings"] if "nothing arrives" in text)
    assert re.match(rf"from \d:\d\d to \d:\d\d nothing arrives from {url} with", warning)
    assert f"nothing arrives from {url} with" in (run.log_dir / "report.html").read_text()
