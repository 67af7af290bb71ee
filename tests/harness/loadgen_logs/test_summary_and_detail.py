"""LoadGen's logs: real submissions of MLPerf v6.0, and small runs of LoadGen 6.0.17 (tests/data/loadgen)."""

import math

import pytest
from msgspec.structs import replace

from harness.loadgen_logs import summary_and_detail
from harness.loadgen_logs.summary_and_detail import (
    LoadgenDetail,
    parse_summary,
    printed,
    read_detail,
    read_summary,
    result_lines,
)
from tests.runs import ROOT

RECORDED = ROOT / "tests/data/loadgen"
SUBMITTED = ROOT.parent / "shared/data/mlperf_v6.0/closed"
AMD = "AMD/results/8xMI355X_2xEPYC_9575F/gpt-oss-120b"
NEBIUS = "Nebius/results/nebius_b200_n1/gpt-oss-120b"
REDHAT = "RedHat/results/8xB200-LLM-D-Openshift/gpt-oss-120b"

submitted = pytest.mark.skipif(not SUBMITTED.is_dir(), reason="the submitted logs are not in the project")

TOKENS_PER_SECOND, SCHEDULED = "Completed tokens per second", "Scheduled samples per second"
# folder, scenario, valid, errors, warnings, one figure: read off the files
PERFORMANCE = [
    (f"{AMD}/Offline/performance/run_1", "Offline", True, 0, 0, None),
    (f"{AMD}/Offline/TEST07/performance/run_1", "Offline", True, 0, 1, None),
    (f"{AMD}/Offline/TEST09/performance/run_1", "Offline", True, 0, 3, None),
    (f"{AMD}/Server/performance/run_1", "Server", True, 0, 0, ("Mean First Token latency (ns)", 687235954)),
    (f"{AMD}/Server/TEST07/performance/run_1", "Server", True, 1, 1, (TOKENS_PER_SECOND, 166299.82)),
    (f"{NEBIUS}/Server/TEST07/performance/run_1", "Server", True, 0, 1, ("Max latency (ns)", 155822447713)),
    (f"{NEBIUS}/Interactive/performance/run_1", "Server", True, 0, 0, None),
    (f"{NEBIUS}/Interactive/TEST07/performance/run_1", "Server", False, 0, 1, None),
    (f"{REDHAT}/Offline/performance/run_1", "Offline", True, 0, 0, ("Samples per second", 69.4118)),
    (f"{REDHAT}/Server/TEST09/performance/run_1", "Server", False, 0, 1, (SCHEDULED, 54.97)),
]


@pytest.mark.parametrize(
    ("logged", "shown"),
    [
        ("Tokens per second: 390.756", "390.756"),
        ("Tokens per second: 1.54495e+06", "1,544,950"),  # of a stub server
        ("Completed tokens per second: 1502.10", "1,502.1"),
        ("Completed tokens per second: 166299.82", "166,299.82"),
    ],
)
def test_a_rate_is_shown_with_loadgens_digits(logged, shown):
    ((_, rate),) = parse_summary(logged).figures.items()
    assert printed(rate) == shown


@submitted
@pytest.mark.parametrize(("folder", "scenario", "valid", "errors", "warnings", "figure"), PERFORMANCE)
def test_submitted_performance_logs(folder, scenario, valid, errors, warnings, figure):
    log = read_summary(SUBMITTED / folder / "mlperf_log_summary.txt")
    assert (log.scenario, log.mode, log.result_valid) == (scenario, "PerformanceOnly", valid)
    assert (log.errors, log.warnings, log.problem) == (errors, warnings, "")
    assert all(log.constraints.values()) == valid
    assert log.parameters["performance_sample_count"] == "6396"
    if figure:
        assert log.figures[figure[0]] == figure[1]
    detail = read_detail(SUBMITTED / folder / "mlperf_log_detail.txt")
    assert (detail.error_count, sum(detail.warnings.values())) == (errors, warnings)
    assert detail.values["num_errors"] == errors
    assert detail.problem == ""


@submitted
def test_every_submitted_log_is_whole():
    summaries = [read_summary(path) for path in SUBMITTED.rglob("mlperf_log_summary.txt")]
    details = [read_detail(path) for path in SUBMITTED.rglob("mlperf_log_detail.txt")]
    assert (len(summaries), len(details)) == (28, 28)
    assert {log.problem for log in [*summaries, *details]} == {""}
    assert sum(log.result_valid is None for log in summaries) == 7  # accuracy runs have no verdict


