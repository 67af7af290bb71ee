"""The common part of all protocols: requests are rendered, answers read event by event.

Most events of an answer differ in their text, new ids and count only. One that has the pattern of an event
which was decoded and judged says nothing else, so it needs no decoding; what comparing bytes cannot show is
left to the decoder.
"""

import re
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar

import msgspec

from harness.config.generation import SamplingParameters
from harness.record.outcome import Failure, Outcome
from sut.wire.answer_checks import AnswerBounds, AnswerReader, Expected, IdArray, append_ids, wrong_id
from sut.wire.fields import REST_OF_TEXT, AnswersSeen, EventJudge, EventKeys, FieldRules

# The most patterns that are tried for one answer, and one more for as many tokens: some servers' events have
# the time in them. An event that does not have the latest one is decoded.
_MOST_PATTERNS = 4
_TOKENS_PER_PATTERN = 8
_TOGETHER = 4  # events from which on taking them together costs less
# Text with the short escapes; what has others (\u) is left to the decoder.
_plain_text = re.compile(rb'[^"\\\x00-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x1f]*)*').match
_ids_of = msgspec.json.Decoder(list[int]).decode
_sizes = struct.Struct("@qqqqq").pack  # the beginning of a struct pattern: sut/client/native/events.h


class Pattern:
    """One event's bytes around its text, its ids and its count of tokens, in this order."""

    __slots__ = ("_between", "_end", "_from_text", "_head", "_packed", "_to_ids")
    _counts_first: ClassVar[bool] = False

    def __init__(self, head: bytes, from_text: bytes, between: bytes, end: bytes | None) -> None:
        self._head = head
        self._from_text = from_text
        self._to_ids = head + from_text  # the same without text
        self._between = between
        self._end = end
        self._packed: bytes | None = None

    @property
    def packed(self) -> bytes:
        """A struct pattern; b"" where an event has several lines, of which the beginnings are lost here."""
        if self._packed is None:
            parts, end = (self._head, self._from_text, self._between), self._end
            sizes = _sizes(*map(len, parts), -1 if end is None else len(end), self._counts_first)
            around = b"".join(parts) + (end or b"")
            self._packed = b"" if b"\n" in around or b"\r" in around else sizes + around
        return self._packed

    @classmethod
    def of(cls, event: bytes, keys: EventKeys) -> "Pattern | None":
        """The pattern of an event of valid JSON; None unless its keys are there once each, the text first."""
        if event.count(keys.ids) != 1:
            return None
        ids = event.find(keys.ids) + len(keys.ids)
        of_ids = ids, event.find(b"]", ids)
        parts = [of_ids]
        if keys.count:
            if event.count(keys.count) != 1:
                return None
            number = event.find(keys.count) + len(keys.count)
            parts.append((number, len(event) - len(event[number:].lstrip(b"0123456789"))))
        parts.sort()
        kind = cls if parts[0] == of_ids else _CountFirst
        first = parts[0][0]
        head, from_text = event[:first], b""
        found = [key for key in keys.texts for _ in range(event.count(key))]
        if len(found) == 1:
            text = event.find(found[0]) + len(found[0])
            end = REST_OF_TEXT.match(event, text).end()  # type: ignore[union-attr]
            if not text <= end < first:
                return None
            head, from_text = event[:text], event[end:first]
        if not keys.count:
            return kind(head, from_text, event[parts[0][1] :], None)
        return kind(head, from_text, event[parts[0][1] : parts[1][0]], event[parts[1][1] :])

    def new_ids(self, event: bytes, tokens: int) -> list[int] | None:
        """The ids of an event that has this pattern and counts ``tokens`` and its own; None for another."""
        if event.startswith(self._to_ids):
            at = len(self._to_ids)
        else:
            head, from_text = self._head, self._from_text
            if not event.startswith(head):
                return None
            at = _plain_text(event, len(head)).end()  # type: ignore[union-attr]
            if not event.startswith(from_text, at):
                return None
            at += len(from_text)
        end = event.find(b"]", at)
        try:
            ids = _ids_of(event[at - 1 : end + 1])
        except msgspec.DecodeError:
            return None
        after = self._end
        rest = self._between if after is None else b"%b%d%b" % (self._between, tokens + len(ids), after)
        return ids if event[end:] == rest else None

    def leading_ids(self, events: Iterable[bytes], tokens: int) -> tuple[list[int], int]:
        """All ids of the first events that have this pattern, as ``new_ids``, and the number of these."""
        head, from_text, to_ids = self._head, self._from_text, self._to_ids
        between, after = self._between, self._end
        lists: list[bytes] = []
        count = tokens
        for event in events:
            if event.startswith(to_ids):
                at = len(to_ids)
            else:
                if not event.startswith(head):
                    break
                at = _plain_text(event, len(head)).end()  # type: ignore[union-attr]
                if not event.startswith(from_text, at):
                    break
                at += len(from_text)
            end = event.find(b"]", at)
            new = event.count(b",", at, end) + 1
            rest = between if after is None else b"%b%d%b" % (between, count + new, after)
            if event[end:] != rest:
                break
            lists.append(event[at:end])
            count += new
        try:
            ids = _ids_of(b"[%b]" % b",".join(lists))
        except msgspec.DecodeError:
            return [], 0
        return (ids, len(lists)) if len(ids) == count - tokens else ([], 0)


