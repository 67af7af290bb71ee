"""What earlier runs say against a plan, and plans that early stopping cannot pass."""

import pytest
from msgspec import structs

from harness.analysis.early_stopping import too_few_queries
from harness.analysis.plan_evidence import contradictions, is_refuted
from harness.config.expected_queries import ExpectedQueries
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.record.run_record import RunVerdict
from harness.report.search_advice import advice_in_mid_run
from tests.harness.report.test_search_advice import COMMAND, options_of
from tests.records import ENDED, started, with_plan

RATE = 20.0  # samples per second that the earlier run reached


@pytest.fixture
def offline(tmp_path):
    """A VALID Offline run in its folder."""
    folder = tmp_path / "offline/performance"
    folder.mkdir(parents=True)
    figures = structs.replace(ENDED.statistics, samples_per_s=RATE)
    record = structs.replace(
        with_plan(ENDED, scenario=Scenario.OFFLINE), verdict=RunVerdict("VALID"), statistics=figures
    )
    record.write(folder / "run.json")
    return record


def planned(tmp_path, scenario, samples=12_000, **fields):
    """A plan of 12 000 samples over at least 600 s at 25 queries a second."""
    settings = ENDED.settled.loadgen_settings | {"min_duration_ms": 600_000, "server_target_qps": 25.0}
    return started(
        scenario=scenario,
        mode="performance",
        log_dir=tmp_path / scenario / "performance",
        loadgen_settings=settings,
        expected=ExpectedQueries(samples, samples, exact=True, seconds=None),
        **fields,
    )


def test_offline_that_ends_too_early_is_refused_with_the_rate_to_write(offline, tmp_path):
    with pytest.raises(ConfigError) as refused:
        list(contradictions(planned(tmp_path, Scenario.OFFLINE, samples=6396)))
    assert f"{ENDED.plan.model_key}.Offline.target_qps = 20" in str(refused.value)
    assert str(tmp_path / "offline/performance") in str(refused.value)
    (likely,) = contradictions(planned(tmp_path, Scenario.OFFLINE, samples=11_000))
    assert "target_qps = 20" in likely
    assert list(contradictions(planned(tmp_path, Scenario.OFFLINE))) == []


def test_a_rate_of_many_gpus_is_written_without_an_exponent(offline, tmp_path):
    """llama3.1-8b on 512 GPUs: the row to write was ``target_qps = 1.235e+04``."""
    fast = structs.replace(offline.statistics, samples_per_s=12_345.6)
    structs.replace(offline, statistics=fast).write(tmp_path / "offline/performance/run.json")
    (likely,) = contradictions(planned(tmp_path, Scenario.OFFLINE, samples=6_396_000))
    assert "at the 12,346 samples/s of" in likely and likely.endswith("target_qps = 12350")


def test_server_above_offline_is_a_warning_with_its_evidence(offline, tmp_path):
    (warning,) = contradictions(planned(tmp_path, Scenario.SERVER))
    assert "target_qps is 25" in warning and "20 samples/s" in warning
    assert str(tmp_path / "offline/performance") in warning
    (early,) = contradictions(planned(tmp_path, Scenario.OFFLINE, samples=11_000))
    assert is_refuted(warning) and is_refuted(early) and not is_refuted("resumed: 3 of 64")
    plan = planned(tmp_path, Scenario.SERVER)
    elsewhere = structs.replace(plan.servers[0], url="http://elsewhere:30000", trial_s=9.0)
    assert list(contradictions(structs.replace(plan, servers=(elsewhere,)))) == [warning]


def test_the_rate_to_try_is_not_above_offline(offline, tmp_path):
    """SGLang on a CPU with 5 samples/s in Offline: after 2 late answers the guess was 7.2 queries/s of 20."""
    run = structs.replace(planned(tmp_path, Scenario.SERVER), provenance=COMMAND)

    def first_rate():
        return options_of(str(advice_in_mid_run(run, 100, 10, 10.0, None)).partition("with: ")[2]).start_qps

    assert first_rate() == 11  # 0.9 of half of 25
    slow = structs.replace(offline.statistics, samples_per_s=4.0)
    structs.replace(offline, statistics=slow).write(tmp_path / "offline/performance/run.json")
    assert first_rate() == 3.6


@pytest.mark.parametrize("scenario", [Scenario.OFFLINE, Scenario.SERVER])
def test_other_systems_and_invalid_runs_say_nothing(offline, tmp_path, scenario):
    plan = planned(tmp_path, scenario, samples=6396)
    other = structs.replace(plan.servers[0], max_running_requests=7)
    assert list(contradictions(structs.replace(plan, servers=(other,)))) == []
    assert list(contradictions(structs.replace(plan, servers=plan.servers * 2))) == []
    assert list(contradictions(with_plan(plan, max_concurrency=3))) == []
    assert list(contradictions(with_plan(plan, mode="accuracy"))) == []
    assert list(contradictions(with_plan(plan, audit_text="*.*.mode = 2\n"))) == []
    path = tmp_path / "offline/performance/run.json"
    structs.replace(offline, verdict=RunVerdict("INVALID")).write(path)
    assert list(contradictions(plan)) == []
    path.write_text("{")
    assert list(contradictions(plan)) == []


def test_the_row_that_gives_enough_queries_is_named():
    plan = started(scenario=Scenario.SERVER).plan
    settings = {"server_target_latency_percentile": 0.99, "max_query_count": 0}
    assert too_few_queries(459, plan, settings) == ""
    said = too_few_queries(458, plan, settings)
    assert f"{plan.model_key}.Server.min_query_count = 459" in said
    assert too_few_queries(7, plan, settings | {"server_target_latency_percentile": 0.5}) == ""
    assert "6 queries" in too_few_queries(6, plan, settings | {"server_target_latency_percentile": 0.5})
    assert too_few_queries(1, started(scenario=Scenario.OFFLINE).plan, settings) == ""  # it has one query


def test_single_stream_needs_as_many_queries_as_loadgen_says():
    """``Need to process at least 64 queries for early stopping.``; of the 99th percentile 662 in all."""
    plan = started(scenario=Scenario.SINGLE_STREAM).plan
    for percentile, least in ((0.9, 64), (0.99, 662)):
        settings = {"single_stream_target_latency_percentile": percentile, "max_query_count": 0}
        assert too_few_queries(least, plan, settings) == ""
        assert f"SingleStream.min_query_count = {least}" in too_few_queries(least - 1, plan, settings)


@pytest.mark.parametrize(
    ("queries", "most", "said"),
    [
        (40, 40, ["remove the row of max_query_count, which is 40"]),  # without it they may be enough
        (40, 50, ["remove the row of max_query_count, which is 50", "write a row {}.min_query_count = 64"]),
        (40, 64, ["write a row {}.min_query_count = 64"]),
    ],
)
def test_the_row_that_allows_no_more_queries_is_named(queries, most, said):
    """The remedy was another min_query_count, which LoadGen cuts to max_query_count."""
    plan = started(scenario=Scenario.SINGLE_STREAM).plan
    settings = {"single_stream_target_latency_percentile": 0.9, "max_query_count": most}
    found = too_few_queries(queries, plan, settings).split("; ")[1]
    rows = " and ".join(said).format(f"{plan.model_key}.SingleStream")
    assert found.startswith(f"{rows}, or, for a trial")
