"""VALID only when everything holds: each thing that is wrong makes a run INVALID by itself and is named."""

from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pytest
from msgspec.structs import replace

from harness.analysis.next_rate import rate_after
from harness.analysis.statistics import statistics
from harness.analysis.verdict import clock_reasons, hidden_misses, is_of_clock, run_verdict
from harness.config.scenario import Scenario
from harness.loadgen_logs.summary_and_detail import CLOCK_FORMAT, LoadgenDetail, parse_summary
from harness.record.journal import COMPLETE, LOADGEN_CALL_ROW
from harness.record.outcome import FailureKind
from harness.record.run_record import RunVerdict
from tests.kit import DATA
from tests.records import ENDED, START, rows_with, started, with_plan

SAMPLES = 64


def summary(name):
    return parse_summary((DATA / "loadgen" / name / "mlperf_log_summary.txt").read_text())


VALID = summary("offline_valid")
ACCURACY = parse_summary("\nNo warnings encountered during test.\n\nNo errors encountered during test.\n")


def all_rows():
    """Every sample answered once."""
    return rows_with(SAMPLES, query_id=np.arange(SAMPLES) + 1000, sample_index=np.arange(SAMPLES), osl=8)


def ended(rows=None, *, accuracy=False, issued=None, loadgen=VALID, errors=()):
    """What the verdict is made of: a record with the statistics of ``rows``, and the rows."""
    rows = all_rows() if rows is None else rows
    record = started(mode="accuracy" if accuracy else "performance", samples=SAMPLES)
    record = replace(record, statistics=statistics(rows), loadgen=loadgen)
    return record, rows, len(rows) if issued is None else issued, errors


def of_percentile(record, percentile):
    """The same of a Server run, whose limits are for this percentile."""
    settings = record.settled.loadgen_settings | {"server_target_latency_percentile": percentile}
    return with_plan(record, scenario=Scenario.SERVER, loadgen_settings=settings)


def scored(rows=None, loadgen=ACCURACY):
    return ended(rows, accuracy=True, loadgen=loadgen)


def with_rows(accuracy=False, **columns):
    """Row 3 changed; in an accuracy run LoadGen's summary is that of one."""
    rows = all_rows()
    for name, value in columns.items():
        rows[name][3] = value
    return scored(rows) if accuracy else ended(rows)


def by_the_clocks(client_s, loadgen_s, at_once=None, slewed_s=0.0):
    """A run by how long the client's clock and LoadGen's say it took; each query has ``at_once`` samples.

    ``slewed_s``: by how much both were fast.
    """
    calls = np.zeros(2, LOADGEN_CALL_ROW)
    calls["kind"], calls["reported_ns"] = COMPLETE, (START + int(client_s * 1e9), START + 1)
    begin = datetime(2026, 10, 25)
    times = (f"{moment:{CLOCK_FORMAT}}" for moment in (begin, begin + timedelta(seconds=loadgen_s)))
    values = dict(zip(("power_begin", "power_end"), times, strict=True))
    detail = LoadgenDetail(values | {"generated_samples_per_query": at_once}, {}, {})
    return (*ended(), tuple(clock_reasons(detail, calls, START, int(slewed_s * 1e9))))


def hiding(late, steps_s=7.0):
    """A Server run of 2000 queries that LoadGen calls VALID; ``late`` are over the limit by our clock."""
    rows = rows_with(2000, query_id=np.arange(2000) + 1000, osl=8)
    rows["first_token_ns"] = rows["issued_ns"] + 1
    rows["first_token_ns"][:late] += ENDED.limits_ns["TTFT"]
    rows["last_byte_ns"] = rows["first_token_ns"] + 1
    record = replace(ENDED, statistics=statistics(rows), loadgen=VALID)
    return record, rows, len(rows), (), tuple(hidden_misses(record, rows, int(steps_s * 1e9)))


CLOCKS = [(28_800, 28_790), (6.04, 6.51, 1_650_000), (600, 600, None, 0.3), (600, 600, None, -0.3)]


def failing(*kinds):
    rows = all_rows()
    rows["failure"][: len(kinds)] = kinds
    return rows


@pytest.mark.parametrize(
    "run",
    [
        ended,
        scored,
        *(partial(by_the_clocks, *clocks) for clocks in CLOCKS),
        partial(hiding, 9),
        partial(hiding, 10, 0.2),
        lambda: (*scored(), ("the wall clock was set",)),  # no time of an accuracy run counts
    ],
)
def test_all_is_well(run):
    verdict = run_verdict(*run())
    assert verdict == RunVerdict("VALID", (), complete=True)


