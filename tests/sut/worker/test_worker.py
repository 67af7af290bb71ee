"""A worker against the stub server: what it reports to LoadGen's process, and what its journal keeps."""

import gc
import itertools
import time

import numpy as np
import pytest

from harness.analysis.statistics import tpot_ns, ttft_ns
from harness.record.journal import FINISH_REASONS
from harness.record.outcome import FailureKind
from sut.client.endpoint import Access, resolve_endpoint
from sut.ipc.counters import Counter
from sut.ipc.messages import COMPLETE, FAILED, FIRST
from tests.kit import parameters, wait_until
from tests.stub import Fault, StubServer, expected_ids, refused_url
from tests.sut.rig import PROMPTS


@pytest.mark.parametrize("wire", ["sglang", "openai", "trtllm"])
@pytest.mark.parametrize("stream", [True, False])
def test_reports_and_journal_of_whole_answers(start, wire, stream):
    with StubServer() as stub:
        rig = start(stub.url, wire=wire, parameters=parameters(max_new_tokens=6, stream=stream))
        rig.assign(*range(30), cut=30)
        reports = rig.collect(30)
        journal = rig.finish()
    for query in range(30):
        ids = expected_ids(PROMPTS[query], 6)
        told = [(kind, tokens) for q, kind, tokens in reports if q == query]
        assert told == [(FIRST, ids[:1]), (COMPLETE, ids)]
    rows = np.sort(journal.rows, order="query_id")
    assert rows["query_id"].tolist() == rows["sample_index"].tolist() == list(range(30))
    assert rows["isl"].tolist() == [len(prompt) for prompt in PROMPTS[:30]]
    assert set(rows["osl"]) == {6}
    assert set(rows["failure"]) == {0}
    assert {FINISH_REASONS[code] for code in rows["finish"]} == {"length"}
    # Not sent_ns: our clock is read after the send, and a quick server may have answered by then.
    moments = ("issued_ns", "first_byte_ns", *(["first_token_ns"] if stream else []), "last_byte_ns")
    times = [rows[name] for name in moments]
    assert (rows["first_token_ns"] > 0).all() == stream  # else nothing was measured
    for earlier, later in itertools.pairwise(times):
        assert (earlier <= later + 200_000).all()  # two clocks: SLACK_NS in test_transport
    assert (rows["sent_ns"] >= rows["issued_ns"]).all()
    assert rig.counter(Counter.COMPLETED) == rig.counter(Counter.SENT) == 30
    assert rig.counter(Counter.OUTPUT_TOKENS) == 180
    assert rig.counter(Counter.FIRST_TOKENS) == rig.counter(Counter.TPOT_COUNT) == (30 if stream else 0)
    assert rig.counter(Counter.TTFT_SUM_NS) == ttft_ns(rows).sum()
    assert rig.counter(Counter.TPOT_SUM_NS) == tpot_ns(rows).sum()
    assert rig.counter(Counter.PARTIAL_TOKENS) == 0
    assert rig.counter(Counter.FAILED) == 0


@pytest.mark.parametrize("wire", ["sglang", "openai"])
def test_what_the_trial_answers_have_not_shown_fails(start, wire):
    """Another model, or weights of another version: a worker learns nothing from the answers of a run."""
    with StubServer(faults=[Fault.OTHER_MODEL, Fault.OTHER_MODEL]) as stub:
        rig = start(stub.url, wire=wire, parameters=parameters(max_new_tokens=6))
        rig.assign(*range(3))
        rig.collect(3)
        journal = rig.finish()
    assert sorted(journal.rows["failure"].tolist()) == [0, *[FailureKind.OTHER_MODEL] * 2]


def test_a_worker_shows_that_it_moves_and_what_it_uses(start):
    """The supervisor ends a run by these counters, and warns."""
    with StubServer() as stub:
        begin_ns = time.monotonic_ns()
        rig = start(stub.url)
        rig.assign(*range(3))
        rig.collect(3)
        rig.worker._client._clock.steps_ns = 5
        gc.collect()
        wait_until(lambda: rig.counter(Counter.LOOP_LAG_NS))  # of its first look, a quarter of a second later
        rig.finish()
    assert begin_ns < rig.counter(Counter.HEARTBEAT_NS) < time.monotonic_ns()
    assert rig.counter(Counter.LOOP_LAG_NS) < time.monotonic_ns() - begin_ns
    assert rig.counter(Counter.RECEPTIONS) >= 3
    assert rig.counter(Counter.CLOCK_STEPS_NS) >= 5
    assert rig.counter(Counter.GC_RUNS) >= 1
    assert rig.counter(Counter.CPU_NS) > 0


@pytest.mark.parametrize("stream", [True, False])
def test_loadgen_s_offline_hears_of_no_first_token(start, stream):
    with StubServer() as stub:
        rig = start(stub.url, parameters=parameters(max_new_tokens=6, stream=stream), first_tokens=False)
        rig.assign(*range(5))
        assert {kind for _, kind, _ in rig.collect(5)} == {COMPLETE}
    assert (rig.finish().rows["first_token_ns"] > 0).all() == stream


