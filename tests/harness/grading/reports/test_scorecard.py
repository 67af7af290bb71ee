"""The printed scorecard, to the letter as the official evaluator prints it."""

import pytest

from harness.config.benchmark import load_benchmark
from harness.grading.evaluation.evaluate import Evaluation, GradedSample
from harness.grading.evaluation.pass_criteria import MetricResult, TargetResult
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import AIME, GPQA, LIVECODEBENCH
from harness.grading.reports.scorecard import scorecard
from harness.grading.scoring.accuracy_score import DatasetScore, Lengths, MetricValue, Score, total
from harness.grading.scoring.grade import (
    EXACT_MATCH,
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
