"""Statistics against LoadGen's own figures, and against rows counted by hand."""

import json

import numpy as np
import pytest

from harness.analysis.statistics import PERCENTILES, distribution, mean_latency_s, statistics
from harness.loadgen_logs.summary_and_detail import read_summary
from harness.record.journal import QUERY_ROW
from harness.record.outcome import FailureKind
from tests.kit import DATA

RECORDED = DATA / "loadgen"
MS = 1_000_000


def rows_of(*values, **common):
    rows = np.zeros(len(values), QUERY_ROW)
    for i, value in enumerate(values):
        for name, number in (common | value).items():
            rows[name][i] = number
    return rows


def recorded_rows(run):
    """The run's own times, as record.py took them around its calls to LoadGen."""
    names = {"query_id": "id", "issued_ns": "issued", "first_token_ns": "first", "last_byte_ns": "last"}
    names |= {"osl": "tokens"}
    times = json.loads((RECORDED / run / "times.json").read_text())
    return rows_of(*({ours: row[theirs] for ours, theirs in names.items()} for row in times))


@pytest.mark.parametrize(
    ("run", "quantity", "extreme", "field"),
    [
        ("offline_valid", "latency", "latency", "latency"),
        ("server_invalid", "latency", "latency", "latency"),
        ("server_invalid", "first token latency", "First Token latency", "ttft"),
        ("server_invalid", "time to output token", "Time per Output Token", "tpot"),
    ],
)
def test_equals_loadgen(run, quantity, extreme, field):
    """The recorded values lie 10 ms or more apart, so that another rank or an interpolation shows."""
    # LoadGen's names differ by quantity: "first token", "time to output token".
    theirs = read_summary(RECORDED / run / "mlperf_log_summary.txt").figures
    expected = {f"{p:g}": theirs[f"{p:.2f} percentile {quantity} (ns)"] for p in PERCENTILES}
    found = getattr(statistics(recorded_rows(run)), field)
    assert found.count == 64
    assert found.percentiles == pytest.approx(expected, abs=2 * MS)
    others = tuple(theirs[f"{kind} {extreme} (ns)"] for kind in ("Min", "Mean", "Max"))
    assert (found.min, found.mean, found.max) == pytest.approx(others, abs=2 * MS)


def test_rates_equal_loadgen():
    log = read_summary(RECORDED / "offline_valid/mlperf_log_summary.txt")
    found = statistics(recorded_rows("offline_valid"))
    assert found.samples_per_s == pytest.approx(log.figures["Samples per second"], rel=0.005)
    assert found.tokens_per_s == pytest.approx(log.figures["Tokens per second"], rel=0.005)


def test_by_hand():
    rows = rows_of(
        {"sent_ns": 101, "first_token_ns": 130, "last_byte_ns": 190, "isl": 10, "osl": 4},
        {"sent_ns": 103, "first_token_ns": 150, "last_byte_ns": 250, "isl": 20, "osl": 3},
        {"sent_ns": 102, "first_token_ns": 160, "last_byte_ns": 160, "isl": 30, "osl": 1},
        {"failure": FailureKind.TIMEOUT, "last_byte_ns": 9999, "osl": 7},
        {"failure": FailureKind.TIMEOUT},
        {"failure": FailureKind.CONNECT},
        issued_ns=100,
    )
    found = statistics(rows)
    assert (found.queries, found.completed, found.failed) == (6, 3, 3)
    assert found.failures == {"connect": 1, "timeout": 2}
    assert (found.output_tokens, found.isl_mean, found.duration_ns) == (8, 20.0, 150)
    assert found.samples_per_s == 3 / 150e-9
    assert found.osl_mean == pytest.approx(8 / 3)
    assert (found.ttft.min, found.ttft.mean, found.ttft.max) == (30, pytest.approx(140 / 3), 60)
    assert (found.tpot.count, found.tpot.min, found.tpot.max) == (2, 20, 50)
    assert (found.latency.min, found.latency.max) == (60, 150)
    assert mean_latency_s(rows) == pytest.approx(100e-9)
    assert found.issue_delay.percentiles["50"] == 2


def test_percentiles_of_one_to_a_hundred():
    """floor(p * n) counts from zero: p50 of 1..100 is the 51st value."""
    values = np.arange(100, 0, -1, dtype=np.int64)
    found = distribution(values)
    assert found.percentiles == {"50": 51, "90": 91, "95": 96, "97": 98, "99": 100, "99.9": 100}
    assert (found.min, found.max) == (1, 100)
    assert distribution(values[:1]).percentiles["99.9"] == 100


def test_answers_of_an_earlier_attempt_and_complete_ones_lack_times():
    """Of a complete answer no token's time is known, of an earlier one none at all."""
    complete = {"issued_ns": 100, "sent_ns": 101, "last_byte_ns": 190, "osl": 3}
    found = statistics(rows_of({"resumed": 1, "osl": 4}, complete))
    assert (found.completed, found.resumed, found.output_tokens) == (2, 1, 7)
    assert (found.ttft, found.tpot) == (None, None)
    assert (found.latency.count, found.latency.max, found.issue_delay.count) == (1, 90, 1)
    assert found.tokens_per_s == 3 / 90e-9


@pytest.mark.parametrize(
    "more", [(), ({"failure": 1},), ({"failure": 16},), ({"failure": 1, "issued_ns": 5},)]
)
def test_nothing_completed_gives_none_and_never_nan(more):
    rows = rows_of(*more)
    found = statistics(rows)
    assert found.failed == len(rows)
    times, means = ("ttft", "tpot", "latency", "duration_ns"), ("isl_mean", "osl_mean")
    for name in (*times, *means, "samples_per_s", "tokens_per_s"):
        assert getattr(found, name) is None
    assert mean_latency_s(rows) is None


def test_large_latencies_do_not_overflow():
    """3.6 million queries that took an hour: the sum of nanoseconds exceeds 63 bits."""
    found = distribution(np.full(3_600_000, 3600 * 10**9, dtype=np.int64))
    assert found.mean == 3.6e12
