"""The trial request: what it refuses, and what it tells of a server."""

import json

import msgspec
import pytest

from harness.errors import ServerError
from harness.record.outcome import FailureKind
from harness.record.settled import ServerInfo
from sut.client.endpoint import Access
from sut.servers import preflight
from sut.servers.preflight import Preflight, flush_caches, id_summary, trial_summary
from tests.kit import VOCABULARY, listening, parameters, wait_until
from tests.stub import Fault, StubServer, refused_url
from tests.sut.pages import PARAMETERS, endpoints, facts, pages


def trial(*servers, prompt=(1,), seconds=20.0, **changes):
    """Which servers keep their connection, after a trial of each with these parameters."""
    url = getattr(servers[0], "url", servers[0])
    given = parameters(**{"max_new_tokens": 10240} | changes)
    return kept_alive(Preflight(facts(url), given, VOCABULARY, seconds), endpoints(*servers), list(prompt))


def kept_alive(trials, servers, prompt):
    """Whether each server keeps its connections. Raises the error of the first that fails."""
    results = trials.try_all(servers, msgspec.json.encode(prompt), len(prompt))
    for result in results:
        if result.error is not None:
            raise result.error
    return [result.keeps_alive for result in results]


@pytest.mark.parametrize("wire", ["sglang", "openai", "trtllm"])
@pytest.mark.parametrize("stream", [True, False])
def test_trial(wire, stream):
    given = parameters(max_new_tokens=10240, stream=stream)
    with StubServer() as a, StubServer() as b:
        trials = Preflight(facts(a.url, wire, served_name="gpt-oss-120b"), given, VOCABULARY, 20)
        assert kept_alive(trials, endpoints(a, b, wire=wire), [200006, 1, 2]) == [True, True]
        for stub in (a, b):
            (request,) = stub.requests
            assert request.prompt_ids == [200006, 1, 2]
            assert request.asked_tokens == 4
            assert request.streams is stream


@pytest.mark.parametrize(("most", "least", "asked"), [(1, 0, (1, 0)), (32, 16, (4, 4)), (32, 1, (4, 1))])
def test_trial_asks_for_no_more_than_the_run_and_a_least_length_that_fits(most, least, asked):
    with StubServer() as stub:
        trial(stub, max_new_tokens=most, min_new_tokens=least)
        (request,) = stub.requests
    assert (request.asked_tokens, request.body["sampling_params"]["min_new_tokens"]) == asked


@pytest.mark.parametrize("announced", [True, False])
def test_trial_notices_servers_that_close_after_each_answer(announced, monkeypatch):
    def until_closed(client, seconds):
        wait_until(lambda: client.poll(0.05) or client.keeps_alive() == [True, False])

    monkeypatch.setattr(preflight, "_poll_for", until_closed)
    with StubServer() as a, StubServer(close_after_response=True, announce_close=announced) as b:
        assert trial(a, b) == [True, False]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.HTTP_500, FailureKind.HTTP_STATUS),
        (Fault.ABORT, FailureKind.ABORTED),
        (Fault.ZERO_TOKENS, FailureKind.NO_TOKENS),
        (Fault.RESET_AT_ONCE, FailureKind.NO_RESPONSE),
        (None, FailureKind.CONNECT),  # it died meanwhile
    ],
)
def test_trial_of_a_server_that_fails(fault, kind):
    failing = StubServer(faults=fault) if fault else refused_url()
    with StubServer() as good, failing as bad, pytest.raises(ServerError) as caught:
        trial(good, bad)
    assert str(caught.value).startswith(f"{getattr(bad, 'url', bad)}: ") and f" {kind.label}: " in str(
        caught.value
    )


def test_trial_of_a_silent_server_ends(caplog, notices_at_once):
    """Named in the notices of the wait, where the server that has answered no longer is."""
    with (
        caplog.at_level("INFO", "mlperf"),
        StubServer() as good,
        StubServer(faults=Fault.SILENT) as stub,
        pytest.raises(ServerError, match=r"\btimeout\b.*--trial-timeout"),
    ):
        trial(good, stub, seconds=1.5)
    message = [text for text in caplog.messages if stub.url in text][-1]
    assert good.url not in message and "--trial-timeout" in message
    assert not [text for text in caplog.messages if "0 of 2 servers" in text]  # when both have ended