@submitted
def test_the_mean_output_length_is_that_of_the_answers():
    """As MLCommons's script counted them in TEST09, rounded to two decimals."""
    for path in SUBMITTED.rglob("TEST09/performance/run_1/mlperf_log_detail.txt"):
        detail = read_detail(path)
        counted = (path.parents[2] / "verify_output_len.txt").read_text()
        mean = float(counted.rpartition("Mean output tokens: ")[2].split()[0])
        assert detail.mean_tokens == pytest.approx(mean, rel=1e-5)
        assert detail.has_mean_tokens(mean) and not detail.has_mean_tokens(mean * 1.002)


@submitted
def test_early_stopping_and_recommendations():
    log = read_summary(SUBMITTED / REDHAT / "Server/TEST09/performance/run_1/mlperf_log_summary.txt")
    assert log.recommendations == ("TTFT constrain not met: Reduce target QPS to improve latency.",)
    assert log.early_stopping["TPOT"] == ("Run successful.",)
    assert log.early_stopping["TTFT"][:2] == ("Run unsuccessful.", "Processed 6396 queries.")
    assert "at least 65696 more queries" in log.early_stopping["TTFT"][2]
    met, missed = {"Min duration", "Min queries"}, {"Performance constraints", "Early stopping"}
    assert log.constraints == dict.fromkeys(met, True) | dict.fromkeys(missed, False)


@submitted
def test_detail_settings():
    log = read_detail(SUBMITTED / AMD / "Server/performance/run_1/mlperf_log_detail.txt")
    assert log.values["loadgen_version"] == "6.0.9 @ 52235a451d"
    assert log.effective["target_qps"] == 61.2
    assert log.requested["server_ttft_latency"] == 3_000_000_000
    assert log.requested["use_token_latencies"] is True


# What LoadGen 6.0.17 wrote.
@pytest.mark.parametrize(
    ("run", "valid", "errors"),
    [(f"offline_{end}", True, n) for end, n in (("valid", 0), ("errors", 4))]
    + [(f"server_{end}", False, n) for end, n in (("errors", 16), ("invalid", 0))],
)
def test_recorded_summaries(run, valid, errors):
    log = read_summary(RECORDED / run / "mlperf_log_summary.txt")
    assert (log.result_valid, log.errors, log.warnings, log.problem) == (valid, errors, 0, "")
    assert log.parameters["qsl_rng_seed"] == "2085463073848966840"


@pytest.mark.parametrize(
    ("run", "rates"),
    [
        ("offline_valid", (48.8445, 390.756)),
        ("server_invalid", (40.46, 163.13)),
        ("single_stream_percentile_50", (None, None)),
    ],
)
def test_rates_whatever_the_scenario_calls_them(run, rates):
    log = read_summary(RECORDED / run / "mlperf_log_summary.txt")
    assert (log.samples_per_s, log.tokens_per_s) == rates
    assert [name for name in log.figures if name.startswith("*")] == []


def test_an_early_stopping_of_several_lines():
    log = read_summary(RECORDED / "server_percentile_50/mlperf_log_summary.txt")
    more = "Would need to run at least 13 more queries, with the run being successful if every additional "
    stopped = ("Run unsuccessful.", "Processed 60 queries.", more + "query were under latency.")
    assert log.early_stopping == {"TTFT": (), "TPOT": stopped}


def test_absurd_figures_are_handed_on():
    """LoadGen's own minimum where a query had no first token; it must not break the reader."""
    log = read_summary(RECORDED / "server_errors/mlperf_log_summary.txt")
    assert log.figures["Min First Token latency (ns)"] == -(2**63)


def test_an_invalid_run_names_what_is_not_satisfied():
    log = read_summary(RECORDED / "server_invalid/mlperf_log_summary.txt")
    unmet = ", ".join(name for name, met in log.constraints.items() if not met)
    assert unmet and log.invalid_line == f"LoadGen reports INVALID: {unmet} not satisfied"
    assert replace(log, constraints={}).invalid_line == "LoadGen reports INVALID and names no constraint"


def test_valid_with_errors_is_not_clean():
    log = read_detail(RECORDED / "offline_errors/mlperf_log_detail.txt")
    assert log.errors == {"n_tokens argument missing or attempted to record 0 as number of tokens": 4}
    assert log.error_count == 4
    assert log.values["result_validity"] == "VALID"
    assert log.values["num_errors"] == 4
    assert log.effective["sample_concatenate_permutation"] is False


def test_messages_beyond_the_most_are_counted_together(tmp_path, monkeypatch):
    monkeypatch.setattr(summary_and_detail, "MAX_DISTINCT_MESSAGES", 1)
    log, changed = RECORDED / "offline_errors/mlperf_log_detail.txt", tmp_path / "mlperf_log_detail.txt"
    assert list(read_detail(log).errors.values()) == [4]
    changed.write_text(log.read_text().replace("n_tokens argument", "another", 1))
    first, *others = read_detail(changed).errors.items()
    assert first[0].startswith("another missing") and others == [("(further messages)", 3)]


