"""Every fault is a failure of its kind and touches no other request."""

import json
import re
import socket
import threading
import time

import pytest
from msgspec.structs import replace

from harness.config.deadlines import Deadlines
from harness.record import failure_details
from harness.record.outcome import Completion, Failure, FailureKind
from sut.client import connections, poller
from sut.client.deadline_watch import DeadlineWatch
from sut.client.transport import PlainTransport
from tests.kit import assert_failed, make_request, read_request, reset, scripted, wait_until
from tests.stub import Fault, StubServer, refused_url
from tests.sut.driver import KINDS, TIMES, answer, assert_completed, with_id_of
from tests.sut.wire.judging import cumulative


def test_no_more_descriptors(drive, monkeypatch):
    def refuse(*args):
        raise OSError(24, "Too many open files")

    with StubServer() as stub:
        driver = drive(stub.url)
        (replica,) = driver.client._replicas
        (pair,) = replica.pairs
        replica.pairs = (pair, replace(pair, address=("127.0.0.2", pair.address[1])))
        monkeypatch.setattr(connections, "PlainTransport", refuse)
        assert_failed(driver.ask(), FailureKind.LOCAL_LIMIT, "allow more open files (ulimit -n)")
        assert len(replica.pairs) == 2  # no address of its name is at fault
        monkeypatch.undo()
        assert_completed(driver.ask())


@pytest.mark.parametrize("fault", KINDS, ids=lambda fault: fault.name)
def test_every_fault_is_a_failure_of_its_kind_and_the_next_request_is_fine(drive, pass_time, fault):
    with StubServer(faults=[None, fault, None]) as stub:
        driver = drive(stub.url, timeout_s=600)
        assert_completed(driver.ask())
        query = driver.start()
        if fault.late:
            pass_time(601)
        assert_failed(driver.wait(query)[0], KINDS[fault])
        assert_completed(driver.ask())
        assert not driver.client.in_flight


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"HTTP/1.1 504 -\r\ncontent-length: 2\r\n\r\nno", r"HTTP 504, .* s after its request.*: no"),
        (
            b"HTTP/1.1 200 -\r\ncontent-length: 9\r\n\r\n",
            r".* s after its request, .* s after the last bytes",
        ),
        (b"", r".* s after its request.*"),
    ],
)
def test_what_another_ends_has_its_time(drive, monkeypatch, sent, said):
    # The kernel's stamp of an answer may be before the end of the call that has sent its request.
    monkeypatch.setattr(failure_details, "_LONG_NS", -(10**12))

    def script(connection):
        read_request(connection)
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_RDWR)

    with scripted(script) as (url, _):
        outcome = drive(url).ask()
    assert isinstance(outcome, Failure)
    assert re.fullmatch(said, outcome.detail), outcome


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


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (b"413 Content Too Large", FailureKind.HTTP_STATUS, "HTTP 413"),
        (b"200 OK", FailureKind.HTTP_PROTOCOL, "before its request was sent"),
    ],
)
def test_an_early_answer_to_a_large_request_is_told(drive, status, kind, said):
    """A server may answer 413 before it has read the body, and read on."""
    told = threading.Event()

    def script(connection):
        connection.recv(1000)
        connection.sendall(answer(head=b"HTTP/1.1 %b\r\n" % status))
        told.wait(60)
        while connection.recv(1 << 16):
            continue

    with scripted(script) as (url, _):
        driver = drive(url)
        outcome = driver.ask([200000] * 3_000_000)  # more than the kernel takes
        told.set()
        assert_failed(outcome, kind, said)
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
        assert json.loads(received[0][1])["input_ids"] == prompt
        request = driver.requests[query]
        assert request.sent_ns > started + 100_000_000


def test_timeouts_do_not_touch_younger_requests(drive, pass_time):
    with StubServer(faults=[Fault.SILENT, None, None]) as stub:
        driver = drive(stub.url, timeout_s=600)
        first = driver.start()
        pass_time(500)
        others = [driver.start() for _ in range(2)]
        pass_time(200)
        assert_failed(driver.wait(first)[0], FailureKind.TIMEOUT)
        for outcome in driver.wait(*others):
            assert_completed(outcome)


