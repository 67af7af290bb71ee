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
    """Nothing was built. With one gap its message has all; with several they are to be printed before it.

    ``of_several``: the results of several scenarios, so that those that lack a run may be left out.
    """

    def __init__(self, gaps: Sequence[Gap], *, of_several: bool) -> None:
        self.gaps = tuple(gaps)
        lacks_runs = of_several and any(gap.cost is Cost.GPU_HOURS for gap in gaps)
        choice = "to leave runs out, name the others by --scenario or --benchmark" if lacks_runs else ""
        each = ", ".join(f"{cost}: {len(alike)}" for cost, alike in by_cost(gaps, lambda gap: gap.cost))
        several = f"nothing was built; {counted(len(gaps), 'thing')} to do first, listed above ({each})"
        words = (gaps[0].what, choice, gaps[0].remedy) if len(gaps) == 1 else (several, choice)
        super().__init__("; ".join(filter(None, words)))

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
