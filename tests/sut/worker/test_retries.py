"""What a worker sends again, what it answers from an earlier attempt, and a full disk."""

import json
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from harness.record.answer_log import read_saved_answers
from harness.record.outcome import Failure, FailureKind
from sut.ipc.counters import Counter
from sut.ipc.messages import COMPLETE, FAILED, FIRST
from sut.worker.worker import Retries
from tests.kit import wait_until
from tests.stub import Fault, StubServer, expected_ids, refused_url
from tests.sut.rig import PROMPTS


def ends(reports):
    return {query: kind for query, kind, _ in reports if kind != FIRST}


@pytest.mark.parametrize(
    ("allowed", "accuracy", "sent", "failure"),
    [(2, True, 3, 0), (1, True, 2, FailureKind.TRUNCATED), (5, False, 1, FailureKind.HTTP_STATUS)],
)
def test_a_query_is_sent_again_in_accuracy_mode(start, allowed, accuracy, sent, failure):
    """LoadGen hears of the answer that counts, and of its first token, once; performance repeats nothing."""
    with StubServer(faults=[Fault.HTTP_500, Fault.CUT_CHUNKED, None]) as stub:
        rig = start(stub.url, retries=allowed, accuracy=accuracy, max_in_flight=1)
        rig.assign(45)
        reports = rig.collect(1)
        rows = rig.finish().rows
        assert len(stub.requests) == sent
    ids = expected_ids(PROMPTS[5], 6)
    assert reports == ([(45, FAILED, [])] if failure else [(45, FIRST, ids[:1]), (45, COMPLETE, ids)])
    assert (rows["retries"].tolist(), rows["failure"].tolist()) == ([sent - 1], [failure])
    assert rig.counter(Counter.RETRIED) == sent - 1
    assert rig.counter(Counter.FAILED) == bool(failure)
    kinds = ["http_status", "truncated"][: sent - 1]
    lines = (rig.journal_dir / "retries-worker0.jsonl").read_text().splitlines() if kinds else []
    told = [[json.loads(line)[name] for name in ("query_id", "sample_index", "kind")] for line in lines]
    assert told == [[45, 5, kind] for kind in kinds]


def test_each_wait_is_twice_as_long_up_to_8_s():
    retries = Retries(7, answers_only=False)
    for attempt, wait_s in enumerate((0.25, 0.5, 1, 2, 4, 8, 8)):
        request = SimpleNamespace(attempt=attempt, accepted=False)
        assert retries.takes(request, Failure(FailureKind.CONNECT, "x"), 1)
        due_ns = 1 + int(wait_s * 1e9)
        assert list(retries.due(due_ns - 1)) == []
        assert list(retries.due(due_ns)) == [request]
    assert list(retries.due(due_ns)) == []
    assert not retries.takes(SimpleNamespace(attempt=7, accepted=False), Failure(FailureKind.CONNECT, "x"), 1)


@pytest.mark.parametrize(("accuracy", "retries"), [(True, 0), (True, 1), (False, 1)])
def test_a_first_token_that_is_held_on_purpose_is_no_time_of_the_client(start, accuracy, retries):
    """LoadGen is told of it as soon as it may be told: that moment is the report's."""
    rigs = []
    with StubServer(
        event_gate=lambda request, number: number == 0 or rigs[0].counter(Counter.PARTIAL_TOKENS)
    ) as stub:
        rig = start(stub.url, retries=retries, accuracy=accuracy)
        rigs.append(rig)
        rig.assign(5)
        rig.collect(1)
        (row,) = rig.finish().rows
    assert row["first_token_ns"] < row["last_byte_ns"]
    assert rig.arrived[5, FIRST] == row["last_byte_ns" if accuracy and retries else "first_token_ns"]
    assert rig.arrived[5, COMPLETE] == row["last_byte_ns"]


