"""One real request to every replica before the clock starts."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.config.deadlines import Deadlines
from harness.config.generation import SamplingParameters
from harness.config.server_urls import folded
from harness.errors import ServerError
from harness.record.outcome import Failure, FailureKind, Outcome
from harness.record.settled import ServerInfo
from sut.client.client import HttpClient
from sut.client.connections import Request
from sut.client.endpoint import Endpoint
from sut.client.response import ResponseReader
from sut.servers.info_client import Calls, InfoClient, WaitNotices
from sut.wire import make_judge, make_wire
from sut.wire.fields import AnswersSeen

_TRIAL_TOKENS = 4
_LINGER_S = 0.15  # a server that closes after each answer does so within this time
_FLUSH_S = 1.0
_FLUSHES_PER_S = 100
_OUTLIER = 2.0  # a time this many times the median is one


class Preflight:
    """One real request to every replica through the real request path, checked like any other."""

    def __init__(
        self, facts: ServerInfo, parameters: SamplingParameters, vocabulary_size: int, within_s: float
    ) -> None:
        most, least = min(_TRIAL_TOKENS, parameters.max_new_tokens), parameters.min_new_tokens
        small = msgspec.structs.replace(
            parameters, max_new_tokens=most, min_new_tokens=None if least is None else min(least, most)
        )
        self._judge = make_judge(facts.wire, facts.served_name)
        self._wire = make_wire(facts.wire, small, vocabulary_size, facts.served_name, self._judge)
        self._within_s = within_s
        self._outcomes: dict[int, Outcome] = {}
        self._seconds: dict[int, float] = {}
        self._by_id: set[int] = set()

    @property
    def seen(self) -> AnswersSeen:
        """What the answers have shown."""
        return self._judge.seen

    def try_all(
        self, endpoints: Sequence[Endpoint], prompt: list[int], *, to_the_end: bool = False
    ) -> list["Trial"]:
        """The trial of each replica; without ``to_the_end`` the first failure ends it."""
        deadlines = Deadlines(request_s=self._within_s)
        client = HttpClient(endpoints, deadlines, on_done=self._on_done)
        try:
            body = self._wire.render(prompt)
            for index in range(len(endpoints)):
                client.start(self._request(index, body))
            with WaitNotices() as notices:
                errors = self._wait(client, endpoints, len(prompt), notices, to_the_end)
            _poll_for(client, _LINGER_S)
            keeps = client.keeps_alive()
        finally:
            client.close()
        return [
            Trial(kept, index in self._by_id, self._seconds.get(index), errors.get(index))
            for index, kept in enumerate(keeps)
        ]

    def _request(self, index: int, body: bytes) -> Request:
        reader = ResponseReader(
            self._wire.answer(), streams=self._wire.streams, max_event_bytes=self._wire.max_event_bytes
        )
        return Request(index, 0, time.monotonic_ns(), memoryview(body), reader, self._wire.opening)

    def _wait(
        self,
        client: HttpClient,
        endpoints: Sequence[Endpoint],
        prompt_tokens: int,
        notices: WaitNotices,
        to_the_end: bool,
    ) -> dict[int, ServerError]:
        waiting, errors = dict(enumerate(endpoints)), dict[int, ServerError]()
        while waiting and (to_the_end or not errors):
            client.poll(0.1)
            client.tick()
            for index in self._outcomes.keys() & waiting.keys():
                error = _trial_error(waiting.pop(index).url, self._outcomes[index], prompt_tokens)
                if error is not None:
                    errors[index] = error
            urls = folded((endpoint.url for endpoint in waiting.values()), 3)
            count = f"{len(waiting)} of {len(endpoints)} servers, " if len(endpoints) > 1 else ""
            notices.tick(
                f"the trial request of {_TRIAL_TOKENS} tokens at {count}{urls}, where a cold server compiles "
                f"first; at most {self._within_s:g} s (--trial-timeout)"
            )
        return errors

    def _on_done(self, request: Request, outcome: Outcome) -> None:
        self._outcomes[request.replica] = outcome
        if request.is_answered_by_id:
            self._by_id.add(request.replica)
        began = request.sent_ns or request.issued_ns
        self._seconds[request.replica] = (time.monotonic_ns() - began) / 1e9


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a replica's trial request."""

    keeps_alive: bool
    """Whether the replica left the connection open."""
    repeats_ids: bool
    """Whether the answer carried the request's id."""
    seconds: float | None
    """None: it did not end."""
    error: ServerError | None


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


def flush_caches(
    servers: Sequence[ServerInfo], api_key: str | None, ca_file: Path | None = None
) -> tuple[str, ...]:
    """Empty SGLang's prefix caches, which now hold the trial request's prompt. Returns warnings."""
    urls = [server.url for server in servers if server.wire == "sglang"]
    within_s = max(_FLUSH_S, len(urls) / _FLUSHES_PER_S)
    controls = {url: InfoClient(url, api_key, within_s, ca_file) for url in urls}
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


def _trial_error(url: str, outcome: Outcome, prompt_tokens: int) -> ServerError | None:
    if isinstance(outcome, Failure):
        remedy = (
            "; a server that compiles at its first request may need a larger --trial-timeout"
            if outcome.kind is FailureKind.TIMEOUT
            else ""
        )
        return ServerError(f"{url}: the trial request failed: {outcome.kind.label}: {outcome.detail}{remedy}")
    counted = outcome.prompt_tokens
    if counted is None or counted == prompt_tokens:
        return None
    return ServerError(
        f"{url}: a prompt of {prompt_tokens} token ids was counted as {counted}; "
        "the server does not take ids as they are"
    )