def test_every_cut_is_noticed():
    """A log cut anywhere before its last line is never taken for a whole one."""
    text = (RECORDED / "offline_errors/mlperf_log_summary.txt").read_text()
    last_line = text.index("4 ERRORS")
    assert parse_summary("").problem == "empty"
    for end in range(last_line + 1):
        assert parse_summary(text[:end]).problem in ("empty", "cut short")


@pytest.mark.parametrize(
    ("change", "problem", "warnings"),
    [
        (lambda row: row[:40], "damaged: 1 incomplete line, the first is line 15", {}),
        (lambda row: f"{row}\n{row}", "damaged: 1 row a second time, the first is line 16", {}),
        (lambda row: row + "\n" + row.replace('g": false', 'g": true'), "", {"10": 1}),
    ],
)
def test_a_changed_row_of_a_detail_log(tmp_path, change, problem, warnings):
    lines = (RECORDED / "offline_errors/mlperf_log_detail.txt").read_text().splitlines()
    lines[14] = change(lines[14])  # requested_offline_expected_qps, 10
    path = tmp_path / "mlperf_log_detail.txt"
    path.write_text("\n".join(lines))
    found = read_detail(path)
    assert (found.problem, found.warnings) == (problem, warnings)


def test_a_missing_summary_and_one_of_other_bytes(tmp_path):
    assert read_summary(tmp_path / "none").problem == "missing"
    assert result_lines(tmp_path / "none") == ()
    damaged = (
        (RECORDED / "offline_valid/mlperf_log_summary.txt").read_bytes().replace(b"Offline", b"Off\xff", 1)
    )
    (tmp_path / "damaged").write_bytes(damaged)
    assert read_summary(tmp_path / "damaged").scenario == "Off\ufffd"


def test_result_lines_are_loadgens_own():
    """What a user of LoadGen looks for, and none of the statistics; the counts are on a line of ours."""
    summary = RECORDED / "offline_valid/mlperf_log_summary.txt"
    lines, written = result_lines(summary), summary.read_text().splitlines()
    assert set(lines) <= set(written)
    assert {"MLPerf Results Summary", "Result is : VALID"} <= set(lines)
    assert not any("percentile" in line or "encountered" in line for line in lines)
    assert lines[-1] == "  Early stopping satisfied: Yes"  # without the rule and the title behind it


# Of LoadGen 6.0.17, all of an accuracy run's summary.
OF_ACCURACY = "\nNo warnings encountered during test.\n\nNo errors encountered during test.\n"


def test_an_accuracy_run_has_no_result_lines(tmp_path):
    path = tmp_path / "mlperf_log_summary.txt"
    path.write_text(OF_ACCURACY)
    assert result_lines(path) == ()
    assert read_summary(path).errors == 0


# Of LoadGen 6.0.17, a Server run in which 510 of 512 queries were cut off after their first token.
BELOW_ZERO = """\
99.00 percentile first token latency (ns)   : 82590769
99.00 percentile time to output token (ns)   : -87368032
99.90 percentile time to output token (ns)   : 5439088
"""


@pytest.mark.parametrize("number", ["nan", "-nan", "inf"])
def test_a_figure_that_is_no_number_is_none(number):
    """As C++ prints the rate of a run without time."""
    assert parse_summary(f"Tokens per second: {number}\n").figures == {"Tokens per second": None}


@pytest.mark.parametrize("value", [1e300, -1e300, math.inf, True, "3", None])
def test_a_row_that_is_no_number_of_loadgens_is_none(value):
    """An edited log may have any; what a number is computed with must not end the reader."""
    row = {"generated_query_count": value, "generated_samples_per_query": 1}
    found = LoadgenDetail(row, {}, {})
    assert (found.number("generated_query_count"), found.samples_issued) == (None, None)
    found = LoadgenDetail({"generated_query_count": 3, "generated_samples_per_query": value}, {}, {})
    assert (found.number("generated_query_count"), found.samples_issued) == (3, None)


@pytest.mark.parametrize(("text", "limit"), [("3000000000", 3_000_000_000), ("0", None), ("9" * 5000, None)])
def test_a_limit_is_what_an_integer_can_hold(text, limit):
    """Python makes no number of more than 4300 digits."""
    summary = f"Test Parameters Used\nttft_latency (ns) : {text}\n"
    assert parse_summary(summary).limit_ns("TTFT") == limit


def test_a_time_below_zero_is_none():
    found = parse_summary(BELOW_ZERO)
    assert found.percentile_ns("TTFT") == 82590769
    assert found.percentile_ns("TPOT") is None
    assert found.percentile_ns("TPOT", "99.90") == 5439088