class _CountFirst(Pattern):
    """The same where the count stands before the ids, as in events of SGLang's Rust server."""

    __slots__ = ()
    _counts_first = True

    def new_ids(self, event: bytes, tokens: int) -> list[int] | None:
        """As Pattern."""
        head, to_count, to_ids, end = self._head, self._from_text, self._between, self._end
        if not event.startswith(head):
            return None
        at = _plain_text(event, len(head)).end() if to_count else len(head)  # type: ignore[union-attr]
        if not event.startswith(to_count, at):
            return None
        number = at + len(to_count)
        close = event.find(to_ids, number)
        start = close + len(to_ids)
        stop = event.find(b"]", start)
        try:
            ids = _ids_of(event[start - 1 : stop + 1])
        except msgspec.DecodeError:
            return None
        is_like = close >= 0 and event[stop:] == end and event[number:close] == b"%d" % (tokens + len(ids))
        return ids if is_like else None

    def leading_ids(self, events: Iterable[bytes], tokens: int) -> tuple[list[int], int]:
        """As Pattern."""
        found: list[int] = []
        taken = 0
        for event in events:
            ids = self.new_ids(event, tokens + len(found))
            if ids is None:
                break
            found += ids
            taken += 1
        return found, taken


class TokenAnswer:
    """Reads an answer whose events carry new ids: an AnswerReader but for ``_take`` and ``finish``."""

    __slots__ = (
        "_judge",
        "_limits",
        "_pattern",
        "_patterns",
        "id",
        "ids",
        "prompt_ids",
        "tokens",
    )
    keys: ClassVar[EventKeys]

    def __init__(self, limits: AnswerBounds, judge: EventJudge) -> None:
        self.tokens = 0
        self.id = ""
        self.prompt_ids = b""
        self._limits = limits
        self._judge = judge
        self.ids: IdArray = array("I")  # 4 bytes each, a tenth of the size of a list of ints
        self._pattern: Pattern | None = None  # the latest one; None after the last event
        self._patterns = 0  # tried so far

    def feed(self, event: bytes) -> Failure | None:
        """Take one event's JSON."""
        if self._pattern is not None:
            ids = self._pattern.new_ids(event, self.tokens)
            if ids is not None:
                return self._extend(ids)
        return self._take(event)

    def feed_all(self, events: Sequence[bytes]) -> Failure | None:
        """Take the JSON of some events: as ``feed`` takes each."""
        taken = 0
        while (taken := taken + self._take_alike(events, taken)) < len(events):
            if failure := self.feed(events[taken]):
                return failure
            taken += 1
        return None

    @property
    def expected(self) -> Expected | None:
        """As AnswerReader."""
        pattern = self._pattern_of_next()
        if pattern is None or not pattern.packed:
            return None
        return Expected(pattern.packed, self.tokens, self._limits.max_new_tokens)

    def add(self, ids: bytes) -> None:
        """As AnswerReader."""
        self.ids.frombytes(ids)
        self.tokens = len(self.ids)

    def finish(self) -> Outcome:
        """Judge the answer after its last event."""
        raise NotImplementedError

    def _pattern_of_next(self) -> Pattern | None:
        """The pattern that the next events have if they differ in their text, ids and count only."""
        return self._pattern if self.ids else None

    def _take_alike(self, events: Sequence[bytes], start: int) -> int:
        """Take the next events if they have the latest pattern and nothing is wrong; return their number."""
        if len(events) - start < _TOGETHER or (pattern := self._pattern_of_next()) is None:
            return 0
        ids, taken = pattern.leading_ids(islice(events, start, None), self.tokens)
        if self.tokens + len(ids) > self._limits.max_new_tokens:
            return 0
        try:
            self.add(array("I", ids).tobytes())
        except OverflowError:
            return 0
        return taken

    def _take(self, event: bytes) -> Failure | None:
        """Decode an event and check all of it."""
        raise NotImplementedError

    def _extend(self, ids: list[int] | None) -> Failure | None:
        """Take an event's new ids."""
        if not ids:
            return None
        if not self.ids and not 0 <= ids[0] < self._limits.vocabulary_size:
            return wrong_id(ids[0], self._limits)
        failure = append_ids(self.ids, ids, self._limits)
        self.tokens = len(self.ids)
        return failure

    def _expect_like(self, event: bytes, *, is_last: bool) -> None:
        """Expect that the next event has the pattern of this one, unless the answer ends with it."""
        if is_last:
            self._pattern = None
        elif self._patterns < _MOST_PATTERNS + self.tokens // _TOKENS_PER_PATTERN:
            self._patterns += 1
            self._pattern = Pattern.of(event, self.keys) or self._pattern


