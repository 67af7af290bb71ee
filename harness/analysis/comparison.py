"""A comparison of runs: whether they are comparable, which figures differ, and which settings."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from harness.analysis.bootstrap import Estimate, estimates
from harness.analysis.early_stopping import log_cumulative
from harness.analysis.queries import Queries
from harness.analysis.run_files import RunFiles
from harness.arrays import Floats
from harness.config.server_urls import folded
from harness.errors import ConfigError
from harness.record.accuracy_result import AccuracyResult
from harness.record.run_record import RunRecord
from harness.text import counted, printable

_LEVEL = (2.5, 97.5)  # percent
_SERVERS_IN_FULL = 16
_OFTEN = 0.05  # chance below which a difference is reported
# Settings of LoadGen in which comparable runs may differ: the load is what is compared.
_LOAD = ("server_target_qps", "offline_expected_qps", "single_stream_expected_latency_ns")
_RATE = {"server_target_qps": "target_qps", "offline_expected_qps": "target_qps"}  # as conf files have them
_DECISIVE = ("tokens/s", "TTFT p99, ms", "TPOT p99, ms")  # figures of the summary
_NAMED, _VALUE = 2, 40  # settings that the summary names, and characters of a value
# Parts of a record that always differ between two runs, or follow from listed parts.
_NOT_LISTED = ("plan.log_dir", "plan.expected", "provenance.command", "provenance.folder")


class Difference(msgspec.Struct, frozen=True):
    """A figure of a run beside the first run's."""

    name: str
    base: float
    """the first run's value"""
    value: float
    low: float
    """lower bound of the change; NaN where unknown"""
    high: float
    """upper bound of the change; NaN where unknown"""

    @property
    def change(self) -> float:
        """The change relative to the first run's figure; NaN where that is 0."""
        return self.value / self.base - 1 if self.base else math.nan

    @property
    def verdict(self) -> str:
        """Whether the interval excludes "no change"."""
        if math.isnan(self.low):
            return "no interval"
        return "differs" if self.low > 0 or self.high < 0 else "no difference shown"

    @property
    def is_better(self) -> bool | None:
        """Whether a change that was shown is one for the better: more a second, or fewer milliseconds."""
        if self.verdict != "differs":
            return None
        return (self.change > 0) is not self.name.endswith(", ms")


class ChangedSamples(msgspec.Struct, frozen=True):
    """Samples that one run has right and the other wrong."""

    to_wrong: tuple[int, ...]
    to_right: tuple[int, ...]
    chance: float
    """p value of McNemar's test, exact and two-sided"""

    @property
    def verdict(self) -> str:
        """Whether a change this uneven would be rare between two equal systems."""
        return "differs" if self.chance < _OFTEN else "no difference shown"


def incomparable(base: RunFiles, other: RunFiles) -> Iterator[str]:
    """The reasons why the figures of two runs do not compare their systems; none where they do."""
    if (record := base.record) is None or (other_record := other.record) is None:
        yield "a folder has no run.json, so its settings are not known"
        return
    one, two = record.plan, other_record.plan
    first, second = record.settled, other_record.settled
    facts: tuple[tuple[str, object, object], ...] = (
        ("benchmark", one.client.benchmark.name, two.client.benchmark.name),
        ("scenario", one.scenario, two.scenario),
        ("mode", one.mode, two.mode),
        ("dataset (sha256)", first.dataset_sha256[:12], second.dataset_sha256[:12]),
        ("samples", first.samples, second.samples),
        ("LoadGen", _loadgen(record), _loadgen(other_record)),
        ("max_new_tokens", one.client.parameters.max_new_tokens, two.client.parameters.max_new_tokens),
    )
    for name, fact, other_fact in facts:
        if fact != other_fact:
            yield f"{name}: {fact} and {other_fact}"
    for name in sorted(first.loadgen_settings.keys() | second.loadgen_settings.keys()):
        rule, other_rule = first.loadgen_settings.get(name), second.loadgen_settings.get(name)
        if rule != other_rule and name not in _LOAD:
            yield f"LoadGen's {name}: {rule} and {other_rule}"
    for run, its in ((base, record), (other, other_record)):
        if its.verdict is None or its.interrupted_by or its.verdict.ended_by:
            yield f"{run.folder} did not end"
        yield from (f"{run.folder}: {text.removesuffix('.')}" for text in run.mixed)


def _loadgen(record: RunRecord) -> str | None:
    return record.provenance.packages.get("mlcommons-loadgen")


def differences(base: RunFiles, other: RunFiles) -> list[Difference]:
    """Every figure that both runs have. Raises ConfigError where a run has no single queries."""
    first, second = (estimates(_queries(run), seed) for seed, run in enumerate((base, other), 1))
    return [_difference(name, first[name], second[name]) for name in first if name in second]


def _queries(run: RunFiles) -> Queries:
    if run.queries is None:
        raise ConfigError(f"{run.folder}: no requests.parquet; compare needs the runs of this harness")
    return run.queries


