"""The page of a run, which it leaves at its end, and which later results are added to."""

import json
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.analysis.run_files import read_run
from harness.cli.commands import shown, start_of
from harness.defects import Defects
from harness.errors import HarnessError, RunError, explained, machine_failure
from harness.files import ACCURACY_RESULT, REPORT, RUN_RECORD, atomic_write, explained_write, require_own
from harness.record.accuracy_result import left_log_sha256
from harness.record.run_record import RunRecord
from harness.report.html.page import PAGE_BEGIN, Page, write_page
from harness.report.html.run_page import run_page
from harness.report.next_step import next_step
from harness.report.outcomes import outcome_of
from harness.text import show

log = logging.getLogger("mlperf")


def page_of(folder: Path) -> Page:
    """The page of the run in a folder. Raises HarnessError for files that cannot be read."""
    run = read_run(folder)
    if run.record is None:
        return run_page(run)
    outcome = outcome_of(folder, run.record)
    is_judged = outcome.score is not None or outcome.compliance is not None
    return run_page(run, outcome, "" if is_judged else next_step(run.record, elsewhere=True))


def write_or_explain(path: Path, page: Page) -> None:
    """Write a page. Raises ConfigError where it cannot be written, and for a file that is no page."""
    require_own(path, PAGE_BEGIN, "page", "--output")
    with explained_write(path, "--output"):
        write_page(path, page)


def write_report_of(record: RunRecord) -> None:
    """Write report.html beside a run's other files and print where.

    A failure is only a warning: the run is complete, and its exit code is that of its verdict.
    """
    folder = record.plan.client.log_dir
    try:
        if _write_beside(folder):
            show(f"Report: {folder / REPORT}")
    except HarnessError as error:
        log.warning("warning: no %s: %s", REPORT, error)


def add_verdict(record: RunRecord) -> None:
    """Write the page of a compliance run again, once its test was verified; a failure is only a warning."""
    page = record.plan.client.log_dir / REPORT
    try:
        if page.is_file():
            _write_beside(page.parent)
    except HarnessError as error:
        log.warning("warning: the verdict is not in %s: %s", page, error)


def add_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Write the evaluator's result of the log that a run left into its folder, and its page where it has one.

    Folders without run.json are not changed; a failure is only a warning.
    """
    if not (folder / RUN_RECORD).is_file():
        return
    try:
        with atomic_write(folder / ACCURACY_RESULT) as file:
            own = {**result, "accuracy_log_sha256": left_log_sha256(folder)}
            file.write((json.dumps(own, indent=2) + "\n").encode())
        if (folder / REPORT).is_file():
            _write_beside(folder)
    except (OSError, HarnessError) as error:
        cause = explained(error, folder / ACCURACY_RESULT)
        log.warning("warning: the result is not in %s: %s", folder / REPORT, cause)


def _write_beside(folder: Path) -> bool:
    """Write report.html beside a run's other files; returns whether no defect of ours prevented it.

    Raises HarnessError with the command that repeats it.
    """
    defects = Defects()
    try:
        with defects.cost(REPORT):
            write_page(folder / REPORT, page_of(folder))
    except OSError as error:
        command = shlex.join((*start_of("report.py"), "show", str(shown(folder))))
        raise RunError(f"{machine_failure(error)}; then: {command}") from None
    return not defects.found
