"""SGLang's native ``POST /generate`` with token ids, streamed or complete.

By default every event repeats all ids so far (cumulative); with --incremental-streaming-output events
carry what is new. The number of ids and ``meta_info.completion_tokens`` show which. A cumulative event
begins with the bytes of the one before: those are compared and only the rest is decoded, so every event is
checked completely, in time linear in the length of the answer.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from harness.config.generation import SamplingParameters
from harness.record.outcome import Failure, FailureKind, Outcome
from sut.wire.base import (
    NO_ERROR,
    UNREADABLE,
    AnswerBounds,
    TokenIds,
    after_end,
    append_ids,
    excerpt,
    given,
    in_band_error,
    incomplete,
    no_ids,
    number,
    whole_answer,
    wrong_count,
    wrong_id,
)

# The two ways in which SGLang's compact JSON begins: with --skip-tokenizer-init, and with text.
_BARE, _TEXT, _AFTER_TEXT = b'{"output_ids":[', b'{"text":"', b'","output_ids":['
_COMMA, _BRACKET = b",]"


class _FinishReason(msgspec.Struct):
    type: str
    message: str | None = None


class _MetaInfo(msgspec.Struct):
    completion_tokens: int
    finish_reason: _FinishReason | None = None
    prompt_tokens: int | None = None


class _Event(msgspec.Struct):
    output_ids: list[int] | None = None
    meta_info: _MetaInfo | None = None
    error: msgspec.Raw = NO_ERROR


_decode = msgspec.json.Decoder(_Event).decode


class SglangWire:
    """Renders requests for and reads answers of ``/generate``."""

    path = "/generate"

    def __init__(self, parameters: SamplingParameters, vocabulary_size: int) -> None:
        self.streams = parameters.stream
        self._limits = AnswerBounds(parameters.max_new_tokens, vocabulary_size)
        self._tail = b',"sampling_params":%b,"stream":%b}' % (
            msgspec.json.encode(_sampling_params(parameters)),
            b"true" if parameters.stream else b"false",
        )

    def render(self, token_ids: Sequence[int]) -> bytes:
        """``{"input_ids":[...],"sampling_params":{...},"stream":true}``."""
        return b'{"input_ids":' + msgspec.json.encode(token_ids) + self._tail

    def answer(self) -> "SglangAnswer":
        """A reader for one new answer."""
        return SglangAnswer(self._limits)


def _sampling_params(parameters: SamplingParameters) -> dict[str, Any]:
    return {
        "max_new_tokens": parameters.max_new_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "top_k": parameters.top_k or -1,  # SGLang refuses 0 and writes "off" as -1
        "skip_special_tokens": parameters.skip_special_tokens,
        **given(min_new_tokens=parameters.min_new_tokens, sampling_seed=parameters.seed),
    } | parameters.extra


class SglangAnswer:
    """One ``/generate`` answer, cumulative or incremental."""

    __slots__ = ("_cumulative", "_ids", "_limits", "_meta", "_shown", "first_id", "tokens")

    def __init__(self, limits: AnswerBounds) -> None:
        self.tokens = 0
        self.first_id = -1
        self._limits = limits
        self._cumulative: bool | None = None  # unknown until the second event with ids
        self._ids = no_ids()
        self._shown: _Shown | None = None  # by the previous event, if it began as SGLang's do
        self._meta: _MetaInfo | None = None

    @property
    def ids(self) -> TokenIds:
        """As Answer."""
        return self._ids

    def feed(self, event: bytes) -> Failure | None:
        """Take one event's JSON."""
        if self._shown is not None:
            rest = self._shown.rest_of(event)
            if rest is not None:
                return self._take_rest(event, rest)
        return self._take(event)

    def finish(self) -> Outcome:
        """Judge the answer after its last event."""
        meta = self._meta
        if meta is None:
            return Failure(FailureKind.UNFINISHED, "the stream ended before its first event")
        reason = None if meta.finish_reason is None else meta.finish_reason.type
        return whole_answer(self._ids, meta.completion_tokens, reason, meta.prompt_tokens, self._limits)

    def _take_rest(self, data: bytes, rest: bytes) -> Failure | None:
        """Take a cumulative event; ``rest`` is the part that the previous one has not shown."""
        try:
            event = _decode(rest)
        except UNREADABLE:
            return self._take(data)  # fails in the same way, with the complete event in its detail
        if event.error is not NO_ERROR or event.output_ids is None or event.meta_info is None:
            return self._take(data)
        if failure := self._check(event.meta_info):
            return failure
        return self._accept(event.output_ids, event.meta_info)

    def _take(self, data: bytes) -> Failure | None:
        try:
            event = _decode(data)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(data)}")
        if failure := in_band_error(event.error):
            return failure
        ids, meta = event.output_ids, event.meta_info
        if ids is None or meta is None:
            return Failure(FailureKind.MALFORMED, f"no output_ids and meta_info in {excerpt(data)}")
        if failure := self._check(meta):
            return failure
        if self._cumulative is None and self._ids and ids:
            self._cumulative = len(ids) == meta.completion_tokens
        if self._cumulative:
            if ids[: self.tokens] != self._ids.tolist():
                return Failure(FailureKind.TOKEN_COUNT, "ids sent earlier have changed")
            self._shown = _Shown.by(data)
            ids = ids[self.tokens :]
        return self._accept(ids, meta)

    def _check(self, meta: _MetaInfo) -> Failure | None:
        """Compare an event with the previous one: nothing follows the end, and no token is withdrawn."""
        if self._meta is not None and self._meta.finish_reason is not None:
            return after_end(self.tokens)
        reason = meta.finish_reason
        if reason is not None and (
            failure := incomplete(reason.type, meta.completion_tokens, reason.message or "")
        ):
            return failure
        if meta.completion_tokens < self.tokens:
            detail = f"the server counted {number(self.tokens)} tokens, then {number(meta.completion_tokens)}"
            return Failure(FailureKind.TOKEN_COUNT, detail)
        return None

    def _accept(self, ids: list[int], meta: _MetaInfo) -> Failure | None:
        """Take an event's new ids."""
        if not self._ids and ids and ids[0] >= self._limits.vocabulary_size:
            return wrong_id(ids[0], self._limits)
        self._meta = meta
        if failure := append_ids(self._ids, ids, self._limits):
            return failure
        if len(self._ids) != meta.completion_tokens:
            return wrong_count(len(self._ids), meta.completion_tokens)
        self.tokens = len(self._ids)
        if ids and self.first_id < 0:
            self.first_id = ids[0]
        return None


