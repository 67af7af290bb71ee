"""The compliance tests that exist, and those of a benchmark."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.compliance.accuracy_check import AccuracyTest
from harness.compliance.base import ComplianceTest
from harness.compliance.eos_check import ConsistencyTest
from harness.compliance.length_check import OutputLengthTest
from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.choices import available_benchmarks
from harness.errors import ConfigError

TESTS: dict[str, type[ComplianceTest]] = {
    test.name: test for test in (ConsistencyTest, AccuracyTest, OutputLengthTest)
}


def needed_tests(benchmark: Benchmark) -> tuple[str, ...]:
    """The names of the tests that a submission of this benchmark needs."""
    return tuple(name for name in TESTS if name in benchmark.compliance)


def find_test(benchmark: Benchmark, name: str) -> ComplianceTest:
    """One test of a benchmark. Raises ConfigError where the benchmark has no such test."""
    if name not in needed_tests(benchmark):
        known = ", ".join(needed_tests(benchmark)) or "no compliance test"
        others = _with_test(name, benchmark.round)
        raise ConfigError(f"{benchmark.name} has no {name}; it needs {known}{others}")
    section = benchmark.compliance[name]
    try:
        dataset = benchmark.datasets[section["dataset"]]
        return msgspec.convert(section | {"dataset": dataset}, TESTS[name])
    except KeyError as error:
        message = f"no dataset {error} is defined" if "dataset" in section else "no dataset is named"
        raise ConfigError(f"{_place(benchmark, name)}: {message}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{_place(benchmark, name)}: {error}") from error


def _with_test(name: str, round_name: str) -> str:
    """The rest of a message: the flag of the benchmarks with the test."""
    every = (load_benchmark(one, round_name) for one in available_benchmarks())
    others = [benchmark.name for benchmark in every if name in needed_tests(benchmark)]
    return f" ({name}: --benchmark {' or '.join(others)})" if others else ""


def _place(benchmark: Benchmark, name: str) -> str:
    file = f"{benchmark.name}.toml"
    return f"configs/rounds/{benchmark.round}/{file} (or configs/{file}): compliance.{name}"


def unused_references(file: Path | None, tests: Sequence[str]) -> tuple[str, ...]:
    """A warning about true answers where none of these tests scores answers."""
    if file is None or any(TESTS[name].needs_references for name in tests):
        return ()
    scores = "scores" if len(tests) == 1 else "score"
    return (f"--reference-data {file} has no effect: {' and '.join(tests)} {scores} no answers",)
