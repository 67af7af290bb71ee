"""Audit settings: equal to the official files, read as users may write them, written as LoadGen reads."""

from pathlib import Path

import pytest

from harness.compliance.registry import find_test, needed_tests
from harness.config.audit_config import (
    AuditConfig,
    effective_differences,
    plain_rows,
)
from harness.config.benchmark import load_benchmark
from harness.errors import ConfigError
from harness.loadgen_logs.summary_and_detail import read_detail
from tests.harness.compliance.official import CHECKOUT, needs_checkout
from tests.harness.compliance.test_verdicts import published
from tests.harness.config.loadgen import loadgen_reads

TEST07_OF_GPT_OSS = find_test(load_benchmark("gpt-oss-120b"), "TEST07")
SEED = 720381539243781796
_AUDIT = {"mode": 2, "accuracy_log_rng_seed": SEED, "min_duration": 0, "sample_concatenate_permutation": 0}


def settings(logged, queries, **more):
    return _AUDIT | {"accuracy_log_sampling_target": logged, "min_query_count": queries} | more


# What the official files of v6.1 hold, and those of TEST06.
OFFICIAL = {
    "gpt-oss-120b": {
        "TEST07": (settings(990, 990, performance_issue_unique=1), {"test07_accuracy_threshold": 60.698}),
        "TEST09": (
            settings(10000, 6396, performance_issue_unique=1),
            {"test09_min_output_tokens": 1150.38, "test09_max_output_tokens": 1406.02},
        ),
    },
    "llama3.1-8b": {"TEST06": (settings(100, 100), {})},
    "deepseek-r1": {"TEST06": (settings(100, 100), {})},
}
AS_IT_IS = "  *.*.performance_issue_unique  =\t1 \n"
INLINE = f"""# a comment
#TEST07 of gpt-oss
#

*.*.mode = 2   # performance
*.*.min_query_count=990
*.*.accuracy_log_sampling_target = 0x3DE # hexadecimal
{AS_IT_IS}*.*.accuracy_log_rng_seed =7#
*.Offline.min_duration = 5
*.Server.min_duration = 7
*.*.min_duration = 6
*.SingleStream.test07_accuracy_threshold = 60.5 # percent
#*.*.min_query_count = 1
"""


def written(folder, text):
    path = folder / "mine.config"
    path.write_text(text)
    return path


def both(audit):
    return audit.settings, audit.thresholds


@pytest.mark.parametrize("name", OFFICIAL)
def test_shipped_settings_are_the_official_ones(name, tmp_path):
    """And stay so when they are rendered for LoadGen and read again."""
    benchmark = load_benchmark(name)
    tests = {test: find_test(benchmark, test) for test in needed_tests(benchmark)}
    audits = {test: found.official_audit for test, found in tests.items()}
    assert {test: both(audit) for test, audit in audits.items()} == OFFICIAL[name]
    for test, audit in audits.items():
        again = tests[test].audit_config(written(tmp_path, audit.render(test)), "Server")
        assert both(again) == OFFICIAL[name][test]


@needs_checkout
@pytest.mark.parametrize(("name", "test"), [(name, test) for name in OFFICIAL for test in OFFICIAL[name]])
def test_they_are_those_of_the_checkout(name, test):
    folder = Path(CHECKOUT) / "compliance" / test
    path = folder / name / "audit.config" if (folder / name).is_dir() else folder / "audit.config"
    audit = find_test(load_benchmark(name), test).audit_config(path, "Server")
    assert both(audit) == OFFICIAL[name][test]


@pytest.mark.parametrize(
    ("scenario", "least"), [("Offline", 5), ("Server", 7), ("SingleStream", 6), (None, 6)]
)
def test_a_users_file(scenario, least, tmp_path):
    audit = TEST07_OF_GPT_OSS.audit_config(written(tmp_path, INLINE), scenario)
    expected = {"mode": 2, "min_query_count": 990, "accuracy_log_sampling_target": 990, "min_duration": least}
    assert audit.settings == expected | {"performance_issue_unique": 1, "accuracy_log_rng_seed": 7}
    assert audit.thresholds == {"test07_accuracy_threshold": 60.5}


