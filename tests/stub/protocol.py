"""What is asked, and what an honest server would say. Its forms are in apis.py."""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

FIRST_ID, ID_RANGE, ID_STRIDE = 1000, 100_000, 7919  # inside every vocabulary, below the special tokens
DONE = b"data: [DONE]\n\n"
Rule = Callable[[list[int], int], list[int]]


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
    owner: str = "sglang"
    """``owned_by`` of /v1/models."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Further members of SGLang's /server_info."""


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
    prompt_ids: list[int] = field(default_factory=list)
    """As sent, whichever API carried them; of a text its tokens."""
    taken_ids: list[int] = field(default_factory=list)
    """What the server takes for the prompt: the same but for a template, or a server that ignores ids."""
    gets_ids: bool = True
    """Whether its answer has ids."""
    made: int = 0
    """The tokens of its answer."""

    @property
    def asked_tokens(self) -> int:
        """The most tokens that the client asked for (SGLang's and OpenAI's defaults where it did not)."""
        if "sampling_params" in self.body:
            given = self.body["sampling_params"]
            return int(given.get("max_new_tokens", given.get("max_tokens", 128)))
        names = ("max_tokens", "max_completion_tokens", "n_predict")
        return next((int(self.body[name]) for name in names if name in self.body), 16)

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream", False))


@dataclass(frozen=True, slots=True)
class Options:
    """How the stub answers."""

    tokens: int | Callable[[list[int]], int] | None = None
    """How many, or a rule of the prompt; None: as many as asked."""
    answers: Callable[[list[int]], list[int]] | None = None
    """The ids of an answer by its prompt, as far as tokens were asked for; None: ``expected_ids``, of answers
    without ids ``expected_words``."""
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
    text: Callable[[list[int]], str] | None = None
    """What an event says in words of its ids; None: beside ids " tok" for each, without them their text."""
    returns_ids: bool = True
    """OpenAI's APIs give ids where they are asked for; False: they ignore that, as many servers do."""
    chat_ids: bool = True
    """``prompt_token_ids`` and ``input_ids`` of a chat are its prompt; False: they are ignored, as vLLM and
    llama.cpp do, and the template of an empty chat is answered."""
    refuses: tuple[str, ...] = ()
    """Fields of a request that are an error: Dynamo's and trtllm-serve's front ends know only their own."""
    template: Callable[[list[dict[str, Any]]], list[int]] | None = None
    """The prompt of a chat; None: its contents one after another, which no real server makes of it."""
    parts: tuple[str, ...] = ("content",)
    """Of a chat's answer, in order and of about the same length: content, reasoning (vLLM's name),
    reasoning_content (SGLang's and llama.cpp's), tool_calls."""


@dataclass(slots=True)
class Step:
    """One event: the ids it carries (all so far, or what is new), the count it claims, and the end.

    ``raw`` replaces the rendered event.
    """

    ids: list[Any]
    count: int
    finish: str | None = None
    raw: bytes | None = None


def honest_steps(request: Request, options: Options, n: int, cumulative: bool, rule: Rule) -> list[Step]:
    """The events of a complete and correct answer of n >= 1 tokens; ``rule`` has their ids."""
    ids = rule(request.taken_ids, n)
    if options.answers is not None:
        ids = options.answers(request.taken_ids)[: request.asked_tokens]
        n = len(ids)
    ends = [*range(1, n, options.tokens_per_event), n] if request.streams else [n]
    starts = [0] * len(ends) if cumulative else [0, *ends[:-1]]
    steps = [Step(ids[start:end], end) for start, end in zip(starts, ends, strict=True)]
    steps[-1].finish = "length" if n >= request.asked_tokens else "stop"
    return steps


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
            return served | {"internal_states": [{"last_gen_throughput": 0.0}], **facts.info}
        case "/version":
            return {"version": facts.version}
        case "/v1/models":
            model = {"id": facts.served_name, "object": "model", "owned_by": facts.owner, "root": facts.model}
            return {"object": "list", "data": [model | {"max_model_len": facts.context_length}]}
    return None
