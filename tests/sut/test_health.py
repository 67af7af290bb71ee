"""Replicas that workers have given up: asked until they are well, and every worker hears of it."""

import time
from multiprocessing import Pipe

import pytest

from sut.health import ReplicaWatch, ask_health
from tests.stub import StubServer, refused_url


@pytest.fixture
def pipes():
    pairs = [Pipe() for _ in range(2)]
    yield pairs
    for pair in pairs:
        for end in pair:
            end.close()


def heard(pipe, seconds=60.0):
    assert pipe.poll(seconds), "the worker heard nothing"
    return pipe.recv()


def watching(pipes, ask):
    return ReplicaWatch(["http://a", "http://b"], [ours for ours, _ in pipes], ask)


def test_a_false_alarm(pipes):
    watch = watching(pipes, lambda url: "")
    watch.suspected(1)
    assert [heard(theirs) for _, theirs in pipes] == [("trust", 1)] * 2
    assert watch.outages == []
    assert watch.all_out_for() == (0.0, "")


def test_out_and_back(pipes, monkeypatch):
    monkeypatch.setattr("sut.health._PAUSE_S", 0.05)
    down = {"http://a", "http://b"}
    watch = watching(pipes, lambda url: f"{url}: refused" if url in down else "")
    watch.suspected(0)
    watch.suspected(0)  # the other worker complains too: it is asked once
    assert [heard(theirs) for _, theirs in pipes] == [("suspect", 0)] * 2
    assert watch.all_out_for()[0] == 0.0  # the other one is well
    watch.suspected(1)
    assert [heard(theirs) for _, theirs in pipes] == [("suspect", 1)] * 2
    seconds, why = watch.all_out_for()
    assert seconds >= 0
    assert why == "http://b: refused"
    down.clear()
    assert {heard(pipes[0][1]) for _ in range(2)} == {("trust", 0), ("trust", 1)}
    assert watch.all_out_for()[0] == 0.0
    assert len(watch.outages) == 2


def test_close_ends_the_questions(pipes, monkeypatch):
    monkeypatch.setattr("sut.health._PAUSE_S", 0.02)
    asked = []
    watch = watching(pipes, lambda url: asked.append(url) or "dead")
    watch.suspected(0)
    heard(pipes[0][1])
    watch.close()
    time.sleep(0.1)
    count = len(asked)
    time.sleep(0.1)
    assert len(asked) == count


def test_ask_health():
    with StubServer() as stub:
        assert ask_health(stub.url, None) == ""
    with refused_url() as url:
        assert "not reachable" in ask_health(url, None)
