"""Connections are kept, dropped and spread over replicas as servers deserve."""

import gc
import socket
import threading

import numpy as np
import pytest
from msgspec.structs import replace

from harness.record.outcome import Completion, FailureKind, TextCompletion
from sut.client.connections import Request
from sut.client.endpoint import Access, resolve_endpoint
from sut.client.response import ResponseReader
from tests.kit import PATIENCE_S, assert_failed, make_request, read_request, reset, scripted, wait_until
from tests.stub import Fault, StubServer, refused_url
from tests.sut.driver import PROMPT, answer, assert_completed, with_id_of
from tests.sut.wire.judging import sglang_event


def test_one_connection_serves_one_request_after_the_other(drive):
    with StubServer() as stub:
        driver = drive(stub.url)
        for i in range(20):
            assert_completed(driver.ask([1, i]), [1, i])
        assert stub.connections == driver.client.opened == 1
        assert driver.client.keeps_alive() == [True]


def test_as_many_connections_as_requests_in_flight(drive):
    with StubServer(event_delay_s=0.01) as stub:
        driver = drive(stub.url)
        for _ in range(3):
            for i in range(16):
                driver.start([2, i])
            assert len(driver.client.in_flight) == 16
            driver.wait()
        for query, outcome in driver.outcomes.items():
            assert_completed(outcome, [2, query % 16])
        assert stub.connections == 16
        assert not driver.client.in_flight


@pytest.mark.parametrize("announced", [True, False])
def test_a_server_that_closes_after_each_answer(drive, announced):
    with StubServer(close_after_response=True, announce_close=announced) as stub:
        driver = drive(stub.url)
        for i in range(5):
            assert_completed(driver.ask([3, i]), [3, i])
            driver.poll_until(lambda: driver.client.keeps_alive() == [False])
        assert stub.connections == 5
        assert driver.client.keeps_alive() == [False]


@pytest.mark.parametrize("polled", [True, False])
@pytest.mark.parametrize("ending", [socket.socket.close, reset])
def test_an_idle_connection_that_the_server_closed_is_not_used(drive, ending, polled):
    """Also when its end is still unread while the next query comes."""

    def once(connection):
        connection.sendall(answer(to=read_request(connection)))
        ended.wait(PATIENCE_S)
        ending(connection)
        closed.set()

    def again(connection):
        while request := read_request(connection):
            connection.sendall(answer(to=request))

    ended, closed = threading.Event(), threading.Event()
    with scripted(once, again) as (url, _):
        driver = drive(url)
        assert isinstance(driver.ask(), Completion)
        (idle,) = driver.client._replicas[0].idle
        ended.set()
        assert closed.wait(PATIENCE_S)
        wait_until(lambda: not idle.transport.alive())
        if polled:
            driver.poll_until(lambda: driver.client.keeps_alive() == [False])
        assert isinstance(driver.ask(), Completion)
        assert driver.client.opened == 2


def test_bytes_that_nobody_asked_for_end_an_idle_connection(drive):
    def chatty(connection):
        while request := read_request(connection):
            connection.sendall(answer(7, to=request))
            answered.acquire(timeout=PATIENCE_S)
            connection.sendall(answer(8))
            said.release()

    answered, said = threading.Semaphore(0), threading.Semaphore(0)
    with scripted(chatty) as (url, _):
        driver = drive(url)
        for _ in range(3):
            outcome = driver.ask()
            assert isinstance(outcome, Completion)
            assert outcome.output_ids.tolist() == [7]
            (idle,) = driver.client._replicas[0].idle
            answered.release()
            assert said.acquire(timeout=PATIENCE_S)
            wait_until(lambda: not idle.transport.alive())  # noqa: B023
        assert driver.client.opened == 3


@pytest.mark.parametrize("closes", [False, True])
def test_without_the_requests_id_or_with_a_close_announced_a_connection_carries_one_request(drive, closes):
    """The server leaves it open all the same."""

    def answers(connection):
        while request := read_request(connection):
            head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
            connection.sendall(answer(head=head, to=request) if closes else answer())

    with scripted(answers) as (url, _):
        driver = drive(url)
        assert [type(driver.ask()) for _ in range(3)] == [Completion] * 3
        assert driver.client.opened == 3
        assert driver.client.keeps_alive() == [False]


@pytest.mark.parametrize("late", ["in time", "one request too late"])
def test_an_answer_with_another_requests_id_is_refused(drive, late):
    """A server that was found to repeat ids sends the answer of another request on this connection."""

    def of_another(connection):
        requests = []
        while request := read_request(connection):
            requests.append(request)
            connection.sendall(answer(to=requests[0] if late == "one request too late" else None))

    with scripted(of_another) as (url, _):
        driver = drive(url)
        replica = driver.client._replicas[0]
        replica.endpoint = replace(replica.endpoint, repeats_ids=True)
        outcomes = [driver.ask() for _ in range(2)]
        assert driver.client.keeps_alive() == [False]
    if late == "in time":
        assert_failed(outcomes[0], FailureKind.OTHER_REQUEST, "'x'")
    else:
        assert isinstance(outcomes[0], Completion)
    assert_failed(outcomes[1], FailureKind.OTHER_REQUEST, driver.requests[1].id)


def test_each_attempt_and_each_client_has_ids_of_its_own(drive):
    with StubServer(faults=Fault.HTTP_503) as stub:
        for driver in (drive(stub.url), drive(stub.url)):
            driver.wait(driver.start(), driver.start())
        rids = [request.body["rid"] for request in stub.requests]
    assert len(set(rids)) == 4
    assert len({len(rid) for rid in rids}) == 1


