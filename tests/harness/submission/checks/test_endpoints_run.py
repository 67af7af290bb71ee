"""Results in the Endpoints layout: what is taken has no issue, and each damage has its own."""

import json
import math
import re

import pytest

from harness.submission.checks.check import check_contexts, check_tree
from harness.submission.checks.endpoints_run import check_endpoints
from harness.submission.results_table import summarize
from prepare_submission import main
from tests.harness.submission.checks.damages import division
from tests.harness.submission.checks.endpoints_results import (
    ACCURACY,
    CONFIG,
    SUMMARY,
    change,
    endpoints,
    entry,
    save,
)
from tests.harness.submission.checks.official_checker import accepts, needs_official
from tests.harness.submission.edits import both, copied, remove, rename, write
from tests.harness.submission.trees import CNN_ARCHIVE, R1_ARCHIVE, RESULTS, unpack
from tests.made_up.cnn import EDGE

RUNTIME = ("settings", "runtime")
P99 = ("early_stopping_percentiles", "99.0")
AUDIT = "audit/audit_accuracy_in_performance_full_test.json"


@pytest.fixture
def results(tree):
    """Both scenarios of gpt-oss-120b."""
    both(endpoints("Offline"), endpoints("Interactive"))(tree / RESULTS)
    return tree


def test_a_summary_of_another_scenario_is_of_the_same_run(results):
    before = [issue for issue in check_tree(results) if issue.code == "repeat"]
    copied(f"Interactive/{SUMMARY}", f"Offline/{SUMMARY}")(results / RESULTS)
    (issue,) = (issue for issue in check_tree(results) if issue.code == "repeat")
    assert (before, issue.is_warning, issue.where) == ([], False, f"{RESULTS}/Offline/{SUMMARY}")
    assert issue.what == f"is of the same run as {RESULTS}/Interactive/{SUMMARY}"


