"""Answers as text: fragments of reasoning, content and tool calls, in the order of the message.

Fragments are kept as the JSON that the server sent and decoded together at the end, so that a character whose
halves came in two events is whole, and one of which a half is missing makes the answer a failure.
"""

import re
from typing import ClassVar

import msgspec

from harness.record.outcome import Failure, FailureKind, Outcome, TextCompletion
from sut.wire.answer_checks import (
    UNREADABLE,
    AnswerBounds,
    cut_off,
    excerpt,
    incomplete,
    number,
    too_many,
    unfinished,
)
from sut.wire.chunk_answer import ChunkAnswer, IdAnswer
from sut.wire.chunks import Choice, Chunk, Message
from sut.wire.fields import EventJudge, EventKeys

_STRING = re.compile(rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*').match
_EMPTY = (b"null", b'""')
_text_of = msgspec.json.Decoder(str).decode
# Patterns are learned anew for as many fragments: some servers' events have the time in them.
_FRAGMENTS_PER_PATTERN = 8
_MOST_KEPT = 3  # reasoning, content and calls of tools


class TextAnswer(ChunkAnswer):
    """An answer whose chunks carry text. ``tokens`` counts its fragments, ``ids`` stays empty."""

    __slots__ = ("_content", "_known", "_learned", "_most_bytes", "_reasoning", "_tools")
    keys: ClassVar[EventKeys] = IdAnswer.keys

    def __init__(self, limits: AnswerBounds, judge: EventJudge) -> None:
        super().__init__(limits, judge)
        self._reasoning, self._content, self._tools = bytearray(), bytearray(), bytearray()
        self._most_bytes = limits.max_event_bytes
        self._known: list[tuple[bytes, bytes, bytearray]] = []
        self._learned = 0

    @property
    def expected(self) -> None:
        """As AnswerReader: a text has no ids."""

    def feed(self, event: bytes) -> Failure | None:
        """Take one event's JSON."""
        for head, end, text in self._known:
            if event.startswith(head) and event.endswith(end):
                start, stop = len(head), len(event) - len(end)
                if _STRING(event, start).end() == stop:  # type: ignore[union-attr]
                    return self._add(text, event[start:stop])
        return self._take(event)

    def finish(self) -> Outcome:
        """Judge the answer after its last chunk."""
        if self._reason is None:
            return unfinished(self.tokens)
        if failure := incomplete(self._reason, self.tokens) or self._miscounted():
            return failure
        counted = 0 if self._usage is None else self._usage.completion_tokens
        if failure := too_many(counted, self._limits):
            return failure
        if not self.tokens:
            ended = excerpt(self._reason.encode())
            detail = f"finished ({ended}) without text, the server's count of tokens is {number(counted)}"
            return Failure(FailureKind.NO_TOKENS, detail)
        if counted < 1:
            return Failure(FailureKind.TOKEN_COUNT, f"the server counted {number(counted)} tokens of a text")
        if self._reason == "length" and counted < self._limits.max_new_tokens:
            return cut_off(counted, self._limits)
        try:
            parts = [
                _text_of(b'"%b"' % bytes(part)) for part in (self._reasoning, self._content, self._tools)
            ]
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"the answer's text is not whole: {error}")
        return TextCompletion("".join(parts), self._reason, self.prompt_tokens, counted)

    def _accept(self, chunk: Chunk, choice: Choice, event: bytes, readable: bytes) -> Failure | None:
        message = choice.delta or choice.message
        if (choice.delta is not None and choice.message is not None) or _is_ambiguous(message):
            return Failure(FailureKind.MALFORMED, f"two messages or reasonings in {excerpt(event)}")
        # Some servers repeat a message's content as text.
        parts = [(self._content, choice.text)] if message is None else self._parts_of(message)
        found = [(text, bytes(part)) for text, part in parts if bytes(part) not in _EMPTY]
        for text, part in found:
            if not part.startswith(b'"'):
                return Failure(FailureKind.MALFORMED, f"{excerpt(part)} is not text")
            if event is not readable:
                if readable.count(part) > 1:
                    return Failure(FailureKind.MALFORMED, f"half a character in {excerpt(event)}")
                start = readable.index(part)
                part = event[start : start + len(part)]
            if failure := self._add(text, part[1:-1]):
                return failure
        if self._reason is not None:
            self._known.clear()
        elif len(found) == 1:
            self._expect_another(event, *found[0])
        return None

    def _parts_of(self, message: Message) -> list[tuple[bytearray, msgspec.Raw]]:
        """The texts of a message, or of a part of it. Some servers give its reasoning under both names."""
        parts = [(self._reasoning, message.reasoning_content)]
        if bytes(message.reasoning) != bytes(message.reasoning_content):
            parts.append((self._reasoning, message.reasoning))
        parts.append((self._content, message.content))
        for call in message.tool_calls or ():
            if call.function is not None:
                parts += [(self._tools, call.function.name), (self._tools, call.function.arguments)]
        return parts

    def _add(self, text: bytearray, fragment: bytes) -> Failure | None:
        if fragment:
            self.tokens += 1
            text += fragment
            if len(text) > self._most_bytes:
                detail = f"a text of more than {self._most_bytes} bytes"
                return Failure(FailureKind.TOO_LARGE, detail)
        return None

    def _expect_another(self, event: bytes, text: bytearray, part: bytes) -> None:
        """Expect events like this one, of which the only text, ``part``, differs."""
        if self._learned > _MOST_KEPT + self.tokens // _FRAGMENTS_PER_PATTERN:
            return
        self._learned += 1
        ends = [event.find(key) + len(key) for key in self.keys.texts for _ in range(event.count(key))]
        starts = [end for end in ends if event[end : end + 1] != b'"']
        if len(starts) != 1 or not event.startswith(part, starts[0] - 1):
            return
        stop = starts[0] + len(part) - 2
        others = [known for known in self._known if known[2] is not text]
        self._known = [(event[: starts[0]], event[stop:], text), *others]


def _is_ambiguous(message: Message | None) -> bool:
    """Whether a message has two reasonings that are not the same."""
    if message is None:
        return False
    found = {bytes(message.reasoning_content), bytes(message.reasoning)}
    return len(found.difference(_EMPTY)) > 1
