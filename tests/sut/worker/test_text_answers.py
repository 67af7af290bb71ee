"""A worker whose server answers in text, as a real vLLM did: what LoadGen's process and the journal get."""

import json
import socket
import threading

import numpy as np
import pytest

from harness.dataset.model_tokenizer import harmony_tokenizer
from harness.record.answer_log import read_saved_answers
from harness.record.journal import RETRIES_FILE, read_counts
from harness.record.outcome import FailureKind
from sut.encoder.answer_encoder import AnswerEncoder
from sut.encoder.process import serve
from sut.ipc.counters import Counter
from sut.ipc.messages import COMPLETE, FAILED, FIRST
from tests.kit import PATIENCE_S, VOCABULARY, parameters, scripted, wait_until
from tests.sut.recorded_text import COUNTED, IN_STREAM, NAMED, QUERY, TEXT, answering


@pytest.fixture(scope="module")
def tokenizer():
    return harmony_tokenizer()


@pytest.fixture(scope="module")
def answer_encoder(tokenizer):
    return AnswerEncoder(tokenizer, VOCABULARY)


@pytest.fixture
def encoder(answer_encoder):
    """The channel to an encoder in a thread, and its other end."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs, answer_encoder), daemon=True)
    thread.start()
    yield ours, theirs
    ours.close()
    thread.join(PATIENCE_S)
    theirs.close()


@pytest.mark.parametrize("accuracy", [False, True])
def test_a_text_is_reported_as_its_ids(start, tokenizer, encoder, accuracy, tmp_path):
    ids, gate = tokenizer.encode(TEXT).ids, threading.Event()
    with scripted(answering(IN_STREAM.response, gate=gate)) as (url, _):
        rig = start(
            url, parameters=parameters(max_new_tokens=8), encoder=encoder[0], accuracy=accuracy, **NAMED
        )
        rig.assign(QUERY, QUERY + 40)
        wait_until(lambda: rig.counter(Counter.FIRST_TOKENS) == 2)
        gate.set()
        reports = rig.collect(2)
        journal = rig.finish()
    first = ids[:1] if accuracy else []  # before the end of a text no id is known
    for query in (QUERY, QUERY + 40):
        assert [(kind, found) for q, kind, found in reports if q == query] == [
            (FIRST, first),
            (COMPLETE, ids),
        ]
    assert journal.rows["osl"].tolist() == [len(ids)] * 2
    assert (journal.rows["first_token_ns"] > 0).all()
    counts = np.sort(read_counts(tmp_path), order="query_id")
    assert counts.tolist() == [(QUERY, len(ids), COUNTED), (QUERY + 40, len(ids), COUNTED)]
    assert rig.counter(Counter.COMPLETED) == rig.counter(Counter.FIRST_TOKENS) == 2
    assert rig.counter(Counter.OUTPUT_TOKENS) == 2 * len(ids)
    # The end is reported with the arrival of the last byte: all that follows is the client's share.
    ends = {row["query_id"]: row["last_byte_ns"] for row in journal.rows}
    assert all(rig.arrived[query, COMPLETE] == end for query, end in ends.items())


def test_a_text_that_lacks_a_part_fails_and_is_sent_again(start, encoder, tmp_path):
    """In an accuracy run, as any other failure."""
    stop = (b'"finish_reason":"length"', b'"finish_reason":"stop"')
    most = (b'"completion_tokens":8', b'"completion_tokens":6000')
    edits = [lambda body: body.replace(*stop).replace(*most), lambda body: body.replace(*stop)]
    with scripted(answering(IN_STREAM.response, lambda body: edits.pop(0)(body))) as (url, _):
        rig = start(
            url,
            parameters=parameters(max_new_tokens=6000),
            encoder=encoder[0],
            accuracy=True,
            retries=1,
            **NAMED,
        )
        rig.assign(QUERY)
        assert rig.collect(1)[-1][1] == COMPLETE
        journal = rig.finish()
    assert rig.counter(Counter.RETRIED) == 1
    assert journal.rows["failure"].tolist() == [0]
    (line,) = (tmp_path / RETRIES_FILE.format("worker0")).read_text().splitlines()
    assert (json.loads(line)["kind"], "text is missing" in line) == (FailureKind.TOKEN_COUNT.label, True)


def test_an_earlier_text_keeps_the_servers_count(start, tokenizer, encoder, tmp_path):
    """A resumed run is judged by all of its texts, and not by those that came last."""
    (tmp_path / "attempt.1").mkdir()
    with scripted(answering(IN_STREAM.response)) as (url, _):
        first = start(
            url, parameters=parameters(max_new_tokens=8), encoder=encoder[0], accuracy=True, **NAMED
        )
        first.assign(QUERY)
        first.collect(1)
        first.finish()
        for file in tmp_path.glob("*-worker0.*"):
            file.rename(tmp_path / "attempt.1" / file.name)
        saved = read_saved_answers([tmp_path / "attempt.1"], 40)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            second = start(url, encoder=ours, accuracy=True, saved=saved, **NAMED)
            second.assign(QUERY)
            second.collect(1)
            second.finish()
    assert read_counts(tmp_path).tolist() == [(QUERY, len(tokenizer.encode(TEXT).ids), COUNTED)]


def test_an_encoder_that_dies_is_reported(start, encoder):
    ours, theirs = encoder
    theirs.shutdown(socket.SHUT_RDWR)
    with scripted(answering(IN_STREAM.response)) as (url, _):
        rig = start(url, parameters=parameters(max_new_tokens=8), encoder=ours, **NAMED)
        rig.assign(QUERY)
        assert rig.collect(1)[-1][1:] == (FAILED, [])
        wait_until(lambda: rig.control.poll())
        assert rig.control.recv() == ("encoder", "has ended")
        journal = rig.finish()
    assert journal.rows["failure"].tolist() == [FailureKind.ENCODER_LOST]


def test_answers_that_had_come_are_kept_when_the_run_ends(start, tokenizer, answer_encoder, tmp_path):
    """The issuing process hangs up while a text is being encoded: a resumed run need not send it again."""
    ours, theirs = socket.socketpair()
    with scripted(answering(IN_STREAM.response)) as (url, _), theirs:
        rig = start(url, parameters=parameters(max_new_tokens=8), encoder=ours, accuracy=True, **NAMED)
        rig.assign(QUERY)
        assert theirs.recv(1, socket.MSG_PEEK)  # the text is here
        rig.channel.shutdown(socket.SHUT_WR)
        serve(theirs, answer_encoder)
        rig.thread.join(PATIENCE_S)
        journal = rig.finish()
    assert journal.rows["osl"].tolist() == [len(tokenizer.encode(TEXT).ids)]
