"""Every fault is a failure of its kind and touches no other request."""

import socket
import time

import pytest

from harness.config.deadlines import Deadlines
from harness.record.outcome import Completion, Failure, FailureKind
from tests.faults.matrix import ANSWERS, INCREMENTAL
from tests.stub import BENIGN, Fault, StubServer, refused_url
from tests.sut.driver import (
    KINDS,
    WIRE,
    answer,
    assert_completed,
    assert_failed,
    read_request,
    reset,
    scripted,
)

# -- failures


def test_connection_refused(drive):
    with refused_url() as url:
        assert_failed(drive(url).ask(), FailureKind.CONNECT, url)


def test_no_more_descriptors(drive, monkeypatch):
    def refuse(*args):
        raise OSError(24, "Too many open files")

    with StubServer() as stub:
        driver = drive(stub.url)
        monkeypatch.setattr("sut.client.connections.PlainTransport", refuse)
        assert_failed(driver.ask(), FailureKind.LOCAL_LIMIT, "Too many open files")
        monkeypatch.undo()
        assert_completed(driver.ask())


@pytest.mark.parametrize("fault", KINDS, ids=lambda fault: fault.name)
def test_every_fault_is_a_failure_of_its_kind_and_the_next_request_is_fine(drive, fault):
    with StubServer(faults=[None, fault, None]) as stub:
        driver = drive(stub.url, timeout_s=0.3)
        assert_completed(driver.ask())
        assert_failed(driver.ask(), KINDS[fault])
        assert_completed(driver.ask())
        assert not driver.client.in_flight


def test_every_fault_of_the_stub_is_accounted_for():
    whole = {row.fault for row in ANSWERS if not row.named}
    harmless_when_cumulative = {row.fault for row in INCREMENTAL}
    assert set(Fault) == set(KINDS) | whole | BENIGN | harmless_when_cumulative


@pytest.mark.parametrize(
    "fault", [Fault.CRLF, Fault.BYTEWISE, Fault.REPEATED_EVENT, Fault.SKIPPED_EVENT, Fault.SLOW_HEADERS]
)
def test_odd_but_whole_answers_complete(drive, fault):
    with StubServer(faults=fault, drip_s=0.001) as stub:
        driver = drive(stub.url)
        for i in range(2):
            assert_completed(driver.ask([6, i]), [6, i])


def test_one_token(drive):
    with StubServer(faults=Fault.ONE_TOKEN) as stub:
        assert_completed(drive(stub.url).ask(), count=1)


@pytest.mark.parametrize("after", [0, 1, 15, 17, 60, 100, 250])
@pytest.mark.parametrize("end", [socket.socket.close, reset])
def test_an_answer_that_stops_after_some_bytes(drive, after, end):
    def script(connection):
        read_request(connection)
        connection.sendall(answer(head=b"HTTP/1.1 200 OK\r\nx: %b\r\n" % (b"y" * 120))[:after])
        time.sleep(0.03)
        end(connection)

    with scripted(script) as (url, _):
        assert_failed(drive(url).ask(), FailureKind.TRUNCATED if after else FailureKind.NO_RESPONSE)


@pytest.mark.parametrize("taken", [0, 1, 100_000])
def test_a_reset_while_the_request_is_written(drive, taken):
    def script(connection):
        while taken and len(connection.recv(taken, socket.MSG_PEEK)) < min(taken, 1000):
            continue
        time.sleep(0.03)
        reset(connection)

    with scripted(script) as (url, _):
        outcome = drive(url).ask([200000] * 1_500_000)
        assert isinstance(outcome, Failure)
        assert outcome.kind in (FailureKind.SEND, FailureKind.NO_RESPONSE)


def test_an_early_refusal_of_a_large_request_is_told(drive):
    """A server may answer 413 before it has read the body, and read on."""

    def script(connection):
        connection.recv(1000)
        connection.sendall(answer(head=b"HTTP/1.1 413 Content Too Large\r\n"))
        while connection.recv(1 << 16):
            continue

    with scripted(script) as (url, _):
        driver = drive(url)
        assert_failed(driver.ask([200000] * 1_500_000), FailureKind.HTTP_STATUS, "HTTP 413")
        assert driver.client.keeps_alive() == [False]


