"""accuracy_results.json of a run folder, in the official client's form: written, and read beside its targets.

Files of the official client are read as well. What is a percentage in the rules is a share of 1 in ours: a
checker that takes any number up to 1 for a share would read 0.8 % as 80 %.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from harness.config.benchmark import MOST_PERCENT, Benchmark
from harness.endpoints.run_folder import ACCURACY
from harness.errors import ConfigError, machine_failure
from harness.files import atomic_write
from harness.grouping import by_key
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.text import counted

_INLINE = "performance"  # dataset_type of the score of a performance run's own answers
_Count = Annotated[int, msgspec.Meta(ge=0)]
_DIGITS = 12  # of a percentage that was a share of 1: more than any bound has


class PointMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric in the unit of its target: percent of exact_match and ROUGE."""

    value: float
    lowest: float
    """the lowest passing value"""
    highest: float
    """infinite where there is no upper bound"""

    @property
    def target(self) -> str:
        """``82.2987 or more``, or both bounds."""
        most = "or more" if math.isinf(self.highest) else f"to {self.highest:.10g}"
        return f"{self.lowest:.10g} {most}"

    @property
    def is_met(self) -> bool:
        """Whether the value is within its bounds, which pass themselves."""
        return self.lowest <= self.value <= self.highest


class PointAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """The accuracy run of a point."""

    metrics: dict[str, PointMetric]
    """those that have a target, the most important one first"""
    missing: tuple[str, ...] = ()
    """metrics with a target that the file does not have; no official check sees that"""
    lacks: tuple[str, ...] = ()
    """those among them without which there is no score: percentages"""
    samples: int
    """issued, each repeat for itself"""
    expected_samples: int
    """of the accuracy dataset"""
    unanswered: int = 0
    """requests whose answer never came, as far as the file counts them"""
    empty: int = 0
    """answers without text; the official client writes one for each failed request, too"""
    partial: bool = False
    """whether the file itself says that its score is not of everything"""
    duration_s: float | None = None
    """from the first request to the last answer"""
    warnings: tuple[str, ...] = ()
    """what the graders say of the score"""
    deviations: tuple[str, ...] = ()
    """differences from the rules that were asked for, or from the point's servers"""
    reference_data: str | None = None
    """the file of the true answers; None in files of the official client"""
    answers_sha256: str | None = None
    """of the table of answers that was scored; None in files of the official client"""

    @property
    def is_complete(self) -> bool:
        """Whether every sample of the accuracy dataset was answered and is part of the score."""
        return not self.partial and not self.unanswered and self.samples >= self.expected_samples

    @property
    def is_met(self) -> bool:
        """Whether every metric that is there meets its target, and no percentage is missing."""
        return not self.lacks and all(metric.is_met for metric in self.metrics.values())

    @property
    def passed(self) -> bool:
        """Whether a complete run met its targets."""
        return self.is_complete and self.is_met

    @property
    def line(self) -> str:
        """``exact_match 83.126 (82.2987 or more)``, and why it does not count."""
        parts = [
            f"{name} {one.value:.7g} ({one.target}{'' if one.is_met else ', NOT met'})"
            for name, one in self.metrics.items()
        ]
        parts += [f"no {name}" for name in self.lacks]
        if self.samples < self.expected_samples:
            parts.append(f"{self.samples} of {self.expected_samples} samples: no accuracy result")
        if self.unanswered:
            parts.append(f"{counted(self.unanswered, 'request')} without an answer: no accuracy result")
        if self.partial and self.samples >= self.expected_samples:
            parts.append("not of every answer: no accuracy result")
        if self.empty:
            parts.append(f"{self.empty} empty answers")
        if self.deviations:
            parts.append(f"not by the rules: {'; '.join(self.deviations)}")
        return ", ".join(parts) or "no score"


def targets(benchmark: Benchmark) -> dict[str, tuple[float, float]]:
    """The lowest and the highest passing value of each metric that must be reported."""
    return {name: rule.bounds for name, rule in benchmark.accuracy.items() if rule.bounds[0]}


