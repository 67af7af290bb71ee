"""The tables of a run: percentiles, how queries ended, this client, warnings, what ran."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.analysis.queries import Queries
from harness.analysis.run_files import RunFiles
from harness.config.server_urls import folded
from harness.loadgen_logs.summary_and_detail import TIMES, LoadgenSummary
from harness.record.resolved_plan import ServerInfo
from harness.record.run_record import Distribution, ReplicaNetwork, RunRecord
from harness.report.html.page import Section, Table
from harness.report.network import first_token_line, network_line
from harness.report.progress_line import milliseconds

_LISTED = 8  # server URLs; the replicas' table has all of them


def percentile_tables(run: RunFiles) -> Iterator[Table]:
    """Percentiles from this client's own journal."""
    stats = run.record.statistics if run.record is not None else None
    if stats is None:
        return
    rows = {"TTFT": stats.ttft, "TPOT": stats.tpot, "latency": stats.latency}
    yield _distribution_table({f"{name}, ms": row for name, row in rows.items() if row is not None})


def _distribution_table(rows: Mapping[str, Distribution]) -> Table:
    names = list(next(iter(rows.values())).percentiles) if rows else []
    return Table(
        ("", "mean", "min", *(f"p{name}" for name in names), "max"),
        [
            (name, *map(milliseconds, (row.mean, row.min, *row.percentiles.values(), row.max)))
            for name, row in rows.items()
        ],
    )


def endings(queries: Queries) -> Table:
    """The ends of the queries."""
    rows = [
        (name, f"{count:,}", f"{count / len(queries):.2%}")
        for names, codes in ((queries.finish_reasons, queries.finish), (queries.failures, queries.failure))
        for number, name in enumerate(names)
        if (count := int((codes == number).sum()))
    ]
    return Table(("end of the query", "queries", "share"), rows)


def loadgen_percentiles(run: RunFiles) -> Iterator[Table]:
    """LoadGen's own percentiles, where single queries are not known."""
    rows = []
    for name in TIMES:
        figures = {
            share: run.summary.percentile_ns(name, share)
            for share in ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")
        }
        if figures["50.00"] is not None:
            rows.append((f"{name}, ms", *("" if v is None else milliseconds(v) for v in figures.values())))
    if rows:
        yield Table(("LoadGen's summary", "p50", "p90", "p95", "p97", "p99", "p99.9"), rows)


def client_section(record: RunRecord) -> Section:
    """The delays that this client added."""
    stats = record.statistics
    rows = {
        "issue delay, ms": stats.issue_delay if stats is not None else None,
        "client share, ms": record.client_share,
    }
    known = {name: row for name, row in rows.items() if row is not None}
    if not known:
        return Section("client", "This client")
    lines = [
        "Issue delay: from LoadGen's call until the request is sent, connecting included. Client share: from "
        "the arrival of a token until LoadGen is called. Both are inside LoadGen's figures."
    ]
    if record.schedule_lag_mean_ns is not None:
        lines.append(
            f"LoadGen issued {milliseconds(record.schedule_lag_mean_ns)} ms behind its schedule on average."
        )
    if record.client_load is not None:
        cores = ", ".join(f"{name} {share:.0%}" for name, share in record.client_load.cores.items())
        lines.append(f"Busiest second of each process, of one core: {cores}.")
    return Section("client", "This client", lines, tables=[_distribution_table(known)])


def network_section(record: RunRecord) -> Section:
    """Figures of this client's kernel about the network, for each server."""
    text = network_line(record.network)
    if not text:
        return Section("network", "Network")
    lines = [f"{part[0].upper()}{part[1:]}." for part in (text, first_token_line(record)) if part]
    header = (
        *(
            "server",
            "round trip, ms: least",
            "mean",
            "connections",
            "connecting, ms: mean",
            "longest",
            "failed",
        ),
        *("queries that waited", "segments sent", "sent again", "received", "after a gap"),
    )
    lossy = [one.retransmitted + one.gaps for one in record.network.values()]
    rows = [_network_row(url, one) for url, one in record.network.items()]
    marked = frozenset(number for number, lost in enumerate(lossy) if lost)
    folded = f"All {len(rows)} servers" if len(rows) > _LISTED else ""
    return Section("network", "Network", lines, tables=[Table(header, rows, marked, folded)])


def _network_row(url: str, one: ReplicaNetwork) -> tuple[str, ...]:
    trip = (_or_dash(one.rtt_min_ns), _or_dash(one.rtt_mean_ns))
    connecting = (_or_dash(one.connect_mean_ns), _or_dash(one.connect_max_ns))
    counts = (one.failed_connects, one.waited, one.sent, one.retransmitted, one.received, one.gaps)
    return (url, *trip, f"{one.connects:,}", *connecting, *(f"{count:,}" for count in counts))