@pytest.mark.engine
def test_trial_of_a_cold_server_that_compiles_at_its_first_request():
    """Its answer took 5 s and more, and was refused."""
    with StubServer(first_delay_s=6) as stub:
        assert trial(stub, seconds=60) == [True]


def test_trial_does_not_wait_for_the_others_when_one_has_failed():
    with (
        StubServer(faults=Fault.SILENT) as silent,
        StubServer(faults=Fault.HTTP_500) as bad,
        pytest.raises(ServerError, match="http_status"),
    ):
        trial(silent, bad, seconds=3600)


def test_a_failure_just_after_the_first_is_no_answer(monkeypatch):
    """It would be named as a replica that takes what the first one refused."""
    monkeypatch.setattr(preflight, "_LINGER_S", 1.0)
    with StubServer(faults=Fault.HTTP_500) as bad, StubServer(faults=Fault.ABORT, first_delay_s=0.3) as late:
        trials = Preflight(facts(bad.url), parameters(max_new_tokens=10240), VOCABULARY, 20)
        first, second = trials.try_all(endpoints(bad, late), b"[1]", 1)
    assert "http_status" in str(first.error) and "aborted" in str(second.error)


def test_trial_with_a_wrong_prompt_count():
    """A server that puts a token of its own before the prompt, or decodes and encodes it again."""
    meta = {"completion_tokens": 1, "prompt_tokens": 4, "finish_reason": {"type": "stop"}}
    event = json.dumps({"output_ids": [7], "meta_info": meta}).encode()

    def answer(connection):
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\ndata: %b\n\n" % event)

    with listening(answer) as url, pytest.raises(ServerError, match=r"\b3\b.*\b4\b"):
        trial(url, prompt=[1, 2, 3])


def test_all_trials_to_the_end_and_who_failed():
    with StubServer() as a, StubServer(faults=Fault.HTTP_500) as b, StubServer() as c:
        trials = Preflight(facts(a.url), PARAMETERS, VOCABULARY, 20)
        found = trials.try_all(endpoints(a, b, c), b"[1]", 1, to_the_end=True)
    assert [one.error is None for one in found] == [True, False, True]
    assert all(one.seconds > 0 for one in found)


@pytest.mark.parametrize(
    ("wire", "engine", "warns"), [("sglang", "SGLang", 1), ("openai", "SGLang", 1), ("openai", "vllm", 0)]
)
def test_a_cache_is_emptied_by_whatever_api_its_server_is_asked(wire, engine, warns):
    def without(*others):
        with pages(dict.fromkeys(others, b"")) as url:
            return len(flush_caches([ServerInfo(url=url, wire=wire, engine=engine)], Access()))

    assert (without("/flush_cache"), without()) == (0, warns)


def test_a_server_without_a_prefix_cache_is_not_asked_to_empty_it():
    """SGLang 0.5.23 with --disable-radix-cache --admin-api-key answers 401 to the run's key."""
    with pages({}) as url:
        server = ServerInfo(url=url, wire="sglang", engine="SGLang", settings={"disable_radix_cache": True})
        assert flush_caches([server], Access()) == ()


def test_slow_trials_are_named():
    def summary(*times):
        return trial_summary([facts(f"http://n{n}:1", trial_s=time) for n, time in enumerate(times)])

    assert "slowest" not in summary(1.0, 1.9, 1.0, 1.1)
    text = summary(1.0, 9.0, 1.0, 1.1, 3.0, 1.0, 7.0, 8.0, 1.0)
    assert text.endswith("slowest: http://n1:1 9.00 s, http://n7:1 8.00 s, http://n6:1 7.00 s")
    assert "9 servers answered, median 1.10 s, last 9.00 s" in text
    assert summary(None) == ""


def test_servers_whose_answers_have_no_id_are_named():
    servers = [facts(f"http://a:{number}", repeats_ids=way) for number, way in enumerate((True, None))]
    assert id_summary(servers) == ""
    text = id_summary([*servers, facts("http://b", repeats_ids=False)])
    assert text.startswith("http://b: answers do not carry the id of their request: ")
