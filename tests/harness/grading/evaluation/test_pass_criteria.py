"""The line of the verdict: the metric that it names is the one that decides."""

import re

import pytest
from msgspec.structs import replace

from harness.config.benchmark import load_benchmark
from harness.errors import ConfigError
from harness.files import ROOT
from harness.grading.decoding.output_sources import Place
from harness.grading.evaluation.evaluate import Evaluation, GradedSample, Logged
from harness.grading.evaluation.pass_criteria import (
    MetricResult,
    TargetResult,
    check_target,
    require_metrics,
)
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import LIVECODEBENCH, MATH500
from harness.grading.graders.grader_sets import graders_of
from harness.grading.sandbox.tiers import Tier, sandbox
from harness.grading.scoring.accuracy_score import (
    DatasetScore,
    Lengths,
    MetricValue,
    Score,
    lengths,
    standing,
)
from harness.grading.scoring.grade import (
    EXACT_MATCH,
    OF_LOGGED,
    RIGHT_OR_WRONG,
    WRONG,
    Grade,
    GradingMode,
    Reason,
)

OF_OSS = RIGHT_OR_WRONG[EXACT_MATCH]
OSS, R1, LLAMA = "gpt-oss-120b", "deepseek-r1", "llama3.1-8b"
ROUGE = {"rouge1": 38.7, "rouge2": 16.0, "rougeL": 24.5, "rougeLsum": 35.9, "gen_len": 8167644}

LINES = [
    (
        OSS,
        {"exact_match": 83.451},
        0,
        "PASS",
        "exact_match 83.451 is at least 82.2987 (99 % of 83.13), margin +1.152",
    ),
    (OSS, {"exact_match": 70.0}, 0, "FAIL", "exact_match 70 is below 82.2987 (99 % of 83.13)"),
    # 82.298696 would be printed as 82.299, which the checker accepts: the value itself does not pass.
    (OSS, {"exact_match": 82.298696}, 0, "FAIL", "exact_match 82.298696 is below 82.2987 (99 % of 83.13)"),
    (
        R1,
        {"exact_match": 90.0, "tokens_per_sample": 3000.5},
        0,
        "FAIL",
        "tokens_per_sample 3000.5 is below 3497.6047 (90 % of 3886.2274); exact_match met its own",
    ),
    (
        R1,
        {"exact_match": 90.0, "tokens_per_sample": 5000.0},
        0,
        "FAIL",
        "tokens_per_sample 5000 is above 4274.8501 (110 % of 3886.2274); exact_match met its own",
    ),
    (
        R1,
        {"exact_match": 90.0, "tokens_per_sample": 3800.0},
        3,
        "FAIL",
        "3 samples without an entry in the log; exact_match, tokens_per_sample met theirs",
    ),
    (
        LLAMA,
        {**ROUGE, "rouge1": 70.7128, "gen_len": 250640},
        0,
        "FAIL",
        "gen_len 250640 is below 7350879.6 (90 % of 8167644); rouge1, rouge2, rougeL, rougeLsum met theirs",
    ),
    (
        LLAMA,
        ROUGE,
        0,
        "PASS",
        "rouge1 38.7 is at least 38.3914 (99 % of 38.7792), margin +0.309; "
        "rouge2, rougeL, rougeLsum, gen_len met theirs",
    ),
    (
        LLAMA,
        {**ROUGE, "rouge1": 30.0, "rouge2": 10.0},
        0,
        "FAIL",
        "rouge1 30 is below 38.3914 (99 % of 38.7792); rouge2 10 is below 15.7484 (99 % of 15.9075); "
        "rougeL, rougeLsum, gen_len met theirs",
    ),
]


@pytest.mark.parametrize(("benchmark", "values", "lacks", "verdict", "said"), LINES)
def test_the_verdict_and_its_metric_belong_together(benchmark, values, lacks, verdict, said):
    rules = load_benchmark(benchmark).accuracy
    printed = OF_OSS if benchmark == OSS else OF_LOGGED[EXACT_MATCH]
    metrics = tuple(
        MetricResult(name, MetricValue(value, printed), rules[name]) for name, value in values.items()
    )
    result = TargetResult(GradingMode.OFFICIAL, Score(1, {}, {}), metrics, lacks)
    assert (result.line, result.is_met) == (
        f"Target {verdict} by the official rules: {said}",
        verdict == "PASS",
    )


