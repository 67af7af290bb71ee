"""The score of an accuracy run, from the result that the evaluator left in the run's folder."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.record.accuracy_result import AccuracyResult, MetricFigures, ModeFigures
from harness.report.html.page import Section, Table


def accuracy_section(folder: Path) -> Iterator[Section]:
    """Nothing where the run was not scored. Raises ConfigError for a damaged result."""
    if (result := AccuracyResult.read(folder)) is not None:
        yield _section(result)


def _section(result: AccuracyResult) -> Section:
    target, tokens = result.target, result.output_tokens
    lines = [
        f"Target {'met' if target.met else 'NOT met'}, by {target.mode} rules.",
        f"Output tokens: {tokens.mean:,.1f} on average, {tokens.min:,} to {tokens.max:,}; the token "
        f"limit ended {tokens.truncated_share:.2%} of the outputs.",
    ]
    if result.missing:
        lines.append(f"Samples without an output: {len(result.missing):,}.")
    tables = [_metrics(target.metrics), *_datasets(result.modes), *_reasons(result.reasons)]
    if result.warnings:
        tables.append(Table(("warnings of the evaluator",), [(line,) for line in result.warnings]))
    return Section("accuracy", "Accuracy", lines, tables=tables)


def _metrics(metrics: Mapping[str, MetricFigures]) -> Table:
    rows = [
        (name, f"{m.value:.4f}", f"{m.lowest:.4f}", _bound(m.highest), "yes" if m.met else "NO")
        for name, m in metrics.items()
    ]
    missed = frozenset(number for number, m in enumerate(metrics.values()) if not m.met)
    return Table(("metric", "value", "at least", "at most", "met"), rows, missed)


def _bound(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _datasets(modes: Mapping[str, ModeFigures]) -> Iterator[Table]:
    """Right answers by data set, a row for each mode; text metrics have none."""
    rows = [
        (name, mode, f"{part.correct:,} of {part.total:,}", f"{part.accuracy:.2f} %")
        for mode, figures in modes.items()
        for name, part in figures.per_dataset.items()
    ]
    if rows:
        yield Table(("data set", "rules", "right", "share"), sorted(rows))


def _reasons(modes: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[Table]:
    """Outputs by reason of their grade, for each data set and mode."""
    for mode, datasets in modes.items():
        reasons = sorted({reason for counts in datasets.values() for reason in counts})
        rows = [(name, *(f"{counts.get(one, 0):,}" for one in reasons)) for name, counts in datasets.items()]
        yield Table((f"grades by {mode} rules", *reasons), rows)
