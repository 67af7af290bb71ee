"""The ladder: fixed numbers of requests in flight, one after the other, in one session of the client."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from harness.analysis.encoded_answers import encoded_with, text_warnings
from harness.analysis.statistics import mean_latency_s
from harness.cli.signals import InterruptedRun, interruptible, signal_name, uninterrupted
from harness.config.generation import SamplingParameters
from harness.dataset.samples import SampleSet, load_samples
from harness.errors import RunError, machine_failure
from harness.files import JOURNAL_DIR
from harness.peak.ladder.ladder_files import write_ladder, write_state
from harness.peak.ladder.ladder_plan import LadderPlan, default_steps
from harness.peak.ladder.ladder_result import Ladder, why_stop
from harness.peak.ladder.measurement import Look, Measurement, StepRows, StepSettings
from harness.peak.ladder.steps import Step
from harness.record.journal import JournalTail, Rows, failure_reasons
from harness.record.output_dir import check_free, free_reserve, locked, move_aside_existing
from harness.record.provenance import gather_provenance
from harness.record.run_events import RunEvent
from harness.record.server_changes import ServerChange
from sut.client.endpoint import access_by
from sut.drive import Death, ask_servers, asked_again, preflight, recheck_of, serving_urls, tried_in_dry_run
from sut.ipc.counters import Counter
from sut.ipc.request_store import render_requests
from sut.issuers.closed_loop import ClosedLoop
from sut.prepare import PreparedClient, as_sent, client_holds, place_workers, prepare_client
from sut.servers.health import Recheck
from sut.servers.scrape import MetricsScraper
from sut.servers.setting_checks import closed_division_deviations, later_deviations
from sut.supervisor.monitor import Monitor, Observer, Totals
from sut.supervisor.placement import Load
from sut.supervisor.session import QuerySession, wires_of
from sut.worker.worker import Destination

_LOOKS = 32  # the counters are read this number of times in a step; workers write them four times a second
_SHORTEST_LOOK_S, _LONGEST_LOOK_S = 0.25, 1.0
_ANSWERS_S = 2.0  # between two steps all servers answer within this time
_NS = 1e9
_UNTIMED = "the answers are not streamed: no times of tokens are measured, and no limit ends the ladder"
_ONE_TOKEN = "answers of one token have no TPOT, and only the limit of TTFT ends the ladder"

OnProgress = Callable[[int, float, str], None]  # as LadderWatcher.progress


class LadderWatcher(Protocol):
    """Receives the progress of a ladder."""

    def plan(self, ladder: Ladder, plan: LadderPlan) -> None:
        """Everything is checked, nothing was sent yet."""

    def progress(self, concurrency: int, elapsed_s: float, phase: str) -> None:
        """Called at each look at the counters."""

    def step(self, ladder: Ladder) -> None:
        """Called after each step, which is the last of the ladder's."""


def climb(plan: LadderPlan, watcher: LadderWatcher) -> Ladder:
    """Measure the steps and write the output folder; also the result of an interrupted ladder comes back.

    Raises HarnessError for whatever keeps it from starting.
    """
    with interruptible(), _asked(plan) as (prepared, ladder, death):
        watcher.plan(ladder, plan)
        if plan.client.dry_run:
            check_free(plan.client.log_dir)
            return msgspec.structs.replace(ladder, servers=tried_in_dry_run(prepared).servers)
        with _opened(plan, prepared, ladder, death, watcher.progress) as opened, opened.ending():
            for concurrency in ladder.wanted:
                opened.step(concurrency)
                watcher.step(opened.ladder)
                if stopped := why_stop(opened.ladder.steps, ladder.limits_ns, goes_on=plan.goes_on):
                    break
            else:
                stopped = "every step was measured"
            opened.end(stopped)
        return opened.ladder


@contextmanager
def open_ladder(plan: LadderPlan, on_progress: OnProgress) -> Iterator["OpenLadder"]:
    """A ladder whose steps are asked for one by one, of up to the plan's concurrency.

    It is written at the end of the block. Raises HarnessError for whatever keeps it from starting.
    """
    with _asked(plan) as (prepared, ladder, death):
        ladder = msgspec.structs.replace(ladder, wanted=())
        with _opened(plan, prepared, ladder, death, on_progress) as opened:
            yield opened


@contextmanager
def _asked(plan: LadderPlan) -> Iterator[tuple[PreparedClient, Ladder, Death]]:
    """Everything is checked; the embedded engine lives as long as the block."""
    client = plan.client
    samples = load_samples(client.input_file, vocabulary_size=client.benchmark.vocabulary_size)
    samples = as_sent(client, samples)
    with serving_urls(client, samples) as (urls, death):
        yield *_prepared(plan, samples, urls), death


