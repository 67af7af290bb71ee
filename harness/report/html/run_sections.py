"""The tables of a run: its score, percentiles, ends, replicas, this client, warnings, what ran."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from harness.analysis.network_summary import first_token_line, network_line
from harness.analysis.queries import Queries
from harness.analysis.replicas import SLOWER, middle_of, straggler_warnings, stragglers_text
from harness.analysis.run_files import RunFiles
from harness.config.server_urls import folded
from harness.grouping import by_key
from harness.loadgen_logs.summary_and_detail import PERCENTS, TIMES, LoadgenSummary
from harness.record.accuracy_result import AccuracyResult, MetricFigures, ModeFigures
from harness.record.replica_figures import ReplicaBalance, ReplicaFigures
from harness.record.run_record import Distribution, ReplicaNetwork, RunRecord
from harness.record.settled import ServerInfo
from harness.report.html.page import PageTable, Section
from harness.report.html.replica_charts import replica_charts
from harness.text import milliseconds

_LISTED = 8  # rows; a longer table of servers is folded away
_FOLDED_FROM = 24  # rows; a longer table of replicas is folded away
_REPLICA_HEADER = (
    "replica",
    "queries",
    "failed",
    "tokens",
    "in flight, mean",
    "TTFT p99, ms",
    "TPOT p50, ms",
    "TPOT p99, ms",
)


def accuracy_section(folder: Path) -> Iterator[Section]:
    """Nothing where the run was not scored. Raises ConfigError for a damaged result."""
    if (result := AccuracyResult.read(folder)) is not None:
        yield _score(result)


def _score(result: AccuracyResult) -> Section:
    target, tokens = result.target, result.output_tokens
    lines = [
        f"Target {'met' if target.met else 'NOT met'}, by {target.mode} rules.",
        f"Output tokens: {tokens.mean:,.1f} on average, {tokens.min:,} to {tokens.max:,}; the token "
        f"limit ended {tokens.truncated_share:.2%} of the outputs.",
    ]
    if result.missing:
        lines.append(f"Samples without an output: {len(result.missing):,}.")
    tables = [
        _metrics(target.metrics),
        _datasets(result.modes),
        *_grades(result.reasons),
        _lines("warnings of the evaluator", result.warnings),
    ]
    return Section("accuracy", "Accuracy", lines, tables=tables)


def _lines(title: str, lines: Sequence[str]) -> PageTable:
    return PageTable((title,), [(line,) for line in lines])


def _metrics(metrics: Mapping[str, MetricFigures]) -> PageTable:
    rows = [
        (name, f"{m.value:.4f}", f"{m.lowest:.4f}", _bound(m.highest), "yes" if m.met else "NO")
        for name, m in metrics.items()
    ]
    missed = frozenset(number for number, m in enumerate(metrics.values()) if not m.met)
    return PageTable(("metric", "value", "at least", "at most", "met"), rows, missed)


def _bound(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _datasets(modes: Mapping[str, ModeFigures]) -> PageTable:
    """Right answers by data set, a row for each mode; text metrics have none."""
    rows = [
        (name, mode, f"{part.correct:,} of {part.total:,}", f"{part.accuracy:.2f} %")
        for mode, figures in modes.items()
        for name, part in figures.per_dataset.items()
    ]
    return PageTable(("data set", "rules", "right", "share"), sorted(rows))


def _grades(modes: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[PageTable]:
    """Outputs by reason of their grade, for each data set and mode."""
    for mode, datasets in modes.items():
        reasons = sorted({reason for counts in datasets.values() for reason in counts})
        rows = [(name, *(f"{counts.get(one, 0):,}" for one in reasons)) for name, counts in datasets.items()]
        yield PageTable((f"grades by {mode} rules", *reasons), rows)


def percentile_tables(run: RunFiles) -> Iterator[PageTable]:
    """Percentiles from this client's own journal."""
    stats = run.record.statistics if run.record is not None else None
    if stats is None:
        return
    rows = {"TTFT": stats.ttft, "TPOT": stats.tpot, "latency": stats.latency}
    yield _distribution_table({f"{name}, ms": row for name, row in rows.items() if row is not None})


