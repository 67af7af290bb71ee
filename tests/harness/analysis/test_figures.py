"""Numbers of a page: early stopping, what happened when, distributions, replicas."""

import math
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from harness.analysis import queries as queries_module
from harness.analysis.bootstrap import estimates
from harness.analysis.distributions import histogram, percentile_curve, sample_points
from harness.analysis.early_stopping import LATE_REPORT_NS, most_over_limit, over_limit_text, surely_slow
from harness.analysis.queries import known_over, metric, of_replica, read_queries
from harness.analysis.replicas import ReplicaWatch, replica_balance
from harness.analysis.run_files import read_run
from harness.analysis.statistics import percentile, statistics
from harness.analysis.timeline import Bins, bins_of, in_flight, percentiles, still_waiting, tokens_per_second
from harness.errors import DatasetError
from harness.record.journal import lost_rows
from harness.record.outcome import FailureKind
from harness.record.requests_table import ByQuery, requests_table, write_requests
from harness.report.html.run_sections import replicas_section
from tests import records
from tests.kit import DATA
from tests.records import ENDED


def passes(over, queries):
    """LoadGen's rule in exact arithmetic: P(X <= over) < 0.01 where a query is over with 0.01."""
    weights = (math.comb(queries, k) * 99 ** (queries - k) for k in range(over + 1))
    return Fraction(sum(weights), 100**queries) < Fraction(1, 100)


def test_a_failed_query_has_no_latencies(tmp_path):
    """Also one whose answer had begun."""
    made = records.rows(9)
    made["failure"][3] = FailureKind.TRUNCATED
    queries = read_queries(records.folder(tmp_path, made) / "requests.parquet")
    for seconds in (queries.ttft, queries.tpot, queries.latency):
        assert np.flatnonzero(np.isnan(seconds)).tolist() == [3]


@pytest.mark.parametrize(
    ("count", "most", "said"),
    [
        (0, 0, ""),
        (1, 0, "1 query over the TTFT limit, none may be"),
        (1, -1, "1 query over the TTFT limit, none may be"),  # so few queries that no run passes
        (2, 1, "2 queries over the TTFT limit, at most 1 may be"),
        (3, 3, ""),
        (2000, 1999, "2,000 queries over the TTFT limit, at most 1,999 may be"),
    ],
)
def test_queries_over_a_limit_are_told_where_they_are_too_many(count, most, said):
    assert over_limit_text("TTFT", count, most) == said


@pytest.mark.parametrize("queries", [458, 459, 661, 662, 2000, 6396])
def test_the_most_queries_over_a_limit_are_loadgens(queries):
    most = most_over_limit(queries)
    assert most < 0 or passes(most, queries)
    assert not passes(most + 1, queries)


# Published systems' query counts, with LoadGen's early_stopping.cc evaluated at them.
@pytest.mark.parametrize(
    ("queries", "most"),
    [(12792, 101), (25584, 219), (51168, 459), (102336, 949), (600_000, 5820), (2_400_000, 23641)],
)
def test_the_most_queries_over_a_limit_of_long_runs(queries, most):
    assert most_over_limit(queries) == most


@pytest.mark.parametrize("osl", [2, 11])
def test_a_tpot_is_over_its_limit_by_the_gaps_between_the_tokens(osl):
    """LoadGen's TPOT is (last - first) / (OSL - 1), its first token as late as the report of it."""
    limit_ns, first = 40_000_000, records.START
    longest = first + (osl - 1) * limit_ns + LATE_REPORT_NS
    rows = records.rows_with(2, osl=osl, first_token_ns=first, last_byte_ns=[longest, longest + 1])
    assert surely_slow(rows, limit_ns)["last_byte_ns"].tolist() == [longest + 1]


@pytest.fixture
def queries(tmp_path, monkeypatch):
    monkeypatch.setattr(queries_module, "_BATCH_ROWS", 100)  # the file is read in several parts
    return read_queries(records.folder(tmp_path, records.failed(records.rows(), 7, 8)) / "requests.parquet")


