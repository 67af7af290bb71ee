#!/usr/bin/env python3
"""Compare a round's rules in configs/rounds/ with those of a checkout of mlcommons/inference.

    python scripts/compare_round.py INFERENCE [--round v6.1]

Read are its loadgen/mlperf.conf, the audit.config files in compliance/ and the numbers of its submission
checker (constants.py, which is executed). The first two are those of its latest round; for an earlier one
check out a commit of its time. Printed is one line for each difference.
Exit code 0: none. 1: some. 2: no such checkout.
"""

import argparse
import math
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.choices import available_benchmarks
from harness.config.loadgen_settings import BY_ATTRIBUTE
from harness.config.rounds import available_rounds, current_round, seeds_of
from harness.config.rule_checks import locked_settings
from harness.config.scenario import Scenario
from harness.submission.tree.round_rules import RoundRules, load_rules

Values = dict[str, Any]  # rule -> value, None where the checkout does not state it

_CONSTANTS = "tools/submission/submission_checker/constants.py"
_MLPERF_CONF = "loadgen/mlperf.conf"
_THRESHOLDS = ("test07_accuracy_threshold", "test09_min_output_tokens", "test09_max_output_tokens")


def main(words: Sequence[str] | None = None) -> int:
    """Print the differences and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inference", type=Path, help="checkout of mlcommons/inference")
    parser.add_argument("--round", choices=available_rounds(), default=current_round())
    arguments = parser.parse_args(words)
    if missing := [name for name in (_CONSTANTS, _MLPERF_CONF) if not (arguments.inference / name).is_file()]:
        parser.error(f"{arguments.inference} has no {missing[0]}; expected a checkout of mlcommons/inference")
    constants = runpy.run_path(str(arguments.inference / _CONSTANTS))
    if arguments.round not in constants["MODEL_CONFIG"]:
        parser.error(f"{_CONSTANTS} has no round {arguments.round}")
    rules = load_rules(arguments.round)
    benchmarks = [load_benchmark(name, arguments.round) for name in available_benchmarks()]
    benchmarks = [benchmark for benchmark in benchmarks if benchmark.official]
    theirs = _their_rules(constants, arguments.round)
    ours = _our_rules(rules)
    theirs |= {
        f"mlperf.conf.{name}": _rows(arguments.inference / _MLPERF_CONF)[f"*.*.{name}"]
        for name in rules.seeds
    }
    ours |= {f"mlperf.conf.{name}": seed for name, seed in rules.seeds.items()}
    for benchmark in benchmarks:
        theirs |= _named(benchmark, _checker_values(constants, arguments.round, benchmark, rules))
        ours |= _named(benchmark, _our_values(benchmark, rules))
        theirs |= _named(benchmark, dict(_conf_values(arguments.inference, benchmark)))
        ours |= _named(benchmark, dict(_locked_values(benchmark)))
        theirs |= _named(benchmark, dict(_audit_values(arguments.inference, benchmark)))
        ours |= _named(benchmark, dict(_our_audits(benchmark)))
    found = list(differences(theirs, ours))
    print(*(found or [f"{len(theirs)} values of {arguments.round}: no difference"]), sep="\n")
    return bool(found)


def differences(theirs: Values, ours: Values) -> Iterator[str]:
    """A line for each name whose values differ; numbers are equal up to the rounding of a product."""
    for name in sorted(theirs.keys() | ours.keys()):
        here, there = ours.get(name), theirs.get(name)
        if here != there and not _are_equal_numbers(here, there):
            yield f"{name}: {_shown(here, there)}"


def _are_equal_numbers(here: object, there: object) -> bool:
    numbers = int | float
    return (
        isinstance(here, numbers) and isinstance(there, numbers) and math.isclose(here, there, rel_tol=1e-12)
    )


def _shown(here: Any, there: Any) -> str:
    if isinstance(here, set) and isinstance(there, set):
        return f"only theirs {sorted(there - here)}, only ours {sorted(here - there)}"
    return f"theirs {'not stated' if there is None else there}, ours {'not stated' if here is None else here}"


def _named(benchmark: Benchmark, values: Values) -> Values:
    return {f"{benchmark.name}.{name}": value for name, value in values.items() if value is not None}


def _their_rules(constants: Mapping[str, Any], round_name: str) -> Values:
    """The checker's requirements of every benchmark."""
    config = constants["MODEL_CONFIG"][round_name]
    meaningful = set(constants["SYSTEM_DESC_MEANINGFUL_RESPONSE_REQUIRED_FIELDS"])
    return {
        "benchmarks": set(config["models"]),
        "aliases": set(config["model_mapping"].items()),
        "endpoints_benchmarks": _with_endpoints_logs(constants, round_name),
        "system.meaningful": meaningful,
        "system.optional": set(constants["SYSTEM_DESC_REQUIRED_FIELDS"]) - meaningful,
        "system.network": set(constants["SYSTEM_DESC_REQUIRED_FIELDS_NETWORK_MODE"]),
        "system.status": set(constants["VALID_AVAILABILITIES"]),
        "measurements.required": set(constants["SYSTEM_IMP_REQUIRED_FILES"]),
        "files.accuracy_log_bytes": constants["MAX_ACCURACY_LOG_SIZE"],
        "files.any_bytes": constants["FILE_SIZE_LIMIT_MB"] * constants["MB_TO_BYTES"],
        "power.power": set(constants["REQUIRED_POWER_FILES"]),
        "power.run": {*constants["REQUIRED_PERF_FILES"], *constants["REQUIRED_PERF_POWER_FILES"]},
        **{f"seeds.{name}": seed for name, seed in config["seeds"].items()},
    }