def write_accuracy(folder: Path, entry: Mapping[str, Any]) -> None:
    """Write the one entry of an accuracy run into its run folder. Raises RunError."""
    path = folder / ACCURACY
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            whole = {"label": NOT_A_RESULT, "accuracy_scores": [entry]}
            file.write((json.dumps(whole, indent=2, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise machine_failure(error) from error


def as_shares(metrics: Mapping[str, float], benchmark: Benchmark) -> dict[str, float]:
    """Metrics in the file's unit."""
    return {
        name: value / MOST_PERCENT if benchmark.accuracy[name].is_score else value
        for name, value in metrics.items()
    }


class _Entry(msgspec.Struct):
    """One scored data set. The second name of a count is that of earlier files."""

    score: Any
    """of earlier files, which have the metrics beside the counts: the complete entry"""
    unit_samples: _Count | None = None
    num_samples: _Count | None = None
    num_repeats: _Count | None = None
    n_repeats: _Count | None = None
    duration_s: float | None = None
    complete: bool = True
    dataset_type: str | None = None
    response_counts: dict[str, _Count] | None = None
    warnings: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    reference_data: str | None = None
    answers_sha256: str | None = None

    @property
    def samples(self) -> int:
        """Rows of the data set."""
        return self.num_samples or 0 if self.unit_samples is None else self.unit_samples

    @property
    def issued(self) -> int:
        """Its requests."""
        return self.samples * (self.num_repeats or self.n_repeats or 1)

    def counted(self, kind: str) -> int:
        """Its responses of one kind."""
        return (self.response_counts or {}).get(kind, 0)


def read_accuracy(folder: Path, benchmark: Benchmark) -> PointAccuracy | None:
    """The accuracy of a run folder, or of a point's folder in a tree; None where it has none.

    Raises ConfigError for a file that cannot be read.
    """
    beside = folder / Path(ACCURACY).name
    path = next((path for path in (folder / ACCURACY, beside) if path.is_file()), None)
    if path is None:
        return None
    try:
        return _accuracy(_entries(msgspec.json.decode(path.read_bytes())), benchmark)
    except RecursionError:
        why = "too deeply nested"
    except (OSError, ValueError, OverflowError) as error:  # msgspec's errors are ValueErrors
        why = str(error)
    raise ConfigError(f"{path}: {why}; score the point again, which writes the run's accuracy_results.json")


def scored_parts(whole: Any) -> list[dict[str, Any]]:
    """What a file says of each scored data set. Raises ValueError."""
    found = whole.get("accuracy_scores", whole) if isinstance(whole, dict) else whole
    parts = list(found.values()) if isinstance(found, dict) else found
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError("no accuracy_scores: objects, one for each data set")
    return parts


def _entries(whole: Any) -> list[_Entry]:
    """Those of accuracy runs. Raises ValueError."""
    parts = scored_parts(whole)
    entries = [msgspec.convert({"score": part, **part}, _Entry, strict=False) for part in parts]
    return [entry for entry in entries if entry.dataset_type != _INLINE]


def _accuracy(entries: list[_Entry], benchmark: Benchmark) -> PointAccuracy | None:
    """The score over all data sets, each weighted with its rows, as the checker does it.

    A metric that one of them lacks is missing: the client writes null where its grading failed.
    """
    if not entries:
        return None
    values = by_key(
        (name, (value, entry.samples))
        for entry in entries
        for name, value in _scores(entry.score, benchmark).items()
    )
    _require_one_unit(values, benchmark)
    metrics = {
        name: _metric(benchmark, name, _mean(values[name]))
        for name in benchmark.accuracy
        if len(values.get(name, ())) == len(entries)
    }
    missing = tuple(name for name in targets(benchmark) if name not in metrics)
    durations = [entry.duration_s for entry in entries if entry.duration_s is not None]
    return PointAccuracy(
        metrics=metrics,
        missing=missing,
        lacks=tuple(name for name in missing if benchmark.accuracy[name].is_score),
        samples=sum(entry.issued for entry in entries),
        expected_samples=benchmark.dataset(accuracy=True).samples,
        unanswered=sum(entry.counted("missing") for entry in entries),
        empty=sum(entry.counted("empty") for entry in entries),
        partial=not all(entry.complete for entry in entries),
        duration_s=sum(durations) if durations else None,
        warnings=tuple(text for entry in entries for text in entry.warnings),
        deviations=tuple(text for entry in entries for text in entry.deviations),
        reference_data=next((entry.reference_data for entry in entries), None),
        answers_sha256=next((entry.answers_sha256 for entry in entries), None),
    )


def _scores(score: Any, benchmark: Benchmark) -> dict[str, float]:
    """The metrics of a data set by the rules' names. A number without a name is the first metric."""
    named = score if isinstance(score, dict) else {next(iter(benchmark.accuracy)): score}
    names = {name.lower(): name for name in benchmark.accuracy}
    return {
        names[key.lower()]: _number(key, value)
        for key, value in named.items()
        if key.lower() in names and value is not None
    }


def _number(name: str, value: Any) -> float:
    """A number, or its text, as the official client writes ROUGE."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{name} is {value!r}, expected a number")
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{name} is {value!r}, expected a finite number")
    return number


def _require_one_unit(values: Mapping[str, list[tuple[float, int]]], benchmark: Benchmark) -> None:
    """Raise ValueError where a score is a share of 1 in one data set, and above it in another."""
    for name, found in values.items():
        scores = [value for value, _ in found if value]  # 0 is both
        if benchmark.accuracy[name].is_score and min(scores, default=2.0) <= 1 < max(scores, default=0.0):
            raise ValueError(
                f"{name} is {min(scores):.7g} and {max(scores):.7g}, expected one unit in all data sets"
            )


def _mean(values: list[tuple[float, int]]) -> float:
    """Weighted, unless a weight is unknown."""
    if len(values) == 1:
        return values[0][0]
    weights = [weight for _, weight in values] if all(weight for _, weight in values) else [1] * len(values)
    return sum(value * weight for (value, _), weight in zip(values, weights, strict=True)) / sum(weights)


def _metric(benchmark: Benchmark, name: str, value: float) -> PointMetric:
    """Raises ValueError for a percentage that there is not."""
    rule = benchmark.accuracy[name]
    lowest, highest = rule.bounds
    if rule.is_score and 0 <= value <= 1:
        value = round(MOST_PERCENT * value, _DIGITS)
    if not rule.is_possible(value):
        raise ValueError(f"{name} is {value:.7g}, expected {MOST_PERCENT:g} at most")
    return PointMetric(value=value, lowest=lowest, highest=highest)
