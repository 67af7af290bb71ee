"""The score of an accuracy run, from the result that the evaluator left in the run's folder."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.files import ACCURACY_RESULT
from harness.pages.page import Section, Table

Json = Mapping[str, Any]


def accuracy_section(folder: Path) -> Iterator[Section]:
    """Nothing where the run was not scored. Raises ConfigError for a damaged result."""
    path = folder / ACCURACY_RESULT
    if not path.is_file():
        return
    try:
        yield _section(json.loads(path.read_bytes()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no result of the evaluator ({error!r}); score the log again") from None


def _section(result: Json) -> Section:
    target, tokens = result["target"], result["output_tokens"]
    lines = [
        f"Target {'met' if target['met'] else 'NOT met'}, by {target['mode']} rules.",
        f"Output tokens: {tokens['mean']:,.1f} on average, {tokens['min']:,} to {tokens['max']:,}; the token "
        f"limit ended {tokens['truncated_share']:.2%} of the outputs.",
    ]
    if result["missing"]:
        lines.append(f"Samples without an entry in the log: {len(result['missing']):,}.")
    tables = [_metrics(target["metrics"]), *_datasets(result["modes"]), *_reasons(result["reasons"])]
    if result["warnings"]:
        tables.append(Table(("warnings of the evaluator",), [(line,) for line in result["warnings"]]))
    return Section("accuracy", "Accuracy", lines, tables=tables)


def _metrics(metrics: Json) -> Table:
    rows = [
        (name, f"{m['value']:.4f}", f"{m['lowest']:.4f}", _bound(m["highest"]), "yes" if m["met"] else "NO")
        for name, m in metrics.items()
    ]
    missed = frozenset(number for number, m in enumerate(metrics.values()) if not m["met"])
    return Table(("metric", "value", "at least", "at most", "met"), rows, missed)


def _bound(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _datasets(modes: Json) -> Iterator[Table]:
    """Right answers by data set, a row for each mode; text metrics have none."""
    rows = [
        (name, mode, f"{part['correct']:,} of {part['total']:,}", f"{part['accuracy']:.2f} %")
        for mode, summary in modes.items()
        for name, part in summary.get("per_dataset", {}).items()
    ]
    if rows:
        yield Table(("data set", "rules", "right", "share"), sorted(rows))


def _reasons(modes: Json) -> Iterator[Table]:
    """Outputs by reason of their grade, for each data set and mode."""
    for mode, datasets in modes.items():
        reasons = sorted({reason for counts in datasets.values() for reason in counts})
        rows = [(name, *(f"{counts.get(one, 0):,}" for one in reasons)) for name, counts in datasets.items()]
        yield Table((f"grades by {mode} rules", *reasons), rows)