def test_performance_may_answer_a_sample_often():
    """LoadGen draws samples of a performance run as often as it needs."""
    assert run_verdict(*with_rows(sample_index=5)).result == "VALID"


TWO_KINDS = (FailureKind.TIMEOUT, FailureKind.CONNECT, FailureKind.TIMEOUT)
# Each with values that a reason of the verdict names.
ONE_WRONG = [
    ("an error of the run", ended(errors=["worker 1 died"]), ["worker 1 died"]),
    ("a failed query", with_rows(failure=FailureKind.HTTP_STATUS), ["1 of 64", "http_status 1"]),
    ("failures of two kinds", ended(failing(*TWO_KINDS)), ["3 of 64", "timeout 2, connect 1"]),
    ("an unknown failure", with_rows(failure=99), ["1 of 64", "unknown_99 1"]),
    ("a query without outcome", ended(issued=65), ["65", "64"]),
    ("an outcome without query", ended(issued=63), ["63", "64"]),
    ("one query twice, another never", with_rows(query_id=1005), ["1 query has"]),
    ("no query", ended(all_rows()[:0]), ["no query"]),
    ("no summary", ended(loadgen=parse_summary("", problem="missing")), ["missing"]),
    ("an empty summary", ended(loadgen=parse_summary("")), ["empty"]),
    ("a cut summary", ended(loadgen=parse_summary("Result is : VALID\n")), ["cut short"]),
    ("errors beside VALID", ended(loadgen=replace(VALID, errors=600)), ["600"]),
    (
        "recorded errors",
        ended(loadgen=summary("server_errors")),
        [f"{summary('server_errors').errors} errors"],
    ),
    ("no result", ended(loadgen=replace(VALID, result_valid=None)), ["no result"]),
    ("LoadGen reports INVALID", ended(loadgen=summary("server_invalid")), ["INVALID", "Early stopping"]),
    ("INVALID of no cause", ended(loadgen=replace(VALID, result_valid=False)), ["INVALID"]),
    ("a wall clock that was set", by_the_clocks(2.9, 1.31), ["2.90 s", "1.31 s by LoadGen", "chronyd"]),
    ("the same in Offline", by_the_clocks(600, 603, 6396), ["600.00 s", "603.00 s by LoadGen"]),
    ("the same, backwards", by_the_clocks(0.6, 1.31), ["0.60 s", "1.31 s by LoadGen"]),
    (
        "clocks that ran slow",
        by_the_clocks(550, 550, None, -50.0),
        ["50.00 s slow in the 550.00 s", "chronyc"],
    ),
    ("clocks that ran fast", by_the_clocks(600, 600, None, 1.0), ["1.00 s fast in the 600.00 s"]),
    ("a wall clock that was set and set back", hiding(10), ["10 queries over the TTFT limit, at most 9"]),
    ("accuracy: a sample unanswered", scored(all_rows()[1:]), ["1 of 64"]),
    ("accuracy: all samples unanswered", scored(all_rows()[:0]), ["64 of 64"]),
    ("accuracy: a sample twice", with_rows(accuracy=True, sample_index=5), ["1 sample was"]),
    ("accuracy: a failed query", with_rows(accuracy=True, failure=5), ["1 of 64 samples"]),
    ("accuracy: errors", scored(loadgen=replace(ACCURACY, errors=1)), ["logged 1 error"]),
]


OF_CLOCK = {
    "a wall clock that was set",
    "the same in Offline",
    "the same, backwards",
    "clocks that ran slow",
    "clocks that ran fast",
    "a wall clock that was set and set back",
}
# Every query has its complete answer, and LoadGen no error: only the measurement does not count.
COMPLETE_ALL_THE_SAME = {"no result", "LoadGen reports INVALID", "INVALID of no cause"} | OF_CLOCK


@pytest.mark.parametrize(("what", "found", "values"), ONE_WRONG, ids=[case[0] for case in ONE_WRONG])
def test_one_thing_wrong_is_enough(what, found, values):
    verdict = run_verdict(*found)
    assert verdict.result == "INVALID"
    assert any(all(value in line for value in values) for line in verdict.reasons)
    assert verdict.complete is (what in COMPLETE_ALL_THE_SAME)
    assert any(map(is_of_clock, verdict.reasons)) is (what in OF_CLOCK)