# Damage, code of its issue, and whether MLCommons's checker refuses it.
DAMAGES = {
    "no accuracy": (remove(f"Interactive/{ACCURACY}"), "missing-file", True),
    "cut-off JSON": (write(f"Interactive/{SUMMARY}", '{"n_samples'), "malformed", True),
    "nested JSON": (write(f"Interactive/{SUMMARY}", "[" * (1 << 20)), "malformed", True),
    "YAML with an anchor": (write(f"Interactive/{CONFIG}", "a: &a [1]\nb: *a\n"), "malformed", True),
    "no README": (remove("Interactive/README.md"), "missing-file", True),
    "another scenario": (change(CONFIG, "online", "type", scenario="Offline"), "scenario", True),
    "Offline in Interactive": (change(CONFIG, "offline", "type"), "scenario", False),
    "a seed": (change(CONFIG, 42, *RUNTIME, "dataloader_random_seed"), "seeds", True),
    "another seed": (change(CONFIG, 42, *RUNTIME, "scheduler_random_seed"), "seeds", True),
    "300 s": (change(CONFIG, 300_000, *RUNTIME, "min_duration_ms"), "min-duration", True),
    "300 s, measured": (
        both(
            change(SUMMARY, 300 * 10**9, "duration_ns"),
            change(SUMMARY, 6396 / 300, "qps"),
            change(SUMMARY, 6396 * 1278 / 300, "tps"),
        ),
        "min-duration",
        False,
    ),
    "Offline of 300 s": (
        both(
            change(SUMMARY, 300 * 10**9, "duration_ns", scenario="Offline"),
            change(SUMMARY, 6396 / 300, "qps", scenario="Offline"),
            change(SUMMARY, 6396 * 1278 / 300, "tps", scenario="Offline"),
        ),
        "min-duration",
        False,
    ),
    "a rate of 0": (change(SUMMARY, 0.0, "qps"), "invalid", True),
    "a rate that is no number": (change(SUMMARY, "fast", "qps"), "invalid", True),
    "TTFT": (change(SUMMARY, 2.1e9, "ttft", *P99), "latency", True),
    "TPOT": (change(SUMMARY, 16e6, "tpot", *P99), "latency", True),
    "no early stopping": (change(SUMMARY, None, "ttft", P99[0]), "latency", True),
    "short answers": (change(SUMMARY, 900.0, "output_sequence_lengths", "avg"), "mean-tokens", True),
    "no score": (change(ACCURACY, [], "accuracy_scores"), "accuracy", True),
    "a low score": (change(ACCURACY, 0.7, "accuracy_scores", 2, "score"), "accuracy", False),
    "a score by all requests, too low by rows": (
        both(
            *(
                change(ACCURACY, share, "accuracy_scores", number, "score")
                for number, share in enumerate((0.9, 0.85, 0.81))
            )
        ),
        "accuracy",
        False,
    ),
    "a data set that was not graded": (
        change(ACCURACY, None, "accuracy_scores", 2, "score"),
        "accuracy",
        False,
    ),
    "a score of a part of the answers": (
        change(ACCURACY, False, "accuracy_scores", 2, "complete"),
        "sample-count",
        False,
    ),
    "requests without an answer": (
        change(ACCURACY, 3, "accuracy_scores", 1, "response_counts", "missing"),
        "sample-count",
        False,
    ),
    "a data set is missing": (change(ACCURACY, None, "accuracy_scores", 0), "sample-count", True),
    "a failed test": (
        write(
            f"Interactive/{AUDIT}",
            json.dumps({"test": "accuracy_in_performance_full_test", "passed": False}),
        ),
        "test-failed",
        True,
    ),
    "a damaged test": (write(f"Interactive/{AUDIT}", '{"test": '), "malformed", True),
    "another test": (
        write(f"Interactive/{AUDIT}", json.dumps({"test": "output_caching_test", "passed": True})),
        "test-failed",
        True,
    ),
    "as many queries as the accuracy run has": (
        both(
            change(SUMMARY, 4395, "n_samples_completed"),
            change(SUMMARY, 4395, "n_samples_issued"),
            change(SUMMARY, 4395 * 1278, "output_sequence_lengths", "total"),
            change(SUMMARY, 4395 / 700, "qps"),
            change(SUMMARY, 4395 * 1278 / 700, "tps"),
        ),
        "sample-count",
        False,
    ),
    "lost requests": (change(SUMMARY, 6400, "n_samples_issued"), "cross-check", False),
    "fixed concurrency": (
        change(CONFIG, "concurrency", "settings", "load_pattern", "type"),
        "settings",
        False,
    ),
    "another rate of tokens": (change(SUMMARY, 11_700.0, "tps"), "cross-check", False),
    "another rate of requests": (change(SUMMARY, 9.15, "qps"), "cross-check", False),
    "the rates of the run over LoadGen's window": (
        change(SUMMARY, 650 * 10**9, "legacy_loadgen_window_duration_ns"),
        "cross-check",
        False,
    ),
    "short answers, by their tokens": (
        both(
            change(SUMMARY, 6396 * 900, "output_sequence_lengths", "total"),
            change(SUMMARY, 6396 * 900 / 700, "tps"),
        ),
        "mean-tokens",
        False,
    ),
    "other rows of a data set": (
        change(ACCURACY, 99, "accuracy_scores", 1, "unit_samples"),
        "cross-check",
        False,
    ),
    "a share above 1 beside others": (
        change(ACCURACY, 1.5, "accuracy_scores", 1, "score"),
        "malformed",
        False,
    ),
    "an interrupted run": (
        both(change(SUMMARY, False, "complete"), change(SUMMARY, "interrupted", "state")),
        "invalid",
        False,
    ),
    "answers of 1024 tokens": (change(CONFIG, 1024, "model_params", "max_new_tokens"), "settings", False),
}

P99_OF = "early_stopping_percentiles is"
SAID = {
    "another scenario": "type is online, expected offline in Offline",
    "Offline in Interactive": "type is offline, expected online in Interactive",
    "a seed": (
        "settings.runtime.dataloader_random_seed is 42, expected sample_index_rng_seed 2747215439041700203"
    ),
    "another seed": (
        "settings.runtime.scheduler_random_seed is 42, expected schedule_rng_seed 16159082839903944936"
    ),
    "300 s": "settings.runtime.min_duration_ms is 300000, expected 600000 or more",
    "300 s, measured": "the run lasted 300.0 s, expected 600 s or more",
    "Offline of 300 s": "the run lasted 300.0 s, expected 600 s or more",
    "a rate of 0": "qps is 0.0, expected a number above 0: there is no result",
    "TTFT": f"99.0 of ttft.{P99_OF} 2100.00 ms, expected less than 2000 ms",
    "TPOT": f"99.0 of tpot.{P99_OF} 16.00 ms, expected less than 15 ms",
    "no early stopping": f"99.0 of ttft.{P99_OF} missing, expected less than 2000 ms",
    "short answers": "output_sequence_lengths.avg is 900.0, expected 1150.38 to 1406.02",
    "no score": "accuracy_scores has no score",
    "a low score": "exact_match is 71.2451, expected 82.2987 or more",
    "a data set that was not graded": "'exact_match' is missing in accuracy_scores[].score",
    "requests without an answer": "3 requests have no answer (response_counts.missing)",
    "a data set is missing": "4,155 samples were evaluated (total_samples), expected 4395",
    "a failed test": "passed is false",
    "another test": "test is output_caching_test, expected accuracy_in_performance_full_test",
    "as many queries as the accuracy run has": "n_samples_completed is 4395, expected 6396 or more",
    "lost requests": "6400 were issued, 6396 completed and none failed",
    "fixed concurrency": "settings.load_pattern.type is concurrency, expected poisson",
    "another rate of tokens": "tps is 11700, its counts and time give 11677.3",
    "another rate of requests": "qps is 9.15, its counts and time give 9.13714",
    "short answers, by their tokens": (
        "output_sequence_lengths.total ÷ n_samples_completed is 900.00, expected 1150.38 to 1406.02"
    ),
    "other rows of a data set": "unit_samples × num_repeats are 3900, total_samples 4395",  # noqa: RUF001
    "an interrupted run": "the run is not complete: its state is interrupted",
    "answers of 1024 tokens": "max_new_tokens is 1024, expected 10,240 or more",
}


