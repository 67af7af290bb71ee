"""SGLang's native ``POST /generate`` with token ids, streamed or complete.

By default every event repeats all ids so far (cumulative); with --incremental-streaming-output events
carry what is new. The number of ids and ``meta_info.completion_tokens`` show which. A cumulative event
begins with the bytes of the one before: those are compared and only the rest is decoded, so every event is
checked completely, in time linear in the length of the answer.

A request carries an id, ``rid``, and every event of its answer the same one. The fields are those of SGLang
0.5.23 (``managers/tokenizer_manager.py``).
"""

from typing import Any

import msgspec

from harness.config.generation import SamplingParameters
from harness.record.outcome import Failure, FailureKind, Outcome
from sut.wire.answer_checks import (
    NO_BYTES,
    UNREADABLE,
    AnswerBounds,
    Span,
    after_end,
    append_ids,
    decoded,
    excerpt,
    given,
    incomplete,
    other_index,
    other_model,
    other_prompt,
    other_request,
    repeated,
    too_many,
    whole_answer,
    wrong_count,
)
from sut.wire.fields import DATA, NOTHING, OTHERS, STOP, TEXT, EventJudge, EventKeys, FieldRules
from sut.wire.wire import Form, Pattern, TokenAnswer

# SGLang's compact JSON begins with the text, or, with --skip-tokenizer-init, without one. The ids follow at
# once; its Rust server has them at the end.
_TEXT, _AFTER_TEXT, _IDS = b'{"text":"', (b'","output_ids":[', b'","meta_info":{'), b'"output_ids":['
_FIELDS: FieldRules = {
    "text": TEXT,
    "output_ids": DATA,
    "index": DATA,
    "prompt_token_ids": DATA,
    "meta_info": {
        "id": TEXT,
        "finish_reason": {"type": TEXT, "matched": STOP, "length": DATA, OTHERS: NOTHING},
        "weight_version": TEXT,
        "weight_versions": {"version": TEXT},
        "cached_tokens_details": {"storage_backend": TEXT},
        **dict.fromkeys(("hidden_states", "routed_experts", "indexer_topk", "output_token_logprobs"), DATA),
    },
}


class _FinishReason(msgspec.Struct):
    type: str
    message: str | None = None


class _MetaInfo(msgspec.Struct):
    completion_tokens: int
    id: str | None = None
    finish_reason: _FinishReason | None = None
    prompt_tokens: int | None = None
    weight_version: str | None = None
    weight_versions: list[Span] | None = None


class _Event(msgspec.Struct):
    output_ids: list[int] | None = None
    meta_info: _MetaInfo | None = None
    index: int | None = None
    prompt_token_ids: msgspec.Raw = NO_BYTES


_decode = msgspec.json.Decoder(_Event).decode


class SglangAnswer(TokenAnswer):
    """One ``/generate`` answer, cumulative or incremental."""

    __slots__ = ("_cumulative", "_meta", "_shown")
    keys = EventKeys((b'"text":"',), b'"output_ids":[', b'"completion_tokens":')

    def __init__(self, limits: AnswerBounds, judge: EventJudge) -> None:
        super().__init__(limits, judge)
        self._cumulative: bool | None = None  # unknown until the second event with ids
        self._shown: _Shown | None = None  # what the previous event has shown, if it began as SGLang's do
        self._meta: _MetaInfo | None = None

    def feed(self, event: bytes) -> Failure | None:
        """Take one event's JSON."""
        rest = None if self._shown is None else self._shown.rest_of(event)
        if self._pattern is not None and self.tokens and (rest is not None or not self._cumulative):
            ids = self._pattern.new_ids(rest or event, self.tokens)
            if ids is not None:
                self._cumulative = rest is not None
                self.tokens += len(ids)
                return append_ids(self.ids, ids, self._limits)
        return self._take(event) if rest is None else self._take_rest(event, rest)

    def add(self, ids: bytes) -> None:
        """As AnswerReader: events that count their ids to those before them are incremental."""
        if ids:
            self._cumulative = False
        super().add(ids)

    def _pattern_of_next(self) -> Pattern | None:
        return None if self._cumulative else super()._pattern_of_next()

    def finish(self) -> Outcome:
        """Judge the answer after its last event."""
        meta = self._meta
        if meta is None:
            return Failure(FailureKind.UNFINISHED, "the stream ended before its first event")
        reason = None if meta.finish_reason is None else meta.finish_reason.type
        return whole_answer(self.ids, self.tokens, reason, meta.prompt_tokens, self._limits)

    def _take_rest(self, data: bytes, rest: bytes) -> Failure | None:
        """Take a cumulative event; ``rest`` is the part that the previous one has not shown."""
        try:
            event, rest = decoded(_decode, rest)
        except UNREADABLE:
            return self._take(data)  # fails in the same way, with the complete event in its detail
        if event.output_ids is None or event.meta_info is None:
            return self._take(data)
        if failure := self._check(event, event.meta_info, rest):
            return failure
        return self._accept(event.output_ids, event.meta_info, rest)

    def _take(self, data: bytes) -> Failure | None:
        try:
            event, readable = decoded(_decode, data)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(data)}")
        ids, meta = event.output_ids, event.meta_info
        if ids is None or meta is None:
            missing = Failure(FailureKind.MALFORMED, f"no output_ids and meta_info in {excerpt(data)}")
            return self._judge.failure(readable) or missing
        if failure := self._check(event, meta, readable):
            return failure
        if self._cumulative is None and self.ids and ids:
            self._cumulative = len(ids) == meta.completion_tokens
        if self._cumulative:
            if ids[: self.tokens] != self.ids.tolist():
                return Failure(FailureKind.TOKEN_COUNT, "ids sent earlier have changed")
            self._shown = _Shown.by(data)
            ids = ids[self.tokens :]
        return self._accept(ids, meta, readable)

    def _check(self, event: _Event, meta: _MetaInfo, data: bytes) -> Failure | None:
        """Compare an event with the previous one: whose it is, nothing after the end, no token withdrawn."""
        before, reason = self._meta, meta.finish_reason
        if reason is not None and (
            failure := incomplete(reason.type, meta.completion_tokens, reason.message or "")
        ):
            return failure
        if failure := too_many(len(event.output_ids or ()), self._limits) or self._judge.failure(data):
            return failure
        if event.index:
            return other_index(event.index)
        if prompt := repeated(event.prompt_token_ids):
            self.prompt_ids = prompt
        if before is None:
            self.id = meta.id or ""
            return self._check_weights(meta)
        if before.finish_reason is not None:
            return after_end(self.tokens)
        if (meta.id or "") != self.id:
            return other_request(meta.id or "", self.id)
        if meta.prompt_tokens != before.prompt_tokens:
            return other_prompt(meta.prompt_tokens, before.prompt_tokens)
        return self._check_weights(meta)

    def _check_weights(self, meta: _MetaInfo) -> Failure | None:
        """The Failure of an answer of other weights than the trial's: SGLang can load them in a run."""
        for version in (meta.weight_version, *(span.version for span in meta.weight_versions or ())):
            if version is not None and not self._judge.knows_name(version):
                return other_model(version)
        return None

    def _accept(self, ids: list[int], meta: _MetaInfo, data: bytes) -> Failure | None:
        """Take an event's new ids; the next event may have the pattern of ``data``."""
        self._meta = meta
        if failure := self._extend(ids):
            return failure
        if self.tokens != meta.completion_tokens:
            return wrong_count(self.tokens, meta.completion_tokens)
        self._expect_like(data, is_last=meta.finish_reason is not None)
        return None


