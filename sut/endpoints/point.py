"""One performance point of a curve: a session of the client, from the trial request to point_run.json.

Each point has a session of its own: its requests carry salts of their own, so they are rendered anew, and its
workers follow from its concurrency. The servers stay, and are asked for by the caller once.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from harness.analysis.finish_run import Observations
from harness.analysis.statistics import completed, failures_by_kind
from harness.analysis.verdict import slewed
from harness.config.deadlines import Deadlines
from harness.config.plans import ClientPlan
from harness.dataset.samples import SampleSet
from harness.endpoints.curve import Curve, Point
from harness.endpoints.planning.rules import rules_of
from harness.endpoints.point_numbers import PointRows, client_bound, own_numbers, warm_up_of
from harness.endpoints.point_progress import PointPhase
from harness.endpoints.point_requests import write_point_requests
from harness.endpoints.point_run import PointRun, write_point_run
from harness.endpoints.rehearsal.live_passes import LivePasses
from harness.endpoints.run_folder import POINT_RUN
from harness.endpoints.salting import salt_seed, salted, text_after
from harness.errors import ConfigError, unwritten
from harness.files import JOURNAL_DIR, REQUESTS
from harness.progress.progress_line import ProgressSnapshot
from harness.record.journal import JournalTail, lost_rows, read_journal
from harness.record.output_dir import aside_of, free_reserve, locked, move_aside_existing
from harness.record.provenance import gather_provenance
from harness.record.run_events import SeenEvent
from harness.text import counted
from sut.client.endpoint import access_by
from sut.drive import Death, DrivenRun, ended, preflight
from sut.endpoints.idle_round_trip import idle_round_trip
from sut.issuers.passes import Passes, SampleOrder
from sut.prepare import PreparedClient, client_holds, place_workers, prepare_client
from sut.servers.discovery import Servers
from sut.servers.scrape import MetricsScraper
from sut.supervisor.placement import Load
from sut.supervisor.progress_meter import RunLength
from sut.supervisor.session import QuerySession
from sut.worker.worker import Destination

# A warm-up sends twice the number in flight: the first half begins at once, the second half as those end, as
# under a steady load. It is not longer than a pass, unless fewer would not fill the servers.
_WAVES = 2
_OFFLINE_EACH = 16  # requests to each server before everything is issued at once; they end first
_UNKNOWN_NETWORK = "the round trip without load is not known: no server keeps a connection to /v1/models"


class OpenServers(msgspec.Struct, frozen=True):
    """Servers that are there for all points of a rehearsal."""

    client: ClientPlan
    """of the performance runs; each point has a folder and a concurrency of its own"""
    samples: SampleSet
    """the performance dataset as its file has it; each point salts it"""
    servers: Servers
    """as they were found"""
    death: Death
    """how the embedded engine has ended"""
    tokenizer: Path | None = None
    """a given tokenizer.json, or its folder, for the salt; None: the benchmark's"""


class PointWatcher(Protocol):
    """Receives the progress of a point."""

    def progress(self, point: Point, elapsed_s: float, phase: str) -> None:
        """Called about once a second: the warm-up, a pass, the drain, with failures so far."""

    def passed(self, point: Point, steady: str) -> None:
        """Called once a minute at most, when a further pass is complete: whether the point is steady."""


def run_point(
    curve: Curve, point: Point, servers: OpenServers, folder: Path, watcher: PointWatcher
) -> PointRun:
    """Run one point and leave its run folder; also the result of an interrupted or failed point comes back.

    Raises HarnessError for whatever keeps it from starting, InterruptedRun for a signal before its first
    request. ``complete`` of the result is True only where it ended by its rule. An earlier run in the folder
    is moved aside.
    """
    seed = salt_seed(curve, point, _earlier(folder)) if curve.salt_bits else ""
    prepared = _prepared(curve, point, servers, folder, seed)
    with locked(folder):
        prepared, destination, warnings = preflight(prepared)
        _require_ids(destination)
        move_aside_existing(folder)
        network = idle_round_trip(destination.endpoints)
        issuer = _issuer(curve, point, prepared)
        run = PointRun(
            curve=curve,
            point=point,
            input_file=str(prepared.plan.input_file),
            dataset_sha256=prepared.samples.sha256,
            tokenizer=prepared.plan.tokenizer,
            parameters=prepared.plan.parameters,
            servers=prepared.servers,
            provenance=gather_provenance(),
            started=datetime.now(UTC),
            salt_seed=seed,
            network=network,
            warnings=(
                *prepared.warnings,
                *warnings,
                *_fewer_in_flight(curve, point, prepared),
                *(() if network else (_UNKNOWN_NETWORK,)),
            ),
            deviations=(*prepared.plan.deviations, *prepared.deviations),
        )
        write_point_run(folder, run)
        return _measured(run, issuer, prepared, destination, servers.death, watcher)