def test_a_table_that_another_program_has_written_again_is_read(queries, tmp_path):
    """Its labels are no dictionaries then."""
    table = pq.read_table(tmp_path / "requests.parquet")
    texts = {name: table[name].cast(pa.string()) for name in ("replica", "failure")}
    columns = {name: texts.get(name, table[name]) for name in table.column_names}
    pq.write_table(pa.table(columns), tmp_path / "a")
    again = read_queries(tmp_path / "a")
    assert again.replica.tolist() == queries.replica.tolist()
    assert again.completed.tolist() == queries.completed.tolist()


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("sent_ns", pa.int8(), "column sent_ns has values of type int8, expected int64"),
        ("resumed", pa.float64(), "column resumed has values of type double, expected bool"),
        ("isl", pa.string(), "string, expected numbers"),
    ],
)
def test_a_column_of_another_type_is_one_line(queries, tmp_path, name, kind, reason):
    """The page ended with a traceback by the first two, the last was about numbers of values to unpack."""
    table = pq.read_table(tmp_path / "requests.parquet")
    columns = {one: table[one] for one in table.column_names} | {name: pa.nulls(len(table), kind)}
    pq.write_table(pa.table(columns), tmp_path / "requests.parquet")
    with pytest.raises(DatasetError, match=f"is no requests.parquet of a run, or damaged: {reason}"):
        read_queries(tmp_path / "requests.parquet")


def test_columns_are_those_of_the_table(queries):
    rows = records.rows()
    assert len(queries) == len(rows)
    assert np.flatnonzero(~queries.completed).tolist() == [7, 8]
    good = queries.completed
    ttft = (rows["first_token_ns"] - rows["issued_ns"])[good] / 1e9
    np.testing.assert_allclose(queries.ttft[good], ttft, rtol=1e-6)
    np.testing.assert_allclose(queries.tpot[good], 0.04, rtol=1e-5)
    assert np.isnan(queries.latency[~good]).all()
    begin = int(rows["issued_ns"].min())
    assert queries.start_ns == begin
    np.testing.assert_allclose(queries.issued, (rows["issued_ns"] - begin) / 1e9, rtol=1e-6)
    last = (rows["last_byte_ns"] - begin)[good] / 1e9
    np.testing.assert_allclose(queries.ended[good], last, rtol=1e-6)
    np.testing.assert_allclose(queries.latency[good], last - queries.issued[good], rtol=1e-5)
    own = of_replica(queries, 1)
    assert own.osl.tolist() == rows["osl"][rows["replica"] == 1].tolist()
    assert [queries.replicas[code] for code in queries.replica[:3]] == records.REPLICAS
    assert queries.failures == ("timeout",)


def test_a_query_over_a_limit_is_known_when_it_has_waited_that_long_or_at_its_end(queries):
    """By its first token a page said that a run was lost 15 s after the run itself had said so."""
    rows = records.rows()
    for name in ("TTFT", "TPOT"):
        values = metric(queries, name)
        limit = 0.99 * float(np.nanmedian(values))
        known_ns = rows["issued_ns"] + limit * 1e9 if name == "TTFT" else rows["last_byte_ns"]
        known = (known_ns - queries.start_ns)[values > limit] / 1e9
        assert len(known) and known_over(queries, name, limit) == pytest.approx(known)


def test_a_moment_lies_where_the_clocks_that_were_read_together_say(tmp_path):
    start = int(records.rows()["issued_ns"].min())
    clock = replace(ENDED.clock, monotonic_ns=start - 3 * 10**9)
    run = read_run(records.folder(tmp_path, records.rows(), replace(ENDED, clock=clock)))
    assert run.since_first_issue(clock.utc + timedelta(seconds=10)) == pytest.approx(7)
    unknown = replace(ENDED, clock=None)
    for other in (
        read_run(records.folder(tmp_path / "clock", records.rows(), unknown)),
        read_run(records.folder(tmp_path / "lost", lost_rows([(1, 1)]))),  # with no time of an issue
        read_run(DATA / "loadgen/server_invalid"),
    ):
        assert other.since_first_issue(clock.utc) is None


@pytest.mark.parametrize(
    ("run", "result", "limits"),
    [
        ("offline_valid", "VALID", {}),  # its summary has those of Server among the settings
        ("server_invalid", "INVALID", {"TTFT": 0.001, "TPOT": 0.08}),
    ],
)
def test_the_result_and_limits_of_a_run_of_another_harness_are_loadgens(run, result, limits):
    found = read_run(DATA / "loadgen" / run)
    assert (found.result, found.limits) == (result, limits)


