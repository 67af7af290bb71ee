"""TEST09: the mean output length of a performance run lies within bounds."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from harness.compliance.rules import MAX_TOKENS, MIN_TOKENS, RULE, ComplianceVerdict
from harness.loadgen_logs.accuracy_log import LogEntry


@dataclass(frozen=True, slots=True)
class OutputLengths:
    """Of all samples, empty outputs included; lengths in tokens of 4 bytes."""

    count: int
    total: int
    squares: int
    shortest: int
    longest: int

    @property
    def mean(self) -> float:
        """Tokens per sample."""
        return self.total / self.count

    @property
    def deviation(self) -> float:
        """Standard deviation of the whole set, of integer sums: no rounding adds up."""
        return math.sqrt(self.count * self.squares - self.total**2) / self.count


def measure(entries: Iterable[LogEntry]) -> OutputLengths:
    """One pass, at least one entry."""
    count = total = squares = longest = 0
    shortest = None
    for entry in entries:
        length = len(entry.data_words)
        count, total, squares = count + 1, total + length, squares + length * length
        longest = max(longest, length)
        shortest = length if shortest is None else min(shortest, length)
    return OutputLengths(count, total, squares, shortest or 0, longest)


def judge_lengths(lengths: OutputLengths, thresholds: dict[str, float]) -> ComplianceVerdict:
    """Both bounds count as within."""
    low, high = thresholds[MIN_TOKENS], thresholds[MAX_TOKENS]
    is_long, is_short = lengths.mean >= low, lengths.mean <= high
    passed = is_long and is_short
    summary = f"mean output {lengths.mean:.2f} tokens of {lengths.count} samples, bounds {low}..{high}"
    return ComplianceVerdict(passed, summary, _statement(lengths, low, high, is_long, is_short))


def _statement(lengths: OutputLengths, low: float, high: float, is_long: bool, is_short: bool) -> str:
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
