"""Times are the server's, and nothing stands between client and server."""

import threading
import time

import pytest

from sut.client.transport import PlainTransport
from tests.stub import StubServer, refused_url
from tests.sut.driver import assert_completed


def test_first_token_is_told_once_and_before_the_end(drive):
    told = threading.Event()
    with StubServer(event_gate=lambda request, number: number == 0 or told.is_set()) as stub:
        driver = drive(stub.url)
        queries = [driver.start([8, i]) for i in range(5)]
        driver.poll_until(lambda: len(driver.firsts) == len(queries))
        assert not driver.outcomes
        told.set()
        driver.wait()
        assert sorted(driver.firsts) == queries


def test_the_head_of_an_answer_is_no_sign_of_work(drive):
    """uvicorn sends it at once: with a hung SGLang something arrived until LoadGen had issued all queries."""
    works = threading.Event()
    with StubServer(event_gate=lambda request, number: works.is_set()) as stub:
        driver = drive(stub.url)
        query = driver.start()
        driver.poll_until(lambda: driver.requests[query].reader.last_byte_ns)
        (replica,) = driver.client._replicas
        assert (driver.client.receptions, replica.arrived_ns) == (0, 0)
        works.set()
        driver.wait()
        assert driver.client.receptions and replica.arrived_ns


@pytest.mark.parametrize("cumulative", [True, False])
def test_tokens_of_answers_in_flight_are_counted_while_they_come(drive, cumulative):
    seen = set()
    with StubServer(event_gate=lambda request, number: len(seen) >= number, cumulative=cumulative) as stub:
        driver = drive(stub.url)
        for i in range(3):
            driver.start([8, i])
        while driver.client.in_flight:
            driver.client.poll(0.05)
            in_flight = driver.client.in_flight.values()
            assert driver.client.partial_tokens == sum(request.reader.answer.tokens for request in in_flight)
            seen.add(driver.client.partial_tokens)
        assert driver.client.partial_tokens == 0
        assert len(seen) > 2


def test_times_are_the_servers_even_when_the_client_is_busy(drive):
    """Nothing of the 1.5 s in which we do not look gets into them."""
    with StubServer() as stub:
        driver = drive(stub.url)
        query = driver.start()
        driver.poll_until(lambda: driver.requests[query].sent_ns)
        time.sleep(1.5)
        driver.wait()
        request, seen = driver.requests[query], stub.requests[0]
        reader = request.reader
        late = [reader.first_token_ns - seen.first_sent_ns, reader.last_byte_ns - seen.last_sent_ns]
        assert all(-20_000_000 < ns < 750_000_000 for ns in late), late
        # sent_ns is read after the send: a quick server may have answered by then.
        assert request.started_ns <= min(request.sent_ns, reader.first_byte_ns)
        assert reader.first_byte_ns <= reader.first_token_ns <= reader.last_byte_ns


def test_bytes_that_waited_for_a_lost_segment_have_the_time_of_their_read(drive, monkeypatch):
    monkeypatch.setattr(PlainTransport, "complete_ns", lambda transport, arrived_ns: arrived_ns + 10**11)
    with StubServer() as stub:
        driver = drive(stub.url)
        assert_completed(driver.ask())
        reader = driver.requests[0].reader
    assert time.monotonic_ns() < reader.first_byte_ns <= reader.first_token_ns <= reader.last_byte_ns


def test_a_step_of_the_wall_clock_is_noticed_though_nothing_arrives(drive):
    driver = drive("http://127.0.0.1:1")
    driver.client._clock.offset_ns -= 10**9
    driver.client.tick()
    assert driver.client.clock_steps_ns == pytest.approx(10**9, rel=0.1)


def test_messages_are_sent_in_each_poll(drive):
    driver, calls = drive("http://127.0.0.1:1"), []
    driver.client._on_urgent_done = lambda: calls.append(1)
    driver.client.poll(0)
    assert calls == [1]


def test_proxies_of_the_environment_are_not_used(drive, monkeypatch):
    with StubServer() as stub, refused_url() as dead:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
            monkeypatch.setenv(name, dead)
        assert_completed(drive(stub.url).ask())
