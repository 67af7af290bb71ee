"""find_peak.py search as a user calls it, against a stub server. Whole searches: benchmarks/peak/stub.py."""

import errno
import json
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

import find_peak
from harness.analysis import finish_run
from harness.peak.search.policy import History
from harness.peak.search.search_state import SearchState, read_state
from harness.progress import progress_files
from sut.supervisor.metrics_port import MetricsServer
from tests.kit import any_written, full_disk, wait_until
from tests.runs import ROOT, main_here, processes_of_the_session, small_dataset, without_waits
from tests.stub import StubServer

RATE, SECONDS = 100, 5
CONF = f"""
*.Server.target_qps = 1
*.Server.min_duration = {1000 * SECONDS}
*.Server.min_query_count = 480
*.Offline.target_qps = 1
*.Offline.min_duration = 2000
*.Offline.min_query_count = 12
"""
# Limits that a busy machine keeps.
PATIENT_CONF = f"{CONF}*.Server.ttft_latency = 60000\n*.Server.tpot_latency = 60000\n"
FOLDER = "peak/server/search"


def command(folder, stub, *arguments, scenario="server", conf=CONF):
    dataset, _ = small_dataset(folder)
    file = folder / "given.conf"
    file.write_text(conf)
    words = ("search", "--scenario", scenario, "--input-file", dataset, "--user-conf", file)
    words += ("--output-dir", folder, "--max-new-tokens", 8, "--log-level", "warning")
    words += ("--server-url", stub.url, "--ladder-seconds", 1, *arguments)
    return list(map(str, words))


