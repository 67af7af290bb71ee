"""The figures of a line of progress.jsonl in Prometheus's text format (version 0.0.4)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from harness.analysis.replicas import SLOWER
from harness.progress.progress_files import Latencies, ProgressLine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A name with its samples; none are left out of the text."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


def metrics(line: ProgressLine) -> tuple[Metric, ...]:
    """Every metric, also those without a sample yet. Times are in seconds."""
    return (*_queries(line), *_latencies(line), *_limits(line), *_replicas(line))


def _queries(line: ProgressLine) -> Iterator[Metric]:
    yield _gauge("mlperf_progress_timestamp_seconds", "Unix time of these figures", line.time.timestamp())
    yield _gauge("mlperf_elapsed_seconds", "Since the first query", line.elapsed_s)
    yield _gauge("mlperf_remaining_seconds", "Estimated", line.remaining_s)
    yield _gauge("mlperf_queries_expected", "Queries that are expected to be issued in all", line.total)
    yield _counter("mlperf_queries_issued_total", "Queries issued by LoadGen", line.issued)
    yield _counter("mlperf_queries_completed_total", "Queries with an answer", line.completed)
    yield _counter("mlperf_queries_failed_total", "Queries that failed", line.failed)
    yield _counter_by("mlperf_failures_total", "Failed queries", "kind", line.failures.items())
    yield _gauge("mlperf_queries_in_flight", "Queries issued and not ended", line.in_flight)


def _latencies(line: ProgressLine) -> Iterator[Metric]:
    yield _gauge("mlperf_output_tokens_per_second", "Over the last ten seconds", line.tokens_per_s)
    yield _gauge(
        "mlperf_answers_last_minute", "Answers that ended in the last minute", line.ended_last_minute
    )
    yield _quantiles("mlperf_ttft_seconds", "TTFT of the last minute's answers", line.ttft)
    yield _quantiles("mlperf_tpot_seconds", "TPOT of the last minute's answers", line.tpot)


def _limits(line: ProgressLine) -> Iterator[Metric]:
    over = line.over_limit.items()
    yield _counter_by(
        "mlperf_queries_over_limit_total",
        "Queries over a latency limit",
        "latency",
        ((name, part.queries) for name, part in over),
    )
    yield _gauge_by(
        "mlperf_queries_over_limit_allowed",
        "The most with which the run can be VALID; -1: the run has too few queries",
        "latency",
        ((name, part.most) for name, part in over),
    )
    limits = ((name, part.limit_ms / 1e3) for name, part in over)
    yield _gauge_by("mlperf_latency_limit_seconds", "The limits", "latency", limits)


def _replicas(line: ProgressLine) -> Iterator[Metric]:
    yield _gauge(
        "mlperf_stragglers", f"Replicas above {SLOWER:g} x the median TPOT for a minute", line.stragglers
    )
    yield _gauge(
        "mlperf_imbalance",
        "Largest mean number in flight on a replica over that of all, last minute",
        line.imbalance,
    )
    yield _gauge_by(
        "mlperf_slow_replica_tpot_seconds",
        "Median TPOT of the last minute of the slowest replicas",
        "replica",
        ((one.url, one.tpot_p50_ms / 1e3) for one in line.slowest),
    )
    yield _gauge_by(
        "mlperf_slow_replica_tpot_ratio",
        "The same over the median of all replicas",
        "replica",
        ((one.url, one.ratio) for one in line.slowest),
    )


def metrics_text(line: ProgressLine | None) -> str:
    """The exposition; empty before the first line."""
    return "" if line is None else "".join(row + "\n" for one in metrics(line) for row in _rows(one))


def _rows(metric: Metric) -> Iterator[str]:
    if not metric.samples:
        return
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in metric.samples:
        inner = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items())
        yield f"{metric.name}{f'{{{inner}}}' if inner else ''} {value!r}"


def _counter(name: str, words: str, value: float) -> Metric:
    return Metric(name, "counter", words, (({}, value),))


def _gauge(name: str, words: str, value: float | None) -> Metric:
    return Metric(name, "gauge", words, () if value is None else (({}, value),))


def _counter_by(name: str, words: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    return Metric(name, "counter", words, _labelled(label, values))


def _gauge_by(name: str, words: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    return Metric(name, "gauge", words, _labelled(label, values))


def _labelled(label: str, values: Iterable[tuple[str, float]]) -> tuple[Sample, ...]:
    return tuple(({label: key}, value) for key, value in values)


def _quantiles(name: str, words: str, part: Latencies | None) -> Metric:
    """A gauge, not a summary: those count since the run began."""
    values = () if part is None else (("0.5", part.p50_ms / 1e3), ("0.99", part.p99_ms / 1e3))
    return _gauge_by(name, words, "quantile", values)
