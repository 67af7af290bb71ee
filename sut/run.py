"""One benchmark run: check everything, start what is needed, let LoadGen run, close with a report."""

import logging
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from harness.cli.signals import InterruptedRun, ignore_signals, interruptible
from harness.config.api_key import api_key
from harness.config.plan import USER_CONF, RunPlan
from harness.dataset.samples import SampleSet
from harness.errors import RunError, ServerError, machine_failure
from harness.record.answer_log import KeptAnswer
from harness.record.output_dir import check_free, claimed, make_ready, make_room, release_reserve
from harness.record.provenance import gather_provenance
from harness.record.resume import check_resumable, earlier_answers, set_aside, version_changes
from harness.record.run_record import RunRecord, read_clocks, write_run_record
from harness.report.finish_run import RUN_RECORD, Closing, Ending, close_run
from sut.client.endpoint import resolve_endpoint
from sut.ipc.counters import Counter
from sut.ipc.request_store import render_arena
from sut.prepare import Prepared, describe, place, prepare, read_inputs, stray_audit_config, title
from sut.servers.discovery import survey
from sut.servers.embedded.engine import EmbeddedEngine
from sut.servers.embedded.models import tiny_gpt_oss
from sut.servers.health import ask_health, ask_work
from sut.servers.preflight import Trial, flush_caches
from sut.supervisor.connection_limits import wide_enough
from sut.supervisor.machine_limits import local_ports
from sut.supervisor.monitor import Counts
from sut.supervisor.progress import ProgressPrinter
from sut.supervisor.session import Lost, Session, Target
from sut.wire import make_wire

_ROOT = Path(__file__).resolve().parents[1]
_CACHE = _ROOT / ".cache"
_EMBEDDED_SLOTS = 16

log = logging.getLogger("mlperf")

Death = Callable[[], str]  # how the engine of this program ended by itself; "" while it runs


def run_benchmark(plan: RunPlan, *, trace: bool = False) -> int:
    """Run the plan and print its result. Returns the exit code; raises HarnessError and InterruptedRun.

    ``trace`` lets LoadGen write its trace, which costs time in its process: for benchmarks of this harness.
    """
    inputs = read_inputs(plan)
    placement = place(plan, inputs)
    with (
        interruptible(),
        Session(plan, inputs.samples, placement, trace=trace) as session,
        _servers(plan, inputs.samples) as (urls, death),
    ):
        servers = survey(urls, plan.backend, api_key(), plan.preflight.questions_s, plan.ca_file)
        prepared = prepare(plan, inputs, placement, session.readback(), servers)
        print(describe(prepared), flush=True)
        if stray := stray_audit_config(plan):
            log.warning(stray)
        resumed = _check_resume(prepared)
        if plan.dry_run:
            check_free(plan.results_dir)
            print("dry run: everything is checked, nothing was sent")
            return 0
        with claimed(plan.results_dir):
            target, doubts = _try_out(prepared)
            target = replace(target, kept=_clear_the_way(prepared))
            return _run(session, prepared, target, (*resumed, *doubts), death)


@contextmanager
def _servers(plan: RunPlan, samples: SampleSet) -> Iterator[tuple[Sequence[str], Death]]:
    """The URLs to drive and how their engine died; the embedded engine lives as long as the context."""
    if plan.backend != "embedded":
        yield plan.server_urls, lambda: ""
        return
    model = tiny_gpt_oss(_CACHE)
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


def _check_resume(prepared: Prepared) -> tuple[str, ...]:
    """What has changed since the earlier attempts. Raises ConfigError where that makes it another run."""
    plan, server = prepared.plan, prepared.servers[0]
    if not plan.resume:
        return ()
    check_resumable(plan.log_dir, _resolved(prepared), server.model)
    changes = tuple(version_changes(plan.log_dir, server.version))
    for change in changes:
        log.warning(change)
    return changes


def _clear_the_way(prepared: Prepared) -> Mapping[int, KeptAnswer]:
    """Make the output folder ready; what an earlier attempt at the same run has answered is returned."""
    plan = prepared.plan
    if plan.resume:
        set_aside(plan.log_dir)
        make_ready(plan.log_dir)
        kept = earlier_answers(plan.log_dir, len(prepared.samples))
        log.info("resuming: %d of %d samples are answered already", len(kept), len(prepared.samples))
        return kept
    if aside := make_room(plan.results_dir):
        log.info("the earlier results are now in %s", aside)
    if plan.log_dir != plan.results_dir:
        release_reserve(plan.results_dir)
        make_room(plan.log_dir)
    return {}


