"""The JSON result: the fields of the reference under their names, and further ones."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness.files import atomic_write, explained_write
from harness.grading.decoding.output_sources import Outputs
from harness.grading.evaluation.evaluate import Evaluation, GradedSample
from harness.grading.evaluation.pass_criteria import MetricResult, TargetResult
from harness.grading.sandbox.tiers import Sandbox
from harness.grading.scoring.accuracy_score import DatasetScore, Score, Standing
from harness.grading.scoring.grade import EXACT_MATCH, Grade, GradingMode, Reason
from harness.grouping import by_key
from harness.json_files import Json

RESULT_BEGIN = b'{\n  "summary": '
_SHOWN = 200  # characters of an answer, such as a program, and of the text that it was taken from
_PREVIEW = 200  # tokens of an output, and then characters


def write_result(path: Path, result: Json) -> None:
    """Write the file completely or not at all. Raises ConfigError if it cannot be written."""
    with explained_write(path, "--output"), atomic_write(path, ".part") as file:
        file.write((json.dumps(result, indent=2) + "\n").encode())


def result(evaluation: Evaluation, target: TargetResult, sandbox: Sandbox | None) -> Json:
    """The result, without details. ``summary`` and ``detailed_results`` have the reference's fields."""
    osl, main = evaluation.lengths, target.metrics[0]
    return {
        "summary": _summary(target.score),
        "detailed_results": None,
        "modes": {mode.value: _summary(score) for mode, score in evaluation.scores.items()},
        "target": {
            "mode": target.mode.value,
            "line": target.line,
            "threshold": main.lowest,
            "margin": main.value - main.lowest,
            "met": target.is_met,
            "metrics": {metric.name: _metric(metric) for metric in target.metrics},
        },
        "published_runs": _standing(main.standing),
        "output_tokens": {
            "mean": osl.mean,
            "min": osl.shortest,
            "max": osl.longest,
            "truncated_share": osl.truncated_share,
        },
        "missing": list(evaluation.missing),
        "repeated": list(evaluation.repeated),
        "log_cut": None
        if evaluation.cut is None
        else {"offset": evaluation.cut.offset, "reason": evaluation.cut.reason},
        "sandbox": None if sandbox is None else sandbox.tier.value,
        "disagreements": [sample.qsl_idx for sample in evaluation.graded if sample.disagrees],
        "remarks": {name: _remark(evaluation, name) for name in evaluation.remarks},
        "right": {mode.value: _right(evaluation.graded, mode) for mode in evaluation.scores},
        "reasons": {mode.value: _reasons(evaluation.graded, mode) for mode in evaluation.scores},
        "warnings": list(target.warnings),
    }


def _remark(evaluation: Evaluation, name: str) -> Json:
    found = [sample.qsl_idx for sample in evaluation.graded if sample.remarks and name in sample.remarks]
    return {"meaning": evaluation.remarks[name], "count": len(found), "samples": found}


def _metric(metric: MetricResult) -> Json:
    """JSON has no infinity: null where there is no upper bound."""
    return {
        "value": metric.value,
        "lowest": metric.lowest,
        "highest": None if math.isinf(metric.highest) else metric.highest,
        "met": metric.is_met,
        "published_runs": _standing(metric.standing),
    }


def _standing(standing: Standing | None) -> Json | None:
    if standing is None:
        return None
    return {
        "standard_deviations": standing.deviations,
        "percentile": standing.percentile,
        "within_range": standing.is_within_range,
    }


def details(graded: Sequence[GradedSample], outputs: Outputs) -> list[Json]:
    """One object for each sample that the log or the table has, with the start of its output."""
    return [_detail(sample, outputs) for sample in graded if sample.logged is not None]


def _detail(sample: GradedSample, outputs: Outputs) -> Json:
    assert sample.logged is not None
    main = sample.main_grade
    strict = sample.grades.get(GradingMode.STRICT)
    start = outputs.text(sample.place, slice(_PREVIEW))
    return {
        "seq_id": sample.logged.seq_id,
        "qsl_idx": sample.qsl_idx,
        "dataset": sample.reference.dataset,
        "is_correct": main.correct,
        "extracted_answer": None if main.answer is None else main.answer[:_SHOWN],
        "ground_truth": sample.reference.truth,
        "read": _read(main),
        "evaluation_details": explanation(main, sample.reference.truth),
        "token_count": sample.logged.tokens,
        "model_output_preview": start[:_PREVIEW],
        "reason": main.reason.value,
        "scores": dict(main.scores),
        "remarks": None if sample.remarks is None else list(sample.remarks),
        "strict": None if strict is None else _strict(strict, sample.reference.truth),
    }


def _strict(grade: Grade, truth: str) -> Json:
    answer = None if grade.answer is None else grade.answer[:_SHOWN]
    fields = {"is_correct": grade.correct, "extracted_answer": answer, "read": _read(grade)}
    return {**fields, "reason": grade.reason.value, "detail": explanation(grade, truth)}


def _read(grade: Grade) -> str | None:
    """The text of the output that the answer was taken from; None where there is no answer."""
    return None if grade.answer is None else (grade.read or grade.answer)[:_SHOWN]


def explanation(grade: Grade, truth: str) -> str:
    """One sentence on a grade, in the words of the reference where it has some."""
    if grade.reason is Reason.CORRECT:
        return "Correct"
    if grade.reason is Reason.SCORED:
        return "Scored"
    if grade.answer is None:
        return f"No answer extracted from model output ({grade.reason})"
    if grade.reason is Reason.WRONG and not grade.detail:
        return f"Incorrect (extracted: {grade.answer[:_SHOWN]}, ground_truth: {truth})"
    return f"Failed ({grade.reason}): {grade.detail}"


def _summary(score: Score) -> Json:
    """A text metric has no fields of right and wrong."""
    metrics = {name: result.value for name, result in score.metrics.items()}
    if not score.datasets:
        return {"total_samples": score.total, "metrics": metrics}
    return {
        "total_samples": score.total,
        "metrics": metrics,
        "total_correct": score.correct,
        "overall_accuracy": 100 * score.correct / score.total,
        "final_score": score.points,
        "max_score": score.largest_points,
        "final_score_percentage": metrics[EXACT_MATCH],
        "standard_error": score.standard_error,
        "dataset_repeats": {name: part.repeats for name, part in score.datasets.items()},
        "per_dataset": {name: _dataset(part) for name, part in score.datasets.items()},
    }


def _dataset(part: DatasetScore) -> Json:
    return {
        "correct": part.correct,
        "total": part.total,
        "accuracy": part.accuracy,
        "repeats": part.repeats,
        "component_score": part.component,
        "max_component_score": part.largest_component,
        "per_repeat_accuracy": list(part.by_repeat),
        "solved_repeats_per_question": list(part.solved),
        "pass_at_k": list(part.pass_at_k),
        "standard_deviation": part.deviation,
        "standard_error": part.standard_error,
    }


def _right(graded: Sequence[GradedSample], mode: GradingMode) -> str | None:
    """``1`` or ``0`` for each sample by qsl_idx; None for metrics that know neither."""
    verdicts = [sample.grades[mode].correct for sample in graded]
    return None if None in verdicts else "".join("1" if verdict else "0" for verdict in verdicts)


def _reasons(graded: Sequence[GradedSample], mode: GradingMode) -> dict[str, dict[str, int]]:
    reasons = by_key((sample.reference.dataset, sample.grades[mode].reason.value) for sample in graded)
    return {dataset: dict(Counter(found)) for dataset, found in reasons.items()}