def plain_opening(request_id: str, body_bytes: int) -> bytes:
    """The headers that end a request's head, and its body's opening brace, after which an id may stand.

    ``body_bytes``: the size of the body that ``Wire.render`` gave, of which all but the brace follows.
    A protocol whose answers do not repeat the id sends none.
    """
    return b"Content-Length: %d\r\n\r\n{" % body_bytes


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """The form of one protocol's requests and answers."""

    path: str
    fields: FieldRules
    """The documented fields of its events."""
    answers: type[TokenAnswer]
    """What reads one answer."""
    options: Callable[[SamplingParameters, str], dict[str, Any]]
    """All of a request but its prompt and id, by the parameters and the served name."""
    head: bytes = b'{"prompt":'
    """A request's JSON up to its prompt."""
    after_prompt: bytes = b","
    """What stands between the prompt and the options."""
    opening: Callable[[str, int], bytes] = plain_opening
    names_model: bool = False
    """Whether answers have the served name."""
    ids_may_change: bool = False
    """Whether the events of one answer may have different ids if those of the trial answers have."""

    def judge(self, model: str, seen: AnswersSeen | None) -> EventJudge:
        """The judge of its events, for answers of ``model``."""
        names = (model,) if self.names_model else ()
        return EventJudge(self.fields, self.answers.keys, names, seen, ids_may_change=self.ids_may_change)


class Wire:
    """One server protocol, for answers of at most ``parameters.max_new_tokens``.

    ``model`` is the served name, which some protocols' requests carry.
    """

    def __init__(
        self,
        form: Form,
        parameters: SamplingParameters,
        vocabulary_size: int,
        model: str,
        judge: EventJudge,
    ) -> None:
        self.path = form.path
        self.opening = form.opening
        self.streams = parameters.stream
        self._answers = form.answers
        self._judge = judge
        self._limits = AnswerBounds(parameters.max_new_tokens, vocabulary_size)
        self.max_event_bytes = self._limits.max_event_bytes
        self._head = form.head
        self._tail = form.after_prompt + msgspec.json.encode(form.options(parameters, model))[1:]

    def render(self, prompt: bytes) -> bytes:
        """A request's JSON body without its id: the prompt's JSON, then the options."""
        return self._head + prompt + self._tail

    def prompt_offset(self, before: Sequence[int]) -> int:
        """The place in ``render``'s bytes of the id that follows these, of which there is one at least."""
        return len(self._head) + len(msgspec.json.encode(before))

    def answer(self) -> AnswerReader:
        """A reader for one new answer."""
        return self._answers(self._limits, self._judge)
