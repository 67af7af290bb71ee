"""What run_compliance.py does: run each test and verify it, or verify logs that exist already."""

import argparse
from collections.abc import Callable
from pathlib import Path

from harness.benchmark import LOADGEN_SCENARIO, load_benchmark
from harness.compliance.folder import write_folder
from harness.compliance.rules import RUN_FOLDER, rule_of
from harness.compliance.run_logs import is_complete, read_detail_log
from harness.compliance.verification import Question, Verification, verify
from harness.compliance_cli import files_by_test
from harness.compliance_plan import ComplianceRun, audit_of, resolve_runs
from harness.errors import EXIT_INVALID, EXIT_THRESHOLD, EXIT_VALID, ConfigError
from harness.output_dir import make_room, release_reserve
from harness.plan import RunPlan
from harness.report.printable import printable

_GO_ON = (EXIT_VALID, EXIT_INVALID, EXIT_THRESHOLD)


def run_tests(arguments: argparse.Namespace, run: Callable[[RunPlan], int]) -> int:
    """Run the tests one after another with ``run``; the exit code is that of the first that did not pass.

    Every dataset and setting is checked before the first test starts. Raises HarnessError.
    """
    first = EXIT_VALID
    for item in resolve_runs(arguments):
        code = run(item.plan)
        if not item.plan.dry_run:
            code = _verify_run(item, code)
        if code not in _GO_ON:
            return code
        first = first or code
    return first


def _verify_run(item: ComplianceRun, code: int) -> int:
    """The exit code of a test whose run ended with ``code``; a slow run counts, one with failures not."""
    log_dir = item.plan.log_dir
    if code == EXIT_VALID or (code == EXIT_INVALID and is_complete(log_dir)):
        return _conclude(item.question, verify(item.question), item.folder)
    if code == EXIT_INVALID:
        print(f"{item.test} has no verdict: its run is not whole; see {log_dir}", flush=True)
    return code


def verify_logs(arguments: argparse.Namespace) -> int:
    """Verify the logs in --log-dir. Returns the exit code; raises HarnessError."""
    rule = rule_of(load_benchmark(arguments.benchmark), arguments.test)
    audits = files_by_test("--audit-config", arguments.audit_config, (rule.test,))
    log_dir: Path = arguments.log_dir.absolute()
    named = None if arguments.scenario is None else LOADGEN_SCENARIO[arguments.scenario]
    scenario = read_detail_log(log_dir).effective.get("scenario") or named
    question = Question(
        benchmark=load_benchmark(arguments.benchmark),
        rule=rule,
        audit=audit_of(rule, audits.get(rule.test), scenario),
        log_dir=log_dir,
        references=arguments.reference_data,
        official=not arguments.non_official,
        scenario=scenario,
    )
    folder = None if arguments.output_dir is None else arguments.output_dir.absolute() / rule.test
    if folder is not None:
        _refuse_overlap(folder, log_dir)
    return _conclude(question, verify(question), folder)


def _refuse_overlap(folder: Path, log_dir: Path) -> None:
    """A folder that holds the logs would be cleared of them."""
    if log_dir.is_relative_to(folder) and log_dir != folder / RUN_FOLDER:
        raise ConfigError(f"--output-dir: {folder} holds the logs that are verified; choose another folder")


def _conclude(question: Question, found: Verification, folder: Path | None) -> int:
    """Print the verdict, write the folder where there is one to write, and give the exit code."""
    test, verdict = question.rule.test, found.verdict
    for note in found.notes:
        print(f"NOTE {printable(note, 500)}")
    if found.troubles:
        print(f"{test} has no verdict: {printable('; '.join(found.troubles), 800)} (else: {verdict.summary})")
        return EXIT_INVALID
    reasons = () if question.official else _reasons(question, found)
    for reason in reasons:
        print(f"NOT OFFICIAL: {printable(reason, 300)}")
    said = f"{'TEST' if question.official else 'NOT OFFICIAL'} {'PASS' if verdict.passed else 'FAIL'}"
    where = "" if folder is None else f"; {_write(question, found, folder, reasons)}"
    print(f"{test}: {said}: {verdict.summary}{where}", flush=True)
    return EXIT_VALID if verdict.passed else EXIT_THRESHOLD


def _write(question: Question, found: Verification, folder: Path, reasons: tuple[str, ...]) -> Path:
    if not question.log_dir.is_relative_to(folder):
        make_room(folder)
        release_reserve(folder)
    return write_folder(folder, question.log_dir, question.rule.test, found.verdict, reasons)


def _reasons(question: Question, found: Verification) -> tuple[str, ...]:
    """Why a result under --non-official is not official; never empty."""
    wanted = question.rule.dataset.samples
    counts = (
        (f"{found.samples} samples, {question.rule.test} has {wanted}",) if found.samples != wanted else ()
    )
    return found.deviations or counts or ("--non-official was given",)