def test_comments_do_not_hold_a_stream_open(drive):
    """Gateways send them as long as the connection to an engine stands, one that hangs among them."""

    def pings(connection):
        event = with_id_of(read_request(connection), b"data: %b\n\n" % cumulative(1)[0])
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"%x\r\n%b\r\n" % (len(event), event))
        while True:
            connection.sendall(b"8\r\n: ping\n\n\r\n")
            time.sleep(0.01)

    with scripted(pings) as (url, _):
        driver = drive(url, deadlines=Deadlines(request_s=600, stall_s=0.5))
        assert_failed(driver.ask(), FailureKind.TIMEOUT, "nothing more within 0.5 s; 1 token had arrived")
        assert driver.client.receptions == 1


def test_a_connection_that_is_never_made_fails(drive):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        times = replace(TIMES, connect_ns=200_000_000)
        driver = drive(f"http://127.0.0.1:{listener.getsockname()[1]}", times=times)
        for _ in range(4):
            driver.start()
        driver.poll_until(lambda: driver.outcomes)
        late = [outcome for outcome in driver.outcomes.values() if isinstance(outcome, Failure)]
        assert late
        for outcome in late:
            assert_failed(outcome, FailureKind.CONNECT, "0.2 s")


def test_a_name_with_another_address_is_waited_for_less(drive, pass_time, monkeypatch):
    with StubServer() as stub:
        driver = drive(stub.url)
        (replica,) = driver.client._replicas
        (pair,) = replica.pairs
        replica.pairs = (pair, replace(pair, address=("127.1", pair.address[1])))
        with monkeypatch.context() as silent:
            silent.setattr(PlainTransport, "ready", lambda transport: False)
            driver.start()
            pass_time(3)  # of 10 s for the only address of a name
            for _ in range(2):  # the first tick sees that the process stood still
                driver.client.tick()
            assert driver.client.opened == 2
        assert_completed(driver.wait()[0])


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
        driver.poll_until(lambda: len(driver.outcomes) >= 30)
        assert len(driver.outcomes) == len(stub.requests)


@pytest.mark.parametrize(
    ("tokens", "deadlines", "wording"),
    [
        (0, Deadlines(request_s=900, first_token_s=300), "no token within 300 s; 0 tokens"),
        (1, Deadlines(request_s=900, stall_s=300), "nothing more within 300 s; 1 token had"),
        (1, Deadlines(request_s=400, first_token_s=300, stall_s=500), "no end within 400 s; 1 token had"),
    ],
)
def test_deadline_of_its_own(drive, pass_time, tokens, deadlines, wording):
    fault = Fault.SILENT_AFTER_FIRST if tokens else Fault.SILENT
    with StubServer(faults=[fault, None]) as stub:
        driver = drive(stub.url, deadlines=deadlines)
        query = driver.start()
        driver.poll_until(lambda: stub.requests and len(driver.firsts) == tokens)
        pass_time(450)
        assert_failed(driver.wait(query)[0], FailureKind.TIMEOUT, wording)
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
    """The client's own look is put off until all has arrived: the arrival decides.

    It reads the first event before the second is sent: of those read together only the last has its time.
    """
    drivers = []
    with StubServer(**delays, event_gate=lambda request, number: number == 0 or drivers[0].firsts) as stub:
        driver = drive(stub.url, deadlines=deadlines)
        drivers.append(driver)
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
            assert_failed(driver.outcomes[query], FailureKind.TIMEOUT, "0.3 s")


@pytest.mark.parametrize(("now_s", "late"), [(129, False), (131, True)])
def test_silence_is_counted_from_the_last_event(now_s, late):
    request = make_request([1])
    request.started_ns, request.reader.first_token_ns, request.reader.last_event_ns = 0, 10**9, 100 * 10**9
    in_flight = {0: request}
    watch = DeadlineWatch(Deadlines(request_s=600, first_token_s=30, stall_s=30), in_flight)
    watch.add(request)
    assert bool(list(watch.due(now_s * 10**9))) is bool(watch.missed(request, now_s * 10**9)) is late
    in_flight.clear()
    waiting = in_flight[1] = make_request([1], 1)
    watch.add(waiting)
    for _ in range(3000):  # ended requests do not fill the deadlines
        watch.add(request)
    assert len(watch._heap) < 1200
    assert list(watch.due(10**12)) == [waiting]