def test_a_slow_reader_gets_a_large_request_whole(drive):
    received = []

    def script(connection):
        time.sleep(0.1)
        received.append(read_request(connection))
        connection.sendall(answer())

    prompt = list(range(200_000)) * 5
    with scripted(script) as (url, _):
        driver = drive(url)
        started = time.monotonic_ns()
        query = driver.start(prompt)
        assert driver.requests[query].sent_ns == 0
        assert isinstance(driver.wait(query)[0], Completion)
        assert received[0].partition(b"\r\n\r\n")[2] == WIRE.render(prompt)
        request = driver.requests[query]
        assert request.sent_ns > started + 100_000_000


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.SILENT_AFTER_FIRST])
def test_timeout(drive, fault):
    with StubServer(faults=fault) as stub:
        driver = drive(stub.url, timeout_s=0.4)
        outcome = driver.ask()
        tokens = 1 if fault is Fault.SILENT_AFTER_FIRST else 0
        assert_failed(outcome, FailureKind.TIMEOUT, f"{tokens} tokens had arrived")
        assert driver.firsts == [0] * tokens


def test_timeouts_do_not_touch_younger_requests(drive):
    with StubServer(faults=[Fault.SILENT, None, Fault.SILENT, None], event_delay_s=0.02) as stub:
        driver = drive(stub.url, timeout_s=0.4)
        first = driver.start()
        driver.poll(0.25)
        others = [driver.start() for _ in range(3)]
        assert_failed(driver.wait(first)[0], FailureKind.TIMEOUT)
        kinds = sorted(isinstance(outcome, Completion) for outcome in driver.wait(*others))
        assert kinds == [False, True, True]


def test_a_connection_that_is_never_made_fails(drive, monkeypatch):
    monkeypatch.setattr("sut.client.client._CONNECT_TIMEOUT_NS", 200_000_000)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        driver = drive(f"http://127.0.0.1:{listener.getsockname()[1]}")
        for _ in range(4):
            driver.start()
        driver.poll(0.5)
        late = [outcome for outcome in driver.outcomes.values() if isinstance(outcome, Failure)]
        assert late
        for outcome in late:
            assert_failed(outcome, FailureKind.CONNECT, "no connection within")


def test_a_new_request_may_be_started_where_another_ends(drive):
    """on_done may start the next one at once, on a descriptor that was just closed."""
    with StubServer(faults=lambda request: Fault.RESET_MIDDLE if request.index % 2 else None) as stub:
        driver = drive(stub.url)
        record = driver._done

        def done(request, outcome):
            record(request, outcome)
            if len(driver.requests) < 30:
                driver.start()

        driver.client._on_done = done
        for _ in range(4):
            driver.start()
        until = time.monotonic() + 60
        while len(driver.outcomes) < 30 and time.monotonic() < until:
            driver.client.poll(0.05)
        assert len(driver.outcomes) >= 30
        assert len(driver.outcomes) == len(stub.requests)


# -- deadlines of their own for the first token and for silence


@pytest.mark.parametrize(
    ("fault", "deadlines", "wording"),
    [
        (Fault.SILENT, Deadlines(request_s=30, first_token_s=0.3), "no token within 0.3 s; 0 tokens"),
        (
            Fault.SILENT_AFTER_FIRST,
            Deadlines(request_s=30, stall_s=0.3),
            "nothing more within 0.3 s; 1 tokens",
        ),
        (
            Fault.SILENT_AFTER_FIRST,
            Deadlines(request_s=0.4, first_token_s=30, stall_s=30),
            "no end within 0.4 s; 1 tokens",
        ),
    ],
)
def test_deadline_of_its_own(drive, fault, deadlines, wording):
    with StubServer(faults=[fault, None]) as stub:
        driver = drive(stub.url, deadlines=deadlines)
        assert_failed(driver.ask(), FailureKind.TIMEOUT, wording)
        assert_completed(driver.ask())


