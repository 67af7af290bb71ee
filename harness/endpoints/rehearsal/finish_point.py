"""What follows the last request of a point: its events, its numbers, its steady state, its config.yaml."""

from pathlib import Path
from typing import Any, NamedTuple

from harness.endpoints.numbers.event_reader import read_events
from harness.endpoints.numbers.event_writer import write_events
from harness.endpoints.numbers.result_summary import write_summary
from harness.endpoints.planning.rules import rules_of
from harness.endpoints.point_run import PointRun, read_point_run
from harness.endpoints.run_folder import CONFIG, EVENTS, SUMMARY
from harness.endpoints.steady.steady_block import steady_headline
from harness.endpoints.steady.steady_point import steady_state
from harness.endpoints.tree.client_config import write_config
from harness.grading.scoring.grade import Progress
from harness.json_files import read_json

CLIENT = "this project's client, in a rehearsal"
_AGAIN = "remove it, and repeat the command: the journal has all of it"


class PointNumbers(NamedTuple):
    """A point that can be looked at."""

    run: PointRun
    summary: dict[str, Any]
    """result_summary.json"""
    steady: str = ""
    """the verdict in words; "" of a dedicated Offline run, and where it was not judged now"""


def finish_point(
    folder: Path, run: PointRun, tokenizer: Path | None, column: str, progress: Progress
) -> PointNumbers:
    """Write the official files of a run folder from its journal.

    ``tokenizer`` None is gpt-oss's. ``column`` of the dataset holds the prompts. Raises DatasetError,
    ConfigError, RunError and OSError.
    """
    write_events(
        folder, tokenizer, lambda done, total: progress(done, total, "events written"), ended=run.complete
    )
    events = read_events(folder, tokenizer, lambda done, total: progress(done, total, "bytes counted"))
    words, window = "", None
    steady: dict[str, Any] = {}
    if run.point.offline != "dedicated" and len(events.samples):
        least_s = rules_of(run.curve).least_issue_s(run.point.concurrency)
        state = steady_state(events.samples, run.curve.samples, least_s)
        words = state.verdict if state.window else f"{state.verdict}: {state.reason}"
        window, steady = state.requests, {"steady_state": steady_headline(state)}
    write_config(folder, run, column=column)
    # Last: where it is, the point is finished.
    summary = write_summary(folder, events, client=CLIENT, window=window, **steady)
    return PointNumbers(run, summary, words)


def finished_point(folder: Path) -> PointNumbers | None:
    """A point that was finished earlier; None where it is to be run, or finished. Raises ConfigError.

    It is finished again where one of its files is gone: its journal has all of them.
    """
    run = unfinished_point(folder)
    if run is None or not all((folder / name).is_file() for name in (EVENTS, CONFIG, SUMMARY)):
        return None
    return PointNumbers(run, read_json(folder / SUMMARY, dict[str, Any], _AGAIN))


def unfinished_point(folder: Path) -> PointRun | None:
    """A point whose requests all have an answer; it may lack its numbers. Raises ConfigError."""
    run = read_point_run(folder)
    return None if run is None or not run.complete or run.failures else run
