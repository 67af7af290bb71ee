"""The interface of an answer's reader, and the checks that all protocols share."""

import re
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np

from harness.api_key import masked
from harness.record.outcome import Completion, Failure, FailureKind, Outcome
from harness.text import counted

IdArray: TypeAlias = "array[int]"  # unsigned 32-bit integers

MAX_DETAIL = 240
ANOTHER_PROMPT = "the answer is to another prompt"
_EXCERPT_BYTES = 4096  # the API key is masked in this many
# Bytes for each token: a cumulative event repeats every id and, without --skip-tokenizer-init, all text.
BYTES_PER_TOKEN = 128
BYTES_PER_EVENT = 1 << 20
# The default of a member that is kept as bytes; msgspec cannot decode a Raw that may also be None.
NO_BYTES = msgspec.Raw(b"null")
# The finish reasons of a complete answer, in each protocol (llama.cpp's eos, word and limit by these names).
_COMPLETE = ("stop", "length")
# SGLang's and vLLM's names for a request that the server gave up.
_BROKEN_OFF = ("abort", "error")
# Errors of msgspec for bytes that are not the expected JSON, endless nesting included.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Half a character, at which servers may cut text.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_UINT32, _INT32, _greatest = np.dtype(np.uint32), np.dtype(np.int32), np.maximum.reduce
_Event = TypeVar("_Event")


class Span(msgspec.Struct):
    """Tokens that weights of one version gave, as SGLang names them."""

    version: str | None = None


class AnswerBounds(msgspec.Struct, frozen=True):
    """Bounds of an honest answer."""

    max_new_tokens: int
    vocabulary_size: int

    @property
    def max_event_bytes(self) -> int:
        """More than the largest event that ``max_new_tokens`` can give."""
        return self.max_new_tokens * BYTES_PER_TOKEN + BYTES_PER_EVENT


class Expected(NamedTuple):
    """The form of an answer's next events, as long as they differ in their text, ids and count only."""

    pattern: bytes
    """A struct pattern of sut/client/native/events.h."""
    tokens: int
    """Output tokens so far."""
    most: int
    """The output tokens that it may have."""


class AnswerReader(Protocol):
    """Reads one answer event by event."""

    @property
    def tokens(self) -> int:
        """The number of output tokens seen so far."""

    @property
    def ids(self) -> IdArray:
        """All output tokens; not to be changed."""

    @property
    def id(self) -> str:
        """The id that its events carry, "" for none."""

    @property
    def prompt_ids(self) -> bytes:
        """The prompt's ids as the server repeats them, a JSON list; b"" for none."""

    def feed(self, event: bytes) -> Failure | None:
        """Take one event's payload; a Failure ends the answer."""

    def feed_all(self, events: Sequence[bytes]) -> Failure | None:
        """Take the payloads of some events: as ``feed`` takes each."""

    @property
    def expected(self) -> Expected | None:
        """The form of its next events; None where they have to be fed."""

    def add(self, ids: bytes) -> None:
        """Take the ids of events that were as expected: unsigned 32-bit integers."""

    def finish(self) -> Outcome:
        """Judge the answer after its last event."""


def given(**options: int | None) -> dict[str, int]:
    """The options that have a value: servers read a null as an error, or as another value."""
    return {name: value for name, value in options.items() if value is not None}


def excerpt(data: bytes) -> str:
    """Server bytes as one printable, bounded line without the API key, which servers repeat in errors."""
    safe = masked(data[:_EXCERPT_BYTES])
    text = safe[:MAX_DETAIL].decode("utf-8", "backslashreplace")
    shown = text
    if not text.isprintable():
        shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return shown if len(data) <= _EXCERPT_BYTES and len(safe) <= MAX_DETAIL else shown + "…"


def number(value: int) -> str:
    """A server's number, of up to 4300 digits, as a short text."""
    return str(value) if value.bit_length() <= 64 else f"a number of {value.bit_length()} bits"


def append_ids(known: IdArray, new: list[int], limits: AnswerBounds) -> Failure | None:
    """Append at most as many ids as asked for; array itself refuses negative ones and those above 32 bits."""
    if failure := too_many(len(known) + len(new), limits):
        return failure
    try:
        if len(new) == 1:
            known.append(new[0])
        else:
            known += array("I", new)
    except OverflowError:
        return wrong_id(min(new) if min(new) < 0 else max(new), limits)
    return None


def wrong_id(token_id: int, limits: AnswerBounds) -> Failure:
    """The Failure of an id outside the vocabulary."""
    return Failure(
        FailureKind.TOKEN_VALUE,
        f"token id {number(token_id)} is outside the vocabulary of {limits.vocabulary_size}",
    )