def start(words):
    program = [sys.executable, str(ROOT / "find_peak.py")]
    return subprocess.Popen([*program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    stdout, stderr = process.communicate(timeout=300)
    assert "Traceback" not in stderr, stderr
    return stdout, stderr


def running(folder, number=1):
    """Whether the journal of a probe has rows."""
    journal = folder / FOLDER / f"probe-{number:02d}/server/performance/journal"
    return any_written(journal, "queries-*.bin")


def probed(folder):
    """The probes that have ended."""
    file = folder / FOLDER / "search.json"
    return file.is_file() and read_state(file.parent).history.probes


@pytest.mark.engine
def test_a_killed_search_resumes(tmp_path):
    """By SIGKILL behind its first run; the second part has time for no further run."""
    with StubServer() as stub:
        words = command(tmp_path, stub, "--start-qps", RATE, conf=PATIENT_CONF)
        process = start(words)
        wait_until(lambda: probed(tmp_path))
        process.kill()
        process.communicate(timeout=60)
        before = read_state(tmp_path / FOLDER)
        assert before.conclusion is None
        stdout, stderr = ended(start([*words, "--budget", str(SECONDS + 1)]))
    state = read_state(tmp_path / FOLDER)
    assert state.history == before.history, stderr
    assert stdout.startswith("continues the search of ") and "1 run" in stdout.splitlines()[0]
    (probe,) = state.history.probes
    assert (probe.rate, probe.verdict, probe.queries % 12) == (RATE, "VALID", 0)
    found = state.conclusion
    assert (found.outcome, found.rate, found.confirmed) == ("BUDGET", RATE, False)
    run = tmp_path / FOLDER / found.folder
    record = json.loads((run / "run.json").read_text())
    assert record["verdict"]["result"] == "VALID"
    assert record["plan"]["loadgen_settings"]["server_target_qps"] == RATE
    row = found.conf_rows[0]
    assert (run / "user.conf").read_text() == f"{PATIENT_CONF}\n# Found by find_peak.py\n{row}\n"
    assert (run / "report.html").is_file()
    assert row in (tmp_path / FOLDER / "search.html").read_text() and row in stdout


@pytest.mark.engine
@pytest.mark.parametrize("child", [0, 1], ids=["LoadGen", "a worker"])
def test_a_run_that_lost_a_process_is_measured_again(tmp_path, child):
    """It says nothing about its rate, and neither does a step of the ladder."""
    with StubServer() as stub:
        words = command(tmp_path, stub, "--start-qps", RATE, conf=PATIENT_CONF)
        process = start(words)
        wait_until(lambda: running(tmp_path))
        spawned(process)[child].kill()
        stdout, stderr = ended(process)
        assert process.returncode == 4, stdout + stderr
        assert "killed by SIGKILL" in stderr.splitlines()[-1] and "what is measured is kept: " in stdout
        assert read_state(tmp_path / FOLDER).history.probes == ()
        again = start([*words, "--resume", "--budget", str(2 * SECONDS + 1)])
        stdout, stderr = ended(again)
    assert again.returncode == 0, stdout + stderr
    probe, *_ = read_state(tmp_path / FOLDER).history.probes  # a quick machine has time for more
    assert (probe.rate, probe.verdict) == (RATE, "VALID")


@pytest.mark.engine
def test_a_step_that_lost_a_worker_is_measured_again(tmp_path):
    with StubServer(event_delay_s=0.01) as stub:
        words = command(tmp_path, stub, "--ladder-seconds", 3)
        process = start(words)
        wait_until(lambda: len(stub.requests) > 40)
        spawned(process)[1].kill()
        stdout, stderr = ended(process)
        assert process.returncode == 4, stdout + stderr
        # Whose end is seen first, the worker's or that of the process that has lost it, is chance.
        assert re.search("killed by SIGKILL|no worker process is left", stderr.splitlines()[-1])
        assert "what is measured is kept: " in stdout
        assert read_state(tmp_path / FOLDER).history == History()
        again = start(words)
        wait_until(lambda: read_state(tmp_path / FOLDER).history.steps)
        again.send_signal(signal.SIGINT)
        ended(again)


def spawned(process):
    return processes_of_the_session(psutil.Process(process.pid).children(recursive=True))


@pytest.mark.engine
def test_a_full_disk_does_not_hide_what_was_measured(tmp_path, monkeypatch, capfd):
    write, full = SearchState.write, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def writes(state, folder):
        if state.history.probes:
            raise full
        write(state, folder)

    monkeypatch.setattr(SearchState, "write", writes)
    with StubServer() as stub:
        words = command(tmp_path, stub, "--start-qps", RATE)
        code, stdout, stderr = main_here(capfd, find_peak.main, words)
    assert code == 4, stderr
    assert "over TTFT" in stdout  # a column of the table of runs
    assert f": {tmp_path / FOLDER}: No space left on device; free space there" in stderr.splitlines()[-1]
    assert read_state(tmp_path / FOLDER).history.probes == ()


@pytest.mark.engine
def test_a_signal_in_a_run_keeps_the_state(tmp_path):
    with StubServer() as stub:
        process = start(command(tmp_path, stub, "--start-qps", RATE))
        wait_until(lambda: running(tmp_path))
        process.send_signal(signal.SIGINT)
        stdout, _ = ended(process)
    assert process.returncode == 130
    state = read_state(tmp_path / FOLDER)
    assert (state.conclusion.outcome, state.history.probes) == ("INTERRUPTED", ())
    record = json.loads((tmp_path / FOLDER / "probe-01/server/performance/run.json").read_text())
    assert record["verdict"]["result"] == "INTERRUPTED"
    assert "search.json" in stdout and re.search("what is measured is kept: .* --resume$", stdout, re.M)


@pytest.mark.engine
def test_a_server_that_is_too_slow_is_found_out_early_and_one_that_dies_ends_the_search(tmp_path):
    """Answers of 1 s per token: the run is decided once ten queries have waited too long."""
    with StubServer(event_delay_s=1.0) as stub:
        process = start(command(tmp_path, stub, "--start-qps", RATE))
        wait_until(lambda: running(tmp_path, 2) or process.poll() is not None or probed(tmp_path))
        stub.stop()
        stdout, stderr = ended(process)
    assert process.returncode in (3, 4), stdout + stderr
    state = read_state(tmp_path / FOLDER)
    first = state.history.probes[0]
    assert (first.verdict, first.binding) == ("INVALID", "TPOT")
    assert first.cut_after_s is not None and first.over_tpot > first.most_over
    assert state.conclusion.rate is None


@pytest.mark.engine
def test_offline_needs_one_short_run(tmp_path, monkeypatch, capfd):
    """Also: its lines of progress are served."""
    lines = []
    monkeypatch.setattr(progress_files, "_EVERY_S", 0.0)
    monkeypatch.setattr(MetricsServer, "__call__", lambda server, line: lines.append(line))
    with StubServer(event_delay_s=0.01) as stub:
        flags = ("--max-concurrency", 16, "--metrics-port", 0)
        words = command(tmp_path, stub, *flags, scenario="offline")
        code, stdout, stderr = main_here(capfd, find_peak.main, words)
    assert code == 0, stderr
    assert max(line.issued for line in lines) == 64
    row = next(line for line in stdout.splitlines() if "Offline.target_qps" in line)
    rate = float(row.rpartition("=")[2])
    record = json.loads((tmp_path / "peak/offline/short/offline/performance/run.json").read_text())
    assert record["statistics"]["completed"] == 64
    assert rate == pytest.approx(record["statistics"]["samples_per_s"], rel=0.6)


@pytest.mark.engine
@pytest.mark.parametrize("scenario", ["server", "offline"])
def test_a_run_whose_files_cannot_be_read_shows_no_rate(tmp_path, monkeypatch, capfd, scenario):
    """Such as without a descriptor for them: the record has a verdict then, and no statistics."""
    monkeypatch.setattr(finish_run, "read_counts", full_disk)
    with StubServer() as stub:
        words = command(tmp_path, stub, "--start-qps", RATE, scenario=scenario, conf=PATIENT_CONF)
        code, _, stderr = main_here(capfd, find_peak.main, words)
    assert code == 4
    said = "no rate" if scenario == "offline" else "nothing about its rate"
    assert f" shows {said}: no verdict: No space left on device" in stderr.splitlines()[-1]


def test_single_stream_needs_no_search(tmp_path, capfd):
    words = ["search", "--scenario", "single-stream", "--input-file", str(tmp_path / "any")]
    code, stdout, stderr = main_here(capfd, find_peak.main, words)
    assert (code, stdout, len(stderr.splitlines())) == (2, "", 1)


WRONG = [
    (("--budget", "soon"), "", "--budget"),
    (("--tolerance", "0"), "", "--tolerance"),
    (("--start-qps", "-1"), "", "queries per second, above 0"),
    (("--concurrency", "5"), "", "--concurrency"),
    (("--input-file", "missing.parquet"), "", "missing.parquet"),
]
NEVER_VALID = [
    (("--budget", SECONDS + 0.9), "", "--budget"),
    (("--budget", SECONDS, "--start-qps", RATE), "", "--budget"),
    (("--ladder-seconds", 0.5), "", "--ladder-seconds"),
    ((), "*.Server.min_query_count = 456", "min_query_count"),
    (("--start-qps", RATE), "*.Server.min_query_count = 1", "min_query_count"),
    ((), "*.Server.max_query_count = 458", "max_query_count"),
]


@pytest.mark.parametrize(
    ("arguments", "row", "named"),
    [*WRONG, *(pytest.param(*case, marks=pytest.mark.engine) for case in NEVER_VALID)],
)
def test_what_cannot_become_valid_is_refused_before_any_request(tmp_path, arguments, row, named, capfd):
    with StubServer() as stub:
        words = command(tmp_path, stub, *arguments, conf=f"{CONF}{row}\n")
        code, _, stderr = main_here(capfd, find_peak.main, words)
    assert (code, len(stub.requests), len(without_waits(stderr))) == (2, 0, 1)
    assert named in stderr.splitlines()[-1]
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.engine
@pytest.mark.parametrize("scenario", ["server", "offline"])
def test_the_rate_of_the_conf_file_is_not_missed(tmp_path, scenario, capfd, caplog):
    """Nor are there warnings about a run at that rate."""
    conf = "".join(line for line in CONF.splitlines(keepends=True) if "target_qps" not in line)
    unused = ("--budget", "1h", *(["--resume"] if scenario == "offline" else []))
    for more in ("", "*.*.target_qps = 100000\n"):
        with StubServer() as stub:
            words = command(tmp_path, stub, "--dry-run", *unused, scenario=scenario, conf=conf + more)
            code, stdout, _ = main_here(capfd, find_peak.main, words)
        assert code == 0
        for flag in ("--budget", "--resume"):
            assert (f"{flag} is not used" in caplog.text) == (scenario == "offline")
        assert not [line for line in stdout.splitlines() if line.startswith("WARNING")]
