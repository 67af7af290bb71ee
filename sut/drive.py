"""The common part of runs with LoadGen and without it: servers, preflight, queries to their end."""

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress

import msgspec
from msgspec.structs import replace

from harness.analysis.answer_lengths import LengthWatch
from harness.analysis.finish_run import Observations
from harness.analysis.rank_watch import RankWatch
from harness.cli.signals import InterruptedRun, signal_name, uninterrupted
from harness.config.benchmark import Benchmark
from harness.config.plans import ClientPlan
from harness.config.protocol import own_protocol, protocol_text
from harness.dataset.samples import SampleSet
from harness.defects import Defects
from harness.errors import RunError, ServerError, in_words, machine_failure
from harness.files import JOURNAL_DIR, ROOT, user_cache
from harness.grading.decoding.text_tokenizer import TextTokenizer, text_tokenizer
from harness.progress.lost_run import LostRunError, ValidityRules
from harness.progress.progress_files import ProgressLine, ProgressLog
from harness.progress.progress_line import ProgressSnapshot
from harness.record.settled import ServerInfo, parts_of, running_limit
from sut.client.endpoint import Endpoint, access_by, resolve_endpoints
from sut.ipc.request_store import render_requests
from sut.prepare import PreparedClient
from sut.processes.machine_limits import local_ports
from sut.servers.apis import TrialRequests, Tried
from sut.servers.discovery import Servers, find_servers, left_out_warning, require
from sut.servers.embedded.engine import EmbeddedEngine
from sut.servers.embedded.tiny_models import ENDING, model_for
from sut.servers.health import Recheck
from sut.servers.preflight import flush_caches, grammar_warning, id_summary, trial_summary
from sut.servers.scrape import MetricsScraper
from sut.supervisor.alarms import Alarms, LossRule
from sut.supervisor.connection_limits import with_enough_sources
from sut.supervisor.disk_room import DiskRoom
from sut.supervisor.monitor import Totals
from sut.supervisor.progress_meter import ProgressMeter, RunLength
from sut.supervisor.servers_rate import ServersRate
from sut.supervisor.session import QuerySession, wires_of
from sut.worker.worker import Destination

_CACHE = ROOT / ".cache"
_EMBEDDED_SLOTS = 16
_FEW_TOKENS = 256  # the embedded engine is done with such answers in seconds
# For the answers of all servers after the last query: signals are ignored meanwhile.
_END_S, _EARLY_END_S = 10.0, 2.0

log = logging.getLogger("mlperf")
log.addHandler(logging.NullHandler())  # a caller that sets up no logging sees none

Death = Callable[[], str]  # how the embedded engine ended; "" while it runs
Serving = tuple[Sequence[str], Death]  # the URLs to drive and their engine


@contextmanager
def serving_urls(plan: ClientPlan, samples: SampleSet, least_context: int = 0) -> Iterator[Serving]:
    """The URLs to drive and how their engine died; the embedded engine lives as long as the context.

    ``least_context``: tokens of prompt and answer of further samples that it is to take.
    """
    if plan.backend != "embedded":
        yield plan.server_urls, lambda: ""
        return
    limit = plan.parameters.max_new_tokens
    if limit > _FEW_TOKENS and plan.benchmark.embedded_model not in ENDING:
        log.warning(
            "warning: an answer may have %s tokens, which takes this engine minutes; --max-new-tokens 32 is "
            "enough to try a set-up",
            f"{limit:,}",
        )
    context = max(samples.longest(limit), least_context) + 1
    with engine_of(plan.benchmark, _EMBEDDED_SLOTS, context) as engine:
        try:
            yield (engine.url,), engine.death
        except ServerError as error:
            if death := engine.death():
                raise ServerError(death) from error
            raise


def engine_of(benchmark: Benchmark, slots: int, context: int) -> EmbeddedEngine:
    """The embedded engine with a benchmark's tiny model, not started; ``context``: tokens of a slot."""
    cache = _CACHE if os.access(_CACHE if _CACHE.exists() else ROOT, os.W_OK) else user_cache()
    model = model_for(benchmark, cache)
    log.info("starting the embedded engine with %s", model.name)
    return EmbeddedEngine(model.path, log_dir=cache, slots=slots, context_per_slot=context)


def ask_servers(plan: ClientPlan, urls: Sequence[str]) -> Servers:
    """What the servers at ``urls`` say of themselves, as ``find_servers`` does with the plan's options."""
    return find_servers(urls, plan.backend, access_by(plan.ca_file), plan.preflight, plan.benchmark.model)