@pytest.mark.parametrize(
    ("first_s", "before_s", "last_s", "said"),
    [
        (30, 580, 600, ""),
        (30, 580, 601, "no end within 600 s"),
        (31, 580, 600, "no token within 30 s"),
        (30, 570, 600, ""),
        (30, 569, 600, "nothing more within 30 s"),
        (30, 29, 60, ""),  # before the first token no silence counts
    ],
)
def test_the_end_of_an_answer_is_judged_by_arrivals(first_s, before_s, last_s, said):
    request = make_request([1])
    request.started_ns, reader = 10**9, request.reader
    reader.first_token_ns, reader.last_byte_ns = (1 + first_s) * 10**9, (1 + last_s) * 10**9
    watch = DeadlineWatch(Deadlines(request_s=600, first_token_s=30, stall_s=30), {})
    failure = watch.missed_at_end(request, (1 + before_s) * 10**9)
    assert said in failure.detail if said else failure is None


def test_every_silent_stream_of_many_is_found(drive, pass_time):
    with StubServer(faults=lambda request: Fault.SILENT_AFTER_FIRST if request.index % 2 else None) as stub:
        driver = drive(stub.url, deadlines=Deadlines(request_s=900, stall_s=300))
        for _ in range(100):
            driver.start()
            driver.client.poll(0)
        driver.poll_until(lambda: len(driver.outcomes) == 50)
        driver.poll_until(lambda: all(request.reader.answer.tokens for request in driver.requests.values()))
        pass_time(301)
        outcomes = driver.wait()
    failed = [outcome.kind for outcome in outcomes if isinstance(outcome, Failure)]
    assert failed == [FailureKind.TIMEOUT] * 50


def test_a_pause_of_the_process_is_not_the_server_s(drive, pass_time, monkeypatch):
    """What has arrived while the process stood still is read before anything is called late."""
    monkeypatch.setattr(poller, "EVENTS_A_ROUND", 1)  # more answers than events that one poll gives
    sent = threading.Event()
    with StubServer(gate=lambda request: sent.is_set()) as stub:
        driver = drive(stub.url, deadlines=Deadlines(request_s=600, stall_s=300))
        for _ in range(3):
            driver.start()
        while not all(request.sent_ns for request in driver.requests.values()):
            driver.client.poll(0.01)
        sent.set()
        wait_until(lambda: sum(request.answered for request in stub.requests) == 3)  # and nobody reads
        pass_time(601)
        driver.client.tick()
        for outcome in driver.wait():
            assert_completed(outcome)


def test_a_connection_that_was_made_during_a_pause_of_the_process_is_used(drive, pass_time):
    with StubServer() as stub:
        driver = drive(stub.url, timeout_s=7200)
        driver.start()
        pass_time(3600)
        driver.client.tick()
        assert_completed(driver.wait()[0])


def test_a_refused_connection_is_enough(drive):
    with refused_url() as url, StubServer() as stub:
        driver = drive(url, stub.url)
        outcomes = [driver.ask() for _ in range(6)]
    assert driver.suspects == [0]
    assert [type(outcome) for outcome in outcomes] == [Failure] + [Completion] * 5


def test_three_failures_in_a_row(drive):
    faults = [Fault.HTTP_503, Fault.RESET_AT_ONCE, None]
    faults += [Fault.HTTP_503, Fault.CUT_CHUNKED, Fault.HTTP_500, Fault.HTTP_503, None]
    with StubServer(faults=faults) as stub:
        driver = drive(stub.url)
        for _ in range(5):
            driver.ask()
        assert driver.suspects == []
        driver.ask()
        assert driver.suspects == [0]
        assert not driver.client.can_start
        driver.client.trust(0)
        driver.ask()
        assert driver.suspects == [0]
        assert driver.client.can_start
        assert_completed(driver.ask())


def test_a_wrong_answer_is_no_sign_of_death(drive):
    with StubServer(faults=Fault.NAN_ID) as stub:
        driver = drive(stub.url)
        for _ in range(5):
            assert_failed(driver.ask(), FailureKind.MALFORMED)
    assert driver.suspects == []
