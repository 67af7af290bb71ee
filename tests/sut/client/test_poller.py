"""A client's paced streams are read in batches: nothing is lost, and every answer is checked."""

import select
import socket
import threading
import time

import pytest

from harness.config.deadlines import Deadlines
from harness.record.outcome import FailureKind
from sut.client import client as client_module
from sut.client.network_figures import Network
from sut.client.poller import Poller
from sut.client.transport import KernelClock
from tests.kit import PATIENCE_S, assert_failed, read_request, reset, scripted
from tests.sut.driver import with_id_of
from tests.sut.wire.judging import GREEDY, cumulative

pytestmark = pytest.mark.usefixtures("is_native")
READ = select.EPOLLIN
GAP_S = 0.02
FIRST, SECOND, LAST = (b"data: %b\n\n" % event for event in cumulative(1, 2, 3))


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def polls():
    made = Poller(KernelClock(), 1 << 62)
    yield made
    made.close()


def test_without_batched_streams_a_poll_waits_as_long_as_it_may(polls, pair):
    polls.register(pair[0].fileno(), READ)
    start = time.monotonic()
    assert polls.poll(0.05) == []
    assert time.monotonic() - start >= 0.045
    assert list(polls.read_batched()) == []


def test_another_mask(polls, pair):
    ours = pair[0].fileno()
    polls.register(ours, READ)
    polls.modify(ours, READ | select.EPOLLOUT)
    assert polls.poll(60) == [(ours, select.EPOLLOUT)]


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
            script.go(driver, lambda: request.reader.answer.tokens == tokens)  # noqa: B023
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
def test_events_of_a_batched_stream_are_kept_until_the_end_or_a_deadline(
    drive, batched_from_one, pass_time, third, end, kind
):
    script = Paced(FIRST, SECOND, third, *([] if end else [LAST]), end=end)
    with scripted(script) as (url, _):
        driver = drive(url, timeout_s=600)
        query = driver.start()
        reader = driver.requests[query].reader
        script.go(driver, lambda: driver.firsts)
        for _ in range(2):
            receptions = driver.client.receptions
            script.go(driver, lambda: driver.client.receptions > receptions)  # noqa: B023
            assert driver.client._poller.batched
        assert reader.answer.tokens < 3
        if end:
            script.go(driver, lambda: driver.outcomes)
        else:
            pass_time(601)
            driver.poll_until(lambda: driver.outcomes)
        assert_failed(driver.outcomes[query], kind)
        assert driver.client._poller.batched == set()


def test_a_silence_that_was_too_long_fails_an_answer_that_came_on(drive):
    """Seen only now, when the next bytes are there: their arrival decides."""
    script = Paced(FIRST, SECOND, LAST)
    with scripted(script) as (url, _):
        driver = drive(url, deadlines=Deadlines(request_s=600, stall_s=GAP_S / 2))
        query = driver.start()
        reader = driver.requests[query].reader
        script.go(driver, lambda: driver.firsts)
        driver.client._deadlines._heap.clear()
        script.go(driver, lambda: driver.outcomes or reader.answer.tokens == 2)
        assert_failed(driver.outcomes[query], FailureKind.TIMEOUT, "nothing more")
        script.go(driver, lambda: True)


def test_what_is_kept_of_a_batched_stream_has_arrived(drive, batched_from_one, monkeypatch):
    monkeypatch.setattr(client_module, "_ARRIVALS_NS", 0)
    script = Paced(FIRST, SECOND, SECOND, LAST)
    with scripted(script) as (url, _):
        driver = drive(url)
        driver.start()
        (replica,) = driver.client._replicas
        script.go(driver, lambda: driver.firsts)
        first_ns = replica.arrived_ns
        assert first_ns
        for _ in range(2):
            receptions = driver.client.receptions
            script.go(driver, lambda: driver.client.receptions > receptions)  # noqa: B023
        driver.client.tick()
        noted_ns = replica.network[Network.ARRIVED_NS]
        assert noted_ns >= first_ns + int(GAP_S * 1e9)
        time.sleep(10 * GAP_S)  # nothing comes; the kernel's times are some ms apart
        driver.client.tick()
        assert replica.network[Network.ARRIVED_NS] <= noted_ns + int(GAP_S * 1e9)