def test_a_query_that_failed_without_a_byte_ended_when_loadgen_was_told(tmp_path):
    made = records.failed(records.rows(100), 7)
    told = ByQuery(made["query_id"][[7]], {"reported_done_ns": made["issued_ns"][[7]] + 2 * 10**9})
    write_requests(tmp_path / "requests.parquet", requests_table(made, records.REPLICAS, joined=[told]))
    queries = read_queries(tmp_path / "requests.parquet")
    assert queries.ended[7] - queries.issued[7] == pytest.approx(2, abs=0.01)
    assert np.isnan(queries.latency[7])
    assert not np.isnan(queries.ended).any()


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([(5.0, 10), (7.0, 14), (9.0, 14)], {5: 0, 7: 4, 9: 4, 10: 4}),
        ([(5.0, 13), (7.0, 12), (9.0, 14)], {5: 2, 7: 2, 9: 4}),  # one counted too many
        ([], {1: 4, 10: 4}),
    ],
)
def test_queries_without_an_answer_wait_until_the_end(seen, expected):
    bins = Bins(1.0, 10)
    found = still_waiting(np.full(10, 10.0), bins, seen, unanswered=4)
    assert {time: found[time - 1] for time in expected} == expected
    assert (np.diff(found) >= 0).all()


def test_rates_that_are_compared_are_those_of_the_run(tmp_path):
    """A query that failed by its deadline ten minutes after the last answer is no part of them."""
    made = records.failed(records.rows(), 7)
    told = ByQuery(made["query_id"][[7]], {"reported_done_ns": made["issued_ns"][[7]] + 600 * 10**9})
    write_requests(tmp_path / "requests.parquet", requests_table(made, records.REPLICAS, joined=[told]))
    found, own = estimates(read_queries(tmp_path / "requests.parquet"), seed=1), statistics(made)
    assert found["tokens/s"].value == pytest.approx(own.tokens_per_s, rel=1e-5)
    assert found["samples/s"].value == pytest.approx(own.samples_per_s, rel=1e-5)


class Of(NamedTuple):
    """Stands for a number of queries that took a number of seconds."""

    number: int
    span: float

    def __len__(self):
        return self.number


@pytest.mark.parametrize(
    ("number", "seconds", "until", "parts", "width", "count"),
    [
        (800, 60, 0, 1, 1, 61),  # at most 100
        (800, 60, 0, 2, 2, 31),
        (10, 60, 0, 1, 2, 31),  # at most 40 of so few
        (10, 60, 90, 1, 5, 19),
        (10**6, 62, 0, 1, 0.2, 311),  # at most 600
        (0, 0, 0, 1, 5e-5, 21),
    ],
)
def test_the_bins_of_a_run(number, seconds, until, parts, width, count):
    found = bins_of(Of(number, seconds), until, parts)
    assert (found.width, found.count) == (pytest.approx(width), count)
    assert found.middles[:2] == pytest.approx([width / 2, 1.5 * width])
    assert found.ends[:2] == pytest.approx([width, 2 * width])


def test_tokens_over_time_add_up(queries):
    bins = bins_of(queries)
    assert 40 <= bins.count <= 600
    rate = tokens_per_second(queries, bins)
    assert rate.sum() * bins.width == pytest.approx(queries.osl[queries.completed].sum(), rel=1e-4)
    assert (rate >= 0).all()


def test_answers_that_wait_for_a_slot_in_offline_are_counted_from_the_sending_of_their_requests(tmp_path):
    made = records.rows(600)  # issued at once but one, 6 in flight for 0.5 s each: 480 tokens/s
    made["issued_ns"], made["osl"] = records.START + 5 * 10**9, 40
    made["sent_ns"] = made["issued_ns"] + np.arange(600) // 6 * 500_000_000
    made["issued_ns"][0] = records.START
    made["last_byte_ns"], made["first_token_ns"] = made["sent_ns"] + 500_000_000, 0
    queries = read_run(records.folder(tmp_path, made)).queries
    expected = np.repeat([0, 480], [20, 200])
    np.testing.assert_allclose(tokens_per_second(queries, Bins(0.25, 220)), expected, rtol=1e-3, atol=1e-3)
    figures = replica_balance(made, records.REPLICAS, None).replicas
    assert [one.in_flight for one in figures.values()] == pytest.approx([2, 2, 2])


def test_queries_in_flight_are_counted_at_the_end_of_each_bin(queries):
    bins = bins_of(queries)
    good = queries.completed
    issued, ended = (np.floor(t[good] / bins.width) for t in (queries.issued, queries.ended))
    expected = [((issued <= n) & (ended > n)).sum() for n in range(bins.count)]
    assert in_flight(queries, bins).tolist() == expected


