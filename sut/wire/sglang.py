"""SGLang's native ``POST /generate`` with token ids, streamed or whole.

By default every event repeats all ids so far (cumulative); with --incremental-streaming-output events
carry what is new. ``meta_info.completion_tokens`` against the number of ids tells which. Of a cumulative
stream the first two events and the last are decoded; of those between only the count is read.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from harness.generation import SamplingParameters
from harness.outcome import Failure, FailureKind, Outcome
from sut.wire.answer import (
    NO_ERROR,
    UNREADABLE,
    Limits,
    append_ids,
    evidence,
    in_band_error,
    no_ids,
    number,
    whole_answer,
    wrong_count,
    wrong_id,
)

_COUNT_KEY = b'"completion_tokens":'


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
        self._limits = Limits(parameters.max_new_tokens, vocabulary_size)
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
    } | parameters.extra


class SglangAnswer:
    """One ``/generate`` answer, cumulative or incremental."""

    __slots__ = ("_cumulative", "_head", "_ids", "_last", "_limits", "_meta", "first_id", "tokens")

    def __init__(self, limits: Limits) -> None:
        self.tokens = 0
        self.first_id = -1
        self._limits = limits
        self._cumulative: bool | None = None  # unknown until a second event tells
        self._ids = no_ids()
        self._head: list[int] = []  # ids of the first event, to hold the last one against
        self._meta: _MetaInfo | None = None
        self._last: bytes | None = None  # an undecoded cumulative event

    def feed(self, event: bytes) -> Failure | None:
        """Take one event's JSON."""
        if self._cumulative:
            count = _claimed_count(event)
            if count is not None and self.tokens <= count <= self._limits.max_new_tokens:
                self._last = event
                self.tokens = count
                return None
            if count is not None and count < self.tokens:
                return self._shrunk(count)
            # More than was asked for is not believed: the event itself must show it.
        return self._take(event)

    def finish(self) -> Outcome:
        """Judge the answer after its last event."""
        if self._last is not None:
            failure = self._take(self._last)
            if failure is not None:
                return failure
        meta = self._meta
        if meta is None:
            return Failure(FailureKind.UNFINISHED, "the stream ended before its first event")
        reason = meta.finish_reason
        if reason is not None and reason.type == "abort":
            detail = (
                f"aborted after {len(self._ids)} tokens: {evidence((reason.message or 'no reason').encode())}"
            )
            return Failure(FailureKind.ABORTED, detail)
        kind = None if reason is None else reason.type
        return whole_answer(self._ids, meta.completion_tokens, kind, meta.prompt_tokens, self._limits)

    def _take(self, data: bytes) -> Failure | None:
        try:
            event = _decode(data)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {evidence(data)}")
        if failure := in_band_error(event.error):
            return failure
        ids, meta = event.output_ids, event.meta_info
        if ids is None or meta is None:
            return Failure(FailureKind.MALFORMED, f"no output_ids and meta_info in {evidence(data)}")
        return self._accept(ids, meta)

    def _accept(self, ids: list[int], meta: _MetaInfo) -> Failure | None:
        if meta.completion_tokens < self.tokens:
            return self._shrunk(meta.completion_tokens)
        if self._cumulative is None and self._ids and ids:
            self._cumulative = len(ids) == meta.completion_tokens
        self._meta = meta
        if self._cumulative or not self._ids:
            if ids[: len(self._head)] != self._head:
                return Failure(FailureKind.TOKEN_COUNT, "ids sent earlier have changed")
            self._ids = no_ids()
        self._last = None
        failure = append_ids(self._ids, ids, self._limits)
        return failure or self._count(meta.completion_tokens) or self._begin(ids)

    def _count(self, claimed: int) -> Failure | None:
        if len(self._ids) != claimed:
            return wrong_count(len(self._ids), claimed)
        self.tokens = claimed
        return None

    def _begin(self, ids: list[int]) -> Failure | None:
        """Keep the first ids: the first of all is told at once, and later events must repeat them."""
        if self._head or not ids:
            return None
        if ids[0] >= self._limits.vocabulary_size:
            return wrong_id(ids[0], self._limits)
        self._head = ids
        self.first_id = ids[0]
        return None

    def _shrunk(self, count: int) -> Failure:
        return Failure(
            FailureKind.TOKEN_COUNT, f"the server counted {number(self.tokens)} tokens, then {number(count)}"
        )


def _claimed_count(event: bytes) -> int | None:
    start = event.rfind(_COUNT_KEY)
    if start < 0:
        return None
    start += len(_COUNT_KEY)
    end = event.find(b",", start, start + 24)
    try:
        return int(event[start : end if end >= 0 else start + 24].rstrip(b"}] \r\n"))
    except ValueError:
        return None
