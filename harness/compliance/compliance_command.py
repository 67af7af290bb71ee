"""The two commands of run_compliance.py: run tests and verify them, or verify existing logs."""

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from harness.compliance.base import ComplianceTest, TestResult
from harness.compliance.compliance_options import ComplianceOptions, VerifyOptions, files_by_test
from harness.compliance.compliance_plan import ComplianceRun, resolve_runs
from harness.compliance.registry import TESTS, find_test, unused_references
from harness.compliance.run_logs import log_file, logs_in, read_detail_log
from harness.compliance.verify import VerifyRequest, VerifyResult, verify
from harness.config.benchmark import load_benchmark
from harness.config.choices import DEFAULT_BENCHMARK
from harness.config.plans import RunPlan
from harness.errors import EXIT_INVALID, EXIT_THRESHOLD, EXIT_VALID, ConfigError, HarnessError, refused
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    COMPLIANCE_RUN,
    DETAIL,
    PERFORMANCE,
    SUMMARY,
    atomic_write,
    unofficial,
)
from harness.grading.evaluation.run_dataset import true_answers
from harness.record.output_dir import free_reserve, move_aside_existing, require_unlocked
from harness.record.resume import readable_run
from harness.record.run_record import RunRecord
from harness.text import printable, show

RunOfTest = Callable[[RunPlan, Callable[[RunRecord], bool]], RunRecord]
"""a run's record, from its plan and whether an earlier run of the plan is all that is needed"""
_CONTINUE = (EXIT_VALID, EXIT_INVALID, EXIT_THRESHOLD)


class TestVerdict(msgspec.Struct, frozen=True):
    """The end of one test."""

    code: int
    verdict: str
    summary: str
    """one line of figures, or why there is no verdict"""
    path: Path | None = None
    """the verification file"""


def run_tests(options: ComplianceOptions, run: RunOfTest) -> int:
    """Run the tests one after another with ``run``; the exit code is that of the first that did not pass.

    A test that has passed with the same settings is not run again, only verified again. Every dataset and
    setting is checked before the first test starts. Raises HarnessError.
    """
    items = resolve_runs(options)
    if not items:
        print(f"{options.run.benchmark} needs no compliance test")
        return EXIT_VALID
    ended: dict[str, TestVerdict] = {}
    try:
        for item in items:
            record = run(item.plan, partial(_has_passed, item))
            if item.plan.client.dry_run:
                continue
            code = record.exit_code
            ended[item.test] = TestVerdict(code, "no verdict", f"exit code {code}")
            ended[item.test] = _verify_run(item, record)
            if ended[item.test].code not in _CONTINUE:
                break
    finally:
        if len(items) > 1 and not items[0].plan.client.dry_run:
            _print_table(items, ended)
    codes = [one.code for one in ended.values()]
    return next((code for code in codes if code not in _CONTINUE), next(filter(None, codes), EXIT_VALID))


def _has_passed(item: ComplianceRun, _: RunRecord) -> bool:
    """Whether the logs of an earlier run with the same settings pass the test; those of none do not."""
    try:
        found = verify(item.request)
    except HarnessError:
        return False
    return found.result.passed and not found.errors


def _print_table(items: Sequence[ComplianceRun], ended: Mapping[str, TestVerdict]) -> None:
    """Repeat all verdicts at the end, since the reports of the runs stand between them."""
    print(f"\n{'test':8}verdict")
    for item in items:
        one = ended.get(item.test, TestVerdict(EXIT_INVALID, "not run", ""))
        where = "" if one.path is None else f"; {one.path}"
        show(f"{item.test:8}{one.verdict:20}{one.summary}{where}")


def _verify_run(item: ComplianceRun, record: RunRecord) -> TestVerdict:
    """Verify a run that has ended; a slow run counts, a run with failures does not."""
    log_dir, code = item.plan.client.log_dir, record.exit_code
    complete = record.verdict is not None and record.verdict.complete
    if code == EXIT_VALID or (code == EXIT_INVALID and complete):
        return _conclude(item.request, verify(item.request), item.folder)
    if code == EXIT_INVALID:
        why = f"its run is not complete; see {log_dir}"
        show(f"{item.test} has no verdict: {why}")
        return TestVerdict(code, "no verdict", why)
    return TestVerdict(code, "no verdict", f"exit code {code}")


def verify_logs(options: VerifyOptions) -> int:
    """Verify the logs in --log-dir. Returns the exit code; raises HarnessError."""
    log_dir = logs_in(options.log_dir.absolute())
    record = readable_run(log_dir)
    name, of_round = options.benchmark or DEFAULT_BENCHMARK, options.round
    if record is not None:
        of_run = record.plan.client.benchmark
        name, of_round = options.benchmark or of_run.name, of_round or of_run.round
    benchmark = load_benchmark(name, of_round)
    test = find_test(benchmark, options.test)
    audits = files_by_test("--audit-config", options.audit_configs, (test.name,))
    for warning in unused_references(options.reference_data, (test.name,)):
        show(f"WARNING {warning}")
    named = None if options.scenario is None else options.scenario.loadgen
    scenario = read_detail_log(log_dir).effective.get("scenario") or named
    if named not in (None, scenario):
        raise ConfigError(
            f"--scenario {options.scenario}: the logs in {log_dir} are of {scenario}; omit the flag, or pass "
            "the folder of the run that is meant"
        )
    request = VerifyRequest(
        benchmark=benchmark,
        test=test,
        audit=test.audit_config(audits.get(test.name), scenario),
        log_dir=log_dir,
        references=options.reference_data or true_answers(record, test.dataset),
        official=not options.non_official,
        scenario=scenario,
    )
    folder = None if options.output_dir is None else options.output_dir.absolute() / test.name
    if folder is not None:
        _refuse_overlap(folder, log_file(log_dir, ACCURACY_LOG).parent)
    return _conclude(request, verify(request), folder).code