@pytest.mark.parametrize(
    ("value", "is_met", "said"),
    [
        (50.0, True, "50 is at least 50 (50 % of 100)"),
        (150.0, True, "150 is at least 50 (50 % of 100)"),
        (49.5, False, "49.5 is below 50 (50 % of 100)"),
        (150.5, False, "150.5 is above 150 (150 % of 100)"),
    ],
)
def test_a_value_equal_to_a_bound_passes(value, is_met, said):
    """As in MLCommons's checker: at least the target, and not above the limit."""
    rule = replace(load_benchmark(R1).accuracy["tokens_per_sample"], reference=100.0, passing=(0.5, 1.5))
    metric = MetricResult("x", MetricValue(value, OF_LOGGED[EXACT_MATCH]), rule)
    assert (metric.is_met, metric.sentence) == (is_met, f"x {said}")
    assert str(metric).endswith(", expected 50 to 150")


def test_the_uncertainty_of_a_score_by_hand():
    first = DatasetScore(13, 20, 2, by_repeat=(60.0, 70.0), solved=(2, 0, 1))
    second = DatasetScore(49, 60, 2, by_repeat=(80.0, 84.0))
    assert (first.deviation, first.standard_error) == pytest.approx((7.0711, 5), abs=1e-4)
    assert first.pass_at_k == pytest.approx((50, 200 / 3))
    score = Score(80, {"a": first, "b": second}, {})
    assert score.standard_error == pytest.approx((50**2 + 60**2) ** 0.5 / 40)
    rule = load_benchmark(OSS).accuracy[EXACT_MATCH]
    metric = MetricResult(EXACT_MATCH, MetricValue(83.0, OF_OSS), rule)
    assert TargetResult(GradingMode.OFFICIAL, score, (metric,)).line.endswith(", standard error 1.95")
    for other in ({}, {"a": first, "b": DatasetScore(1, 2, 1, by_repeat=(50.0,))}):
        assert Score(80, other, {}).standard_error is None
    assert lengths([4, 9, 2], 1) == Lengths(5, 2, 9, 1 / 3)
    runs = load_benchmark(OSS).accuracy["exact_match"].published
    bounds = (runs.lowest - 0.01, runs.lowest, runs.highest, runs.highest + 0.01)
    assert [standing(value, runs).is_within_range for value in bounds] == [False, True, True, False]


def program(qsl_idx, kind=LIVECODEBENCH, **grade):
    graded = {GradingMode.OFFICIAL: Grade(WRONG, False, None, **{"reason": Reason.WRONG} | grade)}
    reference = Reference("livecodebench", kind, "q", None)
    return GradedSample(qsl_idx, reference, Logged(0, 4, None, True, Place(0, 0)), graded)


def warnings_of(graded, tier=None):
    """All but the last, which says that these are few samples."""
    evaluation = Evaluation(graded, (), None, lengths([4], 0), {GradingMode.OFFICIAL: Score(1, {}, {})})
    return check_target(evaluation, load_benchmark(OSS), tier and sandbox(tier)).warnings[:-1]


def test_ids_that_the_tokenizer_does_not_have_are_named():
    known = program(0)
    strange = replace(known, qsl_idx=7, logged=replace(known.logged, unknown=2))
    (warning,) = warnings_of((known, strange))
    assert warning.startswith(
        "the tokenizer has no token for 2 ids in 1 output, which is no text, as officially: "
    )
    assert warning.endswith(": 7")


@pytest.mark.parametrize(
    ("metrics", "wanted"), [(["exact_match", "x"], "exact_match, x"), (["x"], "x"), ([], "nothing")]
)
def test_metrics_that_no_grader_computes_are_refused(metrics, wanted):
    benchmark = load_benchmark(OSS)
    require_metrics(benchmark, graders_of(OSS))
    other = replace(benchmark, accuracy=dict.fromkeys(metrics, benchmark.accuracy["exact_match"]))
    with pytest.raises(ConfigError, match=f"has bounds for {wanted}, its graders compute exact_match$"):
        require_metrics(other, graders_of(OSS))