def _prepared(plan: LadderPlan, samples: SampleSet, urls: Sequence[str]) -> tuple[PreparedClient, Ladder]:
    """Query the servers, choose the steps and check them. Raises ConfigError and ServerError."""
    client = plan.client
    servers = ask_servers(client, urls)
    found = servers.found
    steps = plan.concurrency or default_steps(found, client_holds(client, found))
    client = msgspec.structs.replace(client, max_concurrency=steps[-1])
    load = Load(open_at_most=steps[-1])
    prepared = prepare_client(client, samples, load, place_workers(client, load), servers)
    return prepared, _ladder(plan, prepared, steps)


def _ladder(plan: LadderPlan, prepared: PreparedClient, steps: tuple[int, ...]) -> Ladder:
    """The ladder before its first step."""
    client, samples = prepared.plan, prepared.samples
    return Ladder(
        benchmark=client.benchmark.name,
        scenario=plan.scenario,
        input_file=str(client.input_file),
        dataset_sha256=samples.sha256,
        samples=len(samples),
        seconds=plan.seconds,
        wanted=steps,
        limits_ns=plan.limits_ns,
        servers=prepared.servers,
        provenance=gather_provenance(),
        started=datetime.now(UTC),
        parameters=client.parameters,
        warnings=(
            *client.warnings,
            *prepared.warnings,
            *_unmeasured(client.parameters),
        ),
        deviations=(
            *client.deviations,
            *prepared.deviations,
            *closed_division_deviations(prepared.servers, client.benchmark, plan.scenario),
        ),
    )


def _unmeasured(parameters: SamplingParameters) -> Iterator[str]:
    """A warning where a limit has nothing that is compared with it."""
    if not parameters.stream:
        yield _UNTIMED
    elif parameters.max_new_tokens == 1:
        yield _ONE_TOKEN


@contextmanager
def _opened(
    plan: LadderPlan, prepared: PreparedClient, ladder: Ladder, death: Death, on_progress: OnProgress
) -> Iterator["OpenLadder"]:
    """The ladder while it lasts, in its folder; what it leaves is written at the end of the block."""
    folder = plan.client.log_dir
    with locked(folder), ExitStack() as stack:
        prepared, destination, warnings = preflight(prepared)
        move_aside_existing(folder)
        ladder = msgspec.structs.replace(
            ladder,
            started=datetime.now(UTC),
            servers=prepared.servers,
            warnings=(*ladder.warnings, *warnings, *text_warnings(encoded_with(destination.tokenizer))),
        )
        scraper = MetricsScraper(prepared.servers, folder, access_by(plan.client.ca_file))
        servers = recheck_of(prepared)
        with _client(plan, prepared, destination, death, servers) as client:
            scraper.start(servers.page)
            opened = OpenLadder(ladder, client, servers, folder, on_progress, stack)
            yield opened
            stack.enter_context(uninterrupted())
            seen = client.session.observations()
        found, ladder = scraper.stop(), opened.ladder
        seen = asked_again(seen, servers)
        changed = tuple(map(_changed, seen.changes)) if not ladder.errors else ()
        opened.ladder = msgspec.structs.replace(
            ladder,
            ended=datetime.now(UTC),
            complete=ladder.complete and not changed,
            deviations=(
                *ladder.deviations,
                *later_deviations(folder / JOURNAL_DIR, plan.client.benchmark, plan.scenario),
            ),
            errors=(*ladder.errors, *seen.errors, *changed),
            warnings=(*ladder.warnings, *seen.warnings, *found.warnings),
        )
        free_reserve(folder)
        write_ladder(folder, opened.ladder, client.kept)


class OpenLadder(msgspec.Struct):
    """A ladder while it lasts: ``ladder`` has its steps so far, and at its end why it ended."""

    ladder: Ladder
    _client: "ClosedLoopClient"
    _servers: Recheck
    _folder: Path
    _on_progress: OnProgress
    _stack: ExitStack

    @property
    def events(self) -> tuple[RunEvent, ...]:
        """What happened until now; their times are not kept."""
        return tuple(event.since(0) for event in self._client.session.events.events)

    def takes(self, concurrency: int) -> bool:
        """Whether this can be its next step: higher than those before it, and not above the plan's."""
        last = max((step.concurrency for step in self.ladder.steps), default=0)
        return last < concurrency <= self._client.plan.concurrency[-1]

    def step(self, concurrency: int) -> Step:
        """Measure one more step. Raises RunError, OSError and InterruptedRun."""
        step = self._client.measure(concurrency, self._on_progress)
        self._servers.ask_all(_ANSWERS_S)
        if changes := self._servers.changes:
            raise RunError(_changed(changes[0]))
        before = self.ladder
        wanted = before.wanted if concurrency in before.wanted else (*before.wanted, concurrency)
        self.ladder = msgspec.structs.replace(before, steps=(*before.steps, step), wanted=wanted)
        write_state(self._folder, self.ladder)
        return step

    def end(self, stopped: str) -> None:
        """End it by a rule, not by an error or a signal."""
        self._end(stopped, complete=True)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Keep what ends the ladder early as its end; signals are ignored from then on."""
        try:
            yield
        except (InterruptedRun, KeyboardInterrupt) as interruption:
            name = signal_name(interruption)
            self._end(f"ended by {name}", interrupted_by=name)
        except (RunError, OSError, MemoryError) as error:
            cause = str(error if isinstance(error, RunError) else machine_failure(error))
            self._end(cause, errors=(cause,))

    def _end(self, stopped: str, **facts: object) -> None:
        self._stack.enter_context(uninterrupted())
        self.ladder = msgspec.structs.replace(self.ladder, stopped=stopped, **facts)


def _changed(change: ServerChange) -> str:
    return f"ended early: {change.reason}: the last step may be of either; start it as it was"


@contextmanager
def _client(
    plan: LadderPlan, prepared: PreparedClient, destination: Destination, death: Death, servers: Recheck
) -> Iterator["ClosedLoopClient"]:
    """The client's processes, connected; requests in flight at the end of the block are abandoned."""
    client, samples = prepared.plan, prepared.samples
    wires = wires_of(client, destination)
    look_s = min(max(plan.seconds / _LOOKS, _SHORTEST_LOOK_S), _LONGEST_LOOK_S)
    issuer = ClosedLoop(len(samples))
    with QuerySession(client, issuer, prepared.placement) as session:
        store, workers = render_requests(samples, wires), prepared.placement.workers
        session.start_workers(destination, store, workers, None)
        with session.monitored(servers, look_s) as monitor:
            tail = JournalTail(client.log_dir / JOURNAL_DIR)
            yield ClosedLoopClient(session, monitor, tail, death, servers.urls, plan)


