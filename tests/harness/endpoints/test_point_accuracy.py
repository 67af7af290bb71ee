"""accuracy_results.json: ours as the official checker reads it, the official client's as we read it."""

import json
from pathlib import Path

import pytest

from harness.config.benchmark import load_benchmark
from harness.endpoints.accuracy import as_shares, read_accuracy, targets, write_accuracy
from harness.endpoints.curve import Point
from harness.endpoints.rehearsal.rehearsal_console import RehearsalConsole
from harness.endpoints.run_folder import ACCURACY
from harness.errors import ConfigError

GPT, R1, LLAMA = (load_benchmark(name) for name in ("gpt-oss-120b", "deepseek-r1", "llama3.1-8b"))
CANONICAL = {"gpt-oss-120b": "gpt-oss-120b", "deepseek-r1": "deepseek-r1", "llama3.1-8b": "llama3_1-8b"}
GOOD = {
    "gpt-oss-120b": {"exact_match": 83.1},
    "deepseek-r1": {"exact_match": 81.2, "tokens_per_sample": 3800.5},
    "llama3.1-8b": {
        "rouge1": 38.7287, "rouge2": 16.0968, "rougeL": 24.5, "rougeLsum": 35.9, "gen_len": 8173016,
    },
}  # fmt: skip
ALL = [GPT, R1, LLAMA]


def entry(benchmark, metrics=None, **changes):
    """The entry of a complete run as sut/endpoints/accuracy.py writes it."""
    samples = benchmark.dataset(accuracy=True).samples
    counts = {"issued": samples, "scored": samples, "empty": 0, "missing": 0}
    written = {
        "dataset_name": "d",
        "extractor": f"{benchmark.name}, official rules",
        "score": as_shares(metrics or GOOD[benchmark.name], benchmark),
        "unit_samples": samples,
        "num_repeats": 1,
        "total_samples": samples,
        "duration_s": 12.5,
        "complete": True,
        "dataset_type": "accuracy",
        "response_counts": counts,
    }
    return written | changes


def ours(folder, benchmark, metrics=None, **changes):
    write_accuracy(folder, entry(benchmark, metrics, **changes))
    return read_accuracy(folder, benchmark)


def stored(folder, whole):
    """Any file, as text or as JSON."""
    path = folder / ACCURACY
    path.parent.mkdir(exist_ok=True)
    path.write_text(whole if isinstance(whole, str) else json.dumps(whole))
    return folder


@pytest.mark.parametrize("benchmark", ALL, ids=lambda one: one.name)
def test_a_complete_good_run_passes_with_the_values_that_were_written(benchmark, tmp_path):
    found = ours(tmp_path, benchmark)
    assert {name: metric.value for name, metric in found.metrics.items()} == GOOD[benchmark.name]
    assert found.passed and found.missing == ()
    assert (found.samples, found.duration_s) == (benchmark.dataset(accuracy=True).samples, 12.5)
    bounds = {name: (metric.lowest, metric.highest) for name, metric in found.metrics.items()}
    assert bounds == targets(benchmark)
    assert json.loads((tmp_path / ACCURACY).read_text())["label"] == "not an MLPerf result"


NOT_PASSED = [
    ({"unit_samples": 100}, (False, True), "100 of 4395 samples: no accuracy result"),
    ({"complete": False}, (False, True), "not of every answer: no accuracy result"),
    (
        {"response_counts": {"issued": 4395, "scored": 4394, "empty": 0, "missing": 1}},
        (False, True),
        "1 request without an answer: no accuracy result",
    ),
    ({"score": {"exact_match": 0.82}}, (True, False), "NOT met"),
    ({"score": {}}, (True, False), "no exact_match"),
    ({"score": None}, (True, False), "no exact_match"),
]


@pytest.mark.parametrize(("changes", "expected", "why"), NOT_PASSED)
def test_what_does_not_pass(changes, expected, why, tmp_path):
    found = ours(tmp_path, GPT, **changes)
    assert (found.is_complete, found.is_met) == expected
    assert not found.passed and why in found.line


def test_the_terminal_has_the_bound_that_is_not_met(tmp_path, capsys):
    low, high = targets(LLAMA)["gen_len"]
    found = ours(tmp_path, LLAMA, GOOD[LLAMA.name] | {"gen_len": high + 1})
    RehearsalConsole().accuracy(Point(name="r8", concurrency=8, band="low", issue_s=1.0, passes=1), found)
    assert f"gen_len {high + 1:.7g} ({low:.10g} to {high:.10g}, NOT met)" in capsys.readouterr().out