def _refuse_overlap(folder: Path, log_dir: Path) -> None:
    """Writing the folder would delete the logs in it."""
    if log_dir.is_relative_to(folder) and log_dir != folder / COMPLIANCE_RUN:
        raise ConfigError(f"--results: {folder} holds the logs that are verified; choose another folder")


def _conclude(request: VerifyRequest, found: VerifyResult, folder: Path | None) -> TestVerdict:
    """Print the verdict and write the folder, if there is one to write."""
    name, result = request.test.name, found.result
    for warning in found.warnings:
        show(f"WARNING {warning}")
    if found.errors:
        why = printable("; ".join(found.errors), 800)
        show(f"{name} has no verdict: {why} (without that: {result.summary})")
        return TestVerdict(EXIT_INVALID, "no verdict", why)
    reasons = () if request.official else _reasons(request, found)
    # The plan of a run that was just made has named each of its deviations.
    for reason in reasons if not (request.own and found.deviations) else ():
        show(f"NOT OFFICIAL: {reason}")
    verdict = f"{'TEST' if request.official else 'NOT OFFICIAL'} {'PASS' if result.passed else 'FAIL'}"
    path = None if folder is None else _write(request, result, folder, reasons)
    where = "" if path is None else f"; {path}"
    show(f"{name}: {verdict}: {result.summary}{where}")
    return TestVerdict(EXIT_VALID if result.passed else EXIT_THRESHOLD, verdict, result.summary, path)


def _reasons(request: VerifyRequest, found: VerifyResult) -> tuple[str, ...]:
    """The reasons why a result under --rehearsal is not official; never empty."""
    test, wanted = request.test.name, request.test.dataset.samples
    counts = (f"{found.samples} samples, {test} has {wanted}",) if found.samples != wanted else ()
    return found.deviations or counts or ("--rehearsal was given",)


def _write(request: VerifyRequest, result: TestResult, folder: Path, reasons: tuple[str, ...]) -> Path:
    """Write the verified folder as a submission holds it; returns the path of the verification file.

    With ``reasons`` why the result is not official the file has another name, which no submission may use.
    An earlier verification is replaced. Raises ConfigError when the folder cannot be written; then nothing
    of it stays.
    """
    require_unlocked(folder)  # a run that is writing there would lose its folder
    if not request.log_dir.is_relative_to(folder):
        move_aside_existing(folder)
        free_reserve(folder)
    verify_file = folder / request.test.verify_file
    if reasons:
        verify_file = unofficial(verify_file)
    try:
        _clear(folder)
        _copy(request.log_dir, folder / ACCURACY, (ACCURACY_LOG,))
        _copy(request.log_dir, folder / PERFORMANCE, (SUMMARY, DETAIL))
        if result.scorecard:
            text = _marked(result.scorecard, request.test, reasons)
            (folder / ACCURACY / ACCURACY_TEXT).write_text(text, encoding="utf-8")
        with atomic_write(verify_file) as file:
            file.write(_marked(result.verify_text, request.test, reasons).encode())
    except OSError as error:
        with contextlib.suppress(OSError):
            _clear(folder)
        # Into another folder a repeated command would run the test again.
        kept = "make it writable, and repeat the command: it verifies the same run"
        remedy = kept if request.own else "choose another --results"
        raise ConfigError(f"{folder}: cannot write there: {refused(error, remedy)}") from error
    return verify_file


def _marked(text: str, test: ComplianceTest, reasons: tuple[str, ...]) -> str:
    """The verification text. A result with ``reasons`` is not official, and its line for a pass says so."""
    if not reasons:
        return text
    text = text.replace(test.pass_line, test.unofficial_pass_line)
    listed = [f"NOT OFFICIAL: {reason}" for reason in reasons]
    return "\n".join([*listed, "No submission may use this file.", "", text])


def _clear(folder: Path) -> None:
    """Remove an earlier verification, its verification file first; a run's own logs stay."""
    for stem in {Path(test.verify_file).stem for test in TESTS.values()}:
        for path in folder.glob(f"{stem}.*"):
            path.unlink()
    for name in (ACCURACY, PERFORMANCE.parent):
        shutil.rmtree(folder / name, ignore_errors=True)


def _copy(source: Path, target: Path, names: tuple[str, ...]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (path := log_file(source, name)).exists():
            shutil.copyfile(path, target / name)
