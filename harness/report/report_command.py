"""The commands of report.py, and the page that a run leaves at its end."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.analysis.run_files import read_run
from harness.analysis.run_outcome import RunOutcome
from harness.errors import ConfigError, HarnessError, machine_failure
from harness.files import ACCURACY_RESULT, REPORT, RUN_RECORD, SUMMARY, atomic_write
from harness.progress import watch_screen
from harness.record.run_record import RunRecord
from harness.report import runs_table
from harness.report.html.compare_page import compare_lines, compare_page
from harness.report.html.overview_page import overview_page
from harness.report.html.page import Page, write_page
from harness.report.html.run_page import run_page
from harness.report.next_step import next_step
from harness.report.outcomes import read_outcome, read_outcomes
from harness.report.report_options import (
    STDOUT,
    CompareOptions,
    HtmlOptions,
    ListOptions,
    ReportOptions,
    WatchOptions,
)
from harness.text import show

log = logging.getLogger("mlperf")


def run(options: ReportOptions) -> None:
    """Run one command of report.py. Raises HarnessError."""
    match options:
        case HtmlOptions():
            html(options)
        case CompareOptions():
            compare(options)
        case WatchOptions():
            watch_screen.watch(options.folder)
        case ListOptions():
            list_runs(options)


def html(options: HtmlOptions) -> None:
    """Write the page of every run in the folders. Raises ConfigError where a folder has none."""
    runs = tuple(dict.fromkeys(run for folder in options.folders for run in _runs_in(folder)))
    if options.output is not None and len(runs) > 1:
        raise ConfigError(f"--output takes the page of one run, the folders have {len(runs)}; omit it")
    for run in runs:
        path = options.output or run / REPORT
        write_report(run, path)
        show(str(path))


def compare(options: CompareOptions) -> None:
    """Print the table of differences and write the page."""
    runs = [read_run(_one_run(folder)) for folder in options.folders]
    show(*compare_lines(runs))
    _write(options.output, compare_page(runs))
    show(str(options.output))


def list_runs(options: ListOptions) -> None:
    """Print the table of all runs in the folders, and write their overview."""
    outcomes = read_outcomes(options.folders)
    if options.csv is not None:
        try:
            runs_table.write_csv(options.csv, outcomes)
        except OSError as error:
            raise ConfigError(f"--csv {options.csv}: cannot be written: {machine_failure(error)}") from None
    if options.output is not None:
        _write(options.output, overview_page(outcomes, options.output.parent))
    if options.json is not None:
        _write_json(options.json, runs_table.as_json(outcomes))
        return
    show(*runs_table.table_lines(outcomes, options.folders))
    if options.output is not None:
        show(f"Overview: {options.output}")


def _write_json(path: Path, text: str) -> None:
    if path == STDOUT:
        print(text)
        return
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {path}: cannot be written: {machine_failure(error)}") from None


def write_report(folder: Path, path: Path) -> None:
    """Write the page of the run in a folder. Raises HarnessError for files that cannot be read or written."""
    run = read_run(folder)
    outcome = None if run.record is None else read_outcome(folder)
    _write(path, run_page(run, outcome, "" if outcome is None else _next_step(outcome)))


def _next_step(outcome: RunOutcome) -> str:
    """The command that scores or resumes an accuracy run."""
    if outcome.record is None or outcome.score is not None or outcome.compliance is not None:
        return ""
    return next_step(outcome.record)


def _write(path: Path, page: Page) -> None:
    try:
        write_page(path, page)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {machine_failure(error)}") from None


def write_report_of(record: RunRecord) -> None:
    """Write report.html beside a run's other files and print where.

    A failure is only a warning: the run is complete, and its exit code is that of its verdict.
    """
    folder = record.plan.client.log_dir
    try:
        write_report(folder, folder / REPORT)
    except HarnessError as error:
        log.warning("warning: no %s: %s", REPORT, error)
    except Exception:
        log.exception("warning: no %s, because of a defect of this program", REPORT)
    else:
        show(f"Report: {folder / REPORT}")


def add_verdict(record: RunRecord) -> None:
    """Write the page of a compliance run again, once its test was verified; a failure is only a warning."""
    page = record.plan.client.log_dir / REPORT
    try:
        if page.is_file():
            write_report(page.parent, page)
    except HarnessError as error:
        log.warning("warning: the verdict is not in %s: %s", page, error)


def add_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Write the evaluator's result into the folder of a run, and its page again where it has one.

    Folders without run.json are not changed; a failure is only a warning.
    """
    if not (folder / RUN_RECORD).is_file():
        return
    try:
        with atomic_write(folder / ACCURACY_RESULT) as file:
            file.write((json.dumps(result, indent=2) + "\n").encode())
        if (folder / REPORT).is_file():
            write_report(folder, folder / REPORT)
    except (OSError, HarnessError) as error:
        log.warning("warning: the result is not in %s: %s", folder / REPORT, error)


def _one_run(folder: Path) -> Path:
    """The only run in a folder."""
    runs = tuple(_runs_in(folder))
    if len(runs) > 1:
        shown = ", ".join(map(str, runs[:3]))
        raise ConfigError(f"{folder}: {len(runs)} runs in it ({shown}); name the folder of one")
    return runs[0]


def _runs_in(folder: Path) -> Iterator[Path]:
    """The folder itself, or all folders of runs below it."""
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: no such folder; pass the folder of a run, such as DIR/server/performance"
        )
    if _is_run(folder):
        yield folder
        return
    found = sorted({path.parent for name in (RUN_RECORD, SUMMARY) for path in folder.rglob(name)})
    if not found:
        raise ConfigError(f"{folder}: no run in it, expected a folder with {SUMMARY} or {RUN_RECORD}")
    yield from found


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (RUN_RECORD, SUMMARY))
