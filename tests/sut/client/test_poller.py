"""Two sets of descriptors: what is urgent is served at once, streams in flow together; nothing is lost."""

import select
import socket
import time

import pytest

from harness.record.outcome import FailureKind
from sut.client import client as client_module
from sut.client.poller import NAP_S, PollSets
from tests.kit import read_request, reset, scripted
from tests.sut.driver import assert_failed

READ = select.EPOLLIN
GAP_S = 0.02
FIRST = (
    b'data: {"output_ids":[7],"meta_info":{"completion_tokens":1,"prompt_tokens":2,"finish_reason":null}}\n\n'
)
SECOND = FIRST.replace(b"[7]", b"[7,8]").replace(b'tokens":1', b'tokens":2')
LAST = SECOND.replace(b"[7,8]", b"[7,8,9]").replace(b'tokens":2,', b'tokens":3,', 1)
LAST = LAST.replace(b"null", b'{"type":"stop"}')


@pytest.fixture
def polls():
    made = PollSets()
    yield made
    made.close()


@pytest.fixture
def pairs():
    made = [socket.socketpair() for _ in range(3)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def timed(polls, timeout_s):
    start = time.monotonic()
    events = polls.poll(timeout_s)
    return events, time.monotonic() - start


def test_without_streams_in_flow_a_poll_waits_as_long_as_it_may(polls, pairs):
    polls.register(pairs[0][0].fileno(), READ)
    assert timed(polls, 0.05)[0] == []
    assert timed(polls, 0.05)[1] >= 0.045


def test_both_sets_are_seen_in_one_poll(polls, pairs):
    for ours, theirs in pairs:
        polls.register(ours.fileno(), READ)
        theirs.send(b"x")
    polls.to_flowing(pairs[1][0].fileno(), READ)
    assert {descriptor for descriptor, _ in polls.poll(60)} == {ours.fileno() for ours, _ in pairs}


def test_a_stream_in_flow_waits_for_a_nap_and_no_longer(polls, pairs):
    ours, theirs = pairs[0]
    polls.register(ours.fileno(), READ)
    polls.to_flowing(ours.fileno(), READ)
    theirs.send(b"x")
    events, seconds = timed(polls, 60)
    assert events == [(ours.fileno(), READ)]
    assert NAP_S / 2 < seconds < 60


def test_back_among_the_urgent_it_is_seen_at_once(polls, pairs):
    ours, theirs = pairs[0]
    polls.register(ours.fileno(), READ)
    polls.to_flowing(ours.fileno(), READ)
    polls.to_prompt(ours.fileno(), READ)
    theirs.send(b"x")
    assert polls.poll(60) == [(ours.fileno(), READ)]
    assert polls.flowing == 0


def test_another_mask_is_kept_in_either_set(polls, pairs):
    ours = pairs[0][0]
    polls.register(ours.fileno(), READ)
    polls.modify(ours.fileno(), READ | select.EPOLLOUT)
    assert polls.poll(60) == [(ours.fileno(), select.EPOLLOUT)]
    polls.to_flowing(ours.fileno(), READ)
    polls.modify(ours.fileno(), READ | select.EPOLLOUT, flowing=True)
    assert polls.poll(60) == [(ours.fileno(), select.EPOLLOUT)]


# -- in the client


@pytest.fixture
def flowing_from_one(monkeypatch):
    monkeypatch.setattr(client_module, "_FLOWING_FROM", 1)


def paced(*events):
    """Plays one answer for each request on the connection, its events GAP_S apart."""

    def play(connection):
        length = sum(map(len, events))
        while read_request(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length)
            for event in events:
                connection.sendall(event)
                time.sleep(GAP_S)

    return play


def until_flowing(driver):
    until = time.monotonic() + 60
    while not driver.client._polls.flowing:
        assert time.monotonic() < until
        driver.client.poll(0.01)


def test_a_paced_stream_flows_and_its_connection_serves_the_next_query(drive, flowing_from_one):
    with scripted(paced(FIRST, SECOND, LAST)) as (url, held):
        driver = drive(url)
        for _ in range(2):
            query = driver.start()
            until_flowing(driver)
            assert driver.firsts[-1] == query
            assert driver.wait(query)[0].output_ids.tolist() == [7, 8, 9]
            assert driver.client._polls.flowing == 0
        assert len(held) == 1


def test_few_streams_and_fast_ones_stay_urgent(drive):
    with scripted(paced(FIRST, SECOND, LAST)) as (url, _):
        driver = drive(url)
        driver.start()
        while len(driver.outcomes) < 1:
            driver.client.poll(0.01)
            assert driver.client._polls.flowing == 0


def test_a_stream_that_breaks_in_flow_is_a_failure_and_leaves_the_set(drive, flowing_from_one):
    def play(connection):
        assert read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n" + FIRST)
        time.sleep(GAP_S)
        connection.sendall(SECOND)
        time.sleep(GAP_S)
        reset(connection)

    with scripted(play) as (url, _):
        driver = drive(url)
        query = driver.start()
        until_flowing(driver)
        assert_failed(driver.wait(query)[0], FailureKind.TRUNCATED)
        assert driver.client._polls.flowing == 0