def _distribution_table(rows: Mapping[str, Distribution]) -> PageTable:
    names = list(next(iter(rows.values())).percentiles) if rows else []
    return PageTable(
        ("", "mean", "min", *(f"p{name}" for name in names), "max"),
        [
            (name, *map(milliseconds, (row.mean, row.min, *row.percentiles.values(), row.max)))
            for name, row in rows.items()
        ],
    )


def endings(queries: Queries) -> PageTable:
    """How the queries ended."""
    rows = [
        (name, f"{count:,}", f"{count / len(queries):.2%}")
        for names, codes in ((queries.finish_reasons, queries.finish), (queries.failures, queries.failure))
        for number, name in enumerate(names)
        if (count := int((codes == number).sum()))
    ]
    return PageTable(("end of the query", "queries", "share"), rows)


def loadgen_percentiles(run: RunFiles) -> PageTable:
    """LoadGen's own percentiles, for runs without requests.parquet."""
    rows = []
    for name in TIMES:
        figures = {percent: run.summary.percentile_ns(name, percent) for percent in PERCENTS}
        if figures["50.00"] is not None:
            rows.append((f"{name}, ms", *("" if v is None else milliseconds(v) for v in figures.values())))
    return PageTable(("LoadGen's summary", *(f"p{float(percent):g}" for percent in PERCENTS)), rows)


def replicas_section(run: RunFiles, queries: Queries) -> Section:
    """A row for each of several replicas; the one whose TPOT is furthest from the median comes first."""
    record = run.record
    if record is None or record.balance is None or record.statistics is None:
        return Section("replicas", "Replicas")
    figures = record.balance.replicas
    known = [one.tpot_p50 for one in figures.values() if one.tpot_p50 is not None]
    middle = middle_of(np.array(known, float))
    replicas = sorted(figures.items(), key=lambda one: -_distance(one[1], middle))
    slow = frozenset(
        number for number, (_, one) in enumerate(replicas) if (one.tpot_p50 or 0) > SLOWER * middle
    )
    line = (
        f"Replicas with a median TPOT over {SLOWER:g} times the median of all {len(replicas)}: "
        f"{len(slow) or 'none'}."
    )
    judged = [line] if len(known) > 1 else []
    lines = [*judged, *_balance_lines(record.balance, record.statistics.duration_s)]
    folded = f"All {len(replicas)} replicas" if len(replicas) > _FOLDED_FROM else ""
    return Section(
        "replicas",
        "Replicas",
        tuple(lines),
        charts=tuple(replica_charts(run, queries, figures)),
        tables=[PageTable(_REPLICA_HEADER, [_replica_row(*one) for one in replicas], slow, folded)],
    )


def _distance(one: ReplicaFigures, middle: float) -> float:
    return 0.0 if one.tpot_p50 is None or np.isnan(middle) else abs(one.tpot_p50 - middle)


def _balance_lines(balance: ReplicaBalance, seconds: float) -> Iterator[str]:
    if balance.imbalance is not None:
        yield f"Imbalance: {balance.imbalance:.3f}, the largest mean number in flight over the mean of all."
    text = stragglers_text(balance, seconds)
    if not balance.stragglers:
        yield f"{text[0].upper()}{text[1:]}."
    for warning in straggler_warnings(balance.stragglers or (), len(balance.replicas)):
        yield f"{warning}."


def _replica_row(url: str, one: ReplicaFigures) -> tuple[str, ...]:
    counts = (one.queries, one.failed, one.output_tokens)
    times = (one.ttft_p99, one.tpot_p50, one.tpot_p99)
    return (url, *(f"{count:,}" for count in counts), f"{one.in_flight:.1f}", *map(_or_dash, times))


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
    return Section("network", "Network", lines, tables=[PageTable(header, rows, marked, folded)])


def _network_row(url: str, one: ReplicaNetwork) -> tuple[str, ...]:
    trip = (_or_dash(one.rtt_min_ns), _or_dash(one.rtt_mean_ns))
    connecting = (_or_dash(one.connect_mean_ns), _or_dash(one.connect_max_ns))
    counts = (one.failed_connects, one.waited, one.sent, one.retransmitted, one.received, one.gaps)
    return (url, *trip, f"{one.connects:,}", *connecting, *(f"{count:,}" for count in counts))


