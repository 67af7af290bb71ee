"""Figures of real LoadGen logs, changed in one file or in both: they contradict each other."""

import math
import re
from functools import cache

import pytest
from msgspec.structs import replace

from harness.files import DETAIL, SUMMARY
from harness.loadgen_logs.contradictions import FIGURES, contradictions, disagreements
from harness.loadgen_logs.summary_and_detail import CLOCK_FORMAT, LoadgenDetail, read_detail
from tests.harness.submission.trees import ARCHIVE, CNN_ARCHIVE, R1_ARCHIVE, unpack
from tests.runs import ROOT

RUNS = {
    "gpt-oss-120b": ("Offline", "Interactive"),
    "llama3.1-8b": ("Offline", "Server", "Interactive"),
    "llama3.1-8b-edge": ("Offline", "SingleStream"),
    "deepseek-r1": ("Offline", "Server", "Interactive"),
}
EACH = [(benchmark, scenario) for benchmark, scenarios in RUNS.items() for scenario in scenarios]
POISSON = [case for case in EACH if case[1] in ("Server", "Interactive")]
# What LoadGen prints in the summary of no run, or in that of runs with limits alone.
NOT_PRINTED = {"generated_query_count", "result_query_count", "result_overlatency_query_count"}
ONE_PERCENT = (0.99, 1.01)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Summary and detail log of a performance run."""
    root = tmp_path_factory.mktemp("trees")
    for name, archives in (("one", (ARCHIVE,)), ("more", (CNN_ARCHIVE, R1_ARCHIVE))):
        unpack(root / name, *archives)

    def find(benchmark, scenario):
        (found,) = root.rglob(f"results/made_up/{benchmark}/{scenario}/performance/run_1")
        return found

    return find


@cache
def read(folder):
    return read_detail(folder / DETAIL), (folder / SUMMARY).read_text()


def detail_of(folder, **changed):
    detail, _ = read(folder)
    return replace(detail, values={**detail.values, **changed})


def found(folder, text=None, **changed):
    """What is said of the logs with other rows in the detail log or another summary."""
    detail = detail_of(folder, **changed)
    return [*disagreements(read(folder)[1] if text is None else text, detail), *contradictions(detail)]


def scaled(value, factor):
    return round(value * factor) if isinstance(value, int) else value * factor


@pytest.mark.parametrize(("benchmark", "scenario"), EACH)
def test_logs_as_they_are_agree(folder_of, benchmark, scenario):
    assert found(folder_of(benchmark, scenario)) == []


def test_the_result_of_single_stream_is_of_the_percentile_of_its_settings():
    """Trials of another one than 90 have it, rehearsals among them."""
    folder = ROOT / "tests/data/loadgen/single_stream_percentile_50"
    assert found(folder) == []
    row = "result_50.00_percentile_latency_ns"
    lines = list(disagreements(read(folder)[1], detail_of(folder, **{row: 1})))
    assert [line.partition(" (ns)")[0] for line in lines] == [
        "50.0th percentile latency",
        "50.00 percentile latency",
    ]
    assert found(folder, effective_target_latency_percentile=None) == []
    for value, shown in ((0, "0"), (None, "not in the log")):
        (line,) = contradictions(detail_of(folder, early_stopping_latency_ss=value))
        assert line.startswith(
            f"early_stopping_latency_ss is {shown}, early_stopping_ttft_result names another: "
        )
    few = {"early_stopping_latency_ss": 0, "early_stopping_latency_ms": 0}
    few["early_stopping_ttft_result"] = "Only processed 60 queries.\n * Need to process at least 64 queries"
    assert not list(contradictions(detail_of(folder, **few)))


def test_a_figure_that_the_summary_has_twice_is_one_line(folder_of):
    """The result is printed among the statistics again."""
    folder = folder_of("llama3.1-8b", "Server")
    text, row = read(folder)[1], "result_completed_tokens_per_second"
    assert text.count("\nCompleted tokens per second") == 2
    (line,) = disagreements(text, detail_of(folder, **{row: 1}))
    assert line.startswith("Completed tokens per second is ")
    folder = ROOT / "tests/data/loadgen/single_stream_percentile_50"
    row = "result_50.00_percentile_latency_ns"  # two lines of the summary have it, under two names
    detail, text = read(folder)
    without = replace(detail, values={key: value for key, value in detail.values.items() if key != row})
    assert list(disagreements(text, without)) == [f"the detail log has no row {row}"]


def test_the_summary_of_another_scenario_is_one_line(folder_of):
    offline, server = (folder_of("llama3.1-8b", scenario) for scenario in ("Offline", "Server"))
    assert list(disagreements(read(server)[1], read(offline)[0])) == [
        "Scenario is Server in the summary, Offline in the detail log"
    ]
    for scenario in ("MultiStream", None):  # that none of these benchmarks has
        assert list(disagreements(read(server)[1], detail_of(server, effective_scenario=scenario))) == []


@pytest.mark.parametrize(("benchmark", "scenario"), EACH)
def test_every_figure_of_the_detail_log_counts(folder_of, benchmark, scenario):
    folder = folder_of(benchmark, scenario)
    rows = {
        key: value
        for key, value in detail_of(folder).values.items()
        if key.startswith(("result_", "early_stopping_latency")) and type(value) in (int, float)
    }
    assert len(rows) > (30 if scenario != "Offline" else 10)
    missed = [
        (key, factor)
        for key, value in rows.items()
        for factor in ONE_PERCENT
        if key not in NOT_PRINTED and scaled(value, factor) != value
        if not found(folder, **{key: scaled(value, factor)})
    ]
    assert missed == []
    keys = [*FIGURES[detail_of(folder).values["effective_scenario"]].values()]
    keys.remove("effective_scenario")
    for none in (None, math.nan):
        said = found(folder, **dict.fromkeys(keys, none))
        assert {f"the detail log has no row {key}" for key in keys} <= {*said}


@pytest.mark.parametrize(("benchmark", "scenario"), EACH)
def test_every_figure_of_the_summary_counts(folder_of, benchmark, scenario):
    folder = folder_of(benchmark, scenario)
    summary = (folder / SUMMARY).read_text()
    lines = list(re.finditer(r"^[^*\n]+: *([0-9.]+)$", summary, re.MULTILINE))
    # Offline logs no limits of TTFT and TPOT.
    lines = [line for line in lines if scenario != "Offline" or not line[0].startswith(("ttft", "tpot"))]
    missed = []
    for line in lines:
        number = line[1]
        for factor in ONE_PERCENT:
            other = f"{float(number) * factor:.2f}" if "." in number else str(round(int(number) * factor))
            text = summary[: line.start(1)] + other + summary[line.end(1) :]
            if float(other) != float(number) and not found(folder, text):
                missed.append((line[0], other))
    assert missed == []
    names = {line[0].partition(":")[0].strip() for line in lines} & FIGURES["Server"].keys()
    assert len(names) > 8
    without = {name: re.sub(rf"(?m)^{re.escape(name)} *:.*\n", "", summary) for name in names}
    assert [name for name, text in without.items() if not found(folder, text)] == []


HEADLINES = {
    "Offline": ("result_samples_per_second",),
    "Server": ("result_completed_tokens_per_second", "result_completed_samples_per_sec"),
    "Interactive": ("result_completed_tokens_per_second", "result_completed_samples_per_sec"),
    "SingleStream": ("result_qps_without_loadgen_overhead", "result_token_throughput"),
}


@pytest.mark.parametrize(("benchmark", "scenario"), EACH)
def test_a_headline_figure_follows_from_others_of_its_log(folder_of, benchmark, scenario):
    """So it cannot be changed in both files, alone or with the other rate."""
    folder = folder_of(benchmark, scenario)
    names, values = HEADLINES[scenario], detail_of(folder).values
    for factor in ONE_PERCENT:
        for name in names:
            assert list(contradictions(detail_of(folder, **{name: values[name] * factor})))
        both = detail_of(folder, **{name: values[name] * factor for name in names})
        assert list(contradictions(both))


@pytest.mark.parametrize(("benchmark", "scenario"), POISSON)
def test_rates_follow_from_the_latency_of_the_last_query_without_a_clock(folder_of, benchmark, scenario):
    folder = folder_of(benchmark, scenario)
    values = detail_of(folder).values
    for factor in (0.9, 1.1):
        rates = {name: values[name] * factor for name in HEADLINES[scenario]}
        said = list(contradictions(detail_of(folder, **rates, power_begin=None)))
        assert [what for what in said if "the last query was due" in what]


@pytest.mark.parametrize(("benchmark", "scenario"), POISSON)
def test_the_schedule_ends_when_the_last_query_was_due(folder_of, benchmark, scenario):
    """LoadGen logs its length when it is made, and the rate at which it was kept."""
    folder, row = folder_of(benchmark, scenario), "generated_query_duration"
    for factor in (0.9, 1.1):
        changed = {row: scaled(detail_of(folder).values[row], factor)}
        assert any(line.startswith(f"{row} is ") for line in contradictions(detail_of(folder, **changed)))


def test_figures_of_single_stream_that_no_other_relation_holds(folder_of):
    """The rate of tokens with overhead, and the clock where the rate of completed tokens is not there."""
    folder = folder_of("llama3.1-8b-edge", "SingleStream")
    row = "result_token_throughput_with_loadgen_overhead"
    for factor in ONE_PERCENT:
        assert list(contradictions(detail_of(folder, **{row: detail_of(folder).values[row] * factor})))
    begin, end = detail_of(folder).clock
    earlier = (begin + (end - begin) / 2).strftime(CLOCK_FORMAT)
    changed = detail_of(folder, power_end=earlier, result_completed_tokens_per_second=None)
    assert any("by result_mean_latency_ns x queries" in line for line in contradictions(changed))


TIMES = {
    "latency": "result_{}_latency_ns",
    "TTFT": "result_first_token_{}_latency_ns",
    "TPOT": "result_time_to_output_token_{}",
}


@pytest.mark.parametrize("row", TIMES.values(), ids=TIMES)
def test_times_are_in_order_whatever_the_summary_says(folder_of, row):
    folder = folder_of("gpt-oss-120b", "Interactive")
    values = detail_of(folder).values
    least, mean, most = (row.format(kind) for kind in ("min", "mean", "max"))
    for key, value, said in (
        (least, 0, None),
        (least, -1, "expected 0 or more"),
        (most, values[mean], "less than"),
        (mean, 2 * values[most], "but minimum and maximum are"),
    ):
        lines = [line for line in contradictions(detail_of(folder, **{key: value})) if line.startswith(key)]
        assert [said in line for line in lines] == ([True] if said else [])


@pytest.mark.parametrize(("benchmark", "scenario"), EACH)
def test_the_clock_of_the_machine_bounds_the_latencies(folder_of, benchmark, scenario):
    folder = folder_of(benchmark, scenario)
    begin, end = detail_of(folder).clock
    later = (end + (end - begin)).strftime(CLOCK_FORMAT)
    assert any(
        "power_begin to power_end" in line for line in contradictions(detail_of(folder, power_end=later))
    )


# Of a published Server run with gpt-oss-120b.
PUBLISHED = {
    "result_query_count": 115128,
    "result_max_latency_ns": 249451351723,
    "result_mean_latency_ns": 93118913728,
    "result_first_token_mean_latency_ns": 687235954,
    "result_token_throughput": 1.47354e-08,
    "result_time_per_output_token_99.00_percentile_ns": 72613294,
    "effective_scenario": "Server",
}


@pytest.mark.parametrize(("factor", "found"), [(1, False), (0.91, False), (0.9, True)])
def test_the_tpot_of_a_model_bounds_its_latencies(factor, found):
    row = "result_time_per_output_token_99.00_percentile_ns"
    detail = LoadgenDetail(PUBLISHED | {row: PUBLISHED[row] * factor}, {}, {})
    assert any(line.startswith("p99 of TPOT") for line in contradictions(detail)) is found


@pytest.mark.parametrize("scenario", ["Offline", "Server", "Interactive"])
def test_the_mean_output_length_follows_from_the_rates(folder_of, scenario):
    """Every answer of these runs has 128 tokens."""
    folder = folder_of("llama3.1-8b", scenario)
    detail = detail_of(folder)
    assert detail.mean_tokens == pytest.approx(128, rel=1e-5)
    assert detail.has_mean_tokens(128) and not detail.has_mean_tokens(128.2)
    assert detail_of(folder, result_query_count=None).mean_tokens == pytest.approx(128, rel=0.02)
    for rate in ("result_samples_per_second", "result_completed_samples_per_sec"):
        for none in (0, None):
            if rate in detail.values:
                assert detail_of(folder, **{rate: none}).mean_tokens is None


# LoadGen prints rates with two decimals in the summary and six digits in the detail log: published pairs.
PRINTED = [
    ("13155.34", 13155.3, True),
    ("10.05", 10.049, True),
    ("10006.98", 10007, True),
    ("128649.18", 128649, True),
    ("1234567.89", 1.23457e06, True),
    ("0.33", 0.331234, True),
    ("13155.34", 13155.5, False),
    ("10.05", 10.0561, False),
    ("nan", 10.05, False),
    ("", 10.05, False),
    ("ten", 10.05, False),
    ("10.05", None, False),
]


@pytest.mark.parametrize(("stated", "logged", "same"), PRINTED)
def test_rounding(folder_of, stated, logged, same):
    folder = folder_of("gpt-oss-120b", "Interactive")
    name = "Completed samples per second"
    text = re.sub(rf"(?m)^{name} *:.*", f"{name}    : {stated}", (folder / SUMMARY).read_text())
    detail = detail_of(folder, result_completed_samples_per_sec=logged)
    assert (list(disagreements(text, detail)) == []) is same