def test_a_repeated_prompt_is_compared(drive):
    """vLLM and SGLang can send the prompt back."""
    other = [200006, 17361]

    def repeats(connection):
        for prompt in (PROMPT, other):
            request = read_request(connection)
            event = sglang_event([7], 1, "stop", prompt_token_ids=prompt)
            event = with_id_of(request, event)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(event) + 8))
            connection.sendall(b"data: %b\n\n" % event)

    with scripted(repeats) as (url, _):
        driver = drive(url)
        assert isinstance(driver.ask(), Completion)
        assert_failed(driver.ask(), FailureKind.OTHER_REQUEST, "[200006,17361]")


def test_an_answer_to_another_prompt_ends_its_connection(drive):
    """One answer too many on a connection must not be followed by all others one request too late."""
    with StubServer() as stub:
        driver = drive(stub.url)
        outcomes = []
        for known in (2, 3, 2):
            query = driver.start([1, 2])
            driver.requests[query].prompt_tokens = known
            outcomes += driver.wait(query)
    assert_failed(outcomes[1], FailureKind.TOKEN_COUNT, "2 tokens")
    assert [type(outcome) for outcome in outcomes[::2]] == [Completion, Completion]
    assert driver.client.opened == 2


@pytest.mark.parametrize(
    ("counted", "kind"), [(2, None), (3, FailureKind.TOKEN_COUNT), (None, FailureKind.TOKEN_COUNT)]
)
def test_a_prompt_that_is_not_counted_as_it_was_sent(counted, kind):
    """A server of chats may have ignored it, and any may have cut it: nothing else shows that."""
    request = make_request([1, 2])
    request.prompt_tokens = 2
    endpoint = resolve_endpoint("http://127.0.0.1:1", "/", Access())
    ids = np.zeros(2, np.int32)
    for outcome in (TextCompletion("four words", "stop", counted, 2), Completion(ids, "stop", counted)):
        refusal = request.refusal(outcome, replace(endpoint, counts_prompts=True))
        assert (refusal and refusal.kind) is kind
        refusal = request.refusal(outcome, endpoint)  # its trial answer did not count it either
        assert (refusal and refusal.kind) is (None if counted is None else kind)


@pytest.mark.parametrize("ticks", [True, False])
def test_connections_idle_for_long_are_closed_by_us(drive, pass_time, ticks):
    with StubServer() as stub:
        driver = drive(stub.url)
        driver.ask()
        pass_time(3600)
        if ticks:
            driver.client.tick()
            assert driver.client.keeps_alive() == [False]
        assert_completed(driver.ask())
        assert stub.connections == 2


@pytest.mark.parametrize("made", [True, False])
def test_warm_connections_are_used(drive, made):
    """Also where the first requests come before their handshakes end: of few local ports half may be free."""
    with StubServer() as stub:
        driver = drive(stub.url)
        driver.client.warm(4)
        if made:
            driver.poll_until(lambda: not driver.client._connecting)
        for _ in range(5):
            driver.start()
        for outcome in driver.wait():
            assert_completed(outcome)
        assert stub.connections == driver.client.opened == 5


def test_a_connection_that_is_not_made_for_long_is_not_waited_for(drive, pass_time):
    """Its SYN was lost, and the next attempt of the kernel may be seconds away."""
    with StubServer() as stub:
        driver = drive(stub.url)
        driver.client.warm(2)
        pass_time(1.5)
        assert_completed(driver.ask())
        assert driver.client.opened == 3
        assert driver.client.keeps_alive() == [True]


def test_warming_a_dead_server_is_no_error(drive):
    with refused_url() as url:
        driver = drive(url)
        driver.client.warm(4)
        driver.poll_until(lambda: not driver.client._connecting)
        assert_failed(driver.ask(), FailureKind.CONNECT, url)


def test_connections_are_made_a_few_hundred_at_a_time(drive, pass_time):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)  # takes a few; the others wait for their handshake
        driver = drive(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=600)
        started = 0
        while driver.client.can_start and started < 1000:
            driver.start()
            started += 1
        assert 200 <= started <= 300
        pass_time(601)
        for outcome in driver.wait():
            assert_failed(outcome, FailureKind.TIMEOUT)
        assert driver.suspects == [0]
        assert not driver.client.can_start
        driver.client.trust(0)
        assert driver.client.can_start


def test_a_slow_replica_gets_fewer(drive):
    with StubServer(faults=Fault.SILENT) as slow, StubServer() as fast:
        driver = drive(slow.url, fast.url)
        for i in range(40):
            driver.start([5, i])
            driver.poll_until(lambda: len(driver.client.in_flight) < 4)
        driver.poll_until(lambda: all(request.replica == 0 for request in driver.client.in_flight.values()))
        assert len(driver.outcomes) >= 37


def test_nothing_stays_behind_a_finished_request(drive):
    """Workers run with the garbage collector off: a circle of references would be a leak."""
    faults = [None, Fault.HTTP_500, Fault.CUT_CHUNKED, Fault.RESET_AT_ONCE, None]
    gc.collect()
    gc.freeze()  # what was there before is not looked through
    gc.disable()
    try:
        for keep_alive in (True, False):
            with StubServer(faults=faults) as stub:
                driver = drive(stub.url, keep_alive=keep_alive)
                for _ in faults:
                    driver.ask()
            driver.requests.clear()
        left = [thing for thing in gc.get_objects() if isinstance(thing, Request | ResponseReader)]
    finally:
        gc.enable()
        gc.unfreeze()
    assert left == []