class ClosedLoopClient(msgspec.Struct):
    """Requests in flight at a number that ``measure`` sets, from one call to the next without a break.

    ``kept``: the requests of each step so far, also of one that was cut.
    """

    session: QuerySession
    monitor: Monitor
    tail: JournalTail
    death: Death
    urls: list[str]
    plan: LadderPlan
    kept: list[StepRows] = msgspec.field(default_factory=list)
    _concurrency: int = 0
    _latency_s: float = 0.0  # the latest mean of all requests that ended in a step
    _began: float = msgspec.field(default_factory=time.monotonic)

    def measure(self, concurrency: int, on_progress: OnProgress) -> Step:
        """Hold this number of requests in flight until a step is measured.

        Raises RunError when it cannot be measured, InterruptedRun on a signal.
        """
        if not self._concurrency:
            self._warm_up(min(concurrency, len(self.urls)), on_progress)
        seconds = self._latency_s if concurrency > self._concurrency else 0.0
        now = self._set(concurrency, seconds)
        settings = StepSettings(concurrency, self.plan.seconds, self.urls, self.plan.limits_ns)
        measurement = Measurement(settings, now, now + int(seconds * _NS))

        def observe(totals: Totals) -> None:
            look = self._look(totals)
            measurement.look(look, self.tail.read())
            phase = measurement.phase(look.time_ns)
            on_progress(concurrency, time.monotonic() - self._began, phase)

        try:
            self._watch(observe, lambda: measurement.done)
        finally:
            self.kept.append(measurement.kept())
        self._latency_s = mean_latency_s(self.kept[-1].rows) or self._latency_s
        step = measurement.step()
        if not step.queries:
            why = failure_reasons(self.plan.client.log_dir / JOURNAL_DIR)
            why = why or f"none ended in {step.seconds:.3g} s; give a step more seconds"
            raise RunError(f"ended early: no request was completed with {concurrency} in flight: {why}")
        return step

    def _warm_up(self, requests: int, on_progress: OnProgress) -> None:
        """One request to each replica, for the latency over which the first step rises."""
        self._set(requests, 0.0)
        ended: list[Rows] = []

        def observe(totals: Totals) -> None:
            ended.append(self.tail.read())
            on_progress(requests, time.monotonic() - self._began, "the first request of each replica")

        self._watch(observe, lambda: sum(map(len, ended)) >= requests)
        self._latency_s = max(filter(None, map(mean_latency_s, ended)), default=0.0)

    def _set(self, concurrency: int, seconds: float) -> int:
        """Let the number of requests rise to this within seconds; the time of now in ns."""
        self.session.command("concurrency", (concurrency, seconds))
        self._concurrency = concurrency
        return time.monotonic_ns()

    def _watch(self, observe: Observer, enough: Callable[[], bool]) -> None:
        def look(totals: Totals) -> None:
            if words := self.death():
                raise RunError(f"ended early: {words}")
            observe(totals)

        ended = self.monitor.watch(look, enough)
        if errors := self.monitor.observations().errors:  # such as a worker that was killed
            raise RunError(f"ended early: {errors[0]}")
        if ended is not None:
            raise RunError("ended early: no worker process is left")

    def _look(self, totals: Totals) -> Look:
        held = totals[Counter.SENT] - totals[Counter.RETRIED]
        held -= totals[Counter.COMPLETED] + totals[Counter.FAILED]
        tokens = totals[Counter.OUTPUT_TOKENS] + totals[Counter.PARTIAL_TOKENS]
        return Look(time.monotonic_ns(), int(tokens), int(held), self.session.cpu_ns())