def _try_out(prepared: Prepared) -> tuple[Target, tuple[str, ...]]:
    """Send one real request to every replica and forget its prompt there; returns target and doubts."""
    plan, first = prepared.plan, prepared.servers[0]
    vocabulary, key = plan.benchmark.vocabulary_size, api_key()
    path = make_wire(first.wire, plan.parameters, vocabulary, first.served_name).path
    each, ports = -(-prepared.connections // len(prepared.servers)), local_ports()
    endpoints = [
        wide_enough(resolve_endpoint(server.url, path, key, plan.ca_file), each, ports)
        for server in prepared.servers
    ]
    trial = Trial(first, plan.parameters, vocabulary, plan.preflight.trial_s)
    keeps = trial.run(endpoints, prepared.samples.tokens(0).tolist())
    final = [replace(endpoint, keep_alive=keep) for endpoint, keep in zip(endpoints, keeps, strict=True)]
    doubts = flush_caches(prepared.servers, key, plan.ca_file)
    return Target(tuple(final), first.wire, first.served_name), doubts


def _run(session: Session, prepared: Prepared, target: Target, doubts: tuple[str, ...], death: Death) -> int:
    plan = prepared.plan
    record = _record(prepared, (*prepared.doubts, *doubts))
    write_run_record(plan.log_dir / RUN_RECORD, record)
    code = None
    try:
        _keep_conf_files(plan)
        wire = make_wire(target.wire, plan.parameters, plan.benchmark.vocabulary_size, target.model)
        arena = render_arena(prepared.samples, wire)
        session.start_workers(target, arena, prepared.concurrency)
        ending = _drive(session, prepared, death)
    except InterruptedRun as interruption:
        lost = session.abort()
        ending, code = _ending(session, lost, interrupted=str(interruption)), interruption.exit_code
    except (RunError, OSError, MemoryError) as error:
        ignore_signals()
        cause = error if isinstance(error, RunError) else machine_failure(error)
        ending = _ending(session, session.abort(), problem=str(cause))
    ignore_signals()
    closing = _close(prepared, record, ending)
    print(closing.text, flush=True)
    return closing.exit_code if code is None else code


def _keep_conf_files(plan: RunPlan) -> None:
    (plan.log_dir / USER_CONF).write_bytes(plan.user_conf.read_bytes())
    if plan.kept_audit_config is not None and plan.audit_text is not None:  # LoadGen gets it by name
        plan.kept_audit_config.write_bytes(plan.audit_text.encode())


def _drive(session: Session, prepared: Prepared, death: Death) -> Ending:
    urls, key = [server.url for server in prepared.servers], api_key()
    printer = ProgressPrinter(prepared.issue, session.failures)

    def observe(totals: Counts) -> None:
        printer(totals)
        if words := death():
            raise RunError(f"ended early: {words}")

    try:
        lost = session.run(
            observe,
            urls,
            lambda url: ask_health(url, key, prepared.plan.ca_file),
            lambda url: ask_work(url, key, prepared.plan.ca_file),
        )
    finally:
        printer.end()
    return _ending(session, lost)


def _ending(
    session: Session, lost: Lost, *, problem: str | None = None, interrupted: str | None = None
) -> Ending:
    seen, totals = session.seen(), session.totals()
    return Ending(
        issued=int(totals[Counter.ISSUED]),
        lost=lost,
        problems=(*(() if problem is None else (problem,)), *seen.problems),
        interrupted=interrupted,
        doubts=seen.doubts,
        cpu=seen.cpu,
        loop_lag_ns=seen.loop_lag_ns,
        gc_runs=seen.gc_runs,
        cpu_s=totals[Counter.CPU_NS] / 1e9,
    )


def _resolved(prepared: Prepared) -> dict[str, Any]:
    """The plan as run.json has it."""
    plan: dict[str, Any] = msgspec.to_builtins(prepared.plan, enc_hook=str)
    return plan | {
        "samples": len(prepared.samples),
        "dataset_sha256": prepared.samples.sha256,
        "placement": prepared.placement,
        "concurrency": prepared.concurrency,
        "loadgen_settings": prepared.readback,
        "conf_warnings": prepared.warnings,
        "expected": prepared.issue,
    }


def _record(prepared: Prepared, doubts: tuple[str, ...]) -> RunRecord:
    clock = read_clocks()
    return RunRecord(
        plan=_resolved(prepared),
        provenance=gather_provenance(_ROOT),
        servers=[msgspec.to_builtins(server) for server in prepared.servers],
        started=clock.utc,
        clock=clock,
        deviations=prepared.deviations,
        doubts=doubts,
    )


def _close(prepared: Prepared, record: RunRecord, ending: Ending) -> Closing:
    plan = prepared.plan
    return close_run(
        record,
        ending,
        title=title(plan),
        log_dir=plan.log_dir,
        replicas=[server.url for server in prepared.servers],
        samples=len(prepared.samples),
        accuracy=plan.accuracy,
        ttft_limit_ns=int(prepared.readback["ttft_latency"]) if plan.scenario.poisson else None,
        dataset=plan.input_file,
        settings=prepared.readback,
        benchmark=plan.benchmark.name,
        tpot_limit_ns=int(prepared.readback["tpot_latency"]) if plan.scenario.poisson else None,
        arguments=sys.argv if plan.audit is None else (),  # a compliance test starts anew
        width=shutil.get_terminal_size().columns if sys.stdout.isatty() else None,
    )
