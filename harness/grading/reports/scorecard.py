"""The printed scorecard. The table, FINAL SCORE and the metrics read as the official tools scrape them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.grading.evaluation.evaluate import Evaluation, GradedSample
from harness.grading.evaluation.pass_criteria import TargetResult
from harness.grading.graders.grader import LIVECODEBENCH
from harness.grading.scoring.accuracy_score import Score
from harness.grading.scoring.grade import EXACT_MATCH, GradingMode
from harness.grouping import by_key
from harness.text import counted

_WIDTH = 80
_EXAMPLES, _EXAMPLE_WIDTH = 3, 100  # examples of a remark, and their characters
_MEAN_TOKENS = "Output tokens: mean "
_WARNING = "WARNING: "


def scorecard(
    evaluation: Evaluation,
    result: TargetResult,
    difficulties: Mapping[str, str] | None = None,
    page: Path | None = None,
) -> str:
    """Everything that is printed to stdout.

    ``difficulties``: of programming problems, by question_id. ``page``: the report on samples to look at.
    """
    lines: list[str] = []
    for mode, score in evaluation.scores.items():
        lines += _official(score) if mode is GradingMode.OFFICIAL else _strict(score, evaluation)
    if evaluation.has_right_and_wrong:
        lines += ["", *_failures(evaluation)]
        lines += [*_solved(result.score), *_by_difficulty(evaluation, result, difficulties or {})]
    lines += _remarks(evaluation, result.mode)
    lines += ["", *_trust(evaluation, result, page)]
    if GradingMode.OFFICIAL in evaluation.scores:
        metrics = _metrics(evaluation.scores[GradingMode.OFFICIAL])
        lines += ["", "", "Printing for submission_checker:", "", metrics]
    return "\n".join(lines)


def mean_tokens(text: str) -> float | None:
    """The mean output length in a scorecard, rounded to 0.01; None in that of another evaluator."""
    found = re.search(rf"^{_MEAN_TOKENS}(\d+\.\d\d),", text, re.MULTILINE)
    return float(found[1]) if found else None


def warning_lines(warnings: Sequence[str]) -> Iterator[str]:
    """The last lines of a scorecard."""
    yield from (f"{_WARNING}{warning}" for warning in warnings)


def warnings_in(text: str) -> tuple[str, ...]:
    """The warnings in a scorecard."""
    return tuple(re.findall(rf"^{_WARNING}(.*\S)", text, re.MULTILINE))


def _metrics(score: Score) -> str:
    """One line: bare for a single metric, else a dict as the official evaluators print it."""
    line = ", ".join(f"'{name}': {value.printed}" for name, value in score.metrics.items())
    return line if len(score.metrics) == 1 else f"{{{line}}}"


def _official(score: Score) -> Iterator[str]:
    rule, dash = "=" * _WIDTH, "-" * _WIDTH
    yield from (rule, "MLPerf Accuracy Evaluation Results", rule)
    yield f"Total samples evaluated: {score.total}"
    if not score.datasets:
        return
    overall = 100 * score.correct / score.total
    yield f"Overall raw accuracy: {overall:.2f}% ({score.correct}/{score.total})"
    yield from (rule, "", "Per-Dataset Breakdown:", dash, *_table(score), rule)
    yield from ("", "Final Score Calculation:", dash, *_formula(score), "")
    yield f"FINAL SCORE: {_percentage(score):.2f}% ({score.points:.2f}/{score.largest_points:.2f})"
    yield rule


def _percentage(score: Score) -> float:
    return score.metrics[EXACT_MATCH].value


def _table(score: Score) -> Iterator[str]:
    yield f"{'Dataset':25s} {'Correct':>8s} {'Total':>8s} {'Repeats':>8s} {'Score':>10s} {'Accuracy':>10s}"
    yield "-" * _WIDTH
    for name, part in score.datasets.items():
        counts = f"{part.correct:8d} {part.total:8d} {part.repeats:8d}"
        yield f"{name:25s} {counts} {part.component:10.2f} {part.accuracy:9.2f}%"


def _formula(score: Score) -> Iterator[str]:
    parts = score.datasets.items()
    yield "Formula: " + " + ".join(f"{name}/{part.repeats}" for name, part in parts)
    yield "Score:   = " + " + ".join(f"{part.correct}/{part.repeats}" for _, part in parts)
    yield "         = " + " + ".join(f"{part.component:.2f}" for _, part in parts)
    yield f"         = {score.points:.2f}"
    yield "Max:     = " + " + ".join(f"{part.total}/{part.repeats}" for _, part in parts)
    yield f"         = {score.largest_points:.2f}"


def _strict(score: Score, evaluation: Evaluation) -> Iterator[str]:
    has_programs = any(sample.reference.kind == LIVECODEBENCH for sample in evaluation.graded)
    programs = "; programs run as usual, with a real stdin" if has_programs else ""
    yield from ("", f"Strict rules: the last explicit answer of the final part{programs}", "-" * _WIDTH)
    yield from _table(score)
    yield f"Strict score: {_percentage(score):.2f}% ({score.points:.2f}/{score.largest_points:.2f})"


def _failures(evaluation: Evaluation) -> Iterator[str]:
    """The reasons why samples of each data set are not correct, by the rules of each mode."""
    yield "Not correct, by reason (each is explained in docs/guide/accuracy.md):"
    datasets = by_key((sample.reference.dataset, sample) for sample in evaluation.graded)
    for name, part in sorted(datasets.items()):
        for mode in evaluation.scores:
            yield f"{name}, {mode}: {_counted(part, mode)}"


def _counted(samples: Sequence[GradedSample], mode: GradingMode) -> str:
    """The number of samples for each reason, the most frequent first."""
    grades = [sample.grades[mode] for sample in samples]
    counts = Counter(grade.reason for grade in grades if not grade.correct)
    return ", ".join(f"{reason} {count}" for reason, count in counts.most_common()) or "all are correct"


def _solved(score: Score) -> Iterator[str]:
    for name, part in score.datasets.items():
        if part.solved and part.repeats > 1:
            always, ever = (sum(right >= bound for right in part.solved) for bound in (part.repeats, 1))
            shares = ", ".join(f"{k}: {share:.2f}%" for k, share in enumerate(part.pass_at_k, 1))
            questions = f"of {len(part.solved)} questions {always} always solved, {ever} at least once"
            yield f"{name}: {questions}; pass@k {shares}"


def _by_difficulty(
    evaluation: Evaluation, result: TargetResult, difficulties: Mapping[str, str]
) -> Iterator[str]:
    rows = by_key(
        (word, bool(sample.grades[result.mode].correct))
        for sample in evaluation.graded
        if sample.reference.kind == LIVECODEBENCH and (word := difficulties.get(sample.reference.truth))
    )
    order = sorted(rows, key=lambda word: (-sum(rows[word]) / len(rows[word]), word))
    if rows:
        shares = (
            f"{word} {100 * sum(rows[word]) / len(rows[word]):.2f}% of {len(rows[word])}" for word in order
        )
        yield f"programs by difficulty: {', '.join(shares)}"


def _remarks(evaluation: Evaluation, mode: GradingMode) -> Iterator[str]:
    """The number of outputs with each remark, and the first of them."""
    logged = [sample for sample in evaluation.graded if sample.remarks is not None]
    if evaluation.remarks:
        yield from ("", "Outputs that need a look (no part of the score):")
    for name, meaning in evaluation.remarks.items():
        found = [sample for sample in logged if sample.remarks and name in sample.remarks]
        share = 100 * len(found) / len(logged)
        yield f"{name}: {len(found)} of {len(logged)} ({share:.2f}%), {meaning}"
        for sample in found[:_EXAMPLES]:
            shown = _both_ends(sample.grades[mode].answer or "")
            yield f"    qsl_idx {sample.qsl_idx}, {sample.length}: {shown}"


def _both_ends(text: str) -> str:
    """The beginning and the end of a text in one line."""
    line = " ".join(text.split())
    if len(line) > _EXAMPLE_WIDTH:
        half = _EXAMPLE_WIDTH // 2
        line = f"{line[:half]} ... {line[-half:]}"
    return repr(line) if line else "no text"


def _trust(evaluation: Evaluation, result: TargetResult, page: Path | None) -> Iterator[str]:
    yield result.line
    if len(result.metrics) > 1:
        yield from (
            f"{metric.name} {'PASS' if metric.is_met else 'FAIL'}: {metric}" for metric in result.metrics
        )
    for name, part in result.score.datasets.items():
        if part.deviation is not None and part.standard_error is not None:
            yield (
                f"{name}: {len(part.by_repeat)} repeats, mean {part.accuracy:.2f}%, standard deviation "
                f"{part.deviation:.2f}, standard error {part.standard_error:.2f}"
            )
    for metric in result.metrics:
        if (place := metric.standing) is not None:
            runs, side = place.runs, "within" if place.is_within_range else "outside"
            name = "" if metric.name == EXACT_MATCH else f"{metric.name}: "
            yield (
                f"{name}Among the {runs.runs} published {runs.round} runs: {place.deviations:+.1f} standard "
                f"deviations, percentile {place.percentile:.0f}, {side} their "
                f"range {runs.lowest}..{runs.highest}"
            )
    osl = evaluation.lengths
    yield (
        f"{_MEAN_TOKENS}{osl.mean:.2f}, min {osl.shortest}, max {osl.longest}; "
        f"{100 * osl.truncated_share:.2f}% ended by the token limit"
    )
    if len(evaluation.scores) > 1:
        count = sum(sample.disagrees for sample in evaluation.graded)
        where = f"see {page}" if page else "--disagreements FILE.html shows them"
        yield f"The two modes disagree on {counted(count, 'sample')}" + (f"; {where}" if count else "")
    yield from warning_lines(result.warnings)