def _or_dash(nanoseconds: float | None) -> str:
    return "-" if nanoseconds is None else milliseconds(nanoseconds)


def warnings_section(record: RunRecord) -> Section:
    """Warnings, deviations, examples of failures."""
    tables = []
    if record.warnings:
        tables.append(
            Table(("warnings: reasons to distrust these numbers",), [(line,) for line in record.warnings])
        )
    if record.deviations:
        tables.append(
            Table(
                ("deviations from the benchmark's rules: NOT OFFICIAL",),
                [(line,) for line in record.deviations],
            )
        )
    examples = [(kind, text) for kind, texts in record.failure_examples.items() for text in texts]
    if examples:
        tables.append(Table(("failure", "example"), examples))
    return Section("warnings", "Warnings and deviations", tables=tables)


def provenance_section(record: RunRecord) -> Section:
    """Command, data, servers, software, machine, LoadGen's settings."""
    plan, settled = record.plan, record.settled
    made, host = record.provenance, record.provenance.host
    rows = {
        "command": shlex.join(made.command),
        "dataset": f"{plan.client.input_file} ({settled.samples:,} samples, sha256 {settled.dataset_sha256})",
        "generation": json.dumps(plan.client.parameters, default=_plain),
        "servers": folded(plan.client.server_urls),
        "engines": ", ".join(dict.fromkeys(f"{s.engine} {s.version or ''}".strip() for s in record.servers)),
        "user.conf": str(plan.user_conf),
        "workers": str(settled.placement),
        "harness": "unknown"
        if made.git is None
        else made.git.commit + (", with local changes" if made.git.dirty else ""),
        "packages": ", ".join(f"{name} {version}" for name, version in made.packages.items() if version),
        "python": made.python,
        "host": f"{host.hostname}, {host.cpu_model or host.machine}, {host.cpus} CPUs, kernel {host.kernel}",
    }
    settings = Table(
        ("LoadGen setting", "value"),
        [(name, str(value)) for name, value in settled.loadgen_settings.items()],
        folded="LoadGen's settings",
    )
    return Section(
        "provenance",
        "What ran",
        tables=[Table((), [(name, text) for name, text in rows.items() if text]), *_served(record), settings],
    )


def _served(record: RunRecord) -> Iterator[Table]:
    """The models and versions of the servers, equal ones in one row, and the servers that were left out."""
    kinds: dict[tuple[str, ...], list[ServerInfo]] = {}
    for server in record.servers:
        limits = (server.context_length, server.max_running_requests, server.dp_size, server.stream_interval)
        options = ", ".join(f"{name} {value}" for name, value in (server.settings | server.differs).items())
        name = f"{server.engine} {server.version or ''}".strip()
        cells = (name, server.names, *("-" if limit is None else f"{limit:,}" for limit in limits), options)
        kinds.setdefault(cells, []).append(server)
    rows = [
        (f"{len(found):,}", folded(one.url for one in found), *cells[:-1], *_trials(found), cells[-1])
        for cells, found in sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    ]
    limits_of = ("context", "runs at once", "dp", "stream interval")
    trials = ("trial request, s: median", "longest")
    header = ("servers", "URL", "engine", "serves", *limits_of, *trials, "settings")
    hidden = "Models and versions of the servers" if len(rows) > _LISTED else ""
    if rows:
        yield Table(header, rows, folded=hidden)
    reasons: dict[str, list[str]] = {}
    for url, reason in record.left_out.items():
        reasons.setdefault(reason, []).append(url)
    if reasons:
        left_out = [(f"{len(urls):,}", folded(urls), reason) for reason, urls in reasons.items()]
        yield Table(("servers left out", "URL", "reason"), left_out)


def _trials(servers: Sequence[ServerInfo]) -> tuple[str, str]:
    times = sorted(one.trial_s for one in servers if one.trial_s is not None)
    return (f"{times[len(times) // 2]:.2f}", f"{times[-1]:.2f}") if times else ("-", "-")


def _plain(value: object) -> Any:
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", ())
    return {name: getattr(value, name) for name in fields} if fields else str(value)


def parameters_section(summary: LoadgenSummary) -> Section:
    """The parameters that LoadGen printed."""
    if not summary.parameters:
        return Section("parameters", "LoadGen")
    table = Table(
        ("parameter", "value"), list(summary.parameters.items()), folded="Parameters in LoadGen's summary"
    )
    return Section("parameters", "LoadGen", tables=[table])
