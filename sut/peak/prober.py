"""Probes and steps of a search: ordinary runs of LoadGen, and the ladder's client."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from harness.cli.signals import InterruptedRun, signals_kept
from harness.config.api_key import api_key
from harness.config.options import ClientOptions, RunOptions
from harness.config.plan import resolve_plan
from harness.errors import RunError
from harness.peak.options import LadderOptions, SearchOptions
from harness.peak.plan import LadderPlan, resolve_ladder_plan
from harness.peak.result import Ladder
from harness.peak.steps import Step
from harness.record.run_record import RunRecord
from harness.report.progress import ProgressSnapshot
from harness.search.cut_off import CutOff
from harness.search.probe import Probe
from harness.search.probe_record import probe_of, write_conf
from harness.search.schedule import Schedule
from sut.peak.emptying import empty_servers
from sut.peak.ladder import climb
from sut.run import run

LADDER_FOLDER, PROBE_FOLDER = "ladder", "probe-"


@dataclass(slots=True)
class RunProber:
    """Measures with the user's options; each measurement has a folder of its own in ``folder``.

    ``base`` is the record of the checked plan. ``on_progress`` and ``on_record`` show a probe.
    """

    options: SearchOptions
    folder: Path
    base: RunRecord
    on_progress: Callable[[ProgressSnapshot], None] = lambda snapshot: None
    on_record: Callable[[RunRecord], None] = lambda record: None
    schedule: Schedule = field(init=False)
    _at_work: bool = False  # the servers may still have requests of a step

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.base.plan.loadgen_settings, self.base.plan.samples)

    def ladder(self, concurrency: int) -> Step:
        """A step at this number of requests in flight. Raises RunError where it was not measured."""
        self._await_idle()
        names = _names(LadderOptions)
        shared = {name: getattr(self.options, name) for name in _names(SearchOptions) if name in names}
        shared |= {"concurrency": (concurrency,), "seconds": self.options.ladder_seconds, "resume": False}
        plan = resolve_ladder_plan(LadderOptions(**shared))
        folder = self.folder / LADDER_FOLDER / f"{concurrency:06d}"
        plan = replace(plan, run=msgspec.structs.replace(plan.run, log_dir=folder))
        with signals_kept():
            ladder = climb(plan, Unwatched())
        if ladder.interrupted_by is not None:
            raise interruption(ladder.interrupted_by)
        self._at_work = True
        if not ladder.steps:
            raise RunError(f"the ladder with {concurrency} requests in flight: {ladder.stopped}")
        return ladder.steps[-1]

    def probe(self, rate: float) -> Probe:
        """An ordinary run at this rate, ended once it is decided."""
        began = time.monotonic()
        self._await_idle()
        scheduled = self.schedule.run(rate)
        folder = self._next_folder()
        folder.mkdir(parents=True)
        conf = write_conf(folder, self.options.user_conf, self.base.plan.model_key, rate)
        plan = resolve_plan(run_options(self.options, folder, conf))
        watch = CutOff(plan.log_dir, self.base.plan.limits_ns, scheduled.most_over)

        def on_progress(snapshot: ProgressSnapshot) -> None:
            self.on_progress(snapshot)
            watch(snapshot)

        with signals_kept():
            record = run(plan, on_progress=on_progress)
        if record.interrupted_by is not None:
            raise interruption(record.interrupted_by)
        watch.count_all()
        self.on_record(record)
        failures = self._empty() if watch.decided_s is not None else ()
        name = plan.log_dir.relative_to(self.folder).as_posix()
        return probe_of(record, scheduled, watch, time.monotonic() - began, name, failures)

    def _await_idle(self) -> None:
        """Empty the servers before a measurement, so that the step before it counts at once."""
        if self._at_work:
            self._empty()
        self._at_work = False

    def _empty(self) -> tuple[str, ...]:
        """Have the servers drop their requests; returns why one is not usable."""
        if self.options.backend == "embedded":  # it has ended
            return ()
        return empty_servers(self.base.servers, api_key(), self.options.ca_file)

    def _next_folder(self) -> Path:
        """The folder of the next probe; one that was interrupted keeps its own."""
        number = 1 + sum(1 for _ in self.folder.glob(f"{PROBE_FOLDER}*"))
        return self.folder / f"{PROBE_FOLDER}{number:02d}"


class Unwatched:
    """Ignores the progress of a ladder: its step is shown once it is measured."""

    def plan(self, ladder: Ladder, plan: LadderPlan) -> None:
        """Nothing."""

    def progress(self, concurrency: int, elapsed_s: float, phase: str) -> None:
        """Nothing."""

    def step(self, ladder: Ladder) -> None:
        """Nothing."""


def run_options(options: SearchOptions, output_dir: Path, user_conf: Path, **more: Any) -> RunOptions:
    """The options of an ordinary run with the search's flags."""
    names = _names(RunOptions)
    shared = {name: getattr(options, name) for name in _names(SearchOptions) if name in names}
    return RunOptions(**shared | {"output_dir": output_dir, "user_conf": user_conf, "resume": False} | more)


def _names(options: type[ClientOptions]) -> list[str]:
    return [one.name for one in fields(options)]


def interruption(name: str) -> InterruptedRun:
    """The exception of a signal, by its name."""
    return InterruptedRun(signal.Signals[name])