def test_a_refused_connection_may_be_tried_again_elsewhere(start):
    with refused_url() as dead, StubServer() as stub:
        rig = start(dead, stub.url, retries=1)
        rig.assign(5)
        assert ends(rig.collect(1)) == {5: COMPLETE}
        journal = rig.finish()
    assert journal.rows["retries"].tolist() == [1]
    assert journal.rows["replica"].tolist() == [1]
    assert rig.control.recv() == ("suspect", 0)
    # The wait is part of the latency.
    assert journal.rows["sent_ns"][0] - journal.rows["issued_ns"][0] > 200_000_000


@pytest.mark.parametrize("first_tokens", [True, False])
def test_an_earlier_answer_is_given_without_a_request(start, tmp_path, first_tokens):
    (tmp_path / "attempt.1").mkdir()
    with StubServer() as stub:
        first = start(stub.url, accuracy=True)
        first.assign(*range(10))
        first.collect(10)
        first.finish()
        for file in tmp_path.glob("*-worker0.*"):
            file.rename(tmp_path / "attempt.1" / file.name)
        saved = read_saved_answers([tmp_path / "attempt.1"], 40)
        second = start(stub.url, accuracy=True, saved=saved, first_tokens=first_tokens)
        second.assign(*range(20))
        reports = second.collect(20)
        journal = second.finish()
        assert len(stub.requests) == 20  # ten for each
    for query in range(20):
        ids = expected_ids(PROMPTS[query], 6)
        told = [(FIRST, ids[:1]), (COMPLETE, ids)][not first_tokens :]
        assert [(k, t) for q, k, t in reports if q == query] == told
    assert (second.counter(Counter.COMPLETED), second.counter(Counter.RESUMED)) == (20, 10)
    rows = np.sort(journal.rows, order="query_id")
    assert rows["resumed"].tolist() == [1] * 10 + [0] * 10
    assert (rows["sent_ns"][:10] == 0).all()
    assert rows["osl"].tolist() == [6] * 20
    assert set(rows["finish"][:10]) == set(rows["finish"][10:])
    assert second.counter(Counter.RESUMED) == 10


def test_a_disk_that_hangs_holds_up_no_query(start, monkeypatch):
    """As a network file system does: its rows wait in memory, and are written when it goes on."""
    write, hangs, goes_on = os.write, threading.Event(), threading.Event()

    def hanging(descriptor, data):
        hangs.set()
        goes_on.wait(90)
        return write(descriptor, data)

    with StubServer() as stub:
        rig = start(stub.url)
        monkeypatch.setattr(os, "write", hanging)
        rig.assign(0)
        assert set(ends(rig.collect(1)).values()) == {COMPLETE}
        assert hangs.wait(90)
        rig.assign(*range(1, 6))
        assert set(ends(rig.collect(5)).values()) == {COMPLETE}
        assert not goes_on.is_set()
        wait_until(lambda: rig.counter(Counter.LONGEST_FLUSH_NS) > 0.2e9)  # known while it hangs
        goes_on.set()
        journal = rig.finish()
    assert sorted(journal.rows["query_id"].tolist()) == [0, 1, 2, 3, 4, 5]


def test_a_full_disk_is_told_once_and_what_was_not_written_is_kept(start, monkeypatch):
    """The supervisor decides; meanwhile queries go on, and rows wait."""
    write, full, refused = os.write, [True], []

    def no_space(descriptor, data):
        if full[0]:
            refused.append(data)
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    with StubServer() as stub:
        rig = start(stub.url)
        monkeypatch.setattr(os, "write", no_space)
        rig.assign(*range(6))
        assert set(ends(rig.collect(6)).values()) == {COMPLETE}
        assert rig.control.poll(90)
        told = "No space left on device; free space there or choose another folder"
        assert rig.control.recv() == ("journal", told)
        before = len(refused)
        wait_until(lambda: len(refused) > before)
        full[0] = False
        journal = rig.finish()
    assert not rig.control.poll(0)
    assert len(journal.rows) == 6