class _Shown:
    """The last cumulative event's content, as bytes: its text without the closing quote, and its ids."""

    __slots__ = ("_ids", "_text")

    def __init__(self, text: bytes, ids: bytes) -> None:
        self._text = text
        self._ids = ids

    @classmethod
    def by(cls, event: bytes) -> "_Shown | None":
        """Of an accepted event; None where it does not begin as SGLang's do."""
        if event.startswith(_BARE):
            text, start = b"", len(_BARE)
        else:
            # A quote inside of the text is escaped: the first match is the text's end.
            end = event.find(_AFTER_TEXT) if event.startswith(_TEXT) else -1
            if end < 0:
                return None
            text, start = event[:end], end + len(_AFTER_TEXT)
        return cls(text, event[start : event.find(b"]", start)])

    def rest_of(self, event: bytes) -> bytes | None:
        """``event`` without what was shown: JSON exactly when ``event`` is. It counts as shown from now on.

        None where ``event`` does not repeat what was shown.
        """
        known, ids = self._text, self._ids
        head = start = None
        if not known:
            head, start = _BARE, len(_BARE)
            if not event.startswith(_BARE):
                return None
        elif event.startswith(known):
            end = event.find(_AFTER_TEXT, len(known))
            if end < 0:
                return None
            start = end + len(_AFTER_TEXT)
            head = _TEXT + event[len(known) : start]
            self._text = event[:end]
        else:
            return None
        if not event.startswith(ids, start):
            return None
        new = start + len(ids)
        self._ids = event[start : event.find(b"]", new)]
        if ids:
            following = event[new]
            if following == _COMMA:
                new += 1
            elif following != _BRACKET:
                return None  # the last id continues: it is another number
        return head + event[new:]
