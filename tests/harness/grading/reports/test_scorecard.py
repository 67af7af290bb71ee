"""The printed scorecard, to the letter as the official evaluator prints it."""

import pytest
from msgspec.structs import replace

from harness.config.benchmark import PublishedRuns, load_benchmark
from harness.grading.decoding.output_sources import Place
from harness.grading.evaluation.evaluate import Evaluation, GradedSample, Logged
from harness.grading.evaluation.pass_criteria import MetricResult, TargetResult
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import AIME, CNN_DAILYMAIL, GPQA, LIVECODEBENCH
from harness.grading.reports.scorecard import mean_tokens, scorecard
from harness.grading.scoring.accuracy_score import DatasetScore, Lengths, MetricValue, Score, standing, total
from harness.grading.scoring.grade import (
    EXACT_MATCH,
    OF_LOGGED,
    RIGHT,
    RIGHT_OR_WRONG,
    WRONG,
    Grade,
    GradingMode,
    Reason,
)

OSS = "gpt-oss-120b"

# accuracy.txt of a published result (Nebius, v6.0, gpt-oss-120b, Server), without the lines around it.
PUBLISHED = """\
================================================================================
MLPerf Accuracy Evaluation Results
================================================================================
Total samples evaluated: 4395
Overall raw accuracy: 83.07% (3651/4395)
================================================================================

Per-Dataset Breakdown:
--------------------------------------------------------------------------------
Dataset                    Correct    Total  Repeats      Score   Accuracy
--------------------------------------------------------------------------------
aime25                         195      240        8      24.38     81.25%
gpqa_diamond                   756      990        5     151.20     76.36%
livecodebench_v6              2700     3165        3     900.00     85.31%
================================================================================

Final Score Calculation:
--------------------------------------------------------------------------------
Formula: aime25/8 + gpqa_diamond/5 + livecodebench_v6/3
Score:   = 195/8 + 756/5 + 2700/3
         = 24.38 + 151.20 + 900.00
         = 1075.58
Max:     = 240/8 + 990/5 + 3165/3
         = 1283.00

FINAL SCORE: 83.83% (1075.58/1283.00)
================================================================================
"""
SCRAPED = """


Printing for submission_checker:

'exact_match': 83.833"""
COUNTS = {"aime25": (195, 240, 8), "gpqa_diamond": (756, 990, 5), "livecodebench_v6": (2700, 3165, 3)}


OFFICIAL, STRICT = GradingMode.OFFICIAL, GradingMode.STRICT


def published():
    metric = RIGHT_OR_WRONG[EXACT_MATCH]
    samples = {name: [1.0] * right + [0.0] * (number - right) for name, (right, number, _) in COUNTS.items()}
    value = total(metric, samples, {name: repeats for name, (*_, repeats) in COUNTS.items()})
    return Score(4395, {name: DatasetScore(*counts) for name, counts in COUNTS.items()}, {EXACT_MATCH: value})


def printed(score, *modes, kinds=()):
    """Of samples of these kinds that are all wrong."""
    metric = MetricResult(EXACT_MATCH, score.metrics[EXACT_MATCH], load_benchmark(OSS).accuracy[EXACT_MATCH])
    grades = dict.fromkeys(modes, Grade(WRONG, False, None, Reason.WRONG))
    graded = tuple(GradedSample(0, Reference("aime25", kind, "", None), None, grades) for kind in kinds)
    lengths = Lengths(1000.0, 1, 2000, 0.0)
    evaluation = Evaluation(graded, (), None, lengths, dict.fromkeys(modes, score))
    return scorecard(evaluation, TargetResult(modes[0], score, (metric,)))


def test_published_counts_are_printed_as_the_official_evaluator_printed_them():
    text = printed(published(), OFFICIAL)
    assert text.startswith(PUBLISHED) and text.endswith(SCRAPED)