def failing(issues) -> set[str]:
    return {one.code for one in issues if not one.is_warning}


def test_both_scenarios_have_no_issue(results):
    assert check_tree(results) == ()


@needs_official
@pytest.mark.engine
def test_mlcommons_s_checker_accepts_them(results):
    assert accepts(results)
    as_yml(results)
    assert accepts(results)


def as_yml(results):
    """The other name that MLCommons's checker takes."""
    for path in results.rglob(CONFIG):
        path.rename(path.with_suffix(".yml"))


def test_its_settings_may_be_config_yml(results):
    change(CONFIG, 42, *RUNTIME, "scheduler_random_seed")(results / RESULTS)
    as_yml(results)
    (found,) = check_tree(results)
    assert found.code == "seeds" and found.where.endswith("Interactive/config.yml")


def test_a_scenario_of_each_layout_and_the_name_online(tree):
    both(endpoints("Interactive"), rename("Interactive", "Online"))(tree / RESULTS)
    config = tree / RESULTS / "Online" / CONFIG
    assert failing(check_tree(tree)) == set() and config.is_file()
    config.unlink()  # LoadGen has no scenario of this name
    assert any(issue.what.startswith("Online is not allowed, ") for issue in check_tree(tree))


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_has_its_issue(results, name):
    damage, code, _ = DAMAGES[name]
    damage(results / RESULTS)
    found = check_tree(results)
    assert failing(found) == {code}
    assert name not in SAID or [one.what for one in found] == [SAID[name]]


@pytest.mark.parametrize(
    "name", ["fixed concurrency", "answers of 1024 tokens", "short answers", "a low score"]
)
def test_what_the_open_division_leaves_open(results, name):
    both(DAMAGES[name][0], division("open"))(results / RESULTS)
    assert failing(check_tree(results)) == set()


def test_rates_over_the_window_of_loadgen(results):
    """As the official client has them in Server: less one request, up to the answer to the last query."""
    window_s = 650
    both(
        change(SUMMARY, window_s * 10**9, "legacy_loadgen_window_duration_ns"),
        change(SUMMARY, 6395 / window_s, "qps"),
        change(SUMMARY, 6396 * 1278 / window_s, "tps"),
    )(results / RESULTS)
    assert check_tree(results) == ()


def test_a_result_with_a_rounded_rate_or_without_it(results):
    """MLCommons's checker computes it, from the number of samples and the duration."""
    for rate in (9.14, None):  # rounded, or none
        change(SUMMARY, rate, "qps")(results / RESULTS)
        assert check_tree(results) == ()
    change(SUMMARY, None, "output_sequence_lengths", "total")(results / RESULTS)
    assert check_tree(results) == ()


@needs_official
@pytest.mark.engine
@pytest.mark.parametrize("name", DAMAGES)
def test_what_mlcommons_s_checker_says_of_it(results, name):
    damage, _, refused = DAMAGES[name]
    damage(results / RESULTS)
    assert accepts(results) is not refused


def test_the_client_s_score_of_deepseek_r1_is_one_number(tmp_path):
    """It writes no tokens per sample, and so nobody's result has them."""
    tree = unpack(tmp_path, R1_ARCHIVE) / "deepseek-r1"
    results = tree / RESULTS.with_name("deepseek-r1")
    both(endpoints("Offline"), endpoints("Server"), remove("Interactive"))(results)
    for scenario in ("Offline", "Server"):
        save(results / scenario / ACCURACY, {"accuracy_scores": [entry("deepseek_r1", 81.2, 4388)]})
    what = "'tokens_per_sample' is missing in accuracy_scores[].score: its limits are not checked"
    assert [(one.is_warning, one.what) for one in check_tree(tree)] == [(True, what)] * 2
    where = RESULTS.with_name("deepseek-r1") / "Offline" / ACCURACY
    assert str(check_tree(tree)[0]) == f"warning: {where}: [accuracy] {what}"
    assert [row.accuracy for row in summarize(check_contexts(tree))] == ["exact_match 81.200"] * 2
    change(ACCURACY, 80.5, "accuracy_scores", 0, "score", scenario="Server")(results)
    assert failing(check_tree(tree)) == {"accuracy"}