def preflight(prepared: PreparedClient) -> tuple[PreparedClient, Destination, tuple[str, ...]]:
    """Send one real request to every replica and flush its prompt there.

    Returns the servers that can be used, with the time of that request, the destination of the queries, and
    warnings. Servers that failed are left out if the plan allows it.
    """
    plan, least = prepared.plan, prepared.plan.preflight.min_replicas
    tried = TrialRequests(
        prepared.servers,
        plan.parameters,
        plan.benchmark.vocabulary_size,
        prepared.samples,
        plan.preflight.trial_s,
        to_the_end=least is not None,
        endpoints_of=lambda urls, path: _endpoints(prepared, urls, path),
    ).settled()
    faults = [
        (server.url, one.error)
        for server, one in zip(prepared.servers, tried.trials, strict=True)
        if one.error
    ]
    left_out = require(faults, len(prepared.servers), least)
    servers, endpoints = _usable(prepared, tried)
    prepared = replace(prepared, servers=servers, left_out={**prepared.left_out, **left_out})
    if len(servers) > 1:
        log.info(trial_summary(servers))
    if tried.protocol != own_protocol(tried.protocol.dialect):
        log.info("trial requests: %s", protocol_text(tried.protocol))
    if words := id_summary(servers):
        log.info(words)
    warnings = grammar_warning(tried.seen, plan.parameters)
    warnings += flush_caches(servers, access_by(plan.ca_file))
    if left_out:
        warnings = (*left_out_warning(left_out, len(tried.trials)), *warnings)
    destination = Destination(
        endpoints,
        tried.protocol,
        prepared.servers[0].served_name,
        tried.seen,
        tokenizer=answer_tokenizer(prepared),
    )
    return prepared, destination, warnings


def _usable(prepared: PreparedClient, tried: Tried) -> tuple[tuple[ServerInfo, ...], tuple[Endpoint, ...]]:
    """The servers whose trial succeeded and their endpoints, with what it has shown."""
    servers, endpoints = [], []
    for server, endpoint, one in zip(prepared.servers, tried.endpoints, tried.trials, strict=True):
        if one.error is not None:
            continue
        runs = running_limit([server]) if prepared.all_at_once else 1
        seconds, answers = one.seconds and round(one.seconds, 4), tried.protocol.answers
        servers.append(replace(server, trial_s=seconds, answers=answers, repeats_ids=one.repeats_ids))
        endpoints.append(
            replace(
                endpoint,
                keep_alive=one.keeps_alive,
                repeats_ids=one.repeats_ids,
                counts_prompts=one.counts_prompts,
                runs=runs,
            )
        )
    return tuple(servers), tuple(endpoints)


def answer_tokenizer(prepared: PreparedClient) -> TextTokenizer | None:
    """What encodes the answers of servers that send text. Raises ConfigError where there is none."""
    plan = prepared.plan
    if prepared.servers[0].answers == "ids":
        return None
    return text_tokenizer(plan.benchmark, plan.input_file, plan.tokenizer)


def tried_in_dry_run(prepared: PreparedClient) -> PreparedClient:
    """Send the trial requests where an API is asked for: whether a server takes it shows in no page."""
    return prepared if prepared.plan.api is None else preflight(prepared)[0]


def _endpoints(prepared: PreparedClient, urls: Sequence[str], path: str) -> list[Endpoint]:
    """The endpoints of these URLs, each with addresses for the largest part of the connections."""
    parts = parts_of(prepared.servers, in_proportion=prepared.all_at_once)
    each, ports = math.ceil(prepared.connections * max(parts)), local_ports()
    found = resolve_endpoints(urls, path, access_by(prepared.plan.ca_file))
    return [with_enough_sources(endpoint, each, ports) for endpoint in found]


class DrivenRun(msgspec.Struct, frozen=True):
    """Queries to servers, ready to begin."""

    session: QuerySession
    prepared: PreparedClient
    destination: Destination
    death: Death
    length: RunLength
    rules: ValidityRules = msgspec.field(default_factory=ValidityRules)
    """for the progress"""
    on_progress: Callable[[ProgressSnapshot], None] | None = None
    on_line: Callable[[ProgressLine], None] = lambda line: None
    scraper: MetricsScraper | None = None
    ranks: RankWatch = msgspec.field(default_factory=RankWatch)
    """fed by the scraper"""
    lengths: LengthWatch | None = None
    """of a run whose answers' lengths are judged"""
    lost: LossRule | None = None
    """None for a run that can be made good"""