@pytest.mark.parametrize(
    ("grade", "named"),
    [
        ({}, None),
        ({"starved": True, "reason": Reason.TIMEOUT}, "ran out of time while"),
        ({"raced": True}, "both passed and failed"),
    ],
)
@pytest.mark.parametrize(("number", "last"), [(20, ", 19, 20"), (22, ", 20 and 2 more")])
def test_programs_that_another_run_may_grade_otherwise_are_listed(grade, named, number, last):
    graded = (program(0), *(program(index, **grade) for index in range(1, number + 1)))
    found = warnings_of(graded)
    assert len(found) == (named is not None)
    for warning in found:
        assert warning.startswith(f"{number} programs {named}") and warning.endswith(last)


@pytest.mark.parametrize(
    ("benchmark", "tokens", "defect", "warned"),
    [
        (OSS, lambda index: 400 + index % 50, None, "100 of 100 further outputs"),
        (OSS, lambda index: 400 + index, None, ""),
        (OSS, lambda index: None, None, ""),  # a table of texts
        (OSS, lambda index: 400, Reason.TRUNCATED, ""),  # the limit ended them all
        ("deepseek-r1", lambda index: 400 + index % 50, None, ""),  # greedy
    ],
)
def test_outputs_to_a_question_that_are_all_alike(benchmark, tokens, defect, warned):
    """Three to each of 50 questions, by a server that draws them, a greedy one or a cache."""
    grades = program(0).grades
    graded = tuple(
        GradedSample(
            index,
            Reference("gpqa_diamond", LIVECODEBENCH, "q", index // 50, index % 50),
            Logged(index, tokens(index), defect, True, Place(0, 0)),
            grades,
        )
        for index in range(150)
    )
    evaluation = Evaluation(graded, (), None, lengths([4], 0), {GradingMode.OFFICIAL: Score(1, {}, {})})
    found = [
        one for one in check_target(evaluation, load_benchmark(benchmark), None).warnings if "further" in one
    ]
    assert len(found) == bool(warned) and all(one.startswith(warned) for one in found)


MATHS_LIMIT = "2 MATH-500 answers counted as wrong because a limit ended the comparison"


@pytest.mark.parametrize(
    ("kind", "reason", "tier", "said"),
    [
        (LIVECODEBENCH, Reason.TIMEOUT, Tier.BUBBLEWRAP, None),
        (MATH500, Reason.WRONG, Tier.LANDLOCK, None),
        (
            LIVECODEBENCH,
            Reason.MEMORY_LIMIT,
            None,
            "2 programs failed by a limit that only our sandbox has",
        ),
        (LIVECODEBENCH, Reason.SANDBOX_LOST, None, "2 samples counted as wrong because the sandbox was lost"),
        *((MATH500, limit, None, MATHS_LIMIT) for limit in (Reason.FILE_LIMIT, Reason.TIMEOUT)),
        (LIVECODEBENCH, Reason.WRONG, Tier.UNSANDBOXED, "model-written code ran WITHOUT a sandbox"),
        (LIVECODEBENCH, Reason.WRONG, Tier.NAMESPACES, "there is no seccomp filter for this processor"),
    ],
)
def test_limits_and_sandboxes_that_are_not_the_official_ones_are_warned_of(kind, reason, tier, said):
    found = warnings_of([program(index, kind, reason=reason) for index in (5, 7)], tier)
    assert len(found) == (said is not None)
    for warning in found:
        assert warning.startswith(said) and (tier or warning.endswith((": 5, 7", f": {reason} 2")))


def test_every_reason_has_a_meaning_and_stands_in_the_guide():
    guide = (ROOT / "docs" / "guide" / "accuracy.md").read_text()
    for reason in Reason:
        assert reason.meaning.endswith(".")
        assert re.search(rf"\| `{reason}` \| {re.escape(reason.meaning)} \|", guide), reason
