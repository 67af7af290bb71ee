"""What run_compliance.py does: run each test and verify it, or verify logs that exist already."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.compliance.cli import ComplianceOptions, VerifyOptions, files_by_test
from harness.compliance.output_folder import write_folder
from harness.compliance.plan import ComplianceRun, audit_of, resolve_runs
from harness.compliance.rules import RUN_FOLDER, rule_of
from harness.compliance.run_logs import ACCURACY_LOG, is_complete, log_file, logs_in, read_detail_log
from harness.compliance.verify import Question, Verification, verify
from harness.config.benchmark import load_benchmark
from harness.config.plan import RunPlan
from harness.errors import EXIT_INVALID, EXIT_THRESHOLD, EXIT_VALID, ConfigError
from harness.record.output_dir import make_room, release_reserve
from harness.text import printable

_GO_ON = (EXIT_VALID, EXIT_INVALID, EXIT_THRESHOLD)


@dataclass(frozen=True, slots=True)
class Ended:
    """How one test ended: its exit code, one word, the figures and the verification file."""

    code: int
    verdict: str
    summary: str
    path: Path | None = None


def run_tests(options: ComplianceOptions, run: Callable[[RunPlan], int]) -> int:
    """Run the tests one after another with ``run``; the exit code is that of the first that did not pass.

    Every dataset and setting is checked before the first test starts. Raises HarnessError.
    """
    items = resolve_runs(options)
    ended: dict[str, Ended] = {}
    try:
        for item in items:
            code = run(item.plan)
            ended[item.test] = Ended(code, "no verdict", f"exit code {code}")
            if not item.plan.dry_run:
                ended[item.test] = _verify_run(item, code)
            if ended[item.test].code not in _GO_ON:
                break
    finally:
        if len(items) > 1 and not items[0].plan.dry_run:
            _print_table(items, ended)
    codes = [one.code for one in ended.values()]
    return next((code for code in codes if code not in _GO_ON), next(filter(None, codes), EXIT_VALID))


def _print_table(items: Sequence[ComplianceRun], ended: Mapping[str, Ended]) -> None:
    """All verdicts together: the runs' own reports stand between them."""
    print(f"\n{'test':8}{'verdict':20}")
    for item in items:
        one = ended.get(item.test, Ended(EXIT_INVALID, "not run", ""))
        where = "" if one.path is None else f"; {one.path}"
        print(f"{item.test:8}{one.verdict:20}{one.summary}{where}", flush=True)


def _verify_run(item: ComplianceRun, code: int) -> Ended:
    """How a test ended whose run ended with ``code``; a slow run counts, one with failures not."""
    log_dir = item.plan.log_dir
    if code == EXIT_VALID or (code == EXIT_INVALID and is_complete(log_dir)):
        return _conclude(item.question, verify(item.question), item.folder)
    if code == EXIT_INVALID:
        print(f"{item.test} has no verdict: its run is not complete; see {log_dir}", flush=True)
        return Ended(code, "no verdict", f"its run is not complete; see {log_dir}")
    return Ended(code, "no verdict", f"exit code {code}")


def verify_logs(options: VerifyOptions) -> int:
    """Verify the logs in --log-dir. Returns the exit code; raises HarnessError."""
    rule = rule_of(load_benchmark(options.benchmark), options.test)  # type: ignore[arg-type]
    audits = files_by_test("--audit-config", options.audit_configs, (rule.test,))
    log_dir = logs_in(options.log_dir.absolute())
    named = None if options.scenario is None else options.scenario.loadgen
    scenario = read_detail_log(log_dir).effective.get("scenario") or named
    question = Question(
        benchmark=load_benchmark(options.benchmark),
        rule=rule,
        audit=audit_of(rule, audits.get(rule.test), scenario),
        log_dir=log_dir,
        references=options.reference_data,
        official=not options.non_official,
        scenario=scenario,
    )
    folder = None if options.output_dir is None else options.output_dir.absolute() / rule.test
    if folder is not None:
        _refuse_overlap(folder, log_file(log_dir, ACCURACY_LOG).parent)
    return _conclude(question, verify(question), folder).code


def _refuse_overlap(folder: Path, log_dir: Path) -> None:
    """A folder that holds the logs would be cleared of them."""
    if log_dir.is_relative_to(folder) and log_dir != folder / RUN_FOLDER:
        raise ConfigError(f"--output-dir: {folder} holds the logs that are verified; choose another folder")


def _conclude(question: Question, found: Verification, folder: Path | None) -> Ended:
    """Print the verdict and write the folder where there is one to write."""
    test, verdict = question.rule.test, found.verdict
    for note in found.notes:
        print(f"NOTE {printable(note, 500)}")
    if found.troubles:
        why = printable("; ".join(found.troubles), 800)
        print(f"{test} has no verdict: {why} (else: {verdict.summary})")
        return Ended(EXIT_INVALID, "no verdict", why)
    reasons = () if question.official else _reasons(question, found)
    # The plan of a run that was just made has named each of its deviations.
    for reason in reasons if not (question.own and found.deviations) else ():
        print(f"NOT OFFICIAL: {printable(reason, 300)}")
    said = f"{'TEST' if question.official else 'NOT OFFICIAL'} {'PASS' if verdict.passed else 'FAIL'}"
    path = None if folder is None else _write(question, found, folder, reasons)
    where = "" if path is None else f"; {path}"
    print(f"{test}: {said}: {verdict.summary}{where}", flush=True)
    return Ended(EXIT_VALID if verdict.passed else EXIT_THRESHOLD, said, verdict.summary, path)


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
