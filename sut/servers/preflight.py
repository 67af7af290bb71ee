"""One real request to every replica before the clock starts."""

import time
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from harness.config.deadlines import Deadlines
from harness.config.generation import SamplingParameters
from harness.config.protocol import Answers
from harness.config.server_urls import folded
from harness.errors import ServerError
from harness.record.outcome import Failure, Outcome
from harness.record.settled import ServerInfo
from sut.client.client import HttpClient
from sut.client.connections import Request
from sut.client.endpoint import Access, Endpoint
from sut.client.response import ResponseReader
from sut.servers.info_client import Calls, InfoClient, WaitNotices
from sut.servers.trial_answers import is_refusal, what_is_wrong
from sut.wire import make_judge, make_wire
from sut.wire.fields import AnswersSeen

# Of text more: the first tokens of a gpt-oss are the markers of a channel, which a chat may strip.
_TRIAL_TOKENS: dict[Answers, int] = {"ids": 4, "text": 16}
_LINGER_S = 0.15  # a server that closes after each answer does so within this time
_FLUSH_S = 1.0
_FLUSHES_PER_S = 100
_GRAMMARS = ("grammar", "json_schema", "response_format")  # llama.cpp's parameters that make one
_OUTLIER = 2.0  # a time this many times the median is one


class Preflight:
    """One real request to every replica through the real request path, checked like any other."""

    def __init__(
        self, facts: ServerInfo, parameters: SamplingParameters, vocabulary_size: int, within_s: float
    ) -> None:
        most = min(_TRIAL_TOKENS[facts.protocol.answers], parameters.max_new_tokens)
        least = parameters.min_new_tokens
        small = replace(
            parameters, max_new_tokens=most, min_new_tokens=None if least is None else min(least, most)
        )
        self._protocol = facts.protocol
        self._judge = make_judge(facts.protocol, facts.served_name)
        self._wire = make_wire(facts.protocol, small, vocabulary_size, facts.served_name, self._judge)
        self._tokens = most
        self._within_s = within_s

    @property
    def seen(self) -> AnswersSeen:
        """What the answers have shown."""
        return self._judge.seen

    def try_all(
        self,
        endpoints: Sequence[Endpoint],
        prompt: bytes,
        prompt_tokens: int | None,
        *,
        to_the_end: bool = False,
        refusals_end: bool = True,
    ) -> list["Trial"]:
        """The trial of each replica; without ``to_the_end`` the first failure ends it.

        Without ``refusals_end`` only one that is no refusal of the request does. ``prompt_tokens`` is what
        the server must count, None where it is not known.
        """
        trials: dict[int, Trial] = {}

        def note(request: Request, outcome: Outcome) -> None:
            url = endpoints[request.replica].url
            trials[request.replica] = self._trial(request, outcome, url, prompt_tokens)

        client = HttpClient(endpoints, Deadlines(request_s=self._within_s), on_done=note)
        try:
            body = self._wire.render(prompt)
            for index in range(len(endpoints)):
                client.start(self._request(index, body))
            with WaitNotices() as notices:
                while waiting := [one.url for index, one in enumerate(endpoints) if index not in trials]:
                    failed = (one for one in trials.values() if one.error is not None)
                    if not to_the_end and any(refusals_end or not one.refused for one in failed):
                        break
                    notices.tick(self._waiting(waiting, len(endpoints)))
                    client.poll(0.1)
                    client.tick()
            _poll_for(client, _LINGER_S)
            keeps = client.keeps_alive()
        finally:
            client.close()
        ended = (trials.get(index, Trial()) for index in range(len(endpoints)))
        return [replace(trial, keeps_alive=kept) for trial, kept in zip(ended, keeps, strict=True)]

    def _request(self, index: int, body: bytes) -> Request:
        reader = ResponseReader(
            self._wire.answer(), streams=self._wire.streams, max_event_bytes=self._wire.max_event_bytes
        )
        return Request(index, 0, time.monotonic_ns(), memoryview(body), reader, self._wire.opening)

    def _waiting(self, urls: Sequence[str], total: int) -> str:
        count = f"{len(urls)} of {total} servers, " if total > 1 else ""
        return (
            f"the trial request of {self._tokens} tokens at {count}{folded(urls, 3)}, where a cold server "
            f"compiles first; at most {self._within_s:g} s (--trial-timeout)"
        )

    def _trial(self, request: Request, outcome: Outcome, url: str, prompt_tokens: int | None) -> "Trial":
        gave_tokens = bool(request.reader.answer.tokens)
        wrong = what_is_wrong(self._protocol, outcome, prompt_tokens)
        return Trial(
            repeats_ids=request.is_answered_by_id,
            seconds=(time.monotonic_ns() - (request.sent_ns or request.issued_ns)) / 1e9,
            error=ServerError(f"{url}: {wrong}") if wrong else None,
            refused=bool(wrong) and is_refusal(outcome, prompt_tokens, gave_tokens=gave_tokens),
            gave_tokens=gave_tokens,
            counts_prompts=not isinstance(outcome, Failure) and outcome.prompt_tokens is not None,
        )