@pytest.mark.parametrize(
    ("delays", "deadlines", "wording"),
    [
        ({"event_delay_s": 0.1}, Deadlines(request_s=0.35), "no end within 0.35 s; 6 tokens"),
        (
            {"first_delay_s": 0.3},
            Deadlines(request_s=30, first_token_s=0.2),
            "no token within 0.2 s; 6 tokens",
        ),
        ({"event_delay_s": 0.3}, Deadlines(request_s=30, stall_s=0.2), "nothing more within 0.2 s"),
        ({}, Deadlines(request_s=0.000001), "no end within 1e-06 s"),
    ],
)
def test_a_complete_answer_beyond_a_deadline_is_a_failure(drive, delays, deadlines, wording):
    """The client's own look is put off until all has arrived: the arrival decides."""
    with StubServer(**delays) as stub:
        driver = drive(stub.url, deadlines=deadlines)
        query = driver.start()
        driver.client._deadlines._heap.clear()
        assert_failed(driver.wait(query)[0], FailureKind.TIMEOUT, wording)


def test_the_next_deadline_bounds_the_wait(drive):
    """A client that may wait for a minute looks when a deadline passes, and not later."""
    with StubServer(faults=[Fault.SILENT, Fault.SILENT_AFTER_FIRST]) as stub:
        driver = drive(stub.url, deadlines=Deadlines(request_s=0.3, stall_s=20))
        for _ in range(2):
            query = driver.start()
            while query not in driver.outcomes:
                driver.client.poll(60)  # pytest's own limit ends the test otherwise
            assert_failed(driver.outcomes[query], FailureKind.TIMEOUT, "no end within 0.3 s")


def test_ended_requests_do_not_fill_the_deadlines(drive):
    with StubServer() as stub:
        driver = drive(stub.url, deadlines=Deadlines(request_s=3600))
        for _ in range(1500):
            driver.start()
            driver.client.poll(0)
            if len(driver.client.in_flight) > 20:
                driver.wait()
        driver.wait()
        assert len(driver.client._deadlines._heap) < 1200


def test_slow_but_not_silent(drive):
    """Six tokens 0.15 s apart take longer than the silence that is allowed, and are never silent so long."""
    with StubServer(event_delay_s=0.15) as stub:
        driver = drive(stub.url, deadlines=Deadlines(request_s=30, first_token_s=0.6, stall_s=0.6))
        assert_completed(driver.ask())


def test_every_silent_stream_of_many_is_found(drive):
    with StubServer(faults=lambda request: Fault.SILENT_AFTER_FIRST if request.index % 2 else None) as stub:
        driver = drive(stub.url, deadlines=Deadlines(request_s=30, stall_s=0.5))
        for _ in range(600):
            driver.start()
            driver.client.poll(0)
        outcomes = driver.wait(seconds=20)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert len(failed) == 300
    assert {outcome.kind for outcome in failed} == {FailureKind.TIMEOUT}


def test_a_pause_of_the_process_is_not_the_server_s(drive):
    """What has arrived while the process stood still is read before anything is called late."""
    with StubServer(event_delay_s=0.1) as stub:
        driver = drive(stub.url, deadlines=Deadlines(request_s=1.2, stall_s=0.5))
        query = driver.start()
        driver.poll(0.2)
        time.sleep(2)  # stopped
        driver.client.tick()
        assert_completed(driver.wait(query)[0])


# -- replicas that look dead


def test_a_refused_connection_is_enough(drive):
    with refused_url() as url, StubServer() as stub:
        driver = drive(url, stub.url)
        outcomes = [driver.ask() for _ in range(6)]
    assert driver.suspects == [0]
    assert [type(outcome) for outcome in outcomes] == [Failure] + [Completion] * 5


def test_three_failures_in_a_row(drive):
    faults = [
        Fault.HTTP_503,
        Fault.RESET_AT_ONCE,
        None,
        Fault.HTTP_503,
        Fault.CUT_CHUNKED,
        Fault.HTTP_500,
        None,
    ]
    with StubServer(faults=faults) as stub:
        driver = drive(stub.url)
        for _ in range(5):
            driver.ask()
        assert driver.suspects == []
        driver.ask()
        assert driver.suspects == [0]
        assert not driver.client.can_start
        driver.client.trust(0)
        assert driver.client.can_start
        assert_completed(driver.ask())


def test_a_wrong_answer_is_no_sign_of_death(drive):
    with StubServer(faults=Fault.NAN_ID) as stub:
        driver = drive(stub.url)
        for _ in range(5):
            assert_failed(driver.ask(), FailureKind.MALFORMED)
    assert driver.suspects == []