def test_each_summary_metric_has_its_own_bounds(tmp_path):
    low, high = targets(LLAMA)["gen_len"]
    for value, met in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
        assert ours(tmp_path, LLAMA, GOOD[LLAMA.name] | {"gen_len": value}).is_met is met
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        found = ours(tmp_path, LLAMA, GOOD[LLAMA.name] | {name: targets(LLAMA)[name][0] - 0.001})
        assert not found.is_met and f"{name} " in found.line and "NOT met" in found.line


# --- of the official client --------------------------------------------------------------------

SUBSETS = [
    ("aime25::gptoss", 30, 8, 0.9),
    ("gpqa::gptoss", 198, 5, 0.7),
    ("livecodebench::gptoss", 1055, 3, 0.85),
]


def subsets(**changes):
    return [
        {"dataset_name": name, "extractor": "E", "score": value, "unit_samples": unit, "num_repeats": repeats,
         "total_samples": unit * repeats, "duration_s": 1.0, "complete": True, "dataset_type": "accuracy"}
        | changes
        for name, unit, repeats, value in SUBSETS
    ]  # fmt: skip


def test_data_sets_are_weighted_as_the_rules_weight_repeats(tmp_path):
    stored(tmp_path, {"average_accuracy": 0.8, "osl_tokenization_s": 1.0, "accuracy_scores": subsets()})
    found = read_accuracy(tmp_path, GPT)
    rules = 100 * (30 * 0.9 + 198 * 0.7 + 1055 * 0.85) / (30 + 198 + 1055)
    assert found.metrics["exact_match"].value == pytest.approx(rules)
    assert (found.samples, found.duration_s, found.passed) == (4395, 3.0, True)


def test_a_data_set_that_was_not_graded_leaves_no_score(tmp_path):
    """The client writes null where it reached no grader of code."""
    parts = subsets()
    parts[2] |= {"score": None}
    found = read_accuracy(stored(tmp_path, {"accuracy_scores": parts}), GPT)
    assert (found.metrics, found.lacks, found.is_met) == ({}, ("exact_match",), False)


def test_the_inline_score_of_a_performance_run_is_no_accuracy_run(tmp_path):
    inline = subsets(dataset_type="performance")[:1]
    assert read_accuracy(stored(tmp_path, {"accuracy_scores": inline}), GPT) is None
    assert read_accuracy(stored(tmp_path, {"accuracy_scores": [*inline, *subsets()]}), GPT).samples == 4395


def test_rouge_in_its_text_and_deepseeks_percentage(tmp_path):
    texts = {name: str(value) for name, value in GOOD[LLAMA.name].items()} | {"gen_num": 13368}
    whole = {"cnn_dailymail::llama3_8b": {"num_samples": 13368, "score": texts}}
    found = read_accuracy(stored(tmp_path, whole), LLAMA)
    assert {name: one.value for name, one in found.metrics.items()} == GOOD[LLAMA.name]
    assert found.passed
    alone = {"accuracy_scores": [entry(R1) | {"score": 81.2, "breakdown": {"subset_scores": {}}}]}
    found = read_accuracy(stored(tmp_path, alone), R1)
    assert found.passed and found.missing == ("tokens_per_sample",)
    assert read_accuracy(stored(tmp_path, {"d": {"exact_match": 81.2, "num_samples": 4388}}), R1).passed


def test_a_rouge_that_is_missing_is_no_score(tmp_path):
    score = {"rouge1": "38.7287"}
    found = read_accuracy(stored(tmp_path, {"d": {"num_samples": 13368, "score": score}}), LLAMA)
    assert not found.is_met and "no rouge2" in found.line


def test_a_points_folder_in_a_tree_has_the_file_beside_its_point(tmp_path):
    (tmp_path / "accuracy_results.json").write_text(json.dumps({"accuracy_scores": [entry(GPT)]}))
    assert read_accuracy(tmp_path, GPT).passed


def test_no_file_is_no_accuracy_run(tmp_path):
    assert read_accuracy(tmp_path, GPT) is None


