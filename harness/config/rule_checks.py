"""The rules for a run's settings and dataset, and the deviations of a run.

A difference that the user asked for is a deviation: the run continues and reports it. Any other difference is
an error, because LoadGen would measure something else than the benchmark.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from harness.config.benchmark import Benchmark, DatasetRule, load_benchmark
from harness.config.choices import available_benchmarks
from harness.config.expected_queries import offline_samples
from harness.config.loadgen_settings import BY_ATTRIBUTE, NS_PER_MS, SAMPLE_COUNTS, Setting
from harness.config.rounds import current_round, loadgen_of
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.text import counted

# Settings without effect where every sample is issued once and no latency is judged.
_PERFORMANCE_ONLY = (
    "min_duration_ms",
    "ttft_latency",
    "tpot_latency",
    "server_target_latency_ns",
    "server_target_latency_percentile",
    "single_stream_target_latency_percentile",
    "server_max_async_queries",
)
# LoadGen's or mlperf.conf's values, with which each benchmark runs: queries are not issued together, their
# number in flight has no limit, the latencies of tokens are measured, and judged in place of a query's,
# SingleStream has its 90th percentile, and a performance run logs no answers.
_DEFAULTS: Mapping[str, Setting] = {
    "server_coalesce_queries": False,
    "server_max_async_queries": 0,
    "infer_token_latencies": False,
    "server_target_latency_ns": 0,
    "single_stream_target_latency_percentile": 0.9,
    "accuracy_log_sampling_target": 0,
}
_AT_LEAST = ("min_duration_ms",)


def locked_settings(
    benchmark: Benchmark,
    scenario: Scenario,
    *,
    accuracy: bool = False,
    audit: Mapping[str, int | float] | None = None,
) -> dict[str, Setting]:
    """LoadGen's settings that the rules lock for one mode, by LoadGen's names; latencies in ns.

    ``audit`` holds what a compliance test sets, by conf key: it takes the place of the benchmark's value.
    """
    locked: dict[str, Setting] = {**_DEFAULTS, **benchmark.loadgen.settings}
    locked |= rule_limits(benchmark, scenario)
    if scenario not in benchmark.scenarios:
        del locked["server_target_latency_ns"]  # mlperf.conf has it for the scenarios of the rules alone
    # A setting of another scenario has no effect, even where LoadGen reads it.
    locked = {
        name: value for name, value in locked.items() if scenario.loadgen in BY_ATTRIBUTE[name].scenarios
    }
    if accuracy:
        locked = {name: value for name, value in locked.items() if name not in _PERFORMANCE_ONLY}
    return {name: _audited(name, value, audit or {}) for name, value in locked.items()}


def _audited(name: str, value: Setting, audit: Mapping[str, int | float]) -> Setting:
    """The value that a compliance test sets, as LoadGen has it then."""
    setting = BY_ATTRIBUTE[name]
    return setting.value(audit[setting.conf_key]) if setting.conf_key in audit else value


def setting_deviations(
    locked: Mapping[str, Setting], readback: Mapping[str, Setting], asked: Collection[str], samples: int
) -> tuple[str, ...]:
    """Compare what LoadGen reads back with what is locked; ``asked`` are the keys that conf files set.

    Raises ConfigError for settings that were not requested.
    """
    found = []
    for name, expected in locked.items():
        got = readback[name]
        if got == expected or (name in _AT_LEAST and got > expected):
            continue
        if name in SAMPLE_COUNTS and got == samples:
            continue  # cut to the dataset, whose size is checked for itself
        if BY_ATTRIBUTE[name].conf_key not in asked:
            raise ConfigError(
                f"LoadGen set {name} to {got}, the benchmark needs {expected}, and no conf row asks for it; "
                f"check that mlcommons-loadgen is the pinned version, {loadgen_of(current_round())}"
            )
        found.append(f"LoadGen {name} is {_shown(name, got)}, the rules say {_shown(name, expected)}")
    return tuple(found)


def _shown(name: str, value: Setting) -> str:
    return f"{value / NS_PER_MS:g} ms" if name.endswith("_latency") else str(value)


def scenario_deviations(benchmark: Benchmark, scenario: Scenario) -> tuple[str, ...]:
    """A scenario in which the benchmark has no official result."""
    if scenario in benchmark.scenarios:
        return ()
    official = ", ".join(benchmark.scenarios)
    return (f"scenario is {scenario}, the rules of {benchmark.name} name {official}",)


def round_deviations(benchmark: Benchmark) -> tuple[str, ...]:
    """A round that is over."""
    current = current_round()
    if benchmark.round == current:
        return ()
    return (f"the rules are those of round {benchmark.round}, the current round is {current}",)


def round_settings(benchmark: Benchmark, scenario: Scenario) -> dict[str, Setting]:
    """The settings that an earlier round locks, by LoadGen's names; empty for the current round."""
    if benchmark.round == current_round():
        return {}
    return {**benchmark.loadgen.settings, **rule_limits(benchmark, scenario)}


