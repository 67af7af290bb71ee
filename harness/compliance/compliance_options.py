"""The options of run_compliance.py and its command line. Imports stay light, so that ``--help`` is fast."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from harness.cli.door import called
from harness.cli.flags import add_flags, add_groups, flag, options, read
from harness.cli.parser import SIGNAL_CODES, Parser, built_once
from harness.config.choices import DEFAULT_BENCHMARK, benchmark_flag, round_flag
from harness.config.other_flags import ELSEWHERE, LOADGEN, SYNONYMS
from harness.config.run_options import (
    FAILURES,
    RUN,
    SERVER,
    SETTINGS,
    RunOptions,
    min_replicas_flag,
    parsed,
    results_flag,
    scenario_flag,
)
from harness.config.scenario import Scenario
from harness.errors import ConfigError

VERIFY = "verify"
ALL_TESTS = "all"
_CODES, _VERIFY_CODES = (
    f"Exit codes: 0 test passed, 5 test failed, 2 usage, config, dataset or unusable logs, {server}"
    f"4 the run is INVALID or has failures, {SIGNAL_CODES}."
    for server in ("3 server, ", "")
)
_FOR_TEST = re.compile(r"(TEST\d\d)=(.+)")
_RUN_GROUPS = {"server": SERVER, "deadlines and failures": (*FAILURES, "stop_when_lost"), "run": RUN}
_VERIFICATION = ("reference_data", "audit_configs", "non_official")


def _test_name(text: str) -> str:
    return ALL_TESTS if text.lower() == ALL_TESTS else text.upper()


@options
class VerificationOptions:
    """What both commands have in common. ``audit_configs`` hold ``FILE`` or ``TEST07=FILE``."""

    reference_data: Path | None = flag(
        "TEST07: file with dataset and ground_truth (default: the run's dataset, else the test's, which "
        "datasets/download.sh puts into data/)",
        default=None,
        metavar="FILE",
    )
    audit_configs: tuple[str, ...] = flag(
        "audit.config with the settings and thresholds to use (default: the official ones)",
        "--audit-config",
        default=(),
        metavar="[TEST=]FILE",
    )
    non_official: bool = flag(
        "allow other datasets, settings and models than the rules'; no submission can use the result",
        "--rehearsal",
        "--non-official",
        default=False,
    )


@options
class _RunOfTest(RunOptions):
    min_replicas: int | None = min_replicas_flag()
    output_dir: Path | None = results_flag("logs are written to DIR/<scenario>/<TEST>/")


@options
class ComplianceOptions(VerificationOptions):
    """Tests to run. ``input_files`` hold ``FILE`` or ``TEST07=FILE``.

    ``run`` holds what the runs have in common, so that it has no dataset.
    """

    tests: tuple[str, ...] = flag(
        "test to run, such as TEST07; repeat the flag for several; 'all': each that the benchmark needs",
        "--test",
        action="append",
        type=_test_name,
        metavar="TEST",
    )
    input_files: tuple[str, ...] = flag(
        "tokenized dataset of the test (parquet, pickle or JSON file; default: the test's, which "
        "datasets/download.sh puts into data/); for several tests give TEST07=FILE and TEST09=FILE",
        "--input-file",
        default=(),
        metavar="[TEST=]FILE",
    )
    reference_data: Path | None = flag(
        "TEST07: file with dataset and ground_truth (default: the test's --input-file)",
        default=None,
        metavar="FILE",
    )
    run: RunOptions


@options
class VerifyOptions(VerificationOptions):
    """Logs to verify. ``benchmark``, ``round`` and ``scenario`` None: those that the logs name."""

    test: str = flag("test to verify, such as TEST07", "test", type=str.upper, metavar="TEST")
    log_dir: Path = flag("folder of mlperf_log_{accuracy.json,summary.txt,detail.txt}", metavar="DIR")
    benchmark: str | None = benchmark_flag(None, f"that of the run, else {DEFAULT_BENCHMARK}")
    round: str | None = round_flag(of_run=True)
    scenario: Scenario | None = scenario_flag(None, shown="scenario of the logs")
    output_dir: Path | None = flag(
        "write the verified folder to DIR/<TEST>/ (default: print only)",
        "--results",
        "--output-dir",
        default=None,
        metavar="DIR",
    )

    def __post_init__(self) -> None:
        if self.scenario is not None:
            object.__setattr__(self, "scenario", Scenario.parse(self.scenario))


@built_once
def build_run_parser() -> Parser:
    """Flags of compliance runs, most of them those of run_mlperf.py."""
    parser = Parser(
        prog=called("run_compliance.py"),
        synonyms=SYNONYMS,
        elsewhere=ELSEWHERE | LOADGEN,
        description="Run MLPerf compliance tests against a running server and verify them. "
        "With the word verify before the flags it verifies the logs of an earlier run.",
        epilog=_CODES,
    )
    workload = parser.add_argument_group("workload")
    add_flags(workload, ComplianceOptions, ("tests",))
    add_flags(workload, RunOptions, ("scenario", "benchmark", "round", "restart"))
    add_flags(workload, ComplianceOptions, ("input_files", *_VERIFICATION))
    add_flags(workload, RunOptions, SETTINGS)
    add_groups(parser, _RunOfTest, _RUN_GROUPS)
    return parser


def build_verify_parser() -> argparse.ArgumentParser:
    """Flags of the verification of existing logs."""
    parser = Parser(
        prog=f"{called('run_compliance.py')} verify",
        synonyms=SYNONYMS,
        description="Verify the logs of a compliance run, of this harness or another.",
        epilog=_VERIFY_CODES,
    )
    groups = {
        "": ("test", "log_dir", "output_dir"),
        "what was run": ("scenario", "benchmark", "round"),
        "verification": _VERIFICATION,
    }
    add_groups(parser, VerifyOptions, groups)
    return parser


def parse_options(argv: list[str]) -> ComplianceOptions | VerifyOptions:
    """Parse flags of tests to run or of logs to verify; argparse exits with code 2 on wrong usage."""
    if argv[:1] == [VERIFY]:
        return read(VerifyOptions, vars(build_verify_parser().parse_args(argv[1:])))
    given = parsed(build_run_parser(), argv)
    return read(ComplianceOptions, given | {"run": read(RunOptions, given)})


def files_by_test(flag: str, values: Sequence[str], tests: Sequence[str]) -> dict[str, Path]:
    """The file of each test: ``FILE`` where there is one test, else ``TEST07=FILE``. Raises ConfigError."""
    found: dict[str, Path] = {}
    for value in values:
        named = _FOR_TEST.fullmatch(value)
        if named is None and len(tests) > 1:
            raise ConfigError(
                f"{flag} {value}: {len(tests)} tests were asked for; name the test of each file, "
                f"{' and '.join(f'{flag} {test}=FILE' for test in tests)}"
            )
        test, file = (named[1], named[2]) if named else (tests[0], value)
        if test not in tests:
            raise ConfigError(f"{flag} {value}: {test} was not asked for, only {', '.join(tests)}; remove it")
        if test in found:
            raise ConfigError(f"{flag} names two files for {test}: {found[test]} and {file}; remove one")
        found[test] = Path(file)
    return found
