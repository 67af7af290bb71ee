"""A server that lies, breaks or dies: never a zero exit, never an invented token, always an end."""

import threading
import time
from collections import Counter

import pytest

from tests.runs import run_mlperf, small_dataset
from tests.stub import Fault, StubServer, expected_ids, refused_url

TOKENS = 5

# What run.json must call each fault.
NAMES = {
    Fault.HTTP_500: "http_status",
    Fault.HTTP_503: "http_status",
    Fault.HTTP_500_HTML: "http_status",
    Fault.REDIRECT: "http_status",
    Fault.NOT_HTTP: "http_protocol",
    Fault.RESET_AT_ONCE: "no_response",
    Fault.CLOSE_AT_ONCE: "no_response",
    Fault.CLOSE_AFTER_HEADERS: "truncated",
    Fault.CUT_CHUNKED: "truncated",
    Fault.CUT_UNFRAMED: "truncated",
    Fault.RESET_MIDDLE: "truncated",
    Fault.ERROR_AT_START: "in_band_error",
    Fault.ERROR_MIDDLE: "in_band_error",
    Fault.MALFORMED_JSON: "malformed",
    Fault.ABORT: "aborted",
    Fault.NO_FINISH: "unfinished",
    Fault.WRONG_COUNT: "token_count",
    Fault.SHRINKING_IDS: "token_count",
    Fault.CHANGED_IDS: "token_count",
    Fault.NEGATIVE_ID: "token_value",
    Fault.HUGE_ID: "token_value",
    Fault.FLOAT_ID: "malformed",
    Fault.NAN_ID: "malformed",
    Fault.ZERO_TOKENS: "no_tokens",
    Fault.HUGE_EVENT: "too_large",
    Fault.TOO_MANY_TOKENS: "too_many_tokens",
    Fault.SILENT: "timeout",
    Fault.SILENT_AFTER_FIRST: "timeout",
}

# The trial request of the preflight comes first and is answered well, then one request for each fault.
IN_TURN = [None, *NAMES]
MODES = [
    ("offline", "--accuracy"),
    ("offline", None),
    ("server", "--accuracy"),
    ("server", None),
    ("interactive", None),
    ("single-stream", None),
]


def run_against(stub, tmp_path, dataset, *arguments, **settings):
    where = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", TOKENS)
    return run_mlperf(tmp_path, *where, *arguments, **settings)


@pytest.mark.parametrize(("scenario", "mode"), MODES)
def test_every_fault_in_turn(scenario, mode, tmp_path):
    """Each fault is named, every other query is answered, the run is INVALID whatever LoadGen prints."""
    dataset, prompts = small_dataset(tmp_path, rows=len(IN_TURN) + 8)
    arguments = ["--timeout", 1.5, "--no-fail-fast", *([mode] if mode else [])]
    with StubServer(event_delay_s=0.002, faults=IN_TURN) as stub:
        run = run_against(stub, tmp_path, dataset, *arguments, scenario=scenario)
        victims = {
            prompts.index(stub.requests[i].prompt_ids): NAMES[fault]
            for i, fault in enumerate(IN_TURN)
            if fault is not None
        }
    assert run.code == 4
    assert run.result == "INVALID"
    assert run.failures == Counter(victims.values())
    failed = {row["sample_index"]: row["failure"] for row in run.requests if row["failure"]}
    assert failed == victims
    assert all(row["failure_detail"] for row in run.requests if row["failure"])
    assert f"{len(victims)} ERRORS encountered" in run.loadgen_summary
    if mode:
        answered = {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}
        assert run.accuracy_log == answered | {index: [] for index in victims}


@pytest.mark.parametrize("fault", [Fault.CRLF, Fault.BYTEWISE, Fault.SLOW_HEADERS])
def test_odd_but_whole(fault, tmp_path):
    """What is odd but correct is completed."""
    dataset, prompts = small_dataset(tmp_path)
    with StubServer(faults=fault, drip_s=0.002) as stub:
        run = run_against(stub, tmp_path, dataset, "--accuracy")
    assert run.code == 0, run.stdout + run.stderr
    assert run.accuracy_log == {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}


def test_server_dies_in_the_middle(tmp_path):
    """What was on its way fails; nothing more is sent; the run is ended and says why."""
    dataset, _ = small_dataset(tmp_path)
    with StubServer(event_delay_s=0.05) as stub:
        threading.Timer(3.0, stub.stop).start()
        run = run_against(
            stub, tmp_path, dataset, "--timeout", 2, scenario="server", qps=40, duration_ms=60_000
        )
    assert run.code == 4
    assert run.result == "INVALID"
    assert 0 < run.record["statistics"]["queries"] < 600  # of 2400 doomed ones
    reason = run.record["verdict"]["reasons"][0]
    assert reason.startswith("ended early: no server has answered for 1")
    assert "not reachable" in reason


def test_refused_at_the_start(tmp_path):
    dataset, _ = small_dataset(tmp_path)
    with refused_url() as url:
        start = time.monotonic()
        run = run_mlperf(tmp_path, "--server-url", url, "--input-file", dataset)
    assert run.code == 3
    assert time.monotonic() - start < 10
    assert f"error: {url}: not reachable" in run.stderr
