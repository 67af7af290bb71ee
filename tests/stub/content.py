"""Faults in what an answer says: each changes the prompt that it is to, or the steps of an honest one."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .apis import SYSTEM_PROMPT
from .faults import Fault
from .protocol import Step, compact, sse

Change = Callable[[list[Step]], list[Step]]


def token_count(fault: Fault | None, wanted: int, asked: int) -> int:
    """How many tokens an answer with this fault has."""
    special = {Fault.ONE_TOKEN: 1, Fault.TOO_MANY_TOKENS: asked + 5}
    return special.get(fault, wanted) if fault else wanted


def _last(change: Callable[[Step], Step]) -> Change:
    return lambda steps: [*steps[:-1], change(steps[-1])]


def _last_ids(change: Callable[[list[Any]], list[Any]]) -> Change:
    return _last(lambda step: replace(step, ids=change(step.ids)))


def _last_finish(reason: str | None) -> Change:
    return _last(lambda step: replace(step, finish=reason))


def _middle(made: Callable[[Step], list[Step]]) -> Change:
    """Other steps, or none, in the place of the one in the middle."""

    def change(steps: list[Step]) -> list[Step]:
        middle = len(steps) // 2
        return [*steps[:middle], *made(steps[middle]), *steps[middle + 1 :]]

    return change


def _without_text(steps: list[Step], kept: int) -> list[Step]:
    """The steps with their counts, but with no more than the first ``kept`` tokens."""
    ends = [step.count for step in steps]
    return [
        replace(step, ids=step.ids[: max(kept - end + len(step.ids), 0)])
        for step, end in zip(steps, ends, strict=True)
    ]


def _event(document: dict[str, Any], count: int | None = None, kind: bytes = b"") -> Step:
    """An event that says this, with the count of tokens that an honest one has in its place."""
    counted = {} if count is None else {"meta_info": {"completion_tokens": count}}
    return Step([], 0, raw=kind + sse(compact(document | counted)))


def _error(where: str) -> Step:
    return _event({"error": {"message": f"stub error {where}", "code": 500}})


_BROKEN = (
    b'data: {"text":"","output_ids":[1000,2,"meta_info":{"finish_reason":null,"completion_tokens":%d}}\n\n'
)

# What the server takes for a prompt.
PROMPTS: dict[Fault, Callable[[list[int]], list[int]]] = {
    Fault.OTHER_TEMPLATE: lambda prompt: [*SYSTEM_PROMPT, *prompt],
    Fault.EMPTY_CHAT: lambda prompt: list(SYSTEM_PROMPT),
}

CONTENT: dict[Fault, Change] = {
    Fault.ERROR_AT_START: lambda steps: [_error("at the start")],
    Fault.ERROR_MIDDLE: lambda steps: [*steps[: len(steps) // 2], _error("in the middle")],
    Fault.MALFORMED_JSON: _middle(
        lambda step: [replace(step, raw=b'data: {"text":"","output_ids":[1,2\n\n')]
    ),
    # A list without its end, in an event that has a count.
    Fault.MALFORMED_MIDDLE: _middle(lambda step: [replace(step, raw=_BROKEN % step.count)]),
    Fault.ERROR_GOES_ON: _middle(
        lambda step: [_event({"error": {"message": "stub error"}}, step.count), step]
    ),
    # Server-sent events have a type; this one says that its data is an error.
    Fault.ERROR_EVENT: _middle(
        lambda step: [_event({"message": "stub error"}, step.count, b"event: error\n"), step]
    ),
    Fault.SWAPPED_MIDDLE: _middle(  # cumulative streams of >= 3 tokens
        lambda step: [replace(step, ids=[step.ids[1], step.ids[0], *step.ids[2:]])]
    ),
    Fault.SKIPPED_EVENT: _middle(lambda step: [step] if step.finish else []),
    Fault.REPEATED_EVENT: lambda steps: [steps[0], *steps],
    Fault.TWO_ENDS: lambda steps: [*steps, steps[-1]],
    Fault.ABORT_GOES_ON: _middle(lambda step: [replace(step, finish="abort")]),
    Fault.ABORT: _last_finish("abort"),
    Fault.UNKNOWN_REASON: _last_finish("cancelled"),
    Fault.EMPTY_REASON: _last_finish(""),
    Fault.CONTENT_FILTER: _last_finish("content_filter"),
    Fault.TOOL_CALLS: _last_finish("tool_calls"),
    Fault.NO_FINISH: _last_finish(None),
    Fault.WRONG_COUNT: _last(lambda step: replace(step, count=step.count + 1)),
    # It agrees with itself and contradicts the ones before it (streams of >= 3 tokens).
    Fault.SHRINKING_IDS: _last(lambda step: replace(step, ids=step.ids[:-2], count=step.count - 2)),
    # The last id is there twice and counted once, or counted and not there.
    Fault.DUPLICATED_ID: _last_ids(lambda ids: [*ids, ids[-1]]),
    Fault.SKIPPED_ID: _last_ids(lambda ids: ids[:-1]),
    # It disagrees with the ones before it about the first token (cumulative streams only).
    Fault.CHANGED_IDS: _last_ids(lambda ids: [ids[0] + 1, *ids[1:]]),
    Fault.NEGATIVE_ID: _last_ids(lambda ids: [*ids[:-1], -1]),
    Fault.HUGE_ID: _last_ids(lambda ids: [*ids[:-1], 2**40]),
    Fault.FLOAT_ID: _last_ids(lambda ids: [*ids[:-1], 1000.5]),
    Fault.NAN_ID: _last_ids(lambda ids: [*ids[:-1], math.nan]),
    Fault.EMPTY_TEXT: lambda steps: _without_text(steps, 0),
    Fault.LOST_TEXT: lambda steps: _without_text(steps, 1),
    Fault.ZERO_TOKENS: lambda steps: [Step([], 0, finish="stop")],
}