def too_many(count: int, limits: AnswerBounds) -> Failure | None:
    """The Failure of an answer with more ids than asked for."""
    if count <= limits.max_new_tokens:
        return None
    return Failure(
        FailureKind.TOO_MANY_TOKENS, f"got {number(count)} tokens, asked for {limits.max_new_tokens}"
    )


def wrong_count(tokens: int, claimed: int) -> Failure:
    """The Failure of an answer with another number of ids than the server counted."""
    return Failure(FailureKind.TOKEN_COUNT, f"got {tokens} token ids, the server counted {number(claimed)}")


def decoded(decode: Callable[[bytes], _Event], event: bytes) -> tuple[_Event, bytes]:
    """An event, and its bytes as they were decoded: with whole characters. Raises UNREADABLE."""
    try:
        return decode(event), event
    except UNREADABLE:
        healed = with_whole_characters(event)
        if healed == event:
            raise
        return decode(healed), healed


def with_whole_characters(event: bytes) -> bytes:
    """An event with replacements for halves of characters, of the same length."""
    return _SURROGATE.sub(rb"\\ufffd", event)


def repeated(ids: msgspec.Raw) -> bytes:
    """The prompt's ids as a server repeats them; b"" for none."""
    return b"" if ids is NO_BYTES or (found := bytes(ids)) == b"null" else found


def other_request(found: str, expected: str) -> Failure:
    """The Failure of an event of another answer than the one before it."""
    shown, before = excerpt(found.encode()), excerpt(expected.encode())
    return Failure(FailureKind.OTHER_REQUEST, f"an event has the id {shown!r}, the one before it {before!r}")


def other_model(found: str) -> Failure:
    """The Failure of an answer of another model, or of other weights, than the run's servers had before."""
    shown = excerpt(found.encode())
    return Failure(FailureKind.OTHER_MODEL, f"the answer is of {shown!r}, the trial requests' were not")


def other_index(index: int) -> Failure:
    """The Failure of a part of an answer that is not the one that was asked for."""
    return Failure(FailureKind.MALFORMED, f"an answer of index {number(index)}, where one was asked for")


def other_prompt(count: Any, before: Any) -> Failure:
    """The Failure of an event that counts another number of prompt tokens than the one before it."""
    return Failure(FailureKind.TOKEN_COUNT, f"the prompt had {before} tokens, then {count}")


def incomplete(reason: str, tokens: int, message: str = "") -> Failure | None:
    """The Failure of a finish reason that the protocols do not document as that of a complete answer."""
    if reason in _COMPLETE:
        return None
    given = excerpt((message or reason).encode())
    if reason in _BROKEN_OFF:
        return Failure(
            FailureKind.ABORTED, f"the server ended the request after {counted(tokens, 'token')}: {given}"
        )
    return Failure(
        FailureKind.FINISH_REASON,
        f"ended after {counted(tokens, 'token')} by {given!r}, which is not a complete answer's end",
    )


def after_end(tokens: int) -> Failure:
    """The Failure of an event after the one with the finish reason."""
    return Failure(
        FailureKind.AFTER_END, f"another event came after the end, which was at {counted(tokens, 'token')}"
    )


def unfinished(tokens: int) -> Failure:
    """The Failure of a stream without a finish reason."""
    return Failure(
        FailureKind.UNFINISHED, f"the stream ended after {counted(tokens, 'token')} without a finish reason"
    )


def cut_off(tokens: int, limits: AnswerBounds) -> Failure:
    """The Failure of an answer that its server cut off before the limit of tokens that was asked for."""
    return Failure(
        FailureKind.UNFINISHED,
        f"cut off after {tokens} of {limits.max_new_tokens} tokens: context full, or a limit of the server's "
        "own (vLLM: max_new_tokens of --generation-config or --override-generation-config)?",
    )


def whole_answer(
    ids: IdArray, claimed: int | None, reason: str | None, prompt_tokens: int | None, limits: AnswerBounds
) -> Outcome:
    """The one place where an answer becomes a Completion: counted, bounded, finished.

    ``claimed`` is the server's own count of output tokens, ``reason`` its finish reason.
    """
    if reason is None:
        return unfinished(len(ids))
    if failure := incomplete(reason, len(ids)):
        return failure
    if claimed is not None and claimed != len(ids):
        return wrong_count(len(ids), claimed)
    if not ids:
        return Failure(FailureKind.NO_TOKENS, f"finished ({excerpt(reason.encode())}) without a token")
    if reason == "length" and len(ids) < limits.max_new_tokens:
        return cut_off(len(ids), limits)
    return _checked(ids, reason, prompt_tokens, limits)


def _checked(ids: IdArray, reason: str, prompt_tokens: int | None, limits: AnswerBounds) -> Outcome:
    if (high := int(_greatest(np.frombuffer(ids, _UINT32)))) >= limits.vocabulary_size:
        return wrong_id(high, limits)
    return Completion(np.frombuffer(ids, _INT32), reason, prompt_tokens)
