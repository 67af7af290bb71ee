"""The table of a campaign's steps, and the lines before and after each."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from harness.campaign.expected import Measured, expected_s
from harness.campaign.searches import latest_run
from harness.campaign.standing import Standing
from harness.campaign.steps import Step
from harness.cli.commands import of_verb
from harness.files import PROGRESS
from harness.progress.progress_files import ProgressLine, read_progress
from harness.text import counted, duration, show

_WORDS = {
    "done": "done",
    "lost": "LOST",
    "failed": "failed",
    "incomplete": "continues",
    "other": "again",
    "missing": "next",
}


class Stop(msgspec.Struct, frozen=True):
    """A run that a campaign does not begin."""

    step: str
    lines: Sequence[str]
    """why, and what to do"""


class CampaignState(msgspec.Struct, frozen=True):
    """The steps of a campaign, and how far they are."""

    steps: Sequence[Step]
    found: Mapping[str, Standing]
    """by the step's name"""
    running: str | None = None
    """the name of the step that runs now"""
    since: datetime | None = None
    """when it began; None where that is not asked for"""
    stop: Stop | None = None
    """the first run that would not begin"""

    @property
    def done(self) -> int:
        """Steps that are done."""
        return sum(self.found[step.name].state == "done" for step in self.steps)


def rows(of: CampaignState) -> list[tuple[str, str, str, str]]:
    """A header, and a row for each step."""
    measured = _measured(of)
    lines = [("step", "state", "expected", "result")]
    for step in of.steps:
        one = of.found[step.name]
        state, text = _WORDS[one.state], one.text
        if step.name == of.running:
            state, text = "RUNNING", _works(step, one, of.since)
        elif of.stop is not None and step.name == of.stop.step:
            state = "STOPS"
        seconds = None if one.state == "done" else expected_s(step, measured)
        lines.append((step.name, state, "" if seconds is None else f"about {duration(seconds)}", text))
    return lines


def _works(step: Step, found: Standing, since: datetime | None) -> str:
    """What the running step does: of a search also what it has measured."""
    now = "" if since is None else _progress(step, since)
    before = found.text if step.kind == "search" and found.state == "incomplete" else ""
    return ", ".join(filter(None, (before, now)))


def _latest(step: Step, since: datetime) -> ProgressLine | None:
    """The latest line of a run's progress.jsonl; None while that of an earlier run lies there."""
    folder = latest_run(step.folder) if step.kind == "search" else step.run_folder
    path = folder and folder / PROGRESS
    last = read_progress(path) if path and path.is_file() else None
    return None if last is None or last.time < since else last


def _progress(step: Step, since: datetime) -> str:
    if (last := _latest(step, since)) is None:
        return f"began at {since:%H:%M:%S} UTC"  # it may wait for servers that are away, for an hour
    left = "" if last.remaining_s is None else f", {duration(last.remaining_s)} left"
    answered = f"{last.completed + last.failed} answered after {duration(last.elapsed_s)}{left}"
    lost = f"LOST: {last.lost}" if last.lost else ""
    latest = "".join(one.text for one in last.warnings[-1:])
    warned = f"{counted(last.warned, 'warning')}, the latest: {latest}" if latest else ""
    return "; ".join(filter(None, (answered, lost, last.standing, warned)))


def remaining(of: CampaignState) -> str:
    """``9 of 14 steps are done; at the rates asked for the others take at least 2h10m``.

    Runs and searches whose time nothing shows are counted: ``, without 3 whose time is not known``.
    Of the step that runs counts what its run says is left, or the rest of the time that it should take.
    """
    seconds, others = time_left(of)
    known = f"; at the rates asked for the others take at least {duration(seconds)}{others}"
    return f"{of.done} of {len(of.steps)} steps are done{known if seconds else ''}"


def time_left(of: CampaignState) -> tuple[float, str]:
    """Seconds of the runs that are left, as far as they are known.

    And ``, without 3 whose time is not known``, for runs and searches; or "".
    """
    measured = _measured(of)
    known, unknown = 0.0, 0
    for step in of.steps:
        if of.found[step.name].state != "done":
            seconds = expected_s(step, measured)
            if (last := _of_running(step, of)) is not None:
                rest_s = max(0.0, (seconds or 0.0) - last.elapsed_s)
                seconds = rest_s if last.remaining_s is None else last.remaining_s
            known += seconds or 0.0
            unknown += seconds is None and step.servers is not None
    return known, f", without {unknown} whose time is not known" if unknown else ""


def _of_running(step: Step, of: CampaignState) -> ProgressLine | None:
    """The latest line of the run that lasts; of a search only its next run is known."""
    if step.name != of.running or step.kind == "search" or of.since is None:
        return None
    return _latest(step, of.since)


def _measured(of: CampaignState) -> Measured:
    """Of a dataset without a run, the official number of samples. A trial's few samples fill no server."""
    rates, samples = {}, {}
    for step in of.steps:
        if step.kind != "performance" or step.plan is None:
            continue
        one, client = of.found[step.name], step.plan.client
        record = None if one.state == "other" else one.record
        if record is not None:
            samples[client.input_file] = record.settled.samples
        else:
            samples.setdefault(client.input_file, client.benchmark.dataset(accuracy=False).samples)
        if record is None or record.statistics is None or not record.plan.scenario.one_query:
            continue
        if rate := record.statistics.samples_per_s:
            rates[client.benchmark.name] = rate
    return Measured(rates, samples)


def command(step: Step, *more: str) -> str:
    """The step as a user would type it."""
    return shlex.join((*of_verb(step.verb), *step.words, *more))


def announce(number: int, total: int, step: Step, why: str) -> None:
    """The line before a step."""
    rule = "=" * 20
    show("", f"{rule} [{number}/{total}] {step.name}{f': {why}' if why else ''}", command(step), "")
    sys.stdout.flush()


def reasons(of: CampaignState) -> Iterator[str]:
    """The runs that are made again, why being in their rows; of the running step nothing."""
    others = {name: one for name, one in of.found.items() if one.state == "other" and name != of.running}
    if names := ", ".join(name for name, one in others.items() if one.record):
        yield f"results that are moved aside, and made again: {names}"