class Trial(msgspec.Struct, frozen=True):
    """The result of a replica's trial request."""

    keeps_alive: bool = False
    """Whether the replica left the connection open."""
    repeats_ids: bool = False
    """Whether the answer carried the request's id."""
    seconds: float | None = None
    """None: it did not end."""
    error: ServerError | None = None
    refused: bool = False
    """Whether the error is that of an answer: the same server may take another request."""
    gave_tokens: bool = False
    """Whether the answer held any token id, or text where that was asked for."""
    counts_prompts: bool = False
    """Whether the answer counted the prompt's tokens."""


def trial_summary(servers: Sequence[ServerInfo]) -> str:
    """The trial requests' times in one line, with those of the slowest three that are outliers."""
    times = sorted((one.trial_s, one.url) for one in servers if one.trial_s is not None)
    if not times:
        return ""
    median = times[len(times) // 2][0]
    slow = [f"{url} {seconds:.2f} s" for seconds, url in times[:-4:-1] if seconds > _OUTLIER * median]
    text = f"trial requests: {len(times)} servers answered, median {median:.2f} s, last {times[-1][0]:.2f} s"
    return f"{text}; slowest: {', '.join(slow)}" if slow else text


def id_summary(servers: Sequence[ServerInfo]) -> str:
    """The servers whose answers do not carry their request's id, and what follows from that; "" for none."""
    without = [server.url for server in servers if server.repeats_ids is False]
    if not without:
        return ""
    return (
        f"{folded(without)}: answers do not carry the id of their request: each connection carries one "
        "request, so that no late answer is taken for another's"
    )


def grammar_warning(seen: AnswersSeen, parameters: SamplingParameters) -> tuple[str, ...]:
    """A warning where a grammar bound the answers that the run's parameters do not name."""
    if not seen.by_grammar or not parameters.extra.keys().isdisjoint(_GRAMMARS):
        return ()
    return (
        "a grammar of the server binds its answers, which no request can switch off: they are not those of "
        "the model alone; start llama-server without --grammar and --json-schema",
    )


def flush_caches(servers: Sequence[ServerInfo], access: Access) -> tuple[str, ...]:
    """Empty SGLang's prefix caches, which now hold the trial request's prompt. Returns warnings.

    A server without such a cache is not asked: one with --admin-api-key refuses the run's key.
    """
    urls = [
        server.url
        for server in servers
        if server.has_sglang_pages and server.settings.get("disable_radix_cache") is not True
    ]
    within_s = max(_FLUSH_S, len(urls) / _FLUSHES_PER_S)
    controls = {url: InfoClient(url, access, within_s) for url in urls}
    calls = Calls(lambda url: controls[url].ask("/flush_cache", "POST")[0], urls)
    for _ in calls.wait(within_s):
        pass
    for control in controls.values():
        control.close()  # a slow answer must not delay the run
    failed = [url for url in urls if calls.results.get(url) != 200]
    if not failed:
        return ()
    return (f"{folded(failed)}: /flush_cache failed; the first sample's prompt may still be cached",)


def _poll_for(client: HttpClient, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        client.poll(left)