def test_offline_and_server_need_the_rate_of_tokens(tree):
    """The client writes null without a tokenizer. At b66003e1 MLCommons's checker refused Server alone."""
    results = tree / RESULTS
    both(endpoints("Offline"), endpoints("Interactive", "Server"))(results)
    assert check_tree(tree) == ()
    change(SUMMARY, 9000.0, "tps", scenario="Server")(results)
    offline, server = summarize(check_contexts(tree))
    assert (round(offline.result, 1), server.result) == (11677.3, 9000.0)
    both(*(change(SUMMARY, None, "tps", scenario=name) for name in ("Offline", "Server")))(results)
    assert [one.code for one in check_tree(tree)] == ["invalid"] * 2


NO_ESTIMATE = {
    "no mean": ("latency", "avg"),
    "no p90": ("latency", "early_stopping_percentiles", "90.0"),
    "no percentile": ("latency", "early_stopping_percentiles"),
}


@pytest.fixture
def single_stream(tmp_path):
    """Both scenarios of llama3.1-8b-edge."""
    tree = unpack(tmp_path, CNN_ARCHIVE) / EDGE
    results = tree / RESULTS.with_name(EDGE)
    both(endpoints("Offline"), endpoints("SingleStream"))(results)
    change(CONFIG, "concurrency", "settings", "load_pattern", "type", scenario="SingleStream")(results)
    score = {
        "rouge1": "39.06",
        "rouge2": "16.11",
        "rougeL": "24.63",
        "rougeLsum": "36.12",
        "gen_len": "3051113",
    }
    for scenario in ("Offline", "SingleStream"):
        save(results / scenario / ACCURACY, {"accuracy_scores": [entry("cnn", score, 5000)]})
    return tree


def test_single_stream_as_it_is(single_stream):
    assert check_tree(single_stream) == ()


@pytest.mark.parametrize("name", NO_ESTIMATE)
def test_single_stream_needs_its_latencies(single_stream, name):
    change(SUMMARY, None, *NO_ESTIMATE[name], scenario="SingleStream")(
        single_stream / RESULTS.with_name(EDGE)
    )
    assert failing(check_tree(single_stream)) == {"invalid"}


@needs_official
@pytest.mark.engine
@pytest.mark.parametrize("name", [None, *NO_ESTIMATE])
def test_what_mlcommons_s_checker_says_of_single_stream(single_stream, name):
    if name is not None:
        change(SUMMARY, None, *NO_ESTIMATE[name], scenario="SingleStream")(
            single_stream / RESULTS.with_name(EDGE)
        )
    assert accepts(single_stream) is (name is None)


def test_failed_requests(results):
    damage = both(change(SUMMARY, 5, "n_samples_failed"), change(SUMMARY, 6401, "n_samples_issued"))
    damage(results / RESULTS)
    assert [one.what for one in check_tree(results)] == ["5 of 6401 requests failed"]
    assert [row.valid for row in summarize(check_contexts(results))] == [False, True]


def test_a_round_that_takes_no_endpoints_logs(results):
    said = {one.code: one.what for one in check_tree(results, round_name="v6.0")}
    assert said["endpoints-benchmark"] == "gpt-oss-120b may not be submitted with logs of Endpoints"


def test_the_table_shows_them(results, capsys):
    assert main(["check", str(results)]) == 0
    shown = capsys.readouterr().out
    assert "11,677.3 tokens/s" in shown and "exact_match 83.833" in shown
    assert re.search(r"Interactive .* 1500\.0 ms +12\.0 ms ", shown)  # TTFT and TPOT
    assert "not checked" not in shown


@pytest.mark.parametrize(
    "keys",
    [
        (SUMMARY, "n_samples_failed"),
        (SUMMARY, "n_samples_completed"),
        (SUMMARY, "duration_ns"),
        (SUMMARY, "ttft"),
        (SUMMARY, "tpot", *P99),
        (ACCURACY, "accuracy_scores", 0),
        (ACCURACY, "accuracy_scores", 0, "total_samples"),
        (ACCURACY, "accuracy_scores", 0, "score"),
        (CONFIG, *RUNTIME),
    ],
)
def test_any_value_is_an_issue(results, keys):
    file, *path = keys
    for value in ([], {}, "text", "nan", -1, True, math.inf, math.nan, 10**400):
        change(file, value, *path)(results / RESULTS)
        (context,) = [one for one in check_contexts(results) if one.dir.folder == "Interactive"]
        assert list(check_endpoints(context)) != []
        assert len(summarize([context])) == 1
