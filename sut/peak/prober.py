"""Probes and steps of a search: ordinary runs of LoadGen, and the ladder's client."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import msgspec

from harness.analysis.outages import what_stood
from harness.cli.flags import read
from harness.cli.signals import require_no_signal, signals_kept
from harness.config.plans import RunPlan
from harness.config.run_options import RunOptions
from harness.config.run_plan import resolve_plan
from harness.errors import RunError
from harness.files import JOURNAL_DIR
from harness.peak.ladder.ladder_plan import LadderPlan, ladder_client
from harness.peak.ladder.steps import Step
from harness.peak.peak_options import SearchOptions
from harness.peak.search.cut_off import CutOff, over_by_loadgen
from harness.peak.search.policy import Next
from harness.peak.search.probe import Probe
from harness.peak.search.probe_record import probe_of, write_conf
from harness.peak.search.schedule import Schedule
from harness.peak.search.search_state import PROBE_FOLDER, EarlierSearch
from harness.progress.progress_files import ProgressLine
from harness.progress.progress_line import ProgressSnapshot
from harness.record.run_events import RunEvent
from harness.record.run_record import RunRecord
from sut.client.endpoint import access_by
from sut.peak.emptying import empty_servers
from sut.peak.ladder import OpenLadder, open_ladder
from sut.run import run
from sut.servers.health import check_same_servers

log = logging.getLogger("mlperf")


class SearchWatcher(Protocol):
    """Receives the progress of a search."""

    def earlier(self, found: EarlierSearch) -> None:
        """Called first, where the folder holds a search."""

    def plan(self, record: RunRecord) -> None:
        """Everything is checked, nothing was sent yet."""

    def action(self, action: Next, spent_s: float) -> None:
        """Called before each measurement."""

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Called once a second of a run."""

    def step_progress(self, concurrency: int, elapsed_s: float, phase: str) -> None:
        """Called at each look at a step of the ladder."""

    def record(self, record: RunRecord) -> None:
        """Called with the record of each run."""

    def measured(self, one: Step | Probe, limits_ns: Mapping[str, int]) -> None:
        """Called after each measurement."""


