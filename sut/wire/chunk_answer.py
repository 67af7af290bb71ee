"""Readers of answers of OpenAI's endpoints: what all have in common, and those of ids."""

from typing import ClassVar

from harness.record.outcome import Failure, FailureKind, Outcome
from sut.wire.answer_checks import (
    UNREADABLE,
    AnswerBounds,
    after_end,
    decoded,
    excerpt,
    incomplete,
    number,
    other_index,
    other_model,
    other_prompt,
    other_request,
    too_many,
    whole_answer,
)
from sut.wire.chunks import Choice, Chunk, Message, Usage, decode_chunk
from sut.wire.fields import EventJudge, EventKeys
from sut.wire.wire import Pattern, TokenAnswer

_TEXTS = (b'"text":"', b'"content":"', b'"reasoning_content":"', b'"reasoning":"', b'"arguments":"')
_EMPTY = (Choice(), Choice(delta=Message()))
_MOST_KINDS = 4  # of one answer's usual events: reasoning, content, calls of tools, or none of these


class ChunkAnswer(TokenAnswer):
    """What answers of ids and of text have in common: all but ``_accept`` and ``finish``."""

    __slots__ = ("_begun", "_reason", "_usage")

    def __init__(self, limits: AnswerBounds, judge: EventJudge) -> None:
        super().__init__(limits, judge)
        self._begun = False
        self._reason: str | None = None
        self._usage: Usage | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """The server's count of the prompt's tokens, or the number of ids that it repeated."""
        usage = self._usage
        if usage is not None and usage.prompt_tokens is not None:
            return usage.prompt_tokens
        return self._repeated_tokens

    @property
    def _repeated_tokens(self) -> int | None:
        return self.prompt_ids.count(b",") + 1 if self.prompt_ids else None

    def _take(self, event: bytes) -> Failure | None:
        try:
            chunk, readable = decoded(decode_chunk, event)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(event)}")
        failure = self._check(chunk, readable)
        if failure is not None or not chunk.choices:
            return failure
        if self._reason is not None:  # only the usage may follow, as LiteLLM's with an empty choice
            is_usage = chunk.usage is not None and chunk.choices[0] in _EMPTY and not chunk.ids
            return None if is_usage else after_end(self.tokens)
        self._reason = chunk.choices[0].finish_reason
        return self._accept(chunk, chunk.choices[0], event, readable)

    def _accept(self, chunk: Chunk, choice: Choice, event: bytes, readable: bytes) -> Failure | None:
        """Take what an event adds to the answer; it was decoded as ``readable``."""
        raise NotImplementedError

    def _check(self, chunk: Chunk, data: bytes) -> Failure | None:
        """Check that the chunk is honest, of this answer and of this model."""
        choice = chunk.choice
        reason, new = None if choice is None else choice.finish_reason, len(chunk.ids)
        if reason is not None and (failure := incomplete(reason, self.tokens + new)):
            return failure
        if failure := too_many(new, self._limits) or self._judge.failure(data):
            return failure
        if chunk.choices is None:
            return Failure(FailureKind.MALFORMED, f"no choices in {excerpt(data)}")
        if len(chunk.choices) > 1:
            return Failure(FailureKind.MALFORMED, f"{len(chunk.choices)} choices, where one was asked for")
        if choice is not None and choice.index:
            return other_index(choice.index)
        for name in (chunk.model, *chunk.weights):
            if name is not None and not self._judge.knows_name(name):
                return other_model(name)
        return self._check_request(chunk)

    def _check_request(self, chunk: Chunk) -> Failure | None:
        """Check that the chunk belongs to the same request as those before it."""
        found = chunk.id or chunk.request_id or ""
        if not self._begun:
            self._begun, self.id = True, found
        elif found != self.id and not self._judge.lets_ids_change():
            return other_request(found, self.id)
        if prompt := chunk.repeated_prompt:
            if self.prompt_ids and prompt != self.prompt_ids:
                return other_request(excerpt(prompt), excerpt(self.prompt_ids))
            self.prompt_ids = prompt
        usage, before = chunk.usage, self._usage
        if usage is not None:
            if before is not None and usage.prompt_tokens != before.prompt_tokens:
                return other_prompt(usage.prompt_tokens, before.prompt_tokens)
            self._usage = usage
        return None

    def _miscounted(self) -> Failure | None:
        """The Failure of an answer that ended without a count, or counts another prompt than it repeats."""
        if self._reason is not None and self._usage is None:
            return Failure(FailureKind.TOKEN_COUNT, "the server sent no usage to compare the answer with")
        known, counted = self._repeated_tokens, self.prompt_tokens
        if known is not None and counted != known:
            return other_prompt(counted, known)
        return None


class IdAnswer(ChunkAnswer):
    """An answer whose chunks carry new ids."""

    __slots__ = ()
    keys: ClassVar[EventKeys] = EventKeys(_TEXTS, b'"token_ids":[')

    def _accept(self, chunk: Chunk, choice: Choice, event: bytes, readable: bytes) -> Failure | None:
        self._expect_like(readable, is_last=self._reason is not None)
        return self._extend(chunk.ids)

    def finish(self) -> Outcome:
        """Judge the answer after its last chunk."""
        if failure := self._miscounted():
            return failure
        usage = self._usage or Usage(0)
        if usage.completion_tokens and not self.ids:
            return Failure(
                FailureKind.TOKEN_COUNT,
                f"{number(usage.completion_tokens)} tokens without ids: the server does not return them, "
                "or needs another --backend or API",
            )
        return whole_answer(self.ids, usage.completion_tokens, self._reason, self.prompt_tokens, self._limits)


class ChatIdAnswer(IdAnswer):
    """The same where events have texts of several kinds, or none."""

    __slots__ = ("_known",)

    def __init__(self, limits: AnswerBounds, judge: EventJudge) -> None:
        super().__init__(limits, judge)
        self._known: list[Pattern] = []

    def feed(self, event: bytes) -> Failure | None:
        """Take one event's JSON."""
        for pattern in self._known:
            ids = pattern.new_ids(event, self.tokens)
            if ids is not None:
                return self._extend(ids)
        return self._take(event)

    def _expect_like(self, event: bytes, *, is_last: bool) -> None:
        super()._expect_like(event, is_last=is_last)
        if self._pattern is None:
            self._known.clear()
        elif self._pattern not in self._known:
            self._known = [self._pattern, *self._known[: _MOST_KINDS - 1]]


class DynamoAnswer(ChatIdAnswer):
    """The same where the ids stand beside the choice."""

    __slots__ = ()
    keys: ClassVar[EventKeys] = EventKeys(_TEXTS, b'"completion_token_ids":[')
