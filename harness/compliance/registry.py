"""The compliance tests that exist, and those of a benchmark."""

import msgspec

from harness.compliance.accuracy_check import AccuracyTest
from harness.compliance.base import ComplianceTest
from harness.compliance.eos_check import ConsistencyTest
from harness.compliance.length_check import OutputLengthTest
from harness.config.benchmark import Benchmark
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
        raise ConfigError(f"{benchmark.name} has no {name}; it needs {known}")
    section = benchmark.compliance[name]
    try:
        dataset = benchmark.datasets[section["dataset"]]
        return msgspec.convert(section | {"dataset": dataset}, TESTS[name])
    except KeyError as error:
        message = f"no dataset {error} is defined" if "dataset" in section else "no dataset is named"
        raise ConfigError(f"{_place(benchmark, name)}: {message}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{_place(benchmark, name)}: {error}") from error


def _place(benchmark: Benchmark, name: str) -> str:
    file = f"{benchmark.name}.toml"
    return f"configs/rounds/{benchmark.round}/{file} (or configs/{file}): compliance.{name}"