def _or_dash(nanoseconds: float | None) -> str:
    return "-" if nanoseconds is None else milliseconds(nanoseconds)


def doubts_sections(record: RunRecord) -> Iterator[Section]:
    """Warnings, examples of failures, and deviations."""
    examples = [(kind, text) for kind, texts in record.failure_examples.items() for text in texts]
    tables = [
        _lines("reasons to distrust these numbers", record.warnings),
        _lines("LoadGen's errors and warnings", record.loadgen_messages),
        PageTable(("failure", "example"), examples),
    ]
    yield Section("warnings", "Warnings and failures" if examples else "Warnings", tables=tables)
    broken = _lines("this run does not keep these rules of the benchmark", record.deviations)
    yield Section("deviations", "Not official", tables=[broken])


def provenance_section(record: RunRecord) -> Section:
    """Command, data, servers, software, machine, LoadGen's settings."""
    plan, settled = record.plan, record.settled
    made, host = record.provenance, record.provenance.host
    rows = {
        "command": shlex.join(made.command),
        "folder": made.folder,
        "dataset": f"{plan.client.input_file} ({settled.samples:,} samples, sha256 {settled.dataset_sha256})",
        "generation": json.dumps(msgspec.to_builtins(plan.client.parameters)),
        "servers": folded(plan.client.server_urls),
        "engines": ", ".join(dict.fromkeys(one.software for one in record.servers)),
        "user.conf": str(plan.user_conf),
        "workers": str(settled.placement),
        "harness": "unknown" if made.git is None else str(made.git),
        "packages": ", ".join(f"{name} {version}" for name, version in made.packages.items() if version),
        "python": made.python,
        "host": f"{host.hostname}, {host.cpu_model or host.machine}, {host.cpus} CPUs, kernel {host.kernel}",
    }
    settings = PageTable(
        ("LoadGen setting", "value"),
        [(name, str(value)) for name, value in settled.loadgen_settings.items()],
        folded="LoadGen's settings",
    )
    return Section(
        "provenance",
        "What ran",
        tables=[
            PageTable((), [(name, text) for name, text in rows.items() if text]),
            *_served(record),
            settings,
        ],
    )


def _served(record: RunRecord) -> Iterator[PageTable]:
    """The models and versions of the servers, equal ones in one row, and the servers that were left out."""
    kinds: dict[tuple[str, ...], list[ServerInfo]] = {}
    for server in record.servers:
        limits = (server.context_length, server.max_running_requests, server.dp_size, server.stream_interval)
        options = ", ".join(f"{name} {value}" for name, value in (server.settings | server.differs).items())
        shown = ("-" if limit is None else f"{limit:,}" for limit in limits)
        cells = (server.software, server.names, *shown, options)
        kinds.setdefault(cells, []).append(server)
    rows = [
        (f"{len(found):,}", folded(one.url for one in found), *cells[:-1], *_trials(found), cells[-1])
        for cells, found in sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    ]
    limits_of = ("context", "runs at once", "dp", "stream interval")
    trials = ("trial request, s: median", "longest")
    header = ("servers", "URL", "engine", "serves", *limits_of, *trials, "settings")
    hidden = "Models and versions of the servers" if len(rows) > _LISTED else ""
    yield PageTable(header, rows, folded=hidden)
    reasons = by_key((reason, url) for url, reason in record.left_out.items())
    left_out = [(f"{len(urls):,}", folded(urls), reason) for reason, urls in reasons.items()]
    yield PageTable(("servers left out", "URL", "reason"), left_out)


def _trials(servers: Sequence[ServerInfo]) -> tuple[str, str]:
    times = sorted(one.trial_s for one in servers if one.trial_s is not None)
    return (f"{times[len(times) // 2]:.2f}", f"{times[-1]:.2f}") if times else ("-", "-")


def parameters_section(summary: LoadgenSummary) -> Section:
    """The parameters that LoadGen printed."""
    table = PageTable(
        ("parameter", "value"), list(summary.parameters.items()), folded="Parameters in LoadGen's summary"
    )
    return Section("parameters", "LoadGen", tables=[table])
