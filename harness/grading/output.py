"""One output as graders read it, for any model."""

from typing import Protocol

from harness.grading.grade import Reason
from harness.grading.screen import Screen


class Output(Protocol):
    """One output; texts may be decoded only when they are asked for."""

    @property
    def text(self) -> str:
        """Everything, special tokens by name, without surrounding white space."""

    @property
    def tokens(self) -> int:
        """Token ids of the log's entry."""

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
    def prefix(self) -> str:
        """The beginning of ``text``, or all; its last character may be cut."""

    @property
    def suffix(self) -> str:
        """From the last final channel on, a suffix of ``text``; empty where there is none."""

    @property
    def defect(self) -> Reason | None:
        """Why it may have no answer: EMPTY, LOOPING or TRUNCATED; None for one that ended by itself."""

    def may_match(self, screen: Screen) -> bool:
        """Whether ``text`` has to be read for what the screen looks for."""


class TextOutput:
    """The decoded output of a model without channels: all of it is the final text."""

    def __init__(self, text: str, tokens: int = 0, *, truncated: bool = False) -> None:
        self.text = self.prefix = self.suffix = text.strip()
        self.tokens = tokens
        self.defect = Reason.TRUNCATED if truncated else None if self.text else Reason.EMPTY

    @property
    def official_final(self) -> str | None:
        """As Output."""
        return self.text

    @property
    def strict_final(self) -> str | None:
        """As Output."""
        return self.text

    @property
    def has_final(self) -> bool | None:
        """As Output."""
        return None

    def may_match(self, screen: Screen) -> bool:
        """As Output."""
        return screen.near is None or screen.near.search(self.text) is not None
