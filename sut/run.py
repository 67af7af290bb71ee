"""One benchmark run: check everything, start what is needed, let LoadGen run, and return the record."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from msgspec import structs

from harness.cli.signals import InterruptedRun, interruptible, uninterrupted
from harness.config.api_key import api_key
from harness.config.plan import RunPlan
from harness.dataset.samples import SampleSet
from harness.errors import RunError, ServerError, machine_failure
from harness.files import ROOT, RUN_RECORD, USER_CONF
from harness.record.answer_log import SavedAnswer
from harness.record.output_dir import check_free, free_reserve, locked, move_aside_existing, prepare_dir
from harness.record.provenance import gather_provenance
from harness.record.resume import archive_attempt, check_resumable, saved_answers, version_changes
from harness.record.run_record import RunRecord, read_clocks
from harness.report.finish_run import Observations, finish
from harness.report.progress import ProgressSnapshot
from sut.client.endpoint import resolve_endpoint
from sut.ipc.request_store import render_requests
from sut.prepare import Prepared, place_workers, prepare, read_inputs, resolved_plan, stray_audit_config
from sut.servers.discovery import discover
from sut.servers.embedded.engine import EmbeddedEngine
from sut.servers.embedded.models import model_for
from sut.servers.health import ask_health, ask_work
from sut.servers.preflight import Preflight, flush_caches
from sut.supervisor.connection_limits import with_enough_sources
from sut.supervisor.machine_limits import local_ports
from sut.supervisor.monitor import Counts
from sut.supervisor.progress import ProgressMeter
from sut.supervisor.session import LoadGenSession, Target
from sut.wire import make_wire

_CACHE = ROOT / ".cache"
_EMBEDDED_SLOTS = 16

log = logging.getLogger("mlperf")
log.addHandler(logging.NullHandler())  # a caller that sets up no logging sees none

Death = Callable[[], str]  # how the embedded engine ended; "" while it runs


def run(
    plan: RunPlan,
    *,
    on_plan: Callable[[RunRecord], None] | None = None,
    on_progress: Callable[[ProgressSnapshot], None] | None = None,
    trace: bool = False,
) -> RunRecord:
    """Run the plan; the record is also in run.json. It comes back for INVALID and interrupted runs, too.

    ``on_plan`` is called when everything is checked and nothing was sent, ``on_progress`` about once a
    second. A dry run ends before the first query, without a verdict and without a file. ``trace`` lets
    LoadGen write its trace, which costs time in its process: for benchmarks of this harness.

    KeyboardInterrupt and harness.cli.signals.InterruptedRun end the run; before its first query they are
    raised, as is HarnessError for whatever keeps the run from starting.
    """
    inputs = read_inputs(plan)
    placement = place_workers(plan, inputs)
    with (
        interruptible(),
        LoadGenSession(plan, inputs.samples, placement, trace=trace) as session,
        _servers(plan, inputs.samples) as (urls, death),
    ):
        servers = discover(urls, plan.backend, api_key(), plan.preflight.questions_s, plan.ca_file)
        prepared = prepare(plan, inputs, placement, session.readback(), servers)
        record = _planned(prepared)
        if on_plan is not None:
            on_plan(record)
        if stray := stray_audit_config(plan):
            log.warning(stray)
        changes = _check_resume(record)
        if plan.dry_run:
            check_free(plan.results_dir)
            return record
        with locked(plan.results_dir):
            target, warnings = _preflight(prepared)
            target = replace(target, kept=_prepare_output_dir(prepared))
            clock, warnings = read_clocks(), (*record.warnings, *changes, *warnings)
            record = structs.replace(record, started=clock.utc, clock=clock, warnings=warnings)
            record.write(plan.log_dir / RUN_RECORD)
            test = _Test(session, prepared, target, death, on_progress)
            return _measure(test, record)


@contextmanager
def _servers(plan: RunPlan, samples: SampleSet) -> Iterator[tuple[Sequence[str], Death]]:
    """The URLs to drive and how their engine died; the embedded engine lives as long as the context."""
    if plan.backend != "embedded":
        yield plan.server_urls, lambda: ""
        return
    model = model_for(plan.benchmark, _CACHE)
    log.info("starting the embedded engine with %s", model.name)
    engine = EmbeddedEngine(
        model.path,
        log_dir=_CACHE,
        slots=_EMBEDDED_SLOTS,
        context_per_slot=int(samples.lengths.max()) + plan.parameters.max_new_tokens + 1,
    )
    with engine:
        try:
            yield (engine.url,), engine.death
        except ServerError as error:
            if death := engine.death():
                raise ServerError(death) from error
            raise


def _check_resume(record: RunRecord) -> tuple[str, ...]:
    """Warnings about changes since the earlier attempts. Raises ConfigError if it would be another run."""
    plan, server = record.plan, record.servers[0]
    if not plan.resume:
        return ()
    check_resumable(plan.log_dir, plan, server.model)
    changes = tuple(version_changes(plan.log_dir, server.version))
    for change in changes:
        log.warning(change)
    return changes


def _prepare_output_dir(prepared: Prepared) -> Mapping[int, SavedAnswer]:
    """Make the output folder ready; returns the answers of earlier attempts at the same run."""
    plan = prepared.plan
    if plan.resume:
        archive_attempt(plan.log_dir)
        prepare_dir(plan.log_dir)
        kept = saved_answers(plan.log_dir, len(prepared.samples))
        log.info("resuming: %d of %d samples are answered already", len(kept), len(prepared.samples))
        return kept
    if aside := move_aside_existing(plan.results_dir):
        log.info("the earlier results are now in %s", aside)
    if plan.log_dir != plan.results_dir:
        free_reserve(plan.results_dir)
        move_aside_existing(plan.log_dir)
    return {}


def _preflight(prepared: Prepared) -> tuple[Target, tuple[str, ...]]:
    """Send one real request to every replica and flush its prompt there; returns target and warnings."""
    plan, first = prepared.plan, prepared.servers[0]
    vocabulary, key = plan.benchmark.vocabulary_size, api_key()
    path = make_wire(first.wire, plan.parameters, vocabulary, first.served_name).path
    each, ports = -(-prepared.connections // len(prepared.servers)), local_ports()
    endpoints = [
        with_enough_sources(resolve_endpoint(server.url, path, key, plan.ca_file), each, ports)
        for server in prepared.servers
    ]
    preflight = Preflight(first, plan.parameters, vocabulary, plan.preflight.trial_s)
    keeps = preflight.run(endpoints, prepared.samples.tokens(0).tolist())
    final = [replace(endpoint, keep_alive=keep) for endpoint, keep in zip(endpoints, keeps, strict=True)]
    warnings = flush_caches(prepared.servers, key, plan.ca_file)
    return Target(tuple(final), first.wire, first.served_name), warnings


@dataclass(frozen=True, slots=True)
class _Test:
    """One LoadGen test, ready to begin."""

    session: LoadGenSession
    prepared: Prepared
    target: Target
    death: Death
    on_progress: Callable[[ProgressSnapshot], None] | None


def _measure(test: _Test, record: RunRecord) -> RunRecord:
    """Let LoadGen run; whatever ends the test, its files are read and its record is written."""
    session = test.session
    with ExitStack() as ending:
        try:
            seen = _drive(test)
            ending.enter_context(uninterrupted())
        except (InterruptedRun, KeyboardInterrupt) as interruption:
            ending.enter_context(uninterrupted())
            name = str(interruption) if isinstance(interruption, InterruptedRun) else "SIGINT"
            seen = session.observations(session.abort(), interrupted_by=name)
        except (RunError, OSError, MemoryError) as error:
            ending.enter_context(uninterrupted())
            cause = error if isinstance(error, RunError) else machine_failure(error)
            seen = session.observations(session.abort(), problem=str(cause))
        return finish(record, seen)


def _drive(test: _Test) -> Observations:
    """Start the workers and LoadGen, and monitor them to the end. Raises RunError, OSError, MemoryError."""
    session, prepared, target = test.session, test.prepared, test.target
    plan, key = prepared.plan, api_key()
    _keep_conf_files(plan)
    wire = make_wire(target.wire, plan.parameters, plan.benchmark.vocabulary_size, target.model)
    store = render_requests(prepared.samples, wire)
    session.start_workers(target, store, prepared.concurrency)
    progress = ProgressMeter(prepared.issue, session.failures)

    def observe(totals: Counts) -> None:
        if test.on_progress is not None:
            test.on_progress(progress(totals))
        if words := test.death():
            raise RunError(f"ended early: {words}")

    lost = session.run(
        observe,
        [server.url for server in prepared.servers],
        lambda url: ask_health(url, key, plan.ca_file),
        lambda url: ask_work(url, key, plan.ca_file),
    )
    return session.observations(lost)


def _keep_conf_files(plan: RunPlan) -> None:
    (plan.log_dir / USER_CONF).write_bytes(plan.user_conf.read_bytes())
    if plan.kept_audit_config is not None and plan.audit_text is not None:  # LoadGen gets it by name
        plan.kept_audit_config.write_bytes(plan.audit_text.encode())


def _planned(prepared: Prepared) -> RunRecord:
    """The record before the first query."""
    return RunRecord(
        plan=resolved_plan(prepared),
        provenance=gather_provenance(ROOT),
        servers=prepared.servers,
        started=datetime.now(UTC),
        deviations=prepared.deviations,
        warnings=prepared.warnings,
    )