def _with_endpoints_logs(constants: Mapping[str, Any], round_name: str) -> set[str]:
    """The checker finds a result in these logs for the rounds of its table only."""
    rounds = constants.get("RESULT_FIELD_ENDPOINTS", {})
    return set(constants["ENDPOINTS_ALLOWED_MODELS"]) if round_name in rounds else set()


def _our_rules(rules: RoundRules) -> Values:
    return {
        "benchmarks": set(rules.benchmarks),
        "aliases": set(rules.aliases.items()),
        "endpoints_benchmarks": set(rules.endpoints_benchmarks),
        "system.meaningful": set(rules.system.meaningful),
        "system.optional": set(rules.system.optional),
        "system.network": set(rules.system.network),
        "system.status": set(rules.system.status),
        "measurements.required": set(rules.measurements.required),
        "files.accuracy_log_bytes": rules.files.accuracy_log_bytes,
        "files.any_bytes": rules.files.any_bytes,
        "power.power": set(rules.power.power),
        "power.run": set(rules.power.run),
        **{f"seeds.{name}": seed for name, seed in rules.seeds.items()},
    }


def _checker_values(
    constants: Mapping[str, Any], round_name: str, benchmark: Benchmark, rules: RoundRules
) -> Values:
    """The checker's requirements of one benchmark."""
    config, name = constants["MODEL_CONFIG"][round_name], benchmark.name
    suite = rules.suite_of(name)[0]
    lowest, highest = config["accuracy-target"][name], config["accuracy-upper-limit"].get(name, ())
    limits = {
        f"latency.{scenario.lower()}.{which}_ms": ns / constants["MS_TO_NS"]
        for scenario, both in constants["LLM_LATENCY_LIMITS"].get(name, {}).items()
        for which, ns in both.items()
    }
    target_ns = config["latency-constraint"].get(name, {}).get("Server")
    tests = {
        key.removeprefix("models_") for key in config if key.startswith("models_") and name in config[key]
    }
    return {
        "scenarios.required": set(config[f"required-scenarios-{suite}"].get(name, ())),
        "scenarios.one_of": set(config[f"optional-scenarios-{suite}"].get(name, ())),
        "performance_samples": config["performance-sample-count"][name],
        "accuracy_samples": config["accuracy-sample-count"].get(name, config["dataset-size"][name]),
        "offline_samples": constants["OFFLINE_MIN_SPQ_SINCE_V4"][name],
        "min_duration_ms": constants["TEST_DURATION_MS"],
        "target_latency_ms": None if target_ns is None else target_ns / constants["MS_TO_NS"],
        "tests": tests,
        **limits,
        **{f"accuracy.{metric.lower()}.lowest": value for metric, value in _pairs(lowest)},
        **{f"accuracy.{metric.lower()}.highest": value for metric, value in _pairs(highest)},
    }


