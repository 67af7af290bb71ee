"""The commands of report.py."""

import logging
from collections.abc import Iterator
from pathlib import Path

from harness.analysis.run_files import read_run
from harness.cli.streams import require_stdout
from harness.errors import ConfigError, DatasetError, machine_failure
from harness.files import (
    JOURNAL_DIR,
    REPORT,
    REQUESTS,
    RUN_RECORD,
    SUMMARY,
    atomic_write,
    explained_write,
    require_own,
)
from harness.progress import watch_screen
from harness.record.run_record import RunRecord
from harness.report import runs_table
from harness.report.html.compare_page import compare_lines, compare_page, compared
from harness.report.html.overview_page import overview_page
from harness.report.outcomes import read_outcomes
from harness.report.report_options import (
    STDOUT,
    CompareOptions,
    HtmlOptions,
    ListOptions,
    ReportOptions,
    WatchOptions,
)
from harness.report.run_report import page_of, write_or_explain
from harness.text import first_few, show

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
        try:
            _complete(run)
            page = page_of(run)
        except (ConfigError, DatasetError) as error:
            if len(runs) == 1:
                raise
            raise ConfigError(f"{error}; without it: name the folders of the others") from error
        path = options.output or run / REPORT
        write_or_explain(path, page)
        show(str(path))


def _complete(folder: Path) -> None:
    """Write the table of requests that a full disk kept from a run."""
    if (folder / REQUESTS).exists() or not all(
        (folder / name).exists() for name in (RUN_RECORD, JOURNAL_DIR)
    ):
        return
    from harness.analysis.finish_run import add_requests  # the end of a run, which few pages need

    try:
        add_requests(folder, RunRecord.read(folder / RUN_RECORD))
    except OSError as error:
        log.warning("no %s: %s", REQUESTS, machine_failure(error))


def compare(options: CompareOptions) -> None:
    """Print the table of differences and write the page."""
    found = compared([read_run(_one_run(folder)) for folder in options.folders])
    show(*compare_lines(found))
    write_or_explain(options.output, compare_page(found))
    show(str(options.output))


def list_runs(options: ListOptions) -> None:
    """Print the table of all runs in the folders; write the files that are asked for."""
    outcomes = read_outcomes(options.folders)
    if options.csv is not None:
        require_own(options.csv, runs_table.CSV_BEGIN, "table of runs", "--csv")
        with explained_write(options.csv, "--csv"):
            runs_table.write_csv(options.csv, outcomes)
    if options.output is not None:
        write_or_explain(options.output, overview_page(outcomes, options.output.parent))
    if options.json is not None:
        _write_json(options.json, runs_table.as_json(outcomes))
        return
    show(*runs_table.table_lines(outcomes, options.folders))
    if options.output is not None:
        show(f"Overview: {options.output}")


def _write_json(path: Path, text: str) -> None:
    if path == STDOUT:
        print(text)
        require_stdout()
        return
    require_own(path, runs_table.JSON_BEGIN, "table of runs", "--json")
    with explained_write(path, "--json"), atomic_write(path) as file:
        file.write(f"{text}\n".encode())


def _one_run(folder: Path) -> Path:
    """The only run in a folder."""
    runs = tuple(_runs_in(folder))
    if len(runs) > 1:
        raise ConfigError(f"{folder}: {len(runs)} runs in it ({first_few(runs, 3)}); name the folder of one")
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