def test_where_there_is_no_clock_to_compare():
    calls = np.ones(1, LOADGEN_CALL_ROW)
    calls["kind"] = COMPLETE
    assert list(clock_reasons(LoadgenDetail({}, {}, {}), calls, START, 0)) == []
    record, rows, *_ = hiding(10)
    without_stream = replace(record.plan.client.parameters, stream=False)
    for other in (
        replace(record, loadgen=None),
        replace(record, loadgen=replace(VALID, result_valid=False)),  # LoadGen itself says what was missed
        with_plan(record, parameters=without_stream),
        with_plan(record, audit_text="*.*.accuracy_log_sampling_target = 6396\n"),  # a test may be slow
    ):
        assert list(hidden_misses(other, rows, 7 * 10**9)) == []


# TTFT limit lowered to 1 ms, TPOT 80 ms; 40.46 samples/s of 100 were completed
MISSED = ("680.3 ms", "1.000 ms", "970.1 ms", "80.00 ms", "40.46", "Performance constraints, Early stopping")


@pytest.mark.parametrize(
    ("name", "named", "absent"),
    [
        ("server_invalid", MISSED, ["constrain not met", "TPOT early stopping"]),
        # its TPOT is that of queries without tokens: no time, so LoadGen's words stay
        ("server_errors", ["TPOT constrain not met"], ["TPOT p99", "TTFT p99", "a guess"]),
    ],
)
def test_a_missed_limit_is_named_with_its_value(name, named, absent):
    text = "\n".join(run_verdict(*ended(loadgen=summary(name))).reasons)
    assert [part for part in named if part not in text] == []
    assert [part for part in absent if part in text] == []


@pytest.mark.parametrize(
    ("name", "percentile", "named", "absent"),
    [
        # 60 queries of a real vLLM with target_latency_percentile 50: p50 was within the limit, p99 was not
        ("server_percentile_50", 0.5, ["at least 13 more queries"], ["TPOT p", "a guess"]),
        # one of three servers hung for 45 s: a p50 of 101 ms, and a p99 of 1550 ms
        (
            "server_percentile_50_hung",
            0.5,
            ["TPOT p50 is 101.3 ms, the limit is 80.00 ms", "target_qps = 16"],
            ["TTFT", "TPOT constrain not met"],
        ),
        # a percentile that LoadGen does not print
        ("server_percentile_50_hung", 0.8, ["TPOT constrain not met"], ["TPOT p", "a guess"]),
    ],
)
def test_a_trial_is_judged_by_the_percentile_of_its_limits(name, percentile, named, absent):
    record, *others = ended(loadgen=summary(name))
    text = "\n".join(run_verdict(of_percentile(record, percentile), *others).reasons)
    assert [part for part in named if part not in text] == []
    assert [part for part in absent if part in text] == []


@pytest.mark.parametrize(
    ("target", "reached", "ttft_ms", "tpot_ms", "guess"),
    [
        (100, 99, 3300, 40, 89),  # keeps up, TTFT missed: a step below
        (100, 40, 9000, 40, 36),  # falls behind: below what it completed
        (100, 99, 1000, 160, 50),  # TPOT twice its limit: half of the requests in flight
        (100, 99, 1000, 81, 89),
    ],
)
def test_the_rate_to_try(target, reached, ttft_ms, tpot_ms, guess):
    loadgen = replace(
        summary("server_invalid"),
        figures={
            "Completed samples per second": reached,
            "99.00 percentile first token latency (ns)": ttft_ms * 1_000_000,
            "99.00 percentile time to output token (ns)": tpot_ms * 1_000_000,
        },
        parameters={
            "target_qps": str(target),
            "ttft_latency (ns)": "3000000000",
            "tpot_latency (ns)": "80000000",
        },
    )
    (line,) = [line for line in run_verdict(*ended(loadgen=loadgen)).reasons if "a guess" in line]
    assert float(line.rpartition("= ")[2]) == guess


@pytest.mark.parametrize(
    "name", ["Completed samples per second", "target_qps", "ttft_latency (ns)", "tpot_latency (ns)"]
)
def test_no_rate_follows_from_a_summary_without(name):
    """Its TTFT and TPOT were both over their limits."""
    whole = summary("server_invalid")
    figures, parameters = (
        {key: value for key, value in one.items() if key != name} for one in (whole.figures, whole.parameters)
    )
    damaged = replace(whole, figures=figures, parameters=parameters)
    reasons = run_verdict(*ended(loadgen=damaged)).reasons
    named = any(reason.startswith("target_qps was") for reason in reasons)
    assert named is (rate_after(damaged, 0.99) is not None) is name.endswith("latency (ns)")


