"""The plan of a curve: its points in the order in which they run, and what the rules fix for all of them."""

from collections.abc import Container
from typing import Annotated, Literal

import msgspec

# A point in the margin above C_max counts for no band, and neither does a dedicated Offline run.
Band = Literal["ultra_low", "low", "med", "high", "margin", "offline"]
Offline = Literal["none", "dedicated", "elected"]


class SeedSet(msgspec.Struct, frozen=True, kw_only=True):
    """Published seeds; a submission takes one set."""

    name: str
    """the id of the set, such as `A`"""
    cohort: str
    """the cohort of the submission, such as `2026-12-C0`, where one was asked for"""
    scheduler: int
    sample_index: int
    """of the order of the samples in each pass"""
    model: int
    published: str
    """the cohort of its publication; a set may be taken for later ones, too"""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a curve."""

    name: str
    """its folder: `r64`, or `offline` of a dedicated Offline run"""
    concurrency: int
    """requests in flight; of a dedicated Offline run the number of samples that are issued at once"""
    band: Band
    offline: Offline = "none"
    accuracy: bool = False
    """whether an accuracy run follows at the same concurrency"""
    issue_s: float
    """the shortest time over which it issues requests, in s"""
    passes: int
    """the fewest complete passes of the dataset"""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is decided before the first request."""

    benchmark: str
    model_name: str
    """the canonical name of the rules: `llama3_1-8b`"""
    c_min: int
    c_max: int
    points: tuple[Point, ...]
    samples: Annotated[int, msgspec.Meta(ge=1)]
    """of the performance dataset"""
    accuracy_samples: int
    """0 without an accuracy dataset"""
    seeds: SeedSet
    replacement: bool = False
    """whether each sample is drawn anew, instead of a permutation in each pass"""
    salt_bits: int = 128
    """of each performance request; 0: unsalted"""
    short: bool = False
    """a rehearsal of the forms: passes and durations are far below the rules'"""

    @property
    def c_min_override(self) -> int | None:
        """C_min where a point lies below it, so that it has to be declared (section 5.4)."""
        return self.c_min if any(point.concurrency < self.c_min for point in self.points) else None

    def not_run(self, begun: Container[tuple[bool, int | None]]) -> list[Point]:
        """The points that are not among these, each whether it is dedicated, and its concurrency."""
        return [one for one in self.points if (one.offline == "dedicated", one.concurrency) not in begun]
