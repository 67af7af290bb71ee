"""events.jsonl: one line for each moment of a run, and what an answer is in it.

Lines are in the order of publishing, which is that of time but for microseconds. Times are CLOCK_MONOTONIC
ns. Prompts and answers are arrays that begin with the name of their type, fields in the order below.
"""

from typing import Any, TypedDict

import msgspec

from harness.arrays import Int64

# Kinds of events: of the session, of a request (its later fragments only where the client is asked for all).
STARTED, ENDED = "session.started", "session.ended"
START, STOP = "session.start_performance_tracking", "session.stop_performance_tracking"
ISSUED, FIRST, LATER, COMPLETE = (
    f"sample.{moment}" for moment in ("issued", "recv_first", "recv_non_first", "complete")
)
ERRORS = "error."  # a failure comes before the end of its request
FAILED = "error.generic"


class Prompt(msgspec.Struct, frozen=True, array_like=True, tag="PromptData"):
    """What was sent: one of text, ids and messages, or none where only the ids' number is recorded."""

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    messages: tuple[Any, ...] | None = None
    tools: Any = None
    chat_template_kwargs: Any = None
    chat_template: str | None = None
    tool_choice: Any = None


class Function(TypedDict, total=False):
    """What a tool call calls, or a fragment of it."""

    name: str | None
    arguments: Any


class Call(TypedDict, total=False):
    """A tool call, or a fragment of it."""

    index: int
    id: str | None
    type: str | None
    function: Function | None


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="TextModelOutput"):
    """What came back. A streamed part is its first fragment and the rest, another one a text."""

    output: str | tuple[str, ...] = ""
    reasoning: str | tuple[str, ...] | None = None
    tool_calls: tuple[Call | tuple[Call, ...], ...] | None = None


class Fault(msgspec.Struct, frozen=True, array_like=True, tag="ErrorData"):
    """Why a request failed."""

    error_type: str
    error_message: str = ""


class Event(msgspec.Struct, frozen=True):
    """One line."""

    event_type: str
    timestamp_ns: Int64
    sample_uuid: str = ""
    conversation_id: str = ""
    turn: int | None = None
    data: Prompt | Answer | Fault | str | None = None
    """of an issue, an answer or an error"""
    finish_reason: str | msgspec.UnsetType = msgspec.UNSET
    worker_id: int | msgspec.UnsetType = msgspec.UNSET


class Message(msgspec.Struct, frozen=True):
    """An assistant's message, as the reference tokenizer counts it."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()


def whole(answer: Answer) -> Message:
    """The complete message."""
    return Message(_text(answer.output), _text(answer.reasoning), _merged(answer.tool_calls))


def after_first(answer: Answer) -> Message:
    """What came after the first fragment; empty for an answer that was not streamed.

    The first fragment is of the reasoning where there is one, else of the output, else of the tool calls.
    """
    output, reasoning, calls = answer.output, answer.reasoning, answer.tool_calls
    if reasoning:
        rest = "".join(reasoning[1:]) if isinstance(reasoning, tuple) else ""
        streamed = isinstance(reasoning, tuple) or isinstance(output, tuple)
        return Message(_text(output) if streamed else "", rest, _merged(calls))
    if output:
        return Message("".join(output[1:]) if isinstance(output, tuple) else "", "", _merged(calls))
    streamed = bool(calls) and isinstance(calls[0], (list, tuple))  # type: ignore[index]
    return Message("", "", _merged(calls[1:] if calls and streamed else calls))


def _text(part: str | tuple[str, ...] | None) -> str:
    return part if isinstance(part, str) else "".join(part or ())


def _merged(calls: tuple[Any, ...] | None) -> tuple[dict[str, Any], ...]:
    """Structured tool calls of streamed fragments, in the order of their index."""
    if not calls or not isinstance(calls[0], (list, tuple)):
        return tuple(calls or ())
    merged: dict[int, dict[str, Any]] = {}
    for fragment in (part for chunk in calls for part in chunk):
        start: dict[str, Any] = {"type": "function", "function": {"arguments": ""}}
        call = merged.setdefault(fragment.get("index", 0), start)
        call |= {name: fragment[name] for name in ("id", "type") if fragment.get(name)}
        function = fragment.get("function") or {}
        if function.get("name"):
            call["function"]["name"] = function["name"]
        arguments = function.get("arguments")
        call["function"]["arguments"] += arguments if isinstance(arguments, str) else ""
    return tuple(merged[index] for index in sorted(merged))