class RunProber(msgspec.Struct, dict=True):
    """Measures with the user's options; each measurement has a separate folder in ``folder``.

    ``base`` is the record of the checked plan. ``on_line`` gets each line of progress.jsonl of a probe.
    """

    options: SearchOptions
    folder: Path
    base: RunRecord
    watcher: SearchWatcher
    on_line: Callable[[ProgressLine], None] = lambda line: None
    most_in_flight: int = 1
    """up to which a session of the ladder is prepared"""
    events: tuple[RunEvent, ...] = ()
    """of the latest measurement"""
    _ladder: OpenLadder | None = None
    _ending: ExitStack = msgspec.field(default_factory=ExitStack)  # of the ladder
    _at_work: bool = False  # the servers may still have requests of a step

    @cached_property
    def schedule(self) -> Schedule:
        """LoadGen's, of the runs."""
        return Schedule(self.base.settled.loadgen_settings, self.base.settled.samples)

    def ladder(self, concurrency: int) -> Step:
        """A step at this number of requests in flight. Raises RunError where it was not measured.

        Higher and higher steps are of one session of the client. One that is not higher begins on empty
        servers: the requests that are left of more are the long ones.
        """
        began, self.events = time.monotonic(), ()
        if self._ladder is not None and not self._ladder.takes(concurrency):
            self.close()
        opened = self._ladder or self._opened(concurrency)
        step = None
        with signals_kept():
            with opened.ending():
                step = opened.step(concurrency)
            if step is None:
                self.close()
        if step is None:
            self.events = opened.events
            require_no_signal(opened.ladder.interrupted_by)
            raise RunError(f"the ladder with {concurrency} requests in flight: {opened.ladder.stopped}")
        before_s = time.monotonic() - began - step.seconds
        return msgspec.structs.replace(step, filling_s=max(step.filling_s, before_s))

    def close(self) -> None:
        """End the ladder, if one is open. Raises OSError."""
        if self._ladder is not None:
            self._ladder, self._at_work = None, True
            with signals_kept():
                self._ending.close()

    def _await_idle(self) -> None:
        """Empty the servers before a measurement, so that the step before it counts at once."""
        if self._at_work:
            self._empty()
        self._at_work = False

    def _opened(self, concurrency: int) -> OpenLadder:
        self._await_idle()
        options = replace(self.options, resume=False, restart=False)
        folder = self.folder / "ladder" / f"{concurrency:06d}"
        plan = LadderPlan(
            client=ladder_client(options, options.scenario, folder),
            scenario=options.scenario,
            concurrency=(max(concurrency, self.most_in_flight),),
            seconds=options.ladder_seconds,
        )
        with ExitStack() as stack:
            opened = stack.enter_context(open_ladder(plan, self.watcher.step_progress))
            check_same_servers(self.base.servers, opened.ladder.servers)
            self._ladder, self._ending = opened, stack.pop_all()
        return opened

    def probe(self, rate: float) -> Probe:
        """An ordinary run at this rate, ended once it is decided.

        One that is INVALID after a server or this client stood shows nothing about the rate, and is made
        again, once: where one stands in the second run, too, that is what the rate makes of the servers.
        """
        first = self._run(rate)
        stood = what_stood(self.events)
        if not (stood and first.verdict == "INVALID"):
            return first
        log.warning(
            "the run in %s is INVALID, shows nothing about its rate and is made again, once: %s",
            self.folder / first.folder,
            stood,
        )
        second = self._run(rate)
        return msgspec.structs.replace(second, cost_s=first.cost_s + second.cost_s)

    def _run(self, rate: float) -> Probe:
        began, self.events = time.monotonic(), ()
        self.close()
        self._await_idle()
        scheduled = self.schedule.run(rate)
        folder = self._next_folder()
        folder.mkdir(parents=True)
        conf = write_conf(folder, self.options.user_conf, self.base.plan.model_key, rate)
        plan = search_run(self.options, folder, conf)
        cut_off = CutOff(self.options, scheduled.most_over)

        def on_progress(snapshot: ProgressSnapshot) -> None:
            self.watcher.progress(snapshot)
            cut_off(snapshot)

        with signals_kept():
            record = run(plan, on_plan=self._check_servers, on_progress=on_progress, on_line=self.on_line)
        self.events = record.events
        require_no_signal(record.interrupted_by)
        cut, journal = cut_off.cut, plan.client.log_dir / JOURNAL_DIR
        over = over_by_loadgen(journal, self.base.limits_ns) if cut is None else cut.over
        self.watcher.record(record)
        failures = () if cut is None else self._empty()
        name = plan.client.log_dir.relative_to(self.folder).as_posix()
        return probe_of(record, scheduled, cut, over, time.monotonic() - began, name, failures)

    def _check_servers(self, record: RunRecord) -> None:
        """Raise ServerError where the servers are others than when the search began."""
        check_same_servers(self.base.servers, record.servers)

    def _empty(self) -> tuple[str, ...]:
        """Have the servers drop their requests; returns why one is not usable."""
        if self.options.backend == "embedded":  # it has ended
            return ()
        return empty_servers(self.base.servers, access_by(self.options.ca_file))

    def _next_folder(self) -> Path:
        """The folder of the next probe; one that was interrupted keeps its own, others may be removed."""
        names = (path.name.removeprefix(PROBE_FOLDER) for path in self.folder.glob(f"{PROBE_FOLDER}*"))
        last = max((int(name) for name in names if name.isdecimal()), default=0)
        return self.folder / f"{PROBE_FOLDER}{last + 1:02d}"


def search_run(
    options: SearchOptions, output_dir: Path, user_conf: Path, *, dry_run: bool = False
) -> RunPlan:
    """The plan of an ordinary run with the search's flags. Raises ConfigError."""
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    its_own = {"output_dir": output_dir, "user_conf": user_conf, "dry_run": dry_run}
    return resolve_plan(read(RunOptions, given | its_own | {"resume": False, "restart": False}))
