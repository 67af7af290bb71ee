"""Regions of concurrency between C_min and C_max, and the band that a point counts for (§5.4, §5.5).

The official package computes the same; a test compares the two over random curves.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from harness.endpoints.curve import Band
from harness.errors import ConfigError

ULTRA_LOW_MOST = 32  # C_min is at most that, C_max above it
_MARGIN = 1.10
MANDATORY: tuple[Band, ...] = ("ultra_low", "low", "med", "high")
LABELS: dict[Band | None, str] = {
    "ultra_low": "Ultra Low",
    "low": "Low",
    "med": "Medium",
    "high": "High",
    "margin": "margin",
    "offline": "Offline",
    None: "outside of all bands",
}


class Span(NamedTuple):
    """The numbers of requests in flight from ``start`` to ``end``, both included; none if start > end."""

    start: int
    end: int

    def has(self, concurrency: int) -> bool:
        """Whether a concurrency is in it."""
        return self.start <= concurrency <= self.end

    def __str__(self) -> str:
        if self.start >= self.end:
            return "empty" if self.start > self.end else str(self.start)
        return f"{self.start}-{self.end}"


class Regions(NamedTuple):
    """The four bands that need a point each, and the margin above C_max, in which a point counts for none."""

    ultra_low: Span
    """1 to C_min. Without an override C_min is the lowest point, so that this one is in it."""
    low: Span
    med: Span
    high: Span
    margin: Span
    """the 10 % above C_max"""

    def band(self, concurrency: int) -> Band | None:
        """The band of a point; None above the margin."""
        names: tuple[Band, ...] = (*MANDATORY, "margin")
        return next((name for name, span in zip(names, self, strict=True) if span.has(concurrency)), None)

    def unscored(self, scored: Sequence[int], override: int | None) -> list[Band]:
        """Bands without an accuracy run, of which each fills one (§5.3); ``override``: a declared C_min.

        One at most 32 in flight, or the override, fills the lowest where its own band has another.
        """
        of, most = [self.band(one) for one in scored], override or ULTRA_LOW_MOST
        spare = any(one <= most and of.count(band) > 1 for one, band in zip(scored, of, strict=True))
        return [band for band in MANDATORY if band not in of and not (band == "ultra_low" and spare)]


def regions(c_min: int, c_max: int) -> Regions:
    """The regions of a curve: three that are equally wide in the logarithm of concurrency less C_min.

    Boundaries are rounded half to even, as Python does. A region can be empty where C_max is close to C_min.
    Raises ConfigError.
    """
    if not 1 <= c_min <= ULTRA_LOW_MOST:
        raise ConfigError(f"C_min is {c_min}, expected 1 to {ULTRA_LOW_MOST}; set --c-min")
    if c_max <= ULTRA_LOW_MOST:
        raise ConfigError(
            f"C_max is {c_max}, expected more than {ULTRA_LOW_MOST}: MLPerf Endpoints has no curve below it; "
            "set --c-max"
        )
    width = math.log2(c_max - c_min) / 3
    low, med = round(c_min + 2**width), round(c_min + 2 ** (2 * width))
    return Regions(
        Span(1, c_min),
        Span(c_min + 1, low),
        Span(low + 1, med),
        Span(med + 1, c_max),
        Span(c_max + 1, math.ceil(_MARGIN * c_max)),
    )
