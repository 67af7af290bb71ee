"""What a finished search found, and its run as the performance run that it is."""

import shutil
from pathlib import Path

from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import PROGRESS, RUN_RECORD, link_or_copy
from harness.peak.ladder.ladder_plan import FOLDER
from harness.peak.search.conclusion import Conclusion
from harness.peak.search.offline_rate import (
    SHORT_RUN,
    OfflineRate,
    rate_by_run,
    read_offline_rate,
    withdraw_offline_rate,
    write_offline_rate,
)
from harness.peak.search.search_state import (
    PROBE_FOLDER,
    SEARCH_FOLDER,
    SEARCH_STATE,
    SearchState,
    read_state,
)
from harness.record.output_dir import free_reserve, move_aside_existing, require_unlocked
from harness.record.run_record import RunRecord


def search_folder(runs: Path) -> Path:
    """The folder of a scenario's searches, by that of its runs."""
    return runs.parent / FOLDER / runs.name


def found_rate(folder: Path, scenario: Scenario) -> float | None:
    """The rate that a search in ``peak/SCENARIO`` found; None before that."""
    if scenario is Scenario.OFFLINE:
        return read_offline_rate(folder)
    conclusion = concluded(folder)
    return None if conclusion is None else conclusion.rate


def concluded(folder: Path) -> Conclusion | None:
    """The result of a search that has ended by itself; None of one that the next call continues.

    A search that was interrupted has a rate, too: the highest that had passed until then. Raises ConfigError.
    """
    state = search_state(folder)
    found = None if state is None else state.conclusion
    return None if found is None or found.outcome in ("INTERRUPTED", "ERROR") else found


def search_state(folder: Path) -> SearchState | None:
    """The state of a search of a latency-bound scenario; None where there is none. Raises ConfigError."""
    return read_state(folder / SEARCH_FOLDER) if (folder / SEARCH_FOLDER / SEARCH_STATE).is_file() else None


def was_too_short(record: RunRecord) -> bool:
    """Whether an Offline run had all its answers before the least duration: its rate was found too low."""
    complete = record.verdict is not None and record.verdict.complete
    unmet = record.loadgen is not None and record.loadgen.constraints.get("Min duration") is False
    return complete and unmet and record.plan.scenario.one_query


def correct_offline_rate(folder: Path, run: Path, record: RunRecord) -> OfflineRate:
    """Replace the rate of the short run in ``peak/offline`` by that of a longer one that was too short.

    Raises OSError.
    """
    found = rate_by_run(record, record, run)
    withdraw_offline_rate(folder)
    write_offline_rate(folder, found)
    return found


def latest_run(folder: Path) -> Path | None:
    """The run that a search in ``peak/SCENARIO`` makes now, or was cut off in; None where it makes none."""
    try:
        state = search_state(folder)
    except ConfigError:
        return None
    runs = sorted(path.parent for path in (folder / SEARCH_FOLDER).glob(f"{PROBE_FOLDER}*/*/*/{PROGRESS}"))
    if state is None or not runs:
        return None
    last = runs[-1]
    known = {one.folder for one in state.history.probes}
    return None if last.relative_to(folder / SEARCH_FOLDER).as_posix() in known else last


def submitted_run(folder: Path) -> Path | None:
    """The folder of the VALID run at the found rate; None where there is none."""
    conclusion = concluded(folder)
    if conclusion is None or conclusion.folder is None:
        return None
    found = folder / SEARCH_FOLDER / conclusion.folder
    return found if (found / RUN_RECORD).is_file() else None


def first_run(folder: Path, scenario: Scenario) -> tuple[Path, RunRecord] | None:
    """A run of the search with its folder, for what it was measured with; None where there is none."""
    runs = folder / (SHORT_RUN if scenario is Scenario.OFFLINE else SEARCH_FOLDER)
    for path in sorted(runs.rglob(RUN_RECORD)):
        try:
            return path.parent, RunRecord.read(path)
        except ConfigError:
            continue
    return None


def adopt(run: Path, performance: Path) -> None:
    """Make a search's run the performance run of its scenario; the search keeps its files.

    The copies appear complete or not at all, and share the bytes where the file system can. Raises
    ConfigError where a run that was started by hand is writing there.
    """
    require_unlocked(performance)
    staged = performance.with_name(f".{performance.name}.adopted")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    for path in sorted(run.rglob("*")):  # folders come before what is in them
        target = staged / path.relative_to(run)
        if path.is_dir():
            target.mkdir()
        else:
            link_or_copy(path, target)
    move_aside_existing(performance)
    free_reserve(performance)
    staged.replace(performance)