def _require_ids(destination: Destination) -> None:
    """The first fragment of an answer is told from the rest by its tokens. Raises ConfigError."""
    if destination.tokenizer is not None:
        raise ConfigError(
            f"{destination.endpoints[0].url} answers in text, a point needs token ids; omit --api, or use "
            "one that gives ids back"
        )


def _measured(
    run: PointRun,
    issuer: Passes,
    prepared: PreparedClient,
    destination: Destination,
    death: Death,
    watcher: PointWatcher,
) -> PointRun:
    """The point from its first request to its files."""
    client, folder = prepared.plan, prepared.plan.log_dir
    phase = PointPhase(run.curve, run.point, issuer.warm_up)
    tail = JournalTail(folder / JOURNAL_DIR)
    passes = LivePasses(run.curve.samples, rules_of(run.curve).least_issue_s(run.point.concurrency))

    def on_progress(snapshot: ProgressSnapshot) -> None:
        lost = _lost(session.events.events)
        watcher.progress(run.point, snapshot.elapsed_s, phase(snapshot, lost))
        if run.point.offline != "dedicated" and (words := passes.add(tail.read())):
            watcher.passed(run.point, words)

    with QuerySession(client, issuer, prepared.placement) as session:
        driven = DrivenRun(
            session,
            prepared,
            destination,
            death,
            RunLength(issuer.warm_up + run.curve.samples * run.point.passes, least_s=run.point.issue_s),
            on_progress=on_progress,
            scraper=MetricsScraper(prepared.servers, folder, access_by(client.ca_file)),
        )
        with ended(driven) as seen:
            return _finished(run, issuer, folder, seen)


def _finished(run: PointRun, issuer: Passes, folder: Path, seen: Observations) -> PointRun:
    """The point with what its files and processes show, written to its folder."""
    journal = read_journal(folder / JOURNAL_DIR)
    rows = PointRows.of(np.concatenate([journal.rows, lost_rows(seen.lost)]))
    counted, (first, last) = rows.counted, rows.issue_ns
    warmed = min(seen.issued, issuer.warm_up)
    issued = seen.issued - warmed
    source = f"{run.input_file}, {'salted' if run.curve.salt_bits else 'not salted'}"
    run = replace(
        run,
        ended=datetime.now(UTC),
        warm_up=warm_up_of(rows, warmed, issuer.warm_up_concurrency, source, _steps(run)),
        issued=issued,
        completed=len(completed(counted)),
        failures=failures_by_kind(counted),
        passes=issued // run.curve.samples,
        issue_s=(last - first) / 1e9,
        drain_s=(rows.last_completion_ns - last) / 1e9,
        client_bound=tuple(client_bound(run.point, rows, seen.client.cpu)),
        own=own_numbers(rows),
        errors=(*seen.errors, *_server_errors(seen), *_broken(journal.broken)),
        warnings=(*run.warnings, *(one for one in seen.warnings if one not in seen.outages)),
        interrupted_by=seen.interrupted_by,
    )
    run = replace(run, errors=(*run.errors, *_clock_errors(run, seen.slewed_ns)))
    urls = [server.url for server in run.servers]
    run = _written(run, folder / REQUESTS, lambda: write_point_requests(folder, rows, urls, journal.details))
    free_reserve(folder)
    if not run.errors and not run.interrupted_by:
        run = replace(run, errors=tuple(_cut(run)))
    run = replace(run, complete=not run.errors and not run.interrupted_by)
    return _written(run, folder / POINT_RUN, lambda: write_point_run(folder, run))


def _cut(run: PointRun) -> Iterator[str]:
    """What shows that a point did not end by its rule; nothing where every request of it has an end."""
    ended, wanted = run.completed + sum(run.failures.values()), run.point.passes * run.curve.samples
    if not run.issued == ended == run.passes * run.curve.samples >= wanted:
        yield (
            f"{ended} of {run.issued} requests have an end, expected complete passes of {run.curve.samples}, "
            f"at least {run.point.passes}; run the point again"
        )