def test_loadgen_gets_a_file_that_it_reads(tmp_path):
    """The user's own is refused by LoadGen, for the comments behind its values; its rows are not."""
    own = written(tmp_path, INLINE)
    ours, rows = tmp_path / "ours.config", tmp_path / "rows.config"
    ours.write_text(TEST07_OF_GPT_OSS.audit_config(own, "Offline").render("TEST07"))
    rows.write_text(plain_rows(INLINE))
    assert AS_IT_IS in rows.read_text() and rows.read_text().count("\n") == INLINE.count("\n")
    (refused, _), *read = loadgen_reads([(path, "*", "Offline") for path in (own, ours, rows)])
    assert refused == -22
    for code, settings in read:
        assert code == 0
        assert settings["min_query_count"] == settings["accuracy_log_sampling_target"] == 990
        assert (settings["min_duration_ms"], settings["accuracy_log_rng_seed"]) == (5, 7)
        assert settings["performance_issue_unique"]


THRESHOLD = "*.*.test07_accuracy_threshold = 60\n"
WRONG = {
    "no threshold": ("*.*.mode = 2\n", "test07_accuracy_threshold"),
    "other test's": ("*.*.test09_min_output_tokens = 1\n", "test07_accuracy_threshold"),
    "accuracy mode": (THRESHOLD + "*.*.mode = 1\n", "mode = 1"),
    "misspelt": (THRESHOLD + "*.*.min_query_cout = 1\n", "mine.config:2"),
    "model": (THRESHOLD + "gpt-oss-120b.*.min_duration = 1\n", "mine.config:2"),
    "scenario": (THRESHOLD + "*.Interactive.min_duration = 1\n", "mine.config:2"),
    "nan": ("*.*.test07_accuracy_threshold = nan\n", "mine.config:1"),
    "no value": (THRESHOLD + "*.*.min_duration = # none\n", "mine.config:2"),
    "prose": ("hello # world\n", "mine.config:1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files(name, tmp_path):
    text, said = WRONG[name]
    with pytest.raises(ConfigError) as error:
        TEST07_OF_GPT_OSS.audit_config(written(tmp_path, text), "Offline")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("unique", "asked", "expected"), [(1, 990, 30), (1, 10, 30), (0, 990, 990), (1, 30, 30)]
)
def test_other_sizes(unique, asked, expected):
    settings = {"performance_issue_unique": unique, "min_query_count": asked}
    assert AuditConfig("", settings, {}).scaled_to(30).settings["min_query_count"] == expected


TEST07 = OFFICIAL["gpt-oss-120b"]["TEST07"][0]
# Effective setting: what a run of TEST07 logs, another value, and the key in audit.config.
LOGGED = {
    "test_mode": ("PerformanceOnly", "AccuracyOnly", "mode"),
    "accuracy_log_rng_seed": (SEED, 0, "accuracy_log_rng_seed"),
    "accuracy_log_sampling_target": (990, 0, "accuracy_log_sampling_target"),
    "min_query_count": (990, 100, "min_query_count"),
    "min_duration_ms": (0, 600000, "min_duration"),
    "performance_issue_unique": (True, False, "performance_issue_unique"),
    "sample_concatenate_permutation": (False, True, "sample_concatenate_permutation"),
}
AS_LOGGED = {"scenario": "Server", "samples_per_query": 1} | {name: row[0] for name, row in LOGGED.items()}


def test_settings_in_force():
    assert effective_differences(TEST07, AS_LOGGED) == {}
    offline = AS_LOGGED | {"scenario": "Offline", "min_query_count": 1, "samples_per_query": 990}
    assert effective_differences(TEST07, offline) == {}
    assert list(effective_differences(TEST07, offline | {"samples_per_query": 989})) == ["min_query_count"]


@pytest.mark.parametrize("name", LOGGED)
def test_a_setting_that_was_not(name):
    _, value, key = LOGGED[name]
    found = effective_differences(TEST07, AS_LOGGED | {name: value})
    assert list(found) == [key]
    assert found[key].startswith(f"effective_{name} was {value}, the audit settings say ")


def test_published_runs_had_the_settings_of_their_round():
    """v6.0 did not ask for unique samples; all else is as today."""
    logs = published("TEST0[79]/performance/run_1/mlperf_log_detail.txt")
    assert len(logs) == 14
    for path in logs:
        settings, _ = OFFICIAL["gpt-oss-120b"][path.parts[-4]]
        found = effective_differences(settings, read_detail(path).effective)
        assert list(found) == ["performance_issue_unique"], path
