"""The score and its uncertainty: the official formula, spread over repeats, the published runs."""

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from harness.config.benchmark import PublishedRuns
from harness.grading.scoring.grade import AccuracyMetric, Total


class DatasetScore(msgspec.Struct, frozen=True):
    """One data set in one mode. The last two fields are empty where repeats cannot be distinguished."""

    correct: int
    total: int
    repeats: int
    by_repeat: tuple[float, ...] = ()
    """The accuracy of each repeat in percent."""
    solved: tuple[int, ...] = ()
    """The number of right repeats of each question."""

    @property
    def component(self) -> float:
        """Its contribution to the score: correct / repeats."""
        return self.correct / self.repeats

    @property
    def largest_component(self) -> float:
        """Its contribution if all were right."""
        return self.total / self.repeats

    @property
    def accuracy(self) -> float:
        """Percent right."""
        return 100 * self.correct / self.total

    @property
    def pass_at_k(self) -> tuple[float, ...]:
        """Percent of questions that a draw of k = 1, 2, ... of their repeats solves; empty as ``solved``.

        The unbiased estimate 1 - C(n - right, k) / C(n, k) of Chen et al. 2021 (arXiv 2107.03374).
        """
        if not self.solved:
            return ()
        n = self.repeats
        return tuple(
            100 * statistics.fmean(1 - math.comb(n - right, k) / math.comb(n, k) for right in self.solved)
            for k in range(1, n + 1)
        )

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the repeats, in percentage points; None with fewer than two."""
        return statistics.stdev(self.by_repeat) if len(self.by_repeat) > 1 else None

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean over the repeats."""
        return None if self.deviation is None else self.deviation / math.sqrt(len(self.by_repeat))


class MetricValue(msgspec.Struct, frozen=True):
    """The value of a metric."""

    value: float
    metric: AccuracyMetric

    def __str__(self) -> str:
        """As the official evaluator prints it, without quotes."""
        decimals = self.metric.decimals
        if decimals is None:
            return repr(self.value)
        return str(round(self.value, decimals)) if self.metric.quoted else f"{self.value:.{decimals}f}"

    @property
    def printed(self) -> str:
        """As the official evaluator prints it."""
        return f"'{self}'" if self.metric.quoted else str(self)


class Score(msgspec.Struct, frozen=True):
    """All data sets in one mode."""

    total: int
    """Samples that are part of the score."""
    datasets: Mapping[str, DatasetScore]
    """The data sets whose grades are right or wrong; empty for text metrics."""
    metrics: Mapping[str, MetricValue]

    @property
    def correct(self) -> int:
        """Right answers over all data sets."""
        return sum(score.correct for score in self.datasets.values())

    @property
    def points(self) -> float:
        """Sum of the components."""
        return sum(score.component for score in self.datasets.values())

    @property
    def largest_points(self) -> float:
        """Sum of the largest components."""
        return sum(score.largest_component for score in self.datasets.values())

    @property
    def standard_error(self) -> float | None:
        """The standard error of exact_match; None unless every data set has one."""
        errors = [
            None if score.standard_error is None else score.standard_error * score.largest_component
            for score in self.datasets.values()
        ]
        known = [error for error in errors if error is not None]
        return math.hypot(*known) / self.largest_points if known and len(known) == len(errors) else None


def total(
    metric: AccuracyMetric, scores: Mapping[str, Sequence[float]], repeats: Mapping[str, int]
) -> MetricValue:
    """The value of a metric from the scores of all samples by data set; a data set has one repeat by default.

    PERCENT is 100 * sum(scores / repeats) / sum(samples / repeats), the official formula.
    """
    if metric.total in (Total.SUM, Total.ENTRIES):
        return MetricValue(sum(map(sum, scores.values())), metric)
    if metric.total in (Total.PERCENT_OF_LOGGED, Total.TOKENS):
        factor = 1 if metric.total is Total.TOKENS else 100
        # The sum is exact, so the mean is the official evaluator's to the last digit.
        whole = sum(factor * score for part in scores.values() for score in part)
        return MetricValue(whole / sum(map(len, scores.values())), metric)
    # In this order of operations: the third decimal is scraped and compared.
    points = sum(sum(part) / repeats.get(name, 1) for name, part in scores.items())
    largest = sum(len(part) / repeats.get(name, 1) for name, part in scores.items())
    return MetricValue(points / largest * 100, metric)


class Lengths(msgspec.Struct, frozen=True):
    """Output lengths in tokens, over the outputs whose length is known."""

    mean: float
    shortest: int
    longest: int
    truncated_share: float
    """The share of them that the token limit ended."""


class Standing(msgspec.Struct, frozen=True):
    """A value's place among the published runs."""

    value: float
    runs: PublishedRuns
    deviations: float
    """The distance from their mean in standard deviations."""
    percentile: float
    """The percentile, if they are normally distributed."""

    @property
    def is_within_range(self) -> bool:
        """Whether it lies within the range of the published runs."""
        return self.runs.lowest <= self.value <= self.runs.highest


def lengths(tokens: Sequence[int], truncated: int) -> Lengths:
    """Statistics of the lengths of at least one output."""
    return Lengths(statistics.fmean(tokens), min(tokens), max(tokens), truncated / len(tokens))


def standing(value: float, runs: PublishedRuns) -> Standing:
    """Compare with the published runs of the same benchmark."""
    published = statistics.NormalDist(runs.mean, runs.deviation)
    return Standing(value, runs, published.zscore(value), 100 * published.cdf(value))