@pytest.mark.parametrize(
    ("kinds", "programs"),
    [
        ([AIME, GPQA], ""),
        ([AIME, LIVECODEBENCH], "; programs run as usual, with a real stdin"),
    ],
)
def test_the_strict_score_stands_below_the_official_one(kinds, programs):
    dash = "-" * 80
    table = PUBLISHED.partition(f"Breakdown:\n{dash}\n")[2].partition("=")[0]
    strict = f"\nStrict rules: the last explicit answer of the final part{programs}\n{dash}\n{table}"
    both, alone = (printed(published(), *modes, kinds=kinds) for modes in ((OFFICIAL, STRICT), (STRICT,)))
    assert f"{PUBLISHED}{strict}Strict score: 83.83% (1075.58/1283.00)\n" in both
    assert both.endswith(SCRAPED)
    assert alone.startswith(strict) and "submission_checker" not in alone


@pytest.mark.parametrize(
    ("repeats", "solved", "said"),
    [
        (
            2,
            (2, 1, 0, 2),
            ["aime25: of 4 questions 2 always solved, 3 at least once; pass@k 1: 62.50%, 2: 75.00%"],
        ),
        (1, (1, 0), []),  # one repeat says no more than the score
        (2, (), []),  # the questions are not known
    ],
)
def test_questions_with_repeats(repeats, solved, said):
    part = DatasetScore(sum(solved), repeats * 4, repeats, (), solved)
    score = Score(8, {"aime25": part}, {EXACT_MATCH: MetricValue(50.0, RIGHT_OR_WRONG[EXACT_MATCH])})
    assert [line for line in printed(score, OFFICIAL).splitlines() if "pass@k" in line] == said


def test_programs_are_counted_by_their_difficulty_the_best_solved_first():
    grade = {right: Grade(RIGHT if right else WRONG, right, None, Reason.WRONG) for right in (True, False)}
    solved = [("a", True), ("b", True), ("b", False), ("b", False), ("b", True), ("c", True)]
    graded = tuple(
        GradedSample(0, Reference("lcb", LIVECODEBENCH, name, None), None, {OFFICIAL: grade[right]})
        for name, right in solved
    )
    score = published()
    evaluation = Evaluation(graded, (), None, Lengths(1.0, 1, 1, 0.0), {OFFICIAL: score})
    metric = MetricResult(EXACT_MATCH, score.metrics[EXACT_MATCH], load_benchmark(OSS).accuracy[EXACT_MATCH])
    text = scorecard(evaluation, TargetResult(OFFICIAL, score, (metric,)), {"a": "hard", "b": "easy"})
    reasons = (
        "Not correct, by reason (each is explained in docs/guide/accuracy.md):\nlcb, official: wrong 2\n"
    )
    assert f"\n{reasons}programs by difficulty: hard 100.00% of 1, easy 50.00% of 4\n" in text
    assert "by difficulty" not in scorecard(evaluation, TargetResult(OFFICIAL, score, (metric,)))


def test_the_first_three_outputs_with_a_remark_are_shown_by_both_ends():
    answers = ["a" * 60 + "b" * 60, None, "c" * 49 + "\n \n" + "d" * 50, "e", "f"]
    remarks = [("cut",)] * 4 + [(), None]
    graded = tuple(
        GradedSample(
            number,
            Reference("cnn_dailymail", CNN_DAILYMAIL, "", None),
            Logged(number, 128, None, None, Place(0, 0)),
            {OFFICIAL: Grade({}, None, answer, Reason.SCORED)},
            remark,
        )
        for number, (answer, remark) in enumerate(zip([*answers, "g"], remarks, strict=True))
    )
    score = Score(6, {}, {"rouge1": MetricValue(38.7, RIGHT_OR_WRONG[EXACT_MATCH])})
    of = {"cut": "at the limit", "empty": "without text"}
    evaluation = Evaluation(graded, (), None, Lengths(1.0, 1, 1, 0.0), {OFFICIAL: score}, remarks=of)
    bounds = load_benchmark("llama3.1-8b").accuracy["rouge1"]
    result = TargetResult(OFFICIAL, score, (MetricResult("rouge1", score.metrics["rouge1"], bounds),))
    shown = scorecard(evaluation, result).partition("look (no part of the score):\n")[2].splitlines()[:6]
    assert shown == [
        "cut: 4 of 5 (80.00%), at the limit",
        f"    qsl_idx 0, 128 tokens: '{'a' * 50} ... {'b' * 50}'",
        "    qsl_idx 1, 128 tokens: no text",
        f"    qsl_idx 2, 128 tokens: '{'c' * 49} {'d' * 50}'",
        "empty: 0 of 5 (0.00%), without text",
        "",
    ]
    assert "need a look" not in scorecard(replace(evaluation, remarks={}), result)


