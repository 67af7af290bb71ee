"""Two sets of descriptors: what is urgent is served at once, paced streams in batches; nothing is lost."""

import select
import socket
import threading
import time

import pytest

from harness.record.outcome import FailureKind
from sut.client import client as client_module
from sut.client.poller import NAP_S, Poller
from tests.kit import PATIENCE_S, assert_failed, read_request, reset, scripted
from tests.sut.driver import with_id_of
from tests.sut.wire.judging import GREEDY, cumulative

READ = select.EPOLLIN
GAP_S = 0.02
FIRST, SECOND, LAST = (b"data: %b\n\n" % event for event in cumulative(1, 2, 3))


@pytest.fixture
def polls():
    made = Poller()
    yield made
    made.close()


@pytest.fixture
def pairs():
    made = [socket.socketpair() for _ in range(3)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def seen(polls, timeout_s=60):
    return polls.poll(timeout_s) + [event for some in polls.poll_batched() for event in some]


def test_without_batched_streams_a_poll_waits_as_long_as_it_may(polls, pairs):
    polls.register(pairs[0][0].fileno(), READ)
    start = time.monotonic()
    assert polls.poll(0.05) == []
    assert time.monotonic() - start >= 0.045


def test_both_sets_are_seen_in_one_poll(polls, pairs):
    for ours, theirs in pairs:
        polls.register(ours.fileno(), READ)
        theirs.send(b"x")
    polls.to_batched(pairs[1][0].fileno(), READ)
    assert {descriptor for descriptor, _ in seen(polls)} == {ours.fileno() for ours, _ in pairs}


def test_a_batched_stream_waits_for_a_nap_and_an_immediate_one_for_nothing(polls, pairs):
    ours, theirs = pairs[0]
    polls.register(ours.fileno(), READ)
    polls.to_batched(ours.fileno(), READ)
    theirs.send(b"x")
    start = time.monotonic()
    assert seen(polls) == [(ours.fileno(), READ)]
    assert NAP_S / 2 < time.monotonic() - start < 60
    polls.to_immediate(ours.fileno(), READ)
    assert polls.poll(60) == [(ours.fileno(), READ)]
    assert polls.batched == set()


def test_what_is_urgent_interrupts_a_batch(polls):
    pairs = [socket.socketpair() for _ in range(40)]
    urgent, *paced = pairs
    for ours, theirs in pairs:
        polls.register(ours.fileno(), READ)
        if ours is not urgent[0]:
            polls.to_batched(ours.fileno(), READ)
            theirs.send(b"x")
    assert polls.poll(0) == []
    batch = polls.poll_batched()
    assert 0 < len(next(batch)) < len(paced)
    urgent[1].send(b"x")
    assert next(batch, None) is None
    assert seen(polls)[0] == (urgent[0].fileno(), READ)
    for pair in pairs:
        for end in pair:
            end.close()


def test_another_mask_is_kept_in_either_set(polls, pairs):
    ours = pairs[0][0]
    polls.register(ours.fileno(), READ)
    polls.modify(ours.fileno(), READ | select.EPOLLOUT)
    assert polls.poll(60) == [(ours.fileno(), select.EPOLLOUT)]
    polls.to_batched(ours.fileno(), READ)
    polls.modify(ours.fileno(), READ | select.EPOLLOUT)
    assert seen(polls) == [(ours.fileno(), select.EPOLLOUT)]


@pytest.fixture
def batched_from_one(monkeypatch):
    monkeypatch.setattr(client_module, "_BATCHED_FROM", 1)


class Paced:
    """Plays one answer for each request, a chunk for each ``go``; ``end`` is what it does afterwards."""

    def __init__(self, *events, end=None):
        self.events, self.end, self._go = events, end, threading.Semaphore(0)

    def __call__(self, connection):
        while request := read_request(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for number, made in enumerate(self.events, start=1):
                self._go.acquire(timeout=PATIENCE_S)
                event = with_id_of(request, made)
                last = b"" if number < len(self.events) or self.end else b"0\r\n\r\n"
                connection.sendall(b"%x\r\n%b\r\n%b" % (len(event), event, last))
            if self.end:
                self._go.acquire(timeout=PATIENCE_S)
                self.end(connection)

    def go(self, driver, until):
        """The next event, well after the last one, and what the client makes of it."""
        time.sleep(GAP_S)
        self._go.release()
        driver.poll_until(until)


def test_a_paced_stream_is_batched_and_its_connection_serves_the_next_query(drive, batched_from_one):
    script = Paced(FIRST, SECOND, LAST)
    with scripted(script) as (url, held):
        driver = drive(url)
        for _ in range(2):
            query = driver.start()
            script.go(driver, lambda: query in driver.firsts)  # noqa: B023
            script.go(driver, lambda: driver.client._poller.batched)
            script.go(driver, lambda: query in driver.outcomes)  # noqa: B023
            assert driver.outcomes[query].output_ids.tolist() == GREEDY[:3]
            assert driver.client._poller.batched == set()
        assert len(held) == 1


def test_few_streams_stay_urgent(drive):
    script = Paced(FIRST, SECOND, LAST)
    with scripted(script) as (url, _):
        driver = drive(url)
        request = driver.requests[driver.start()]
        for tokens in (1, 2):
            script.go(driver, lambda: request.reader.tokens == tokens)  # noqa: B023
            assert driver.client._poller.batched == set()
        script.go(driver, lambda: driver.outcomes)


BROKEN = SECOND.replace(b"]", b"")


@pytest.mark.parametrize(
    ("third", "end", "kind"),
    [
        (SECOND, None, FailureKind.TIMEOUT),
        (BROKEN, None, FailureKind.MALFORMED),
        (SECOND, reset, FailureKind.TRUNCATED),
        (BROKEN, reset, FailureKind.MALFORMED),
    ],
)
def test_events_of_a_batched_stream_are_deferred_until_the_end_or_a_deadline(
    drive, batched_from_one, pass_time, third, end, kind
):
    script = Paced(FIRST, SECOND, third, *([] if end else [LAST]), end=end)
    with scripted(script) as (url, _):
        driver = drive(url, timeout_s=600)
        query = driver.start()
        reader = driver.requests[query].reader
        script.go(driver, lambda: driver.firsts)
        script.go(driver, lambda: driver.client._poller.batched)
        script.go(driver, lambda: reader._deferred)
        assert reader.tokens == 2
        if end:
            script.go(driver, lambda: driver.outcomes)
        else:
            pass_time(601)
            driver.poll_until(lambda: driver.outcomes)
        assert_failed(driver.outcomes[query], kind)
        assert driver.client._poller.batched == set()
