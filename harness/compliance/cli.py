"""The command line of run_compliance.py. Imports stay light, so that ``--help`` is fast."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cli import run_flags
from harness.cli.parser import SIGNAL_CODES, Parser, path
from harness.config.run_options import RunOptions
from harness.config.scenario import Scenario
from harness.errors import ConfigError

VERIFY = "verify"
ALL_TESTS = "all"
_CODES = (
    "Exit codes: 0 test passed, 5 test failed, 2 usage, config, dataset or unusable logs, 3 server, "
    f"4 the run is INVALID or has failures, {SIGNAL_CODES}."
)
_FOR_TEST = re.compile(r"(TEST\d\d)=(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplianceOptions:
    """Tests to run. ``input_files`` and ``audit_configs`` hold ``FILE`` or ``TEST07=FILE``.

    ``run`` holds what the runs have in common; the dataset in it stands for that of each test.
    """

    tests: tuple[str, ...]
    input_files: tuple[str, ...]
    run: RunOptions
    audit_configs: tuple[str, ...] = ()
    reference_data: Path | None = None
    non_official: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Logs to verify. ``scenario`` None: the one that the logs name."""

    test: str
    log_dir: Path
    benchmark: str = run_flags.DEFAULTS["benchmark"]
    round: str = run_flags.DEFAULTS["round"]
    scenario: Scenario | None = None
    audit_configs: tuple[str, ...] = ()
    reference_data: Path | None = None
    non_official: bool = False
    output_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.scenario is not None:
            object.__setattr__(self, "scenario", Scenario.parse(self.scenario))


def build_run_parser() -> Parser:
    """Flags of compliance runs, most of them those of run_mlperf.py."""
    parser = Parser(
        prog="run_compliance.py",
        synonyms=run_flags.SYNONYMS,
        description="Run MLPerf compliance tests against a running server and verify them. "
        "For logs of an earlier run: 'run_compliance.py verify --help'.",
        epilog=_CODES,
    )
    workload = parser.add_argument_group("workload")
    workload.add_argument(
        "--test",
        action="append",
        required=True,
        type=_test_name,
        metavar="TEST",
        help="test to run, such as TEST07; repeat the flag for several; 'all': each that the benchmark needs",
    )
    run_flags.add_scenario(workload)
    workload.add_argument(
        "--input-file",
        action="append",
        required=True,
        metavar="[TEST=]FILE",
        help="tokenized dataset of the test (parquet, pickle or JSON file); for several tests give one each, "
        "TEST07=FILE and TEST09=FILE",
    )
    _add_verification(workload, "the test's --input-file")
    run_flags.add_settings(workload)
    run_flags.add_server(parser.add_argument_group("server"))
    run_flags.add_failures(parser.add_argument_group("deadlines and failures"))
    run_flags.add_run(parser.add_argument_group("run"), "DIR/<scenario>/<TEST>/")
    parser.set_defaults(**run_flags.DEFAULTS)
    return parser


def build_verify_parser() -> argparse.ArgumentParser:
    """Flags of the verification of existing logs."""
    parser = Parser(
        prog="run_compliance.py verify",
        synonyms=run_flags.SYNONYMS,
        description="Verify the logs of a compliance run, of this harness or another.",
        epilog=_CODES,
    )
    parser.add_argument("test", type=str.upper, metavar="TEST", help="test to verify, such as TEST07")
    parser.add_argument(
        "--log-dir",
        type=path,
        metavar="DIR",
        required=True,
        help="folder of mlperf_log_{accuracy.json,summary.txt,detail.txt}",
    )
    run_flags.add_scenario(parser.add_argument_group("what was run"), "scenario of the logs")
    parser.set_defaults(benchmark=run_flags.DEFAULTS["benchmark"], round=run_flags.DEFAULTS["round"])
    _add_verification(parser.add_argument_group("verification"), "none")
    parser.add_argument(
        "--output-dir",
        type=path,
        metavar="DIR",
        help="write the verified folder to DIR/<TEST>/ (default: print only)",
    )
    return parser


def _test_name(text: str) -> str:
    return ALL_TESTS if text.lower() == ALL_TESTS else text.upper()


def _add_verification(group: argparse._ArgumentGroup, default_reference: str) -> None:
    group.add_argument(
        "--reference-data",
        type=path,
        metavar="FILE",
        help=f"TEST07: file with dataset and ground_truth (default: {default_reference})",
    )
    group.add_argument(
        "--audit-config",
        action="append",
        metavar="[TEST=]FILE",
        help="audit.config with the settings and thresholds to use (default: the official ones)",
    )
    group.add_argument(
        "--non-official",
        action="store_true",
        help="allow other datasets, settings and models than the rules'; no submission can use the result",
    )


def parse_options(argv: list[str] | None = None) -> ComplianceOptions | VerifyOptions:
    """Parse flags of tests to run or of logs to verify; argparse exits with code 2 on wrong usage."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == [VERIFY]:
        given = vars(build_verify_parser().parse_args(words[1:]))
        given["audit_configs"] = tuple(given.pop("audit_config") or ())
        return VerifyOptions(**given)
    given = run_flags.parsed(build_run_parser(), words)
    return ComplianceOptions(
        tests=tuple(given["test"]),
        input_files=tuple(given["input_file"]),
        audit_configs=tuple(given["audit_config"] or ()),
        reference_data=given["reference_data"],
        non_official=given["non_official"],
        run=run_flags.run_options(given | {"input_file": given["input_file"][0], "audit_config": None}),
    )


def files_by_test(flag: str, values: Sequence[str] | None, tests: Sequence[str]) -> dict[str, Path]:
    """The file of each test: ``FILE`` is for every test, ``TEST07=FILE`` for one. Raises ConfigError."""
    found: dict[str, Path] = {}
    for value in values or ():
        named = _FOR_TEST.fullmatch(value)
        if named is None and len(tests) > 1:
            raise ConfigError(
                f"{flag} {value}: {len(tests)} tests were asked for; name the test of each file, "
                f"{' and '.join(f'{flag} {test}=FILE' for test in tests)}"
            )
        test, path = (named[1], named[2]) if named else (tests[0], value)
        if test not in tests:
            raise ConfigError(f"{flag} {value}: {test} was not asked for, only {', '.join(tests)}")
        if test in found:
            raise ConfigError(f"{flag} names two files for {test}: {found[test]} and {path}")
        found[test] = Path(path)
    return found
