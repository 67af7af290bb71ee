"""TEST09: whether the mean output length of a performance run is within bounds."""

import math
from collections.abc import Iterable, Iterator
from typing import ClassVar

import msgspec
import numpy as np
from msgspec.structs import replace

from harness.compliance.base import (
    RULE,
    ComplianceTest,
    JudgedRun,
    TestResult,
    VerifiedFigures,
    stated_number,
)
from harness.grading.reports.scorecard import warning_lines
from harness.loadgen_logs.accuracy_log import AccuracyLog, LogEntry

MIN_TOKENS, MAX_TOKENS = "test09_min_output_tokens", "test09_max_output_tokens"


class OutputLengthTest(ComplianceTest, frozen=True, kw_only=True):
    """TEST09. The mean must be ``reference_mean_output_tokens``, give or take the share ``tolerance``.

    ``eos_token_ids`` are the model's ends of sequence, behind which nothing is part of an answer.
    """

    name: ClassVar[str] = "TEST09"
    verify_file: ClassVar[str] = "verify_output_len.txt"
    threshold_keys: ClassVar[tuple[str, ...]] = (MIN_TOKENS, MAX_TOKENS)
    unusual_log: ClassVar[str] = (
        "the log has {form}; the official script counts words of 4 bytes, two for each int64"
    )

    reference_mean_output_tokens: float
    tolerance: float
    eos_token_ids: tuple[int, ...] = ()

    @property
    def thresholds(self) -> dict[str, float]:
        """The bounds as the official audit.config prints them, with two decimals."""
        mean, share = self.reference_mean_output_tokens, self.tolerance
        return {MIN_TOKENS: round(mean * (1 - share), 2), MAX_TOKENS: round(mean * (1 + share), 2)}

    @property
    def mean_token_bounds(self) -> tuple[float, float]:
        """The thresholds."""
        return self.thresholds[MIN_TOKENS], self.thresholds[MAX_TOKENS]

    def judge(self, log: AccuracyLog, run: JudgedRun) -> TestResult:
        """Measure every output of the log, and compare the mean with the bounds, which are inclusive."""
        lengths = measure(log, self.eos_token_ids)
        low, high = run.thresholds[MIN_TOKENS], run.thresholds[MAX_TOKENS]
        is_long, is_short = lengths.mean >= low, lengths.mean <= high
        summary = f"mean output {lengths.mean:.2f} tokens of {lengths.count} samples, bounds {low}..{high}"
        text = _verify_text(lengths, low, high, is_long, is_short)
        warnings = tuple(_padding(lengths))
        card = "".join(f"{line}\n" for line in warning_lines(warnings))
        return TestResult(is_long and is_short, summary, text, card, warnings)

    def read(self, text: str) -> VerifiedFigures:
        """The figure is the mean output length in tokens."""
        return replace(super().read(text), figure=stated_number(text, "Mean output tokens"))

    def recheck_figures(self, text: str) -> Iterator[str]:
        """The mean."""
        (low, high), mean = self.mean_token_bounds, self.read(text).figure
        if mean is None or not low <= mean <= high:
            stated = "not stated" if mean is None else mean
            yield f"mean output tokens are {stated}, expected {low:.2f} to {high:.2f}"

    def stated_mean(self, text: str) -> float | None:
        """The figure."""
        return self.read(text).figure


class LengthStatistics(msgspec.Struct, frozen=True):
    """Lengths of all outputs, including empty ones, in tokens of 4 bytes."""

    count: int
    """outputs"""
    total: int
    squares: int
    """the sum of the squared lengths"""
    shortest: int
    longest: int
    padded: int
    """outputs with tokens behind an end of sequence"""
    behind: int
    """those tokens"""

    @property
    def mean(self) -> float:
        """Tokens per sample."""
        return self.total / self.count

    @property
    def deviation(self) -> float:
        """Standard deviation of the complete set, computed from exact integer sums."""
        return math.sqrt(self.count * self.squares - self.total**2) / self.count


def measure(entries: Iterable[LogEntry], eos_token_ids: tuple[int, ...]) -> LengthStatistics:
    """Measure the entries in one pass; there must be at least one."""
    lengths, behind = [], []
    for entry in entries:
        lengths.append(len(entry.data_words))
        # not by np.isin, whose call takes most of the time of an entry
        ends = [int(found[0]) for eos in eos_token_ids if len(found := np.flatnonzero(entry.data_ids == eos))]
        behind.append(len(entry.data_ids) - 1 - min(ends) if ends else 0)
    return LengthStatistics(
        count=len(lengths),
        total=sum(lengths),
        squares=sum(length * length for length in lengths),
        shortest=min(lengths),
        longest=max(lengths),
        padded=sum(map(bool, behind)),
        behind=sum(behind),
    )


def _padding(lengths: LengthStatistics) -> Iterator[str]:
    """A warning about outputs that go on behind their end: graders do not read that, rates count it."""
    if lengths.padded:
        yield (
            f"{lengths.padded} of {lengths.count} outputs go on behind an end of sequence, with "
            f"{lengths.behind} tokens in all: these are no part of an answer, and tokens/s counts them"
        )


def _verify_text(lengths: LengthStatistics, low: float, high: float, is_long: bool, is_short: bool) -> str:
    lines = [
        *(RULE, "TEST09: Verify Output Token Length in Performance Mode", RULE, ""),
        *("Output Token Length Statistics", "-" * 40),
        f"Total samples: {lengths.count}",
        f"Mean output tokens: {lengths.mean:.2f}",
        f"Min output tokens: {lengths.shortest}",
        f"Max output tokens: {lengths.longest}",
        f"Std deviation: {lengths.deviation:.2f}",
        *("", RULE, "Verification Results", RULE),
        f"Mean output tokens: {lengths.mean:.2f}",
        f"Min threshold: {low}",
        f"Max threshold: {high}",
        f"Min check pass: {is_long}",
        f"Max check pass: {is_short}",
        *("", "TEST PASS" if is_long and is_short else "TEST FAIL"),
    ]
    return "\n".join(lines) + "\n"
