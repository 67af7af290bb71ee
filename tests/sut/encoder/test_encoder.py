"""A worker's end of an encoder and the encoder's loop: in order, without waiting, whoever dies."""

import select
import socket
import threading
import time

import pytest

from harness.dataset.model_tokenizer import load_tokenizer
from harness.files import ROOT
from harness.record.outcome import Completion, Failure, FailureKind, TextCompletion
from sut.encoder import link as link_module
from sut.encoder.answer_encoder import AnswerEncoder
from sut.encoder.link import EncoderLink
from sut.encoder.process import serve
from tests.kit import PATIENCE_S, VOCABULARY

TOKENIZER = load_tokenizer(ROOT / "datasets/samples/r1_sample_tokenizer.json")


def ids_of(text):
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def answer(text, counted=0):
    return TextCompletion(text, "stop", 7, counted or len(ids_of(text)))


class Worker:
    """Polls like a worker; ``ended`` are (query, outcome) in order."""

    def __init__(self, channel):
        self.ended = []
        self._poll = select.epoll()
        self._callbacks = {}
        self.link = EncoderLink(channel, lambda *end: self.ended.append(end), self._watch)

    def _watch(self, descriptor, mask, callback):
        change = self._poll.modify if descriptor in self._callbacks else self._poll.register
        change(descriptor, mask)
        self._callbacks[descriptor] = callback

    def wait(self, count):
        deadline = time.monotonic() + PATIENCE_S
        while len(self.ended) < count:
            assert time.monotonic() < deadline
            for descriptor, mask in self._poll.poll(0.1):
                self._callbacks[descriptor](mask)
        return self.ended


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def encoded(ends):
    """A worker whose encoder runs in a thread."""
    ours, theirs = ends
    thread = threading.Thread(target=serve, args=(theirs, AnswerEncoder(TOKENIZER, VOCABULARY)))
    worker = Worker(ours)
    thread.start()
    yield worker
    worker.link.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()  # it ends with its worker


def test_ids_come_in_the_order_of_the_texts(encoded):
    texts = [f"answer {number}: é 你好 {'x' * number}" for number in range(300)]
    for number, text in enumerate(texts):
        encoded.link.send(number, answer(text))
    assert encoded.link.waiting == 300
    for number, (query, outcome) in enumerate(encoded.wait(300)):
        assert query == number
        assert outcome.output_ids.tolist() == ids_of(texts[number])
        assert (outcome.finish_reason, outcome.prompt_tokens) == ("stop", 7)
        assert outcome.counted == len(outcome.output_ids)
    assert encoded.link.waiting == 0


@pytest.mark.engine
def test_texts_beyond_the_sockets_buffers_wait_in_the_worker(encoded):
    """The send returns at once, with more than the encoder takes; nothing is lost or mixed up."""
    texts = [f"{number} of many. " * 8_000 for number in range(8)]
    for number, text in enumerate(texts):
        encoded.link.send(number, answer(text))
    ended = encoded.wait(8)
    assert [query for query, _ in ended] == list(range(8))
    assert [outcome.output_ids.tolist() for _, outcome in ended] == [ids_of(text) for text in texts]


def test_a_fault_is_an_outcome_in_its_place(encoded):
    encoded.link.send(0, answer("good"))
    encoded.link.send(1, answer("Yes.", 500))
    encoded.link.send(2, TextCompletion("Yes.", "stop", None, None))
    encoded.link.send(3, answer("good"))
    kinds = [getattr(outcome, "kind", None) for _, outcome in encoded.wait(4)]
    assert kinds == [None, FailureKind.TOKEN_COUNT, FailureKind.TOKEN_COUNT, None]
    assert "500" in encoded.ended[1][1].detail


def test_a_surrogate_half_does_not_end_the_encoder(encoded):
    encoded.link.send(0, TextCompletion("a\ud800b", "stop", None, 3))
    encoded.link.send(1, answer("good"))
    assert [type(outcome) for _, outcome in encoded.wait(2)] == [Completion, Completion]


def test_an_encoder_that_dies_fails_what_it_holds_and_all_that_follows(ends):
    ours, theirs = ends
    worker = Worker(ours)
    for number in range(3):
        worker.link.send(number, answer("lost " * 100_000, counted=1))
    theirs.close()
    assert [query for query, _ in worker.wait(3)] == [0, 1, 2]
    assert not worker.link.is_open
    worker.link.send(3, answer("late"))
    assert {(type(outcome), outcome.kind) for _, outcome in worker.ended} == {
        (Failure, FailureKind.ENCODER_LOST)
    }


def test_an_encoder_that_does_not_move_is_stuck(ends):
    worker = Worker(ends[0])
    now = time.monotonic_ns()
    assert not worker.link.is_stuck(now + 10**12)  # nothing waits
    worker.link.send(0, answer("waits"))
    assert not worker.link.is_stuck(time.monotonic_ns())
    assert worker.link.is_stuck(time.monotonic_ns() + link_module._STUCK_NS)
