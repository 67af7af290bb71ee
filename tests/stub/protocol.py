"""What is asked and what an honest server would say, in SGLang's and OpenAI's shapes."""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

FIRST_ID, ID_RANGE, ID_STRIDE = 1000, 100_000, 7919  # inside every vocabulary, below the special tokens
DONE = b"data: [DONE]\n\n"


def expected_ids(prompt_ids: list[int], n: int) -> list[int]:
    """The n output token ids for a prompt; the same rule as benchmarks/stub/stub_server.c."""
    seed = zlib.crc32(",".join(map(str, prompt_ids)).encode())
    return [FIRST_ID + (seed + i * ID_STRIDE) % ID_RANGE for i in range(n)]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the information endpoints report."""

    model: str = "openai/gpt-oss-120b"
    served_name: str = "gpt-oss-120b"
    version: str = "0.5.23"
    weight_version: str = "default"
    context_length: int = 131072
    vocab_size: int = 201088
    dp_size: int = 1
    stream_interval: int = 1


@dataclass(slots=True)
class Request:
    """A parsed request; ``index`` counts generation requests in order of arrival (-1: not one).

    Times are CLOCK_MONOTONIC nanoseconds, 0 where the moment never came.
    """

    method: str
    path: str
    headers: dict[str, str]
    received_ns: int
    index: int = -1
    body: dict[str, Any] = field(default_factory=dict)
    first_sent_ns: int = 0
    last_sent_ns: int = 0
    answered: bool = False

    @property
    def prompt_ids(self) -> list[int]:
        """Token ids of the prompt, whichever of the two protocols carried them."""
        return list(self.body.get("input_ids") or self.body.get("prompt") or [])

    @property
    def asked_tokens(self) -> int:
        """The most tokens that the client asked for (SGLang's and OpenAI's defaults where it did not)."""
        if "sampling_params" in self.body:
            return int(self.body["sampling_params"].get("max_new_tokens", 128))
        return int(self.body.get("max_tokens", 16))

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream", False))


@dataclass(frozen=True, slots=True)
class Options:
    """How the stub answers."""

    tokens: int | Callable[[list[int]], int] | None = None
    """How many, or a rule of the prompt; None: as many as asked."""
    answers: Callable[[list[int]], list[int]] | None = None
    """The ids of an answer by its prompt, as far as tokens were asked for; None: ``expected_ids``."""
    tokens_per_event: int = 1
    """Like --stream-interval: the first event has 1 token, later ones this number."""
    first_delay_s: float = 0.0
    event_delay_s: float = 0.0
    cumulative: bool = True
    close_after_response: bool = False
    announce_close: bool = True
    """False: close without "connection: close" among the headers, as llama.cpp does."""
    healthy: bool = True
    api_key: str = ""
    metrics: Callable[[], bytes] | None = None
    """The page /metrics, as with --enable-metrics."""
    drip_s: float = 0.05
    """The pause between the header bytes of Fault.SLOW_HEADERS."""
    gate: Callable[[Request], bool] = lambda request: True
    """A request waits for its answer until this is true."""
    event_gate: Callable[[Request, int], bool] = lambda request, number: True
    """Each event, counted from 0, waits until this is true."""
    facts: Facts = field(default_factory=Facts)
    text: Callable[[list[int]], str] = lambda ids: " tok" * len(ids)
    """What /v1/completions says in words of the ids in an event."""


@dataclass(slots=True)
class Step:
    """One event: the ids it carries (all so far, or what is new), the count it claims, and the end.

    ``raw`` replaces the rendered event.
    """

    ids: list[Any]
    count: int
    finish: str | None = None
    raw: bytes | None = None


def honest_steps(request: Request, options: Options, n: int, cumulative: bool) -> list[Step]:
    """The events of a whole and correct answer of n >= 1 tokens."""
    ids = expected_ids(request.prompt_ids, n)
    if options.answers is not None:
        ids = options.answers(request.prompt_ids)[: request.asked_tokens]
        n = len(ids)
    ends = [*range(1, n, options.tokens_per_event), n] if request.streams else [n]
    starts = [0] * len(ends) if cumulative else [0, *ends[:-1]]
    steps = [Step(ids[start:end], end) for start, end in zip(starts, ends, strict=True)]
    steps[-1].finish = "length" if n >= request.asked_tokens else "stop"
    return steps


class SglangProtocol:
    """POST /generate."""

    def __init__(self, options: Options) -> None:
        self.cumulative = options.cumulative

    def render(self, request: Request, steps: list[Step]) -> list[bytes]:
        """Body blocks: one per event and the end mark, or the one JSON document."""
        if not request.streams:
            return [raw_document(steps) or self._document(request, steps[-1])]
        return [*(step.raw or sse(self._document(request, step)) for step in steps), DONE]

    def _document(self, request: Request, step: Step) -> bytes:
        meta = {
            "id": request.body.get("rid") or f"{request.index:032x}",
            "finish_reason": _sglang_finish(step),
            "prompt_tokens": len(request.prompt_ids),
            "completion_tokens": step.count,
            "cached_tokens": 0,
        }
        return compact({"text": "", "output_ids": step.ids, "meta_info": meta})


class CompletionsProtocol:
    """POST /v1/completions with token ids; its streams are never cumulative.

    As vLLM answers; where ``detokenize`` is false, as TensorRT-LLM does by its sources.
    """

    cumulative = False

    def __init__(self, options: Options) -> None:
        self.model, self._text = options.facts.served_name, options.text

    def render(self, request: Request, steps: list[Step]) -> list[bytes]:
        """Body blocks: one per event, the usage event if asked for, and the end mark."""
        prompt, made = len(request.prompt_ids), steps[-1].count
        usage = {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made}
        if not request.streams:
            return [raw_document(steps) or compact(self._document(request, steps[-1]) | {"usage": usage})]
        blocks = [step.raw or sse(compact(self._document(request, step))) for step in steps]
        if (request.body.get("stream_options") or {}).get("include_usage"):
            blocks.append(sse(compact(self._envelope(request) | {"choices": [], "usage": usage})))
        return [*blocks, DONE]

    def _envelope(self, request: Request) -> dict[str, Any]:
        given = request.headers.get("x-request-id", request.index)
        return {"id": f"cmpl-{given}", "object": "text_completion", "created": 0, "model": self.model}

    def _document(self, request: Request, step: Step) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "text": self._text(step.ids), "logprobs": None}
        choice |= {"finish_reason": step.finish, "stop_reason": None}
        if request.body.get("detokenize") is False:
            choice |= {"text": "", "token_ids": step.ids, "avg_decoded_tokens_per_iter": 1.0}
            return self._envelope(request) | {"choices": [choice], "usage": None}
        if request.body.get("return_token_ids"):
            first = step.count == len(step.ids)
            choice |= {"token_ids": step.ids, "prompt_token_ids": request.prompt_ids if first else None}
        return self._envelope(request) | {"choices": [choice]}


def _sglang_finish(step: Step) -> dict[str, Any] | None:
    if step.finish is None:
        return None
    details: dict[str, dict[str, Any]] = {
        "length": {"length": step.count},
        "stop": {"matched": 200002},
        "abort": {"message": "aborted by the stub", "status_code": 500},
    }
    return {"type": step.finish} | details.get(step.finish, {})


def raw_document(steps: list[Step]) -> bytes | None:
    """What a raw event says, as the body of an answer that is no stream."""
    return next((step.raw.removeprefix(b"data: ").strip() for step in steps if step.raw), None)


def compact(value: Any) -> bytes:
    """JSON without spaces, as SGLang's orjson writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def sse(document: bytes) -> bytes:
    return b"data: " + document + b"\n\n"


_SERVER_FACTS = ("version", "context_length", "vocab_size", "dp_size", "stream_interval")


def information(path: str, options: Options) -> dict[str, Any] | None:
    """The body of an information endpoint; None for an unknown path."""
    facts = options.facts
    match path:
        case "/get_model_info" | "/model_info":
            named = {"model_path": facts.model, "tokenizer_path": facts.model}
            return named | {"is_generation": True, "weight_version": facts.weight_version}
        case "/get_server_info" | "/server_info":
            served = {name: getattr(facts, name) for name in _SERVER_FACTS}
            served |= {"model_path": facts.model, "served_model_name": facts.served_name, "tp_size": 1}
            served |= {"incremental_streaming_output": not options.cumulative, "max_running_requests": 512}
            return served | {"internal_states": [{"last_gen_throughput": 0.0}]}
        case "/version":
            return {"version": facts.version}
        case "/v1/models":
            model = {"id": facts.served_name, "object": "model", "owned_by": "sglang", "root": facts.model}
            return {"object": "list", "data": [model | {"max_model_len": facts.context_length}]}
    return None
