"""One output as graders read it, for any model."""

from typing import Protocol

import numpy as np

from harness.errors import EntryError
from harness.grading.scoring.grade import Reason
from harness.loadgen_logs.accuracy_log import TokenIds

THOUGHT_END = "</think>"
_LOOP_TOKENS, _LOOP_TIMES = 2_000, 4


class SampleTokens(Protocol):
    """The token ids of one output, and the sample that it answers."""

    @property
    def qsl_idx(self) -> int:
        """The sample's index."""

    @property
    def token_ids(self) -> TokenIds:
        """All output tokens, the first included: shape (OSL,), int32."""


def known_ids(entry: SampleTokens, owner: str, size: int) -> TokenIds:
    """The ids of an entry, all below ``size``, which the vocabulary of ``owner`` has. Raises EntryError."""
    ids = entry.token_ids
    strange = ids[(ids < 0) | (ids >= size)]
    if len(strange):
        raise EntryError(
            f"qsl_idx {entry.qsl_idx} holds token {strange[0]}, {owner} has 0..{size - 1}; "
            "this is another model's log, or a damaged one"
        )
    return ids


class Output(Protocol):
    """One output; texts may be decoded only when they are needed."""

    @property
    def text(self) -> str:
        """Everything, special tokens by name, without surrounding white space."""

    @property
    def tokens(self) -> int | None:
        """Token ids of the entry; None for a row of a table without their number."""

    @property
    def unknown(self) -> int:
        """How many of them the tokenizer does not have: they are no text, as officially."""

    @property
    def official_final(self) -> str | None:
        """The final section of the official rules, the first one; None where they see none."""

    @property
    def strict_final(self) -> str | None:
        """The last final channel, for the strict rules; None where there is none."""

    @property
    def has_final(self) -> bool | None:
        """Whether a final channel was opened; None for a model without channels."""

    @property
    def suffix(self) -> str:
        """From the last final channel on, a suffix of ``text``; empty where there is none."""

    @property
    def defect(self) -> Reason | None:
        """A reason for having no answer: EMPTY, LOOPING, TRUNCATED or, for a row of a table, MISSING.

        None for an output that ended by itself.
        """


class TextOutput:
    """The decoded output of a model without channels: all of it is the final text."""

    has_final: bool | None = None

    def __init__(
        self, text: str, tokens: int | None = 0, *, defect: Reason | None = None, unknown: int = 0
    ) -> None:
        self.text = self.suffix = text.strip()
        self.official_final: str | None = self.text
        self.strict_final: str | None = self.text
        self.tokens, self.unknown = tokens, unknown
        self.defect = defect or (None if self.text else Reason.EMPTY)


class ThinkingText(TextOutput):
    """The decoded output of a model that thinks first: its final text stands after ``</think>``.

    The official rules have no such part: they read everything.
    """

    def __init__(
        self, text: str, tokens: int | None = 0, *, defect: Reason | None = None, unknown: int = 0
    ) -> None:
        super().__init__(text, tokens, defect=defect, unknown=unknown)
        _, mark, answer = self.text.rpartition(THOUGHT_END)
        self.has_final = bool(mark)
        self.strict_final = answer.strip() if mark else None
        self.suffix = self.strict_final or ""


def repeats_itself(ids: TokenIds) -> bool:
    """Whether an output ends in a passage that it repeats, at least four times over."""
    tail = ids[-_LOOP_TOKENS:]
    if len(tail) < _LOOP_TOKENS:
        return False
    longest = _LOOP_TOKENS // _LOOP_TIMES
    periods = np.flatnonzero(tail[-2 : -longest - 2 : -1] == tail[-1]) + 1
    return any(np.array_equal(tail[period:], tail[:-period]) for period in periods)