BROKEN = [
    '{"accuracy_scores": [{"score": {"exact_match": 167.0}, "unit_samples": 4395}]}',
    "",
    '{"accuracy_scores": [',
    "[" * 1_000_000,
    "7",
    '{"accuracy_scores": 7}',
    '{"accuracy_scores": [7]}',
    '{"accuracy_scores": [{"score": NaN}]}',
    '{"accuracy_scores": [{"score": true}]}',
    '{"accuracy_scores": [{"score": "nan"}]}',
    f'{{"accuracy_scores": [{{"score": 1{"0" * 400}}}]}}',
    '{"accuracy_scores": [{"score": [1]}]}',
    '{"accuracy_scores": [{"score": {"exact_match": "good"}}]}',
    '{"accuracy_scores": [{"score": 0.9, "unit_samples": "many"}]}',
    '{"accuracy_scores": [{"score": 0.9, "response_counts": 3}]}',
    '{"accuracy_scores": [{"score": 0.9, "unit_samples": -4395}]}',
    '{"accuracy_scores": [{"score": 0.9, "unit_samples": 1}, {"score": 82.0, "unit_samples": 1}]}',
]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:60])
def test_a_broken_file_is_one_line(text, tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_accuracy(stored(tmp_path, text), GPT)
    words = str(caught.value)
    assert str(tmp_path / ACCURACY) in words and "\n" not in words and len(words) < 600
    assert words.lower().count("expected") <= 1 and "; score the point again" in words


# --- the official checker reads ours -----------------------------------------------------------


def verdicts(folder, benchmark):
    """Rule and severity of each finding of the official checker on our file."""
    checker = pytest.importorskip("submission_checker.models.aggregate.context")
    from submission_checker.models.loader import load_accuracy_result

    result, findings = load_accuracy_result(folder / ACCURACY)
    assert result is not None and findings == []
    assert result.accuracy_datasets() == ["d"] and result.performance_dataset() is None
    context = checker.ModelContext.model_construct(
        model_dir=Path(CANONICAL[benchmark.name]), accuracy_dir=folder
    )
    context._gate_accuracy(result)
    return [(found.rule, found.severity.value, found.message) for found in context._check_results]


@pytest.mark.parametrize("benchmark", ALL, ids=lambda one: one.name)
def test_the_official_gate_passes_a_good_run(benchmark, tmp_path):
    assert ours(tmp_path, benchmark).passed
    found = verdicts(tmp_path, benchmark)
    gated = len(GOOD[benchmark.name]) - ("tokens_per_sample" in GOOD[benchmark.name])
    assert [rule for rule, severity, _ in found] == ["accuracy-sample-count", *["accuracy-gate"] * gated]
    assert {severity for _, severity, _ in found}.isdisjoint({"error", "warning"})


@pytest.mark.parametrize("benchmark", ALL, ids=lambda one: one.name)
@pytest.mark.parametrize("factor", [0.5, 0.01, 0.001])
def test_the_official_gate_fails_a_bad_one_whatever_its_score(benchmark, factor, tmp_path):
    """Also below 1 %, where it would take a percentage for a share."""
    bad = {name: value * factor for name, value in GOOD[benchmark.name].items()}
    assert not ours(tmp_path, benchmark, bad).is_met
    failed = [rule for rule, severity, _ in verdicts(tmp_path, benchmark) if severity == "error"]
    assert failed == ["accuracy-gate"] * len([name for name in bad if name != "tokens_per_sample"])


def test_the_official_checker_refuses_fewer_rows(tmp_path):
    ours(tmp_path, GPT, unit_samples=4394, complete=False)
    failed = [rule for rule, severity, _ in verdicts(tmp_path, GPT) if severity == "error"]
    assert failed == ["accuracy-sample-count"]


@pytest.mark.parametrize("benchmark", ALL, ids=lambda one: one.name)
def test_our_targets_are_the_official_ones_and_no_weaker(benchmark):
    official = pytest.importorskip("submission_checker.accuracy_targets")
    thresholds, samples = official.get_thresholds(CANONICAL[benchmark.name])
    bounds = {name.lower(): (low, high) for name, (low, high) in targets(benchmark).items()}
    for name, (low, high) in thresholds.items():
        assert bounds[name] == pytest.approx((low, float("inf") if high is None else high))
    assert set(bounds) - set(thresholds) <= {"tokens_per_sample"}
    assert samples == benchmark.dataset(accuracy=True).samples
