"""Rounds: their order, LoadGen's version, and what differs between them."""

from importlib.metadata import version

import pytest

from harness.config.benchmark import load_benchmark
from harness.config.rounds import available_rounds, current_round, loadgen_of, round_file, seeds_of
from harness.config.run_options import RunOptions
from harness.config.run_plan import resolve_plan
from harness.errors import ConfigError
from harness.submission.tree.round_rules import load_rules


def test_the_current_round_is_the_latest_and_its_loadgen_is_installed():
    assert available_rounds() == ("v6.1", "v6.0")
    assert current_round() == "v6.1"
    assert version("mlcommons-loadgen") == loadgen_of(current_round())


def test_numbers_of_rounds_are_ordered_as_numbers(tmp_path):
    for name in ("v6.1", "v10.0", "v6.10", "v9.1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "round.toml").touch()
    (tmp_path / "notes").mkdir()
    assert available_rounds(tmp_path) == ("v10.0", "v9.1", "v6.10", "v6.1")


def test_an_unknown_round():
    for load in (load_rules, seeds_of, round_file, lambda name: load_benchmark("gpt-oss-120b", name)):
        with pytest.raises(ConfigError, match=r"has no round v4\.0; .* v6\.1, v6\.0$"):
            load("v4.0")


def test_audits_of_rounds_differ():
    """From 2026-07-07 on (v6.1) the audit.config of both tests issues each sample once."""
    for name, unique in (("v6.0", None), ("v6.1", 1)):
        tests = load_benchmark("gpt-oss-120b", name).compliance
        assert {test["audit"].get("performance_issue_unique") for test in tests.values()} == {unique}


def test_a_run_of_an_earlier_round_is_not_official(tmp_path):
    data = tmp_path / "perf.parquet"
    plans = [resolve_plan(RunOptions(input_file=data, round=name)) for name in available_rounds()]
    assert [(plan.client.benchmark.round, len(plan.client.deviations)) for plan in plans] == [
        ("v6.1", 0),
        ("v6.0", 1),
    ]
    current, earlier = (plan.round_settings for plan in plans)
    assert current == {}
    assert seeds_of("v6.0").items() <= earlier.items()
