"""The command ``find_peak.py search``: checks, measurements, their state on disk, and the result."""

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec

from harness.analysis.early_stopping import too_few_queries
from harness.cli.signals import InterruptedRun, interruptible, uninterrupted
from harness.config.plans import ClientPlan
from harness.errors import ConfigError, HarnessError, explained
from harness.peak.ladder.ladder_plan import FOLDER, check_seconds
from harness.peak.ladder.steps import Step
from harness.peak.peak_options import SearchOptions
from harness.peak.search.conclusion import conclude
from harness.peak.search.policy import Ended, History, Policy, SearchSettings, search
from harness.peak.search.probe import Probe
from harness.peak.search.schedule import Schedule
from harness.peak.search.search_state import (
    SEARCH_FOLDER,
    EarlierSearch,
    SearchState,
    earlier_search,
    identity_of,
)
from harness.progress.progress_files import ProgressLine
from harness.record.output_dir import check_free, locked, move_aside_existing
from harness.record.run_record import RunRecord
from harness.record.settled import ranks_of, running_limit
from harness.text import duration
from sut.peak.prober import RunProber, SearchWatcher, search_run
from sut.processes.machine_limits import machine_limits
from sut.run import run
from sut.run_checks import ends_early
from sut.supervisor.connection_limits import ConnectionLimits

log = logging.getLogger("mlperf")


class Searched(msgspec.Struct, frozen=True):
    """The state as search.json has it; ``error`` ended the search, None for one that was completed."""

    folder: Path
    state: SearchState
    error: HarnessError | InterruptedRun | None = None


def find_peak(
    options: SearchOptions,
    watcher: SearchWatcher,
    on_line: Callable[[ProgressLine], None],
) -> Searched | None:
    """Search; None after a dry run. Raises HarnessError for whatever keeps it from starting.

    A search with the same settings is continued, one that has found its rate is complete. A search that has
    started returns its measurements, whatever ends it. ``on_line`` gets each line of progress.jsonl of its
    runs.
    """
    folder = options.results.absolute() / FOLDER / options.scenario / SEARCH_FOLDER
    check_seconds("--ladder-seconds", options.ladder_seconds)
    with interruptible():
        plan = search_run(options, folder, options.user_conf, dry_run=True)
        base = run(plan, rate_follows=True)
        settings = search_settings(options, base)
        begun = _begun(base, settings)
        earlier = earlier_search(folder, begun, _asked(options, base))
        if earlier is not None:
            check_free(folder)
            watcher.earlier(earlier)
        if earlier is not None and earlier.course == "complete" and earlier.state is not None:
            return Searched(folder, earlier.state)
        watcher.plan(base)
        _check_queries(settings, base)
        if earlier is None or earlier.state is None:
            _check_budget(settings, base)
        if options.dry_run:
            return None
        with locked(folder):
            if earlier_search(folder, begun, _asked(options, base)) != earlier:
                raise ConfigError(
                    f"another search has written to {folder} since this one began; repeat the command"
                )
            state = _kept(folder, begun, earlier)
            return _search(options, folder, base, settings, state, watcher, on_line)


def search_settings(options: SearchOptions, base: RunRecord) -> SearchSettings:
    """The limits of the servers and of this client in the checked plan."""
    servers, asked = base.servers, options.max_concurrency
    known = [one.max_running_requests for one in servers]
    slots = sum(one or 0 for one in known) if all(known) else None
    workers = base.settled.placement.workers
    limits = ConnectionLimits(machine_limits(), workers, tuple(server.url for server in servers))
    most = min(filter(None, (asked, limits.max_connections)))
    return SearchSettings(
        scenario=options.scenario,
        loadgen=base.settled.loadgen_settings,
        samples=base.settled.samples,
        replicas=sum(map(ranks_of, servers)),
        slots=slots if asked is None or slots is None else min(asked, slots),
        tolerance=options.tolerance,
        budget_s=options.budget,
        start_qps=options.start_qps,
        step_s=options.ladder_seconds,
        most_in_flight=most,
        connections=limits.max_connections if asked is None else None,
    )