def test_an_early_stopping_that_succeeded_is_no_reason():
    loadgen = summary("server_percentile_50")
    results = loadgen.early_stopping | {"TTFT": ("Run successful.",)}  # the words of a VALID run
    record, *others = ended(loadgen=replace(loadgen, early_stopping=results))
    reasons = run_verdict(of_percentile(record, 0.5), *others).reasons
    named = [reason.partition(" early stopping: ") for reason in reasons]
    assert [name for name, found, _ in named if found] == ["TPOT"]


def test_too_few_queries_for_the_early_stopping_of_single_stream():
    stopped = ("Only processed 60 queries.", "Need to process at least 64 queries for early stopping.")
    results = {"TTFT": (), "TPOT": stopped}  # as LoadGen wrote them
    loadgen = replace(VALID, scenario="SingleStream", result_valid=False, early_stopping=results)
    assert f"TPOT early stopping: {' '.join(stopped)}" in run_verdict(*ended(loadgen=loadgen)).reasons


@pytest.mark.parametrize(
    ("scenario", "met", "figures", "named"),
    [
        ("Offline", False, {"Samples per second": 881.2}, "target_qps = 882 "),
        ("Offline", True, {"Samples per second": 881.2}, ""),
        ("Offline", False, {}, ""),
        ("Server", False, {"Completed samples per second": 881.2}, ""),
        ("SingleStream", False, {"Mean latency (ns)": 4418938}, "target_latency was 100 ms, 4.419 ms"),
        ("SingleStream", False, {"Mean latency (ns)": 4418938}, "target_latency = 4 "),
        ("SingleStream", False, {"Mean latency (ns)": 418938}, "target_latency = 1 "),
        ("SingleStream", True, {"Mean latency (ns)": 4418938}, ""),
        ("SingleStream", False, {}, ""),
    ],
)
def test_a_run_that_was_too_short_names_the_conf_that_makes_it_long_enough(scenario, met, figures, named):
    constraints = {"Min duration": met}
    loadgen = replace(VALID, scenario=scenario, result_valid=False, constraints=constraints, figures=figures)
    reasons = str(run_verdict(*ended(loadgen=loadgen)).reasons)
    assert ("long enough" in reasons, named in reasons) == (bool(named), True)


def test_single_tokens_explain_loadgens_errors():
    rows = all_rows()
    rows["osl"][:2] = 1
    (reason,) = run_verdict(*ended(rows, loadgen=replace(VALID, errors=2))).reasons
    assert "2 errors" in reason and "(2 answers have a single token" in reason


def test_everything_wrong_is_told_at_once():
    rows = all_rows()[:-1]
    rows["failure"][0] = FailureKind.TIMEOUT
    found = ended(rows, issued=70, errors=["a", "b"], loadgen=replace(VALID, errors=3))
    assert (
        len(run_verdict(*found, clock=["the wall clock was set"]).reasons) == 5
    )  # which a failure can cause


def test_no_rate_follows_from_times_that_do_not_count():
    """A clock that was set back made the run too short for LoadGen, which advises a higher rate then."""
    advice = "Increase expected QPS so the loadgen pre-generates a larger (coalesced) query."
    constraints, figures = {"Min duration": False}, {"Samples per second": 881.2}
    short = {"result_valid": False, "constraints": constraints, "recommendations": (advice,)}
    loadgen = replace(VALID, scenario="Offline", figures=figures, **short)
    invalid = "LoadGen reports INVALID: Min duration not satisfied"
    assert len(run_verdict(*ended(loadgen=loadgen)).reasons) == 3
    verdict = run_verdict(*ended(loadgen=loadgen), clock=["the wall clock was set"])
    assert verdict.reasons == ("the wall clock was set", invalid)


def test_a_clock_that_was_set_comes_before_the_logs_that_it_damaged():
    """LoadGen writes inf and numbers of 20 digits there."""
    verdict = run_verdict(
        *ended(), clock=["the wall clock was set"], logs=["mlperf_log_detail.txt is damaged"]
    )
    assert verdict.reasons == ("the wall clock was set", "mlperf_log_detail.txt is damaged")
    assert not verdict.complete
