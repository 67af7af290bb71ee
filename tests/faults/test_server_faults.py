"""Servers that die under load, and answers that are odd but whole."""

import threading
import time

import pytest

from tests.runs import run_mlperf, small_dataset
from tests.stub import Fault, StubServer, expected_ids

TOKENS = 5


def run_against(stub, tmp_path, dataset, *arguments, **settings):
    where = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", TOKENS)
    return run_mlperf(tmp_path, *where, *arguments, **settings)


def stop_after(stub, requests):
    while len(stub.requests) < requests:
        time.sleep(0.05)
    stub.stop()


@pytest.mark.engine
def test_slow_headers_within_the_deadline(tmp_path):
    """What is odd but correct is completed."""
    dataset, prompts = small_dataset(tmp_path)
    with StubServer(faults=Fault.SLOW_HEADERS, drip_s=0.002) as stub:
        run = run_against(stub, tmp_path, dataset, "--accuracy")
    assert run.code == 0, run.stdout + run.stderr
    assert run.accuracy_log == {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}


@pytest.mark.engine
def test_server_dies_in_the_middle(tmp_path):
    """What was on its way fails; nothing more is sent; the run is ended and says why."""
    dataset, _ = small_dataset(tmp_path)
    with StubServer(event_delay_s=0.05) as stub:
        threading.Thread(target=stop_after, args=(stub, 30), daemon=True).start()
        run = run_against(
            stub, tmp_path, dataset, "--timeout", 2, scenario="server", qps=40, duration_ms=60_000
        )
    assert run.code == 4
    assert run.result == "INVALID"
    assert 0 < run.record["statistics"]["queries"] < 600  # of 2400 doomed ones
    reason = run.record["verdict"]["reasons"][0]
    assert reason.startswith("ended early: no server has answered for 1")
    assert "not reachable" in reason


@pytest.mark.parametrize(
    ("scenario", "fault", "timeout", "kind", "least"),
    [
        ("single-stream", Fault.SILENT, 0.5, "timeout", 3),
        pytest.param("server", Fault.NO_FINISH, 60, "unfinished", 10, marks=pytest.mark.engine),
    ],
)
def test_a_server_that_fails_every_query_ends_the_run(tmp_path, scenario, fault, timeout, kind, least):
    """Not one answer completes, although some have tokens: the run ends by itself and names the reason."""
    dataset, _ = small_dataset(tmp_path, rows=80)
    with StubServer(faults=lambda request: fault if request.index else None, event_delay_s=0.01) as stub:
        run = run_against(
            stub, tmp_path, dataset, "--timeout", timeout, scenario=scenario, qps=10, duration_ms=3_600_000
        )
    assert (run.code, run.result) == (4, "INVALID"), run.stdout + run.stderr
    assert least <= run.failures[kind] < 80
    assert f"all failed: {kind} " in run.record["verdict"]["reasons"][0]