class _Shown:
    """The last cumulative event's content, as bytes: its text without the closing quote, and its ids."""

    __slots__ = ("_after_text", "_ids", "_text")

    def __init__(self, text: bytes, after_text: bytes, ids: bytes) -> None:
        self._text = text
        self._after_text = after_text
        self._ids = ids

    @classmethod
    def by(cls, event: bytes) -> "_Shown | None":
        """What an accepted event has shown; None unless it has the form of SGLang's."""
        text, after = b"", b""
        if event.startswith(_TEXT):
            # A quote inside of the text is escaped: the first match is the text's end.
            ends = {at: mark for mark in _AFTER_TEXT if (at := event.find(mark)) >= 0}
            if not ends:
                return None
            text, after = event[: min(ends)], ends[min(ends)]
        start = event.find(_IDS, len(text)) + len(_IDS)
        return cls(text, after, event[start : event.find(b"]", start)])

    def rest_of(self, event: bytes) -> bytes | None:
        """``event`` without what was shown: JSON exactly when ``event`` is. Its content counts as shown then.

        None if ``event`` does not repeat what was shown.
        """
        known, ids, end = self._text, self._ids, 0
        if known:
            end = event.find(self._after_text, len(known))
            if end < 0 or not event.startswith(known):
                return None
        start = event.find(_IDS, end) + len(_IDS)
        if start < len(_IDS) or not event.startswith(ids, start):
            return None
        new = start + len(ids)
        stop = event.find(b"]", new)
        self._text, self._ids = event[:end], event[start:stop]
        if ids:
            following = event[new : new + 2]
            if following[:1] == b"," and following[1:].isdigit():
                new += 1
            elif following[:1] != b"]":
                return None  # the last id continues, so it is another number; or the event is cut, or no JSON
        return (_TEXT + event[len(known) : start] if known else event[:start]) + event[new:]


def opening_with_rid(request_id: str, body_bytes: int) -> bytes:
    """``{"rid":"...",`` and the headers before it."""
    rid = b'{"rid":"%b",' % request_id.encode()
    return b"Content-Length: %d\r\n\r\n%b" % (body_bytes + len(rid) - 1, rid)


def _options(parameters: SamplingParameters, model: str) -> dict[str, Any]:
    """``{"sampling_params":{...},"stream":true}``."""
    sampling = {
        "max_new_tokens": parameters.max_new_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "top_k": parameters.top_k or -1,  # SGLang refuses 0 and writes "off" as -1
        "skip_special_tokens": parameters.skip_special_tokens,
        **given(min_new_tokens=parameters.min_new_tokens, sampling_seed=parameters.seed),
    }
    return {"sampling_params": sampling | parameters.extra, "stream": parameters.stream}


SGLANG = Form(
    path="/generate",
    fields=_FIELDS,
    answers=SglangAnswer,
    options=_options,
    head=b'{"input_ids":',
    opening=opening_with_rid,
)
"""``/generate``."""