@pytest.mark.parametrize("lost", [0, 3])
def test_percentiles_over_time_are_those_of_each_bin(lost, tmp_path):
    """A third of the queries lost with their worker: of these not even the time of issue is known."""
    made = records.rows()
    if lost:
        at = np.flatnonzero(made["query_id"] % lost == 0)
        gone = lost_rows([(number, number) for number in at.tolist()])
        made = np.concatenate([np.delete(made, at), gone])
    queries = read_queries(records.folder(tmp_path, records.failed(made, 7, 8)) / "requests.parquet")
    bins = bins_of(queries)
    p50, p99 = percentiles(queries.ttft, queries, bins, (0.5, 0.99))
    for number in range(bins.count):
        inside = (queries.issued >= number * bins.width) & (queries.issued < (number + 1) * bins.width)
        values = np.sort(queries.ttft[inside & queries.completed])
        if len(values):
            assert p50[number] == values[int(0.5 * len(values))]
            assert p99[number] == values[int(0.99 * len(values))]
        else:
            assert math.isnan(p50[number])


@pytest.mark.parametrize("count", [2, 4, 65, 1000, 4096])
def test_a_percentile_curve_is_of_loadgens_percentiles(count):
    values = np.random.default_rng(2).permutation(count).astype(float)
    curve = percentile_curve(np.append(values, np.nan))
    shares = 1 - 10.0**-curve.nines
    assert [*curve.values[:-1]] == [percentile(values, share) for share in shares[:-1]]
    assert curve.values[0] == 0 and curve.nines[-1] == math.log10(count)
    assert curve.values[-1] == count - 1


@pytest.mark.parametrize("values", [[np.nan], [7.0, np.nan]])
def test_a_percentile_curve_needs_two_values(values):
    assert percentile_curve(np.array(values)) is None


@pytest.mark.parametrize("most", [1, 2, 60, 61, 119, 20_000])
def test_a_histogram_counts_every_value(most):
    values = np.append(np.random.default_rng(2).integers(1, most, 5000, endpoint=True), [1, most])
    found = histogram(values)
    assert found.edges[0] == 1 and len(found.counts) <= 60
    assert len(set(np.diff(found.edges))) == 1 and found.edges[-2] <= most < found.edges[-1]
    inside = (values[:, None] >= found.edges[:-1]) & (values[:, None] < found.edges[1:])
    assert [*found.counts] == [*inside.sum(axis=0)]
    bins = zip(found.edges[:-1], found.edges[1:], strict=True)
    assert [*found.middles] == [np.arange(low, high).mean() for low, high in bins]


def test_points_hold_what_was_chosen_and_an_even_part_of_the_rest():
    count, kept = 100_000, [5, 77_777]
    rows = sample_points(np.arange(count), np.ones(count), np.isin(np.arange(count), kept))
    assert len(rows) == 4000
    assert set(kept) <= set(rows.tolist())
    assert np.histogram(rows, 4)[0].min() > 900


def test_the_slow_replica_comes_first_and_is_marked(tmp_path):
    run = read_run(records.folder(tmp_path, records.rows(slow=1)))
    (table,) = replicas_section(run, run.queries).tables
    assert table.rows[0][0] == records.REPLICAS[1]
    assert table.marked == {0}
    figures = run.record.balance.replicas
    assert sum(one.queries for one in figures.values()) == len(run.queries)
    assert figures[records.REPLICAS[1]].tpot_p50 == pytest.approx(52e6, rel=1e-4)


@pytest.mark.parametrize(("slower", "named"), [(1.175, "1"), (1.05, "none")])
def test_the_page_judges_two_replicas_as_the_run_does(slower, named, tmp_path):
    """Half of 17.5 % over the mean of both is no 10 %: the slower is compared with the other one."""
    made = records.rows(600)
    made["replica"] = np.arange(600) % 2
    tpot_ns = np.where(made["replica"] == 1, 40e6 * slower, 40e6)
    made["last_byte_ns"] = made["first_token_ns"] + ((made["osl"] - 1) * tpot_ns).astype(np.int64)
    record = replace(ENDED, balance=replica_balance(made, records.REPLICAS[:2], None))
    run = read_run(records.folder(tmp_path, made, record))
    section = replicas_section(run, run.queries)
    assert section.lines[0].endswith(f"the median of all 2: {named}.")
    watch = ReplicaWatch(records.REPLICAS[:2])
    found = [one for now in range(0, 70, 5) for one in watch.look(float(now), made)]
    assert len(found) == (named == "1")


def test_a_replica_that_got_no_query_has_a_row(tmp_path):
    made = records.rows(600)
    made["replica"] = np.arange(600) % 2
    run = read_run(records.folder(tmp_path, made))
    section = replicas_section(run, run.queries)
    (row,) = [row for row in section.tables[0].rows if row[0] == records.REPLICAS[2]]
    assert row == (records.REPLICAS[2], "0", "0", "0", "0.0", "-", "-", "-")
    assert [len(chart.series) for chart in section.charts] == [3, 3]
