"""One real request to every replica before the clock starts."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.config.deadlines import Deadlines
from harness.config.generation import SamplingParameters
from harness.errors import ServerError
from harness.record.outcome import Completion, Failure, FailureKind, Outcome
from harness.record.resolved_plan import ServerInfo
from sut.client.client import HttpClient
from sut.client.connections import Request
from sut.client.endpoint import Endpoint
from sut.client.response import ResponseReader
from sut.servers.info_client import InfoClient, WaitNotices
from sut.wire import make_wire, max_event_bytes

_TRIAL_TOKENS = 4
_LINGER_S = 0.15  # a server that closes after each answer does so within this time
_FLUSH_S = 1.0


class Preflight:
    """One real request to every replica through the real request path, checked like any other."""

    def __init__(
        self, facts: ServerInfo, parameters: SamplingParameters, vocabulary_size: int, within_s: float
    ) -> None:
        most, least = min(_TRIAL_TOKENS, parameters.max_new_tokens), parameters.min_new_tokens
        small = msgspec.structs.replace(
            parameters, max_new_tokens=most, min_new_tokens=None if least is None else min(least, most)
        )
        self._wire = make_wire(facts.wire, small, vocabulary_size, facts.served_name)
        self._event_bytes = max_event_bytes(small, vocabulary_size)
        self._within_s = within_s
        self._outcomes: dict[int, Outcome] = {}

    def run(self, endpoints: Sequence[Endpoint], prompt: list[int]) -> list[bool]:
        """Whether each replica keeps its connections. Raises ServerError for the first that fails."""
        deadlines = Deadlines(request_s=self._within_s)
        client = HttpClient(endpoints, deadlines, lambda request: None, self._on_done)
        try:
            body = self._wire.render(prompt)
            for index in range(len(endpoints)):
                client.start(self._request(index, body))
            self._wait(client, endpoints, len(prompt))
            _poll_for(client, _LINGER_S)
            return client.keeps_alive()
        finally:
            client.close()

    def _request(self, index: int, body: bytes) -> Request:
        reader = ResponseReader(
            self._wire.answer(), streams=self._wire.streams, max_event_bytes=self._event_bytes
        )
        whole = memoryview(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return Request(index, 0, time.monotonic_ns(), whole, reader)

    def _wait(self, client: HttpClient, endpoints: Sequence[Endpoint], prompt_tokens: int) -> None:
        notices, waiting = WaitNotices(), dict(enumerate(endpoints))
        while waiting:
            client.poll(0.1)
            client.tick()
            for index in self._outcomes.keys() & waiting.keys():
                _check_trial(waiting.pop(index).url, self._outcomes[index], prompt_tokens)
            urls = ", ".join(endpoint.url for endpoint in waiting.values())
            notices.tick(
                f"the trial request of {_TRIAL_TOKENS} tokens at {urls}, where a cold server compiles first; "
                f"at most {self._within_s:g} s (--trial-timeout)"
            )

    def _on_done(self, request: Request, outcome: Outcome) -> None:
        self._outcomes[request.replica] = outcome


def flush_caches(
    servers: Sequence[ServerInfo], api_key: str | None, ca_file: Path | None = None
) -> tuple[str, ...]:
    """Empty SGLang's prefix caches, which now hold the trial request's prompt. Returns warnings."""
    urls = [server.url for server in servers if server.wire == "sglang"]
    controls = {url: InfoClient(url, api_key, _FLUSH_S, ca_file) for url in urls}
    flushed: set[str] = set()
    threads = [
        threading.Thread(target=_flush, args=(control, flushed), daemon=True) for control in controls.values()
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + _FLUSH_S
    for thread, control in zip(threads, controls.values(), strict=True):
        thread.join(max(0.0, until - time.monotonic()))
        control.close()  # a slow answer must not delay the run
    return tuple(
        f"{url}: /flush_cache failed; the first sample's prompt may still be cached"
        for url in urls
        if url not in flushed
    )


def _flush(control: InfoClient, flushed: set[str]) -> None:
    try:
        status, _ = control.ask("/flush_cache", "POST")
    except (ServerError, RuntimeError):  # RuntimeError: closed because the time was over
        return
    if status == 200:
        flushed.add(control.url)


def _poll_for(client: HttpClient, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        client.poll(left)


def _check_trial(url: str, outcome: Outcome, prompt_tokens: int) -> None:
    if isinstance(outcome, Failure):
        remedy = (
            "; a server that compiles at its first request may need a larger --trial-timeout"
            if outcome.kind is FailureKind.TIMEOUT
            else ""
        )
        raise ServerError(f"{url}: the trial request failed: {outcome.kind.label}: {outcome.detail}{remedy}")
    _check_prompt_count(url, outcome, prompt_tokens)


def _check_prompt_count(url: str, completion: Completion, expected: int) -> None:
    counted = completion.prompt_tokens
    if counted is not None and counted != expected:
        raise ServerError(
            f"{url}: a prompt of {expected} token ids was counted as {counted}; "
            "the server does not take ids as they are"
        )