def _check_queries(settings: SearchSettings, base: RunRecord) -> None:
    """Refuse settings with which a run may end early, or have too few queries to be VALID.

    Raises ConfigError.
    """
    for row, name in (("max_query_count", "max_query_count"), ("max_duration", "max_duration_ms")):
        if settings.loadgen[name]:
            raise ConfigError(ends_early(base.plan, row))
    fewest = Schedule(settings.loadgen, settings.samples).fewest.queries
    if problem := too_few_queries(fewest, base.plan, settings.loadgen):
        raise ConfigError(f"at low rates {problem}")


def _check_budget(settings: SearchSettings, base: RunRecord) -> None:
    """Refuse a budget that is too short for a run. Raises ConfigError."""
    if settings.budget_s is None:
        return
    least_s = float(base.settled.loadgen_settings["min_duration_ms"]) / 1000 + settings.step_s
    if settings.start_qps is not None:
        least_s = Policy(settings).cost_s(History(), settings.start_qps)
    if settings.budget_s < least_s:
        first = "one run" if settings.start_qps else "a step of the ladder and one run"
        raise ConfigError(
            f"--budget is {duration(settings.budget_s)}, expected {duration(least_s)} or more for {first}; a "
            "search takes four or five steps and three to five runs: give more, or omit the budget"
        )


def _begun(base: RunRecord, settings: SearchSettings) -> SearchState:
    """A search that has measured nothing."""
    return SearchState(
        identity=identity_of(base),
        limits_ns=base.limits_ns,
        tolerance=settings.tolerance,
        budget_s=settings.budget_s,
    )


def _asked(options: SearchOptions, base: RunRecord) -> ClientPlan:
    """The client's plan with the flags that concern the search, which its runs do not have."""
    return msgspec.structs.replace(
        base.plan.client, resume=options.resume, restart=options.restart, dry_run=options.dry_run
    )


def _kept(folder: Path, begun: SearchState, earlier: EarlierSearch | None) -> SearchState:
    """The state to begin with, on disk: with the measurements of the search that is continued."""
    state = begun
    if earlier is not None and earlier.state is not None:
        state = msgspec.structs.replace(begun, history=earlier.state.history)
    elif aside := move_aside_existing(folder):
        log.info("the earlier search is now in %s", aside)
    state.write(folder)
    return state


def _search(
    options: SearchOptions,
    folder: Path,
    base: RunRecord,
    settings: SearchSettings,
    state: SearchState,
    watcher: SearchWatcher,
    on_line: Callable[[ProgressLine], None],
) -> Searched:
    known, most = state, running_limit(base.servers)
    held = min(most, settings.most_in_flight or most)
    prober = RunProber(options, folder, base, watcher, on_line, most_in_flight=held)

    def keep(history: History, one: Step | Probe) -> None:
        nonlocal known
        known = msgspec.structs.replace(known, history=history)
        known.write(folder)
        watcher.measured(one, known.limits_ns)

    error: HarnessError | InterruptedRun | None = None
    with ExitStack() as ending, closing(prober):
        try:
            _, ended = search(prober, settings, state.history, keep, watcher.action)
            prober.close()
            ending.enter_context(uninterrupted())
        except InterruptedRun as interruption:
            ending.enter_context(uninterrupted())
            error, ended = interruption, Ended("STOPPED", f"ended by {interruption}")
        except (HarnessError, OSError, MemoryError) as failure:
            ending.enter_context(uninterrupted())
            error = explained(failure, folder)
            ended = Ended("STOPPED", str(error))
        conclusion = conclude(Policy(settings), base.plan.model_key, known.history, ended)
        if error is not None:
            outcome = "INTERRUPTED" if isinstance(error, InterruptedRun) else "ERROR"
            conclusion = msgspec.structs.replace(conclusion, outcome=outcome, events=prober.events)
        known = msgspec.structs.replace(known, conclusion=conclusion)
        try:
            known.write(folder)
        except OSError as failure:  # a full disk, which must not hide what was measured
            error = error or explained(failure, folder)
    return Searched(folder, known, error)
