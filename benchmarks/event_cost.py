#!/usr/bin/env python3
"""CPU time of one streamed event in the protocol's reader, for each kind of answer.

    python -m benchmarks.event_cost [--events 2000] [--times 30]

Events have the members of recorded ones; "ratio" is to completions that return ids. The least time of all
repeats is shown: other load only adds to it.
"""

import json
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any

from benchmarks.bench import program_parser, report
from harness.config.generation import SamplingParameters
from harness.config.protocol import Protocol
from harness.record.outcome import Failure
from sut.wire import make_wire
from sut.wire.wire import Wire

VOCABULARY = 201_088
WORDS = (" hello", " the", " wörld", "\n\n", " don't", ' "x"', " token", "ing")
CHAT = {"id": "chatcmpl-q-000017", "object": "chat.completion.chunk", "created": 1795453010, "model": "m"}
COMPLETION = {"id": "cmpl-q-000017", "object": "text_completion", "created": 1795453010, "model": "m"}


def main() -> None:
    """Read the answers and print the table."""
    parser = program_parser(__doc__)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--times", type=int, default=30)
    arguments = parser.parse_args()
    answers = {
        name: (wire_of(protocol, arguments.events), made(arguments.events)) for name, protocol, made in KINDS
    }
    least = dict.fromkeys(answers, float("inf"))
    for _ in range(arguments.times):
        for name, (wire, events) in answers.items():
            least[name] = min(least[name], seconds(wire, events) * 1e6 / arguments.events)
    rows = [(name, cost, cost / least["completions, ids"]) for name, cost in least.items()]
    report("event_cost", "reading one event", ("answer", "us for an event", "ratio"), rows)


def wire_of(protocol: Protocol, tokens: int) -> Wire:
    """The protocol for answers of ``tokens``."""
    parameters = SamplingParameters(
        max_new_tokens=tokens, temperature=1.0, top_p=1.0, top_k=0, skip_special_tokens=False, stream=True
    )
    return make_wire(protocol, parameters, VOCABULARY, "m")


def seconds(wire: Wire, events: Sequence[bytes]) -> float:
    """CPU time of one answer's reader."""
    answer = wire.answer()
    start = time.process_time()
    failed = [event for event in events if answer.feed(event) is not None]
    outcome = answer.finish()
    took = time.process_time() - start
    if failed or isinstance(outcome, Failure):
        raise SystemExit(f"not a complete answer: {failed[:1]} {outcome}")
    return took


def chunks(head: dict[str, Any], parts: Sequence[dict[str, Any]]) -> list[bytes]:
    """Events with these choices, the last one with the finish reason, and the usage."""
    choices = [{"index": 0, "logprobs": None, "finish_reason": None} | part for part in parts]
    choices[-1]["finish_reason"] = "stop"
    usage = {"prompt_tokens": 4, "total_tokens": 4 + len(parts), "completion_tokens": len(parts)}
    events = [head | {"choices": [choice]} for choice in choices]
    return [compact(event) for event in [*events, head | {"choices": [], "usage": usage}]]


def compact(event: dict[str, Any]) -> bytes:
    """JSON as servers write it."""
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def words(count: int) -> list[str]:
    """Texts of tokens."""
    return list(islice(cycle(WORDS), count))


def completions_ids(count: int) -> list[bytes]:
    """vLLM's completions with return_token_ids."""
    return chunks(
        COMPLETION, [{"text": word, "token_ids": [1000 + n]} for n, word in enumerate(words(count))]
    )


def completions_text(count: int) -> list[bytes]:
    """vLLM's completions."""
    return chunks(COMPLETION, [{"text": word, "token_ids": None} for word in words(count)])


def chat_text(count: int) -> list[bytes]:
    """A chat that thinks first."""
    names = ["reasoning"] * (count * 3 // 4) + ["content"] * (count - count * 3 // 4)
    parts = [
        {"delta": {name: word}, "token_ids": None} for name, word in zip(names, words(count), strict=True)
    ]
    return chunks(CHAT, parts)


def chat_ids(count: int) -> list[bytes]:
    """vLLM's chat with return_token_ids."""
    parts = [{"delta": {"content": word}, "token_ids": [1000 + n]} for n, word in enumerate(words(count))]
    return chunks(CHAT, parts)


def sglang(count: int, *, cumulative: bool = False, rust: bool = False) -> list[bytes]:
    """SGLang's native events, of its HTTP server in Python or in Rust."""
    said, events = "", []
    ids: list[int] = []
    for n, word in enumerate(words(count)):
        said, ids = (said + word, [*ids, 1000 + n]) if cumulative else (word, [1000 + n])
        reason = {"type": "stop"} if n == count - 1 else None
        counted = {"prompt_tokens": 4, "completion_tokens": n + 1}
        if rust:
            meta = {"id": "q-000017", **counted, "finish_reason": reason, "cached_tokens": 0}
            events.append(compact({"text": said, "meta_info": meta, "output_ids": ids}))
        else:
            meta = {"id": "q-000017", "finish_reason": reason, **counted, "cached_tokens": 0}
            events.append(compact({"text": said, "output_ids": ids, "meta_info": meta}))
    return events


_GENERATE = Protocol("sglang", "generate", "ids")
KINDS = (
    ("completions, ids", Protocol("openai", "completions", "ids"), completions_ids),
    ("completions, text", Protocol("openai", "completions", "text"), completions_text),
    ("chat, ids", Protocol("openai", "chat", "ids"), chat_ids),
    ("chat, text", Protocol("openai", "chat", "text"), chat_text),
    ("SGLang's /generate", _GENERATE, sglang),
    ("the same, cumulative", _GENERATE, partial(sglang, cumulative=True)),
    ("of its Rust server", _GENERATE, partial(sglang, rust=True)),
    ("of its Rust server, cumulative", _GENERATE, partial(sglang, cumulative=True, rust=True)),
)


if __name__ == "__main__":
    main()
