"""One server asked through one API as a run asks it: a trial whose answer is learned from, then queries."""

import time
from collections.abc import Callable
from types import TracebackType

import msgspec
from msgspec.structs import replace

from harness.config.deadlines import Deadlines
from harness.config.protocol import Protocol
from harness.record.outcome import Completion, Failure, Outcome, TextCompletion
from sut.client.client import HttpClient
from sut.client.connections import Request
from sut.client.endpoint import Access, resolve_endpoint
from sut.client.response import ResponseReader
from sut.encoder.answer_encoder import AnswerEncoder
from sut.wire import make_judge, make_wire
from sut.wire.wire import Wire
from tests.kit import PATIENCE_S, VOCABULARY, parameters
from tests.stub import Facts
from tests.stub.words import text_of

MODEL = Facts().served_name
DEADLINE_S = 600.0


class Asking:
    """Asks ``url`` for at most ``asked`` tokens each time; a text answer is encoded by ``encoder``."""

    def __init__(
        self, url: str, protocol: Protocol, encoder: AnswerEncoder, *, streams: bool, asked: int
    ) -> None:
        self._protocol, self._encoder = protocol, encoder
        self._parameters = parameters(max_new_tokens=asked, stream=streams)
        self._judge = make_judge(protocol, MODEL)
        self._outcomes: dict[int, Outcome] = {}
        self._queries, self._by_id = 0, False
        self._endpoint = resolve_endpoint(url, self._wire().path, Access())
        self._client = self._connected()

    def __enter__(self) -> "Asking":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._client.close()

    def try_once(self, prompt: list[int]) -> Completion | Failure:
        """The trial; what its answer shows is known from then on."""
        outcome = self.ask(prompt)
        self._judge = make_judge(self._protocol, MODEL, self._judge.seen)
        counts = isinstance(outcome, Completion) and outcome.prompt_tokens is not None
        self._endpoint = replace(self._endpoint, repeats_ids=self._by_id, counts_prompts=counts)
        self._client.close()
        self._client = self._connected()
        return outcome

    def ask(self, prompt: list[int], meanwhile: Callable[[], None] = lambda: None) -> Completion | Failure:
        """What a query ends in; ``meanwhile`` is done once it is on its way."""
        query = self._start(prompt)
        self._client.poll(0)
        meanwhile()
        until = time.monotonic() + PATIENCE_S
        while query not in self._outcomes:
            assert time.monotonic() < until, "no outcome"
            self._client.poll(0.02)
            self._client.tick()
        return self._encoded(self._outcomes[query])

    def _connected(self) -> HttpClient:
        return HttpClient([self._endpoint], Deadlines(request_s=DEADLINE_S), on_done=self._on_done)

    def _wire(self) -> Wire:
        return make_wire(self._protocol, self._parameters, VOCABULARY, MODEL, self._judge)

    def _on_done(self, request: Request, outcome: Outcome) -> None:
        self._outcomes[request.query_id], self._by_id = outcome, request.is_answered_by_id

    def _start(self, prompt: list[int]) -> int:
        wire = self._wire()
        reader = ResponseReader(wire.answer(), streams=wire.streams, max_event_bytes=wire.max_event_bytes)
        body = memoryview(wire.render(self._rendered(prompt)))
        request = Request(self._queries, 0, time.monotonic_ns(), body, reader, wire.opening)
        request.prompt_tokens = len(prompt)
        self._queries += 1
        self._client.start(request)
        return request.query_id

    def _rendered(self, prompt: list[int]) -> bytes:
        if not self._protocol.text_in:
            return msgspec.json.encode(prompt)
        text = text_of(prompt)
        is_chat = self._protocol.api == "chat"
        return msgspec.json.encode([{"role": "user", "content": text}] if is_chat else text)

    def _encoded(self, outcome: Outcome) -> Completion | Failure:
        """As the worker has it encoded."""
        if not isinstance(outcome, TextCompletion):
            return outcome
        ids = self._encoder.encode(outcome.text, outcome.counted)
        if isinstance(ids, Failure):
            return ids
        return Completion(ids, outcome.finish_reason, outcome.prompt_tokens, outcome.counted)
