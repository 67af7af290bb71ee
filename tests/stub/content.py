"""Faults in what an answer says: each changes the steps of an honest one."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

from .faults import Fault
from .protocol import Step


def token_count(fault: Fault | None, wanted: int, asked: int) -> int:
    """How many tokens an answer with this fault has."""
    special = {Fault.ONE_TOKEN: 1, Fault.TOO_MANY_TOKENS: asked + 5}
    return special.get(fault, wanted) if fault else wanted


def _event(document: dict) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _error(message: str) -> bytes:
    return _event({"error": {"message": message, "code": 500}})


def _error_at_start(steps: list[Step]) -> list[Step]:
    return [Step([], 0, raw=_error("stub error at the start"))]


def _error_middle(steps: list[Step]) -> list[Step]:
    return [*steps[: len(steps) // 2], Step([], 0, raw=_error("stub error in the middle"))]


def _malformed_json(steps: list[Step]) -> list[Step]:
    steps[len(steps) // 2].raw = b'data: {"text":"","output_ids":[1,2\n\n'
    return steps


def _error_goes_on(steps: list[Step]) -> list[Step]:
    """An error beside the count that an event in the middle has, and then the rest of the stream."""
    middle = len(steps) // 2
    document = {"error": {"message": "stub error"}, "meta_info": {"completion_tokens": steps[middle].count}}
    return [*steps[:middle], Step([], 0, raw=_event(document)), *steps[middle:]]


def _error_event(steps: list[Step]) -> list[Step]:
    """Server-sent events have a type; this one says that its data is an error, and the stream goes on."""
    middle = len(steps) // 2
    document = {"message": "stub error", "meta_info": {"completion_tokens": steps[middle].count}}
    return [*steps[:middle], Step([], 0, raw=b"event: error\n" + _event(document)), *steps[middle:]]


def _malformed_middle(steps: list[Step]) -> list[Step]:
    """A list without its end, in an event that has a count."""
    middle = len(steps) // 2
    broken = (
        b'data: {"text":"","output_ids":[1000,2,"meta_info":{"finish_reason":null,"completion_tokens":%d}}'
    )
    steps[middle].raw = broken % steps[middle].count + b"\n\n"
    return steps


def _swapped_middle(steps: list[Step]) -> list[Step]:
    """An event in the middle has two ids in each other's place (cumulative streams of >= 3 tokens)."""
    first, second, *rest = steps[len(steps) // 2].ids
    steps[len(steps) // 2].ids = [second, first, *rest]
    return steps


def _two_ends(steps: list[Step]) -> list[Step]:
    last = steps[-1]
    return [*steps, replace(last, ids=list(last.ids))]


def _finish(reason: str, place: Callable[[int], int]) -> Callable[[list[Step]], list[Step]]:
    """``reason`` in the step that ``place`` gives for the number of steps."""

    def change(steps: list[Step]) -> list[Step]:
        steps[place(len(steps))].finish = reason
        return steps

    return change


def _no_finish(steps: list[Step]) -> list[Step]:
    steps[-1].finish = None
    return steps


def _wrong_count(steps: list[Step]) -> list[Step]:
    steps[-1].count += 1
    return steps


def _shrinking_ids(steps: list[Step]) -> list[Step]:
    """The last event agrees with itself and contradicts the ones before it (streams of >= 3 tokens)."""
    steps[-1].ids = steps[-1].ids[:-2]
    steps[-1].count -= 2
    return steps


def _duplicated_id(steps: list[Step]) -> list[Step]:
    """The last event holds its last id twice, and counts it once."""
    steps[-1].ids = [*steps[-1].ids, steps[-1].ids[-1]]
    return steps


def _skipped_id(steps: list[Step]) -> list[Step]:
    """The last event lacks its last id, and counts it."""
    steps[-1].ids = steps[-1].ids[:-1]
    return steps


def _changed_ids(steps: list[Step]) -> list[Step]:
    """The last event disagrees with the ones before it about the first token (cumulative streams only)."""
    steps[-1].ids = [steps[-1].ids[0] + 1, *steps[-1].ids[1:]]
    return steps


def _repeated_event(steps: list[Step]) -> list[Step]:
    """Harmless where streams are cumulative, like a skipped event."""
    return [steps[0], *steps]


def _skipped_event(steps: list[Step]) -> list[Step]:
    return [step for i, step in enumerate(steps) if i != len(steps) // 2 or step.finish]


def _last_id(value: float) -> Callable[[list[Step]], list[Step]]:
    def change(steps: list[Step]) -> list[Step]:
        steps[-1].ids = [*steps[-1].ids[:-1], value]
        return steps

    return change


def _zero_tokens(steps: list[Step]) -> list[Step]:
    return [Step([], 0, finish="stop")]


# The function of any other fault has its name.
CONTENT: dict[Fault, Callable[[list[Step]], list[Step]]] = {
    **{fault: globals()[name] for fault in Fault if (name := f"_{fault.name.lower()}") in globals()},
    Fault.ABORT: _finish("abort", lambda steps: -1),
    Fault.ABORT_GOES_ON: _finish("abort", lambda steps: steps // 2),
    Fault.UNKNOWN_REASON: _finish("cancelled", lambda steps: -1),
    Fault.EMPTY_REASON: _finish("", lambda steps: -1),
    Fault.NEGATIVE_ID: _last_id(-1),
    Fault.HUGE_ID: _last_id(2**40),
    Fault.FLOAT_ID: _last_id(1000.5),
    Fault.NAN_ID: _last_id(math.nan),
}