def test_each_of_several_metrics_has_its_verdict():
    """deepseek-r1 passes by its score and by the tokens of its answers."""
    rules = load_benchmark("deepseek-r1").accuracy
    values = {EXACT_MATCH: 90.0, "tokens_per_sample": 3000.5}
    metrics = tuple(
        MetricResult(name, MetricValue(value, OF_LOGGED[name]), rules[name]) for name, value in values.items()
    )
    score = Score(1, {}, {one.name: one.result for one in metrics})
    evaluation = Evaluation((), (), None, Lengths(1.0, 1, 1, 0.0), {OFFICIAL: score})
    lines = scorecard(evaluation, TargetResult(OFFICIAL, score, metrics)).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("Target FAIL"))
    assert lines[first + 1 : first + 3] == [
        "exact_match PASS: 90.0, expected 80.5446 or more",
        "tokens_per_sample FAIL: 3000.5, expected 3497.6047 to 4274.8501",
    ]
    alone = scorecard(evaluation, TargetResult(OFFICIAL, score, metrics[:1]))
    assert "exact_match PASS: " not in alone
    assert "'tokens_per_sample': 3000.5}" in alone


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (EXACT_MATCH, 83.0, "Among the 9 published v0 runs: +1.5 standard deviations, percentile 93, within"),
        (
            "rouge1",
            77.0,
            "rouge1: Among the 9 published v0 runs: -1.5 standard deviations, percentile 7, within",
        ),
        (
            EXACT_MATCH,
            86.0,
            "Among the 9 published v0 runs: +3.0 standard deviations, percentile 100, outside",
        ),
    ],
)
def test_what_a_score_can_be_trusted_by(name, value, said):
    """Repeats of 80 and 85 % have a standard deviation of 5 / √2, and a standard error of 5 / 2."""
    printed_as = MetricValue(value, RIGHT_OR_WRONG[EXACT_MATCH])
    part = DatasetScore(33, 40, 2, (80.0, 85.0))
    score = Score(40, {"aime25": part}, {EXACT_MATCH: printed_as, name: printed_as})
    runs = PublishedRuns(round="v0", runs=9, mean=80.0, deviation=2.0, lowest=75.0, highest=85.0)
    bounds = load_benchmark(OSS).accuracy[EXACT_MATCH]
    result = TargetResult(
        OFFICIAL,
        score,
        (MetricResult(name, printed_as, bounds, standing(value, runs)),),
        warnings=("the log has its ids as int64",),
    )
    evaluation = Evaluation(
        (), (), None, Lengths(1234.567, 1, 2000, 0.0123), {OFFICIAL: score, STRICT: score}
    )
    text = scorecard(evaluation, result)
    assert text.partition("\nTarget ")[2].splitlines()[1:6] == [
        "aime25: 2 repeats, mean 82.50%, standard deviation 3.54, standard error 2.50",
        f"{said} their range 75.0..85.0",
        "Output tokens: mean 1234.57, min 1, max 2000; 1.23% ended by the token limit",
        "The two modes disagree on 0 samples",
        "WARNING: the log has its ids as int64",
    ]
    assert mean_tokens(text) == 1234.57 and mean_tokens(PUBLISHED) is None
    one_mode = scorecard(replace(evaluation, scores={OFFICIAL: score}), result)
    assert "disagree" not in one_mode