def _our_values(benchmark: Benchmark, rules: RoundRules) -> Values:
    suite, performance = rules.suite_of(benchmark.name)[1], benchmark.datasets["performance"]
    bounds = {metric.lower(): rule.bounds for metric, rule in benchmark.accuracy.items()}
    return {
        "scenarios.required": {scenario.folder for scenario in suite.required},
        "scenarios.one_of": {scenario.folder for scenario in suite.one_of},
        "performance_samples": performance.samples,
        "accuracy_samples": benchmark.datasets["accuracy"].samples,
        "offline_samples": performance.samples,
        "min_duration_ms": benchmark.loadgen.settings["min_duration_ms"],
        "target_latency_ms": rules.target_latency_ms.get(benchmark.name),
        "tests": set(benchmark.compliance),
        **{f"latency.{name}.ttft_ms": limits.ttft_ms for name, limits in benchmark.latency_limits.items()},
        **{f"latency.{name}.tpot_ms": limits.tpot_ms for name, limits in benchmark.latency_limits.items()},
        **{f"accuracy.{metric}.lowest": lowest for metric, (lowest, _) in bounds.items() if lowest > 0},
        **{
            f"accuracy.{metric}.highest": highest
            for metric, (_, highest) in bounds.items()
            if highest < math.inf
        },
    }


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Metrics and their values, which constants.py has in turn."""
    return zip(flat[::2], flat[1::2], strict=True)


def _conf_values(inference: Path, benchmark: Benchmark) -> Iterator[tuple[str, Any]]:
    """LoadGen's own settings, by scenario."""
    rows = _rows(inference / _MLPERF_CONF)
    for scenario, name in _locked_names(benchmark):
        setting, model = BY_ATTRIBUTE[name], benchmark.model_key(scenario)
        places = (f"{model}.{scenario.loadgen}", f"*.{scenario.loadgen}", f"{model}.*", "*.*")
        keys = [f"{place}.{setting.conf_key}" for place in places]
        if found := [rows[key] for key in keys if key in rows]:
            yield f"mlperf.conf.{scenario}.{name}", setting.value(found[0])


def _locked_values(benchmark: Benchmark) -> Iterator[tuple[str, Any]]:
    for scenario, name in _locked_names(benchmark):
        value = locked_settings(benchmark, scenario)[name]
        if value is not False:
            yield f"mlperf.conf.{scenario}.{name}", value


def _locked_names(benchmark: Benchmark) -> Iterator[tuple[Scenario, str]]:
    """Settings that the benchmark locks, not those that hold for all of a round or are LoadGen's defaults."""
    own = {*benchmark.loadgen.settings, "ttft_latency", "tpot_latency"} - seeds_of(benchmark.round).keys()
    for scenario in benchmark.scenarios:
        yield from ((scenario, name) for name in locked_settings(benchmark, scenario) if name in own)


def _audit_values(inference: Path, benchmark: Benchmark) -> Iterator[tuple[str, Any]]:
    """The rows of each test's audit.config, its thresholds included."""
    for test in benchmark.compliance:
        folder = inference / "compliance" / test
        own = folder / benchmark.name / "audit.config"
        for name, value in _rows(own if own.is_file() else folder / "audit.config").items():
            yield f"{test}.{name.removeprefix('*.*.')}", value


def _our_audits(benchmark: Benchmark) -> Iterator[tuple[str, Any]]:
    for test, table in benchmark.compliance.items():
        yield from ((f"{test}.{name}", value) for name, value in table["audit"].items())
        if "threshold" in table:
            yield f"{test}.{_THRESHOLDS[0]}", table["threshold"]
        if "tolerance" in table:
            mean, tolerance = table["reference_mean_output_tokens"], table["tolerance"]
            yield f"{test}.{_THRESHOLDS[1]}", mean * (1 - tolerance)
            yield f"{test}.{_THRESHOLDS[2]}", mean * (1 + tolerance)


def _rows(path: Path) -> dict[str, int | float]:
    """The rows of a conf file that LoadGen accepts."""
    found: dict[str, int | float] = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) >= 3 and words[1] == "=" and not words[0].startswith("#"):
            number = words[2]
            found[words[0]] = int(number) if number.isdigit() else float(number)
    return found


if __name__ == "__main__":
    sys.exit(main())
