"""What keeps a submission from being built, in one error: the dearest first, each with its remedy."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from harness.errors import ConfigError
from harness.submission.tree.cost import Cost, by_cost
from harness.text import counted

Found = TypeVar("Found")


class Gap(msgspec.Struct, frozen=True):
    """Something that is missing or unfit."""

    cost: Cost
    """of the remedy"""
    what: str
    """where and what"""
    remedy: str
    """a command, or what to change"""


class IncompleteError(ConfigError):
    """Nothing was built. With one gap its message has all; with several they are to be printed before it."""

    def __init__(self, gaps: Sequence[Gap]) -> None:
        self.gaps = tuple(gaps)
        each = ", ".join(f"{cost}: {len(alike)}" for cost, alike in by_cost(gaps, lambda gap: gap.cost))
        one = "; ".join(filter(None, (gaps[0].what, gaps[0].remedy)))
        several = f"nothing was built; {counted(len(gaps), 'thing')} to do first, listed above ({each})"
        super().__init__(one if len(gaps) == 1 else several)

    def lines(self) -> Iterator[str]:
        """Every gap and, below it, its remedy; nothing where the message has all."""
        if len(self.gaps) == 1:
            return
        for cost, alike in by_cost(self.gaps, lambda gap: gap.cost):
            yield f"{cost} ({len(alike)}):"
            for gap in alike:
                yield f"  {gap.what}"
                if gap.remedy:
                    yield f"      {gap.remedy}"


def attempt(gaps: list[Gap], cost: Cost, work: Callable[[], Found]) -> Found | None:
    """The result of ``work``; a ConfigError, which names its remedy, becomes a gap."""
    try:
        return work()
    except ConfigError as error:
        gaps.append(Gap(cost, str(error), ""))
        return None