def test_each_answer_has_its_samples_own_limit(start):
    limits = [1 + index % 6 for index in range(len(PROMPTS))]
    with StubServer() as stub:
        rig = start(stub.url, limits=limits)
        rig.assign(*range(12))
        reports = rig.collect(12)
    lengths = {query: len(ids) for query, kind, ids in reports if kind == COMPLETE}
    assert lengths == dict(enumerate(limits[:12]))


def test_no_more_in_flight_than_allowed(start):
    """The second of two workers counts in its own row, and so do its connections' figures."""
    with StubServer(event_delay_s=0.01, gate=lambda request: len(stub.requests) >= 3) as stub:
        rig = start(stub.url, max_in_flight=3, index=1)
        rig.assign(*range(15))
        wait_until(lambda: rig.loads.values().tolist() == [[0], [3]])
        rig.collect(15)
        rig.finish()
        assert [row.any() for row in rig.network.values()] == [False, True]
        spans = [(request.received_ns, request.last_sent_ns) for request in stub.requests]
    assert len(spans) == 15
    assert max(sum(a <= start < b for a, b in spans) for start, _ in spans) == 3


def test_failures_are_reported_journalled_and_counted(start):
    faults = [None, Fault.HTTP_500, Fault.CUT_CHUNKED, None, Fault.ABORT]
    with StubServer(faults=faults) as stub:
        rig = start(stub.url, max_in_flight=1)
        rig.assign(*range(5))
        reports = rig.collect(5)
        journal = rig.finish()
    ends = {query: (kind, tokens) for query, kind, tokens in reports if kind != FIRST}
    assert [ends[query][0] for query in range(5)] == [COMPLETE, FAILED, FAILED, COMPLETE, FAILED]
    assert all(tokens == [] for kind, tokens in ends.values() if kind == FAILED)
    assert [kind for query, kind, _ in reports if query == 2] == [FIRST, FAILED]  # cut after some tokens
    rows = np.sort(journal.rows, order="query_id")
    kinds = [0, FailureKind.HTTP_STATUS, FailureKind.TRUNCATED, 0, FailureKind.ABORTED]
    assert rows["failure"].tolist() == kinds
    assert (rows["first_token_ns"][:3] > 0).tolist() == [True, False, True]
    assert rows["osl"].tolist() == [6, 0, 0, 6, 0]
    assert "HTTP 500" in journal.details[1]
    assert set(journal.details) == {1, 2, 4}
    assert rig.counter(Counter.FAILED) == 3
    assert rig.counter(Counter.COMPLETED) == 2
    assert rig.board.failures() == {kind: 1 for kind in kinds if kind}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "fault", [Fault.NEGATIVE_ID, Fault.HUGE_ID, Fault.WRONG_COUNT, Fault.FLOAT_ID, Fault.ZERO_TOKENS]
)
def test_a_worker_survives_a_lie_in_the_very_first_event(start, fault, stream):
    with StubServer(faults=[fault, None], tokens=1) as stub:
        rig = start(stub.url, parameters=parameters(max_new_tokens=6, stream=stream), max_in_flight=1)
        rig.assign(0, 1)
        reports = rig.collect(2)
        rig.finish()
    assert [(query, kind) for query, kind, _ in reports] == [(0, FAILED), (1, FIRST), (1, COMPLETE)]


def test_nobody_listens(start):
    with refused_url() as url:
        rig = start(url)
        rig.assign(*range(10))
        assert {kind for _, kind, _ in rig.collect(10)} == {FAILED}
        assert set(rig.finish().rows["failure"]) == {FailureKind.CONNECT}
        assert rig.counter(Counter.RETRIED) == 0


def test_the_end_of_the_channel_ends_the_worker_with_its_journal_written(start):
    """And does not wait for the silent answer."""
    with StubServer(faults=[None, Fault.SILENT]) as stub:
        rig = start(stub.url, max_in_flight=1, timeout_s=3600)
        rig.assign(1, 2, 3)
        rig.collect(1)
        assert rig.finish().rows["query_id"].tolist() == [1]


def test_a_replica_that_has_moved_gets_its_new_connections_elsewhere(start):
    queries = itertools.count()
    with StubServer(close_after_response=True) as old, StubServer() as new:
        rig = start(old.url)
        rig.control.send(("moved", (0, resolve_endpoint(new.url, "/generate", Access()))))
        rig.control.send(("trust", 0))

        def is_there():
            rig.assign(next(queries))
            rig.collect(sum(kind != FIRST for _, kind, _ in rig.reports) + 1)
            return new.requests

        wait_until(is_there)
        rig.finish()


def test_an_answer_to_another_prompt_is_no_answer(start, monkeypatch):
    """A proxy that mixes up two streams is found by the server's own count of the prompt."""
    with StubServer() as stub:
        rig = start(stub.url)
        known = {2: 3, 3: 7}
        monkeypatch.setattr(rig.worker._store, "prompt_tokens", known.get)
        rig.assign(2, 3)
        ends = {query: kind for query, kind, _ in rig.collect(2) if kind != FIRST}
        journal = rig.finish()
    assert ends == {2: COMPLETE, 3: FAILED}
    assert journal.details == {3: "the answer is to a prompt of 4 tokens, the query's has 7"}