def _lost(events: Sequence[SeenEvent]) -> str:
    """Why the point cannot become complete, "" if it can. A server that changed is out of use, too."""
    out = next((event.server for event in events if event.kind == "server_out"), "")
    return out and f"{out} was out of use"


def _server_errors(seen: Observations) -> Iterator[str]:
    """Servers that changed or were out of use: the point is not that of the servers it names."""
    for change in seen.changes:
        yield f"{change.reason}: the point may be of either; start it as it was, and run the point again"
    for outage in seen.outages:
        yield f"{outage}; run the point again"


def _clock_errors(run: PointRun, slewed_ns: int) -> Iterator[str]:
    """Times are CLOCK_MONOTONIC's, which is never set, but slewed."""
    warm_up_s = 0.0 if run.warm_up is None else run.warm_up.duration_s
    yield from slewed(warm_up_s + run.issue_s + run.drain_s, slewed_ns)


def _broken(rows: int) -> tuple[str, ...]:
    return (f"{counted(rows, 'row')} of the journal cannot be read; run the point again",) if rows else ()


def _written(run: PointRun, path: Path, write: Callable[[], object]) -> PointRun:
    """The run, incomplete with one more error where the file system refuses its file."""
    try:
        write()
    except OSError as error:
        return replace(run, complete=False, errors=(*run.errors, unwritten(path, error)))
    return run


def _earlier(folder: Path) -> int:
    """Earlier runs of the point: in the folder, and moved aside."""
    return len(list(folder.parent.glob(f"{folder.name}.*"))) + (aside_of(folder) is not None)


def _prepared(curve: Curve, point: Point, servers: OpenServers, folder: Path, seed: str) -> PreparedClient:
    """The client of a point, checked. Raises ConfigError and ServerError."""
    benchmark = servers.client.benchmark
    samples = salted(servers.samples, benchmark, curve.salt_bits, seed, servers.tokenizer)
    client = replace(servers.client, log_dir=folder.absolute())
    at_once = point.offline == "dedicated"
    if at_once:
        client = _unstreamed(client)
        most = client_holds(client, servers.servers.found)
        total = point.passes * curve.samples
        client = replace(client, max_concurrency=min(total, client.max_concurrency or total, most))
    else:
        client = replace(client, max_concurrency=point.concurrency)
    load = Load(open_at_most=client.max_concurrency, all_at_once=at_once)
    prepared = prepare_client(client, samples, load, place_workers(client, load), servers.servers)
    # A closed loop holds its number by itself.
    return prepared if at_once else replace(prepared, concurrency=None)


def _unstreamed(client: ClientPlan) -> ClientPlan:
    """Complete answers: no time of a token is measured where everything is issued at once."""
    return replace(
        client,
        parameters=replace(client.parameters, stream=False),
        deadlines=Deadlines(request_s=client.deadlines.request_s),
        policy=replace(client.policy, ask_in_silence=True),
    )


def _issuer(curve: Curve, point: Point, prepared: PreparedClient) -> Passes:
    """The plan of the requests; the warm-up has at least one for each server."""
    at_once, servers = point.offline == "dedicated", len(prepared.servers)
    held = min(_OFFLINE_EACH * servers, prepared.concurrency or point.concurrency)
    warm_up = held
    if not at_once:
        held = point.concurrency
        warm_up = min(_WAVES * held, max(held, curve.samples))
    return Passes(
        order=SampleOrder(curve.samples, curve.seeds.sample_index, curve.replacement),
        concurrency=None if at_once else held,
        warm_up=max(warm_up, servers),
        warm_up_concurrency=held,
        passes=point.passes,
        issue_s=point.issue_s,
        text_after=text_after(prepared.plan.benchmark),
    )


def _fewer_in_flight(curve: Curve, point: Point, prepared: PreparedClient) -> Iterator[str]:
    total, held = point.passes * curve.samples, prepared.concurrency
    if point.offline == "dedicated" and held is not None and held < total:
        yield (
            f"Offline: {total} requests are issued at once, of which the client holds {held} in flight, what "
            "this machine's ports and open files allow"
        )


def _steps(run: PointRun) -> tuple[str, ...]:
    """What was done before the warm-up's requests."""
    flushed = any(server.has_sglang_pages for server in run.servers)
    trial = "one trial request to each server"
    return (trial, "prefix caches flushed") if flushed else (trial,)