def rule_limits(benchmark: Benchmark, scenario: Scenario) -> dict[str, Setting]:
    """The p99 limits in ns, by LoadGen's names; none where the scenario has none."""
    limits = benchmark.latency_limits.get(scenario)
    if limits is None:
        return {}
    return {"ttft_latency": limits.ttft_ms * NS_PER_MS, "tpot_latency": limits.tpot_ms * NS_PER_MS}


def offline_deviations(readback: Mapping[str, Setting], rule: DatasetRule) -> tuple[str, ...]:
    """A closed Offline submission needs each sample of the dataset in its one query."""
    asked = offline_samples(readback)
    if asked >= rule.samples:
        return ()
    return (
        f"Offline asks for {asked:,} samples, the rules say at least {rule.samples:,}, without what LoadGen "
        "adds to complete a dataset: raise target_qps or min_query_count",
    )


def dataset_deviations(
    rule: DatasetRule,
    samples: int,
    efforts: Sequence[str | None],
    effort_markers: bool,
    meant: Sequence[str] = (),
) -> tuple[str, ...]:
    """Row count and the reasoning effort baked into the prompts against the rule.

    ``meant`` are other benchmarks, whose dataset it may be.
    """
    found = []
    if samples != rule.samples:
        remedy = f"; it may be that of --benchmark {' or '.join(meant)}" if meant else ""
        found.append(
            f"dataset has {counted(samples, 'sample')}, the rules say {rule.samples:,} ({rule.file}){remedy}"
        )
    if effort_markers and rule.reasoning_effort is not None:
        counts = Counter(efforts)
        wrong = {
            effort or "none": count for effort, count in counts.items() if effort != rule.reasoning_effort
        }
        if wrong:
            shown = ", ".join(f"{effort}: {count}" for effort, count in sorted(wrong.items()))
            found.append(
                f"reasoning effort of the prompts is not {rule.reasoning_effort} ({shown} of {samples})"
            )
    return tuple(found)


def benchmarks_with(file: Path, samples: int, but: Benchmark) -> tuple[str, ...]:
    """Other benchmarks with an official dataset of this name or size, where ``but`` has none."""

    def has(one: Benchmark) -> bool:
        rules = one.datasets.values()
        return any(samples == rule.samples or file.name == Path(rule.file).name for rule in rules)

    if has(but):
        return ()
    return tuple(name for name in available_benchmarks() if has(load_benchmark(name, but.round)))


def dataset_rule(benchmark: Benchmark, *, accuracy: bool, audit: bool, samples: int) -> DatasetRule:
    """The dataset rule for a run; a compliance test may have its own."""
    compliance = benchmark.datasets.get("compliance")
    if audit and compliance is not None and samples == compliance.samples:
        return compliance
    return benchmark.dataset(accuracy=accuracy)