@contextmanager
def ended(run: DrivenRun, begin: Callable[[], None] = lambda: None) -> Iterator[Observations]:
    """Drive the run to its end, whatever ends it, and give what was observed.

    ``begin`` comes first. Signals are ignored in the block, which writes the result.
    """
    session, log_dir = run.session, run.prepared.plan.log_dir
    servers, rate, defects = recheck_of(run.prepared), ServersRate(), Defects()
    may_fail = run.lost is None
    progress = ProgressLog(log_dir, run.rules, servers.urls, run.on_line, run.lengths, may_fail=may_fail)
    looks: _Looks | None = None
    ended_early = True
    with ExitStack() as ending:
        try:
            begin()
            if run.scraper is not None:
                run.scraper.start(run.ranks.page, servers.page, rate.page)
            _start_workers(run)
            looks = _Looks(run, progress, servers, rate, defects)
            seen = session.observations(session.run(looks, servers, lambda: progress.waits_ns))
            ended_early = False
            ending.enter_context(uninterrupted())
        except (InterruptedRun, KeyboardInterrupt) as interruption:
            ending.enter_context(uninterrupted())
            seen = session.observations(session.abort(), interrupted_by=signal_name(interruption))
        except LostRunError as error:
            ending.enter_context(uninterrupted())
            seen = replace(session.observations(session.abort()), cannot_be_valid=str(error))
        except (RunError, OSError, MemoryError) as error:
            ending.enter_context(uninterrupted())
            cause = error if isinstance(error, RunError) else machine_failure(error)
            seen = session.observations(session.abort(), error=str(cause))
        with _costs_a_line(), closing(progress):
            if ended_early and looks is not None:
                looks.last()
        if run.scraper is not None:
            found = run.scraper.stop()
            seen = replace(seen, warnings=(*seen.warnings, *found.warnings), without_metrics=found.without)
        changes = () if run.lengths is None else run.lengths.changes
        warnings = (*seen.warnings, *changes, *defects.found)
        seen = replace(seen, stragglers=progress.watch.stragglers, warnings=warnings)
        yield asked_again(seen, servers)


def recheck_of(prepared: PreparedClient) -> Recheck:
    """The servers of a prepared run, to be asked again."""
    plan = prepared.plan
    journal, within_s = plan.log_dir / JOURNAL_DIR, plan.preflight.questions_s
    return Recheck(prepared.servers, plan.backend, access_by(plan.ca_file), within_s, journal)


def asked_again(seen: Observations, servers: Recheck) -> Observations:
    """The observations with what the servers name now. A run that has ended early waits less for them."""
    warnings = servers.ask_all(_EARLY_END_S if seen.errors or seen.interrupted_by else _END_S)
    return replace(seen, warnings=(*seen.warnings, *warnings), changes=servers.changes)


def _start_workers(run: DrivenRun) -> None:
    """Render the requests and start the workers. Raises RunError, OSError, MemoryError."""
    prepared, destination = run.prepared, run.destination
    store = render_requests(prepared.samples, wires_of(prepared.plan, destination))
    run.session.start_workers(destination, store, prepared.placement.workers, prepared.concurrency)


class _Looks:
    """Looks at the run once a second: progress, alarms, and whether it is to end."""

    def __init__(
        self, run: DrivenRun, progress: ProgressLog, servers: Recheck, rate: ServersRate, defects: Defects
    ) -> None:
        session, prepared = run.session, run.prepared
        self._run = run
        self._progress = progress
        self._defects = defects
        self._room = DiskRoom(prepared.plan.log_dir)
        self._meter = ProgressMeter(
            *(run.length, session.failures),
            in_flight=session.in_flight,
            urls=servers.urls,
            limited=bool(prepared.concurrency),
            at_once=min(filter(None, (running_limit(prepared.servers), prepared.concurrency))),
            servers_rate=rate,
        )
        self._alarms = Alarms(
            *(session, prepared.servers, run.ranks, prepared.plan.policy, run.lost),
            *(servers.health, servers.doubt),
        )

    def __call__(self, totals: Totals) -> None:
        """Raises RunError or LostRunError where the run is to end."""
        if words := self._run.death():
            raise RunError(f"ended early: {words}")
        with self._defects.cost("progress and alarms of some seconds"):
            snapshot = self._alarms.look(self._meter(totals))
            self._progress(snapshot)
            with suppress(OSError):  # the folder is gone: the monitor ends the run
                if text := self._room.look(snapshot.elapsed_s, snapshot.remaining_s):
                    log.warning("warning: %s", text)
            if self._run.on_progress is not None:
                self._run.on_progress(_with_recent(snapshot, self._progress))
            self._alarms.end_run(snapshot)

    def last(self) -> None:
        """The counters of a run that was ended early, for the last line; the alarms stay as they were."""
        with self._defects.cost("the last line of the progress"):
            self._progress(self._alarms.marked(self._meter(self._run.session.totals())))


@contextmanager
def _costs_a_line() -> Iterator[None]:
    """What the machine or ``on_line`` lacks at the end costs the last line: it may be what ended the run."""
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        log.warning("warning: no last line of the progress: %s", in_words(error))


def _with_recent(snapshot: ProgressSnapshot, progress_log: ProgressLog) -> ProgressSnapshot:
    """With the figures of the last minute, for the line on the terminal."""
    if (last := progress_log.last) is None:
        return snapshot
    return replace(snapshot, straggling=last.straggling, ttft=last.ttft, tpot=last.tpot)