def _difference(name: str, base: Estimate, other: Estimate) -> Difference:
    low = high = math.nan
    if len(base.resampled) and len(other.resampled) and base.resampled.all():  # a TPOT of 0 has no change
        changes: Floats = other.resampled / base.resampled - 1
        low, high = (float(bound) for bound in np.percentile(changes, _LEVEL))
    return Difference(name, base.value, other.value, low, high)


def changed_samples(base: RunFiles, other: RunFiles) -> ChangedSamples | None:
    """None where a run was not scored, or its metric has no right and wrong answers."""
    first, second = _right(base), _right(other)
    if first is None or second is None or len(first) != len(second):
        return None
    to_wrong = tuple(n for n, (a, b) in enumerate(zip(first, second, strict=True)) if (a, b) == ("1", "0"))
    to_right = tuple(n for n, (a, b) in enumerate(zip(first, second, strict=True)) if (a, b) == ("0", "1"))
    return ChangedSamples(to_wrong, to_right, _mcnemar(len(to_wrong), len(to_right)))


def _right(run: RunFiles) -> str | None:
    try:
        result = AccuracyResult.read(run.folder)
    except ConfigError:
        return None
    return None if result is None else result.right.get("official")


def _mcnemar(one: int, other: int) -> float:
    """Twice the binomial tail of the smaller count among both, at most 1."""
    n, least = one + other, min(one, other)
    return min(1.0, 2 * math.exp(log_cumulative(n, 0.5, least)[-1]))


def plan_differences(base: RunFiles, other: RunFiles) -> list[tuple[str, str, str]]:
    """Parts of the records that differ: name, the first run's value, the other's; none without both."""
    if base.record is None or other.record is None:
        return []
    first, second = _flat(base.record), _flat(other.record)
    rows = [
        (name, first.get(name, "-"), second.get(name, "-"))
        for name in dict.fromkeys((*first, *second))
        if first.get(name) != second.get(name)
    ]
    return [row for row in rows if not row[0].startswith(_NOT_LISTED)]


def summary(base: RunFiles, other: RunFiles, found: Sequence[Difference], name: str, base_name: str) -> str:
    """One sentence: the verdicts, what changed by how much, and since which settings differ.

    ``found`` are the differences of the runs, ``name`` and ``base_name`` what the runs are called.
    """
    same = other.result == base.result
    verdicts = f"{name} is {other.result}" + ("" if same else f" ({base_name}: {base.result})")
    figures = {one.name: one for one in found}
    changes = [_change(figures[key]) for key in _DECISIVE if key in figures]
    return f"{verdicts}: {', '.join(changes)}; {_settings(base, other)}."


def _change(one: Difference) -> str:
    label = one.name.removesuffix(", ms")
    if one.verdict == "no difference shown" or one.value == one.base:
        return f"no difference in {label} shown"
    if not one.base:
        return f"{label} {one.base:g} -> {one.value:.4g}{' ms' if one.name.endswith(', ms') else ''}"
    return f"{label} {one.change:+.1%}" + ("" if one.verdict == "differs" else f" ({one.verdict})")


def _settings(base: RunFiles, other: RunFiles) -> str:
    """``since target_qps 20 -> 17``: the rate, or else the first settings; the rest only as a number."""
    if base.record is None or other.record is None:
        return "the settings are not known"
    rows = plan_differences(base, other)
    if not rows:
        return "the settings are the same"
    rates = [row for row in rows if row[0].rpartition(".")[2] in _LOAD]
    settings = [row for row in rows if row[0].startswith(("plan.", "servers["))]
    chosen = rates or settings or rows
    named = [
        f"{_RATE.get(key := name.rpartition('.')[2], key)} {printable(before, _VALUE)} -> "
        f"{printable(after, _VALUE)}"
        for name, before, after in chosen[:_NAMED]
    ]
    more = len(rows) - len(named)
    return f"since {', '.join(named)}" + (f" and {counted(more, 'more difference')} below" if more else "")


def _flat(record: RunRecord) -> dict[str, str]:
    fields = record.fields()
    plain = {name: fields[name] for name in ("plan", "provenance", "servers")}
    plain["plan"]["server_urls"] = folded(record.plan.client.server_urls)
    plain["servers"] = _served(plain["servers"])
    return dict(_leaves("", plain))


def _served(servers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What servers serve; of many only what differs from the first. Their URLs are the plan's."""
    kept = [{name: value for name, value in one.items() if name not in ("trial_s", "url")} for one in servers]
    if len(kept) <= _SERVERS_IN_FULL:
        return list(kept)
    return [kept[0], *(_differing(kept[0], one) for one in kept[1:])]


def _differing(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in {**first, **other}:
        one, another = first.get(name), other.get(name)
        if isinstance(one, dict) and isinstance(another, dict):
            if parts := _differing(one, another):
                found[name] = parts
        elif type(one) is not type(another) or one != another:
            found[name] = another
    return found


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, Sequence) and value and isinstance(value[0], Mapping):
        for number, item in enumerate(value):
            yield from _leaves(f"{name}[{number}]", item)
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)
