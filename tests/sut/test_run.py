"""A run as sut/run.py puts it together."""

import re
from pathlib import Path

import pytest
from msgspec import structs

from harness.config.expected_queries import ExpectedQueries
from harness.config.plans import ComplianceSettings
from harness.config.run_options import parse_options
from harness.config.run_plan import resolve_plan
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from sut.run import _length_watch, validity_rules
from sut.run_checks import read_inputs, require_enough_queries, require_limits, require_official
from tests.records import ENDED, started, with_plan
from tests.runs import small_dataset

DATASET = ENDED.plan.client.benchmark.dataset(accuracy=False)
TEST09 = ComplianceSettings(test="TEST09", dataset=DATASET, settings={}, text="", official=True)


@pytest.mark.parametrize(
    ("plan", "limited"),
    [
        ({}, True),
        ({"mode": "accuracy"}, False),
        ({"audit": TEST09, "audit_text": "*.*.mode = 2\n"}, False),
    ],
)
def test_only_what_judges_a_run_can_lose_it(plan, limited):
    """Progress and alarms count by the same rules: an accuracy run may take its time."""
    assert bool(validity_rules(with_plan(ENDED, **plan)).limits_ns) is limited


def test_the_lengths_of_a_measurement_are_judged():
    """Those of an accuracy run come in the dataset's order."""
    assert _length_watch(ENDED) is not None
    assert _length_watch(with_plan(ENDED, mode="accuracy")) is None


def test_a_test_that_deviates_names_the_flag_of_the_guide():
    for plan in (with_plan(ENDED, audit=TEST09).plan, with_plan(ENDED, official=True).plan):
        require_official(plan, ())
    with pytest.raises(ConfigError, match=r"TEST09 would not be official: the seed; .*, or add --rehearsal"):
        require_official(with_plan(ENDED, audit=TEST09).plan, ("the seed",))


@pytest.mark.parametrize(
    ("scenario", "rules"), [(Scenario.SERVER, 99), (Scenario.SINGLE_STREAM, 90), (Scenario.OFFLINE, None)]
)
def test_a_percentile_without_early_stopping_names_that_of_the_rules(scenario, rules):
    """LoadGen has the settings of all scenarios, whichever is run; Offline has no percentile."""
    names = ("server", "single_stream")
    settings = {f"{name}_target_latency_percentile": 1.0 for name in names}
    plan = started(scenario=scenario).plan
    if rules is None:
        require_limits(plan, settings)
    else:
        with pytest.raises(ConfigError, match=f"is 100, .*; the rules say {rules}$"):
            require_limits(plan, settings)


def test_a_setting_of_an_audit_config_is_named_so():
    """A row of user.conf would have no effect there: LoadGen reads the audit.config after it."""
    plan = started(scenario=Scenario.SERVER).plan
    audited = structs.replace(plan, audit_text="*.*.ttft_latency = 0\n", audit_config=Path("my.config"))
    settings = {"server_target_latency_percentile": 0.99, "ttft_latency": 0, "tpot_latency": 5}
    for one, start in ((plan, f"{plan.user_conf}: gpt-oss"), (audited, "--audit-config my.config: *.*.ttft")):
        with pytest.raises(ConfigError, match=re.escape(start)):
            require_limits(one, settings)


def test_a_run_that_lasts_its_time_may_have_more_queries_than_planned():
    """As LoadGen issues in SingleStream while answers come faster than target_latency."""
    plan = started(scenario=Scenario.SINGLE_STREAM).plan
    settings = {"performance_issue_same": False, "performance_issue_same_index": 0, "max_query_count": 0}
    settings["single_stream_target_latency_percentile"] = 0.9
    expected = ExpectedQueries(63, 63, exact=False, seconds=60.0, least_s=60.0)
    require_enough_queries(plan, settings, expected)
    with pytest.raises(ConfigError, match="min_query_count = 64"):
        require_enough_queries(plan, settings, structs.replace(expected, exact=True))
    audited = structs.replace(plan, audit_text=TEST09.text)  # it counts whether LoadGen reports VALID or not
    require_enough_queries(audited, settings, structs.replace(expected, exact=True))


@pytest.mark.parametrize(
    ("scenario", "loadgen", "key", "own"),
    [
        ("server", "Server", "target_qps", "1 per second"),
        ("single-stream", "SingleStream", "target_latency", "10 ms"),
    ],
)
def test_a_conf_file_without_a_rate_is_said_to_have_none(tmp_path, scenario, loadgen, key, own):
    """LoadGen's own are those of its mlperf.conf and test_settings.h."""
    dataset, _ = small_dataset(tmp_path)
    conf = tmp_path / "user.conf"
    words = ("--input-file", dataset, "--scenario", scenario, "--user-conf", conf)
    said = f"no row sets {key} for gpt-oss-120b and {loadgen}: LoadGen takes its own, {own}"
    for row, rate_follows, is_said in (("", False, True), ("", True, False), (f"{key} = 5", False, False)):
        conf.write_text(f"*.{loadgen}.{row}\n" if row else "")
        plan = resolve_plan(parse_options([*map(str, words)]))
        warnings = read_inputs(plan, rate_follows=rate_follows).warnings
        assert any(said in warning for warning in warnings) is is_said
