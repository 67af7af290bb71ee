"""Replicas that workers have given up: asked until they are well, and every worker hears of it."""

from multiprocessing import Pipe

import pytest

from sut.servers.health import ActivityProbe, HealthMonitor, ask_work
from tests.kit import wait_until
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
    return HealthMonitor(["http://a", "http://b"], [ours for ours, _ in pipes], ask)


def test_a_false_alarm(pipes):
    watch = watching(pipes, lambda url: "")
    watch.suspected(1)
    assert [heard(theirs) for _, theirs in pipes] == [("trust", 1)] * 2
    assert not watch.outages
    assert watch.all_out_for() == (0.0, "")


def test_out_and_back(pipes, monkeypatch):
    monkeypatch.setattr("sut.servers.health._PAUSE_S", 0.05)
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


def test_a_suspicion_right_after_a_recovery_is_the_last_word(pipes, monkeypatch):
    monkeypatch.setattr("sut.servers.health._PAUSE_S", 0.05)
    answers = iter(["refused", "", *["refused"] * 10_000])
    watch = watching(pipes, lambda url: next(answers))
    outage, told = ("suspect", 0), []

    def warn(text, *values):
        if "healthy again" in text:
            watch.suspected(0)
            while told.count(outage) < 2:
                told.append(heard(pipes[0][1]))

    monkeypatch.setattr("sut.servers.health.log.warning", warn)
    watch.suspected(0)
    wait_until(lambda: told.count(outage) == 2)
    watch.close()
    assert told == [outage, ("trust", 0), outage]


def test_close_ends_the_questions(pipes, monkeypatch):
    monkeypatch.setattr("sut.servers.health._PAUSE_S", 0.02)
    asked = []
    watch = watching(pipes, lambda url: asked.append(url) or "dead")
    watch.suspected(0)
    heard(pipes[0][1])
    watch.close()
    wait_until(lambda: not watch._asking)
    assert asked
    assert len(watch.outages) == 1  # it was out at the end


# Names as SGLang 0.5.23 and vLLM 0.32 write them; those of processes, HTTP and idleness change by themselves.
METRICS = b"""# HELP sglang:num_used_tokens The number of used tokens.
sglang:num_used_tokens{engine_type="unified"} %d
vllm:generation_tokens_total{engine="0"} 7.0
process_cpu_seconds_total %d
sglang:scheduler_process_cpu_seconds_total{tp_rank="0"} %d
sglang:scheduler_idle_seconds_total{tp_rank="0"} %d
sglang:scheduler_stage_seconds_total{category="recv_requests",tp_rank="0"} %d
python_gc_objects_collected_total{generation="0"} %d
http_requests_total{handler="/metrics"} %d
"""


def test_what_metrics_say_of_the_work():
    with StubServer() as stub:
        assert ask_work(stub.url, None) is None  # no such page
    pages = [METRICS % (5, *[1] * 6), METRICS % (5, *[2] * 6), METRICS % (6, *[2] * 6)]
    with StubServer(metrics=lambda: pages.pop(0)) as stub:
        idle, still, busy = (ask_work(stub.url, None) for _ in range(3))
    assert idle == still != busy
    steps = [b"[]", b'[{"iter": 7}]']  # TensorRT-LLM's, without and with its statistics
    with StubServer(metrics=lambda: steps.pop(0)) as stub:
        assert [ask_work(stub.url, None) for _ in range(2)] == [None, b'[{"iter": 7}]']
    with refused_url() as url:
        assert ask_work(url, None) is None


@pytest.mark.parametrize(
    ("pages", "wrong", "signs"),
    [
        ([b"1", b"2", b"3"], [""], [True, True, True]),
        ([b"1", b"1", b"2"], [""], [True, False, True]),
        ([b"1", b"2"], ["/health gave no answer"], [True, True]),  # busy, but at work
        ([None, None], [""], [True, True]),  # nothing but its word
        ([None, None], ["/health answered 503"], [False, False]),
        ([None] * 4, ["refused", ""], [True, True]),  # one replica at work is enough
    ],
)
def test_pulse(pages, wrong, signs):
    pages, wrong = iter(pages), {f"http://{number}": one for number, one in enumerate(wrong)}
    activity = ActivityProbe([*wrong], wrong.get, lambda url: next(pages))
    for sign in signs:
        activity.seen_s = 0.0
        activity.probe()
        activity._thread.join()
        assert (activity.seen_s > 0) is sign
