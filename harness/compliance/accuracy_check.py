"""TEST07: whether the answers of a performance run reach the accuracy threshold."""

import math
import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from msgspec.structs import replace

from harness.compliance.base import (
    PASS_DATASET,
    RULE,
    ComplianceTest,
    JudgedRun,
    TestResult,
    VerifiedFigures,
    stated_number,
)
from harness.config.benchmark import MOST_PERCENT, MetricRule
from harness.errors import GradingError
from harness.grading.decoding.output_decoder import open_decoder
from harness.grading.decoding.output_sources import LoggedOutputs
from harness.grading.evaluation.evaluate import Evaluation, evaluate
from harness.grading.evaluation.pass_criteria import MetricResult, TargetResult, same_output_warnings
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import LIVECODEBENCH
from harness.grading.graders.grader_sets import graders_of
from harness.grading.reports.scorecard import mean_tokens, scorecard
from harness.grading.scoring.grade import EXACT_MATCH, GradingMode
from harness.loadgen_logs.accuracy_log import AccuracyLog
from harness.loadgen_logs.summary_and_detail import LoadgenDetail

_PRINTED = re.compile(rf"^'{EXACT_MATCH}': (\d+\.\d+)[ \t\r]*$", re.MULTILINE)
MIN_ACCURACY = "test07_accuracy_threshold"
_TITLE = ("", RULE, "TEST07 Verification Summary", RULE)


class AccuracyTest(ComplianceTest, frozen=True, kw_only=True):
    """TEST07. ``metric`` must reach ``threshold``, in percent."""

    name: ClassVar[str] = "TEST07"
    threshold_keys: ClassVar[tuple[str, ...]] = (MIN_ACCURACY,)
    needs_references: ClassVar[bool] = True
    unusual_log: ClassVar[str] = (
        "the log has {form}, which the official evaluator misreads: this is its verdict"
    )

    metric: Literal["exact_match"]
    threshold: float

    @property
    def thresholds(self) -> dict[str, float]:
        """The lowest score that passes."""
        return {MIN_ACCURACY: self.threshold}

    def require_references(self, references: tuple[Reference, ...]) -> None:
        """Raise GradingError for programs: they need a sandbox and tests, which the dataset lacks."""
        programs = sum(row.kind == LIVECODEBENCH for row in references)
        if programs:
            raise GradingError(
                f"TEST07: {programs} of {len(references)} references are LiveCodeBench problems, expected "
                f"GPQA{PASS_DATASET}"
            )

    def judge(self, log: AccuracyLog, run: JudgedRun) -> TestResult:
        """Score the log. A log that is not in LoadGen's form is scored as the official script misreads it."""
        result = self._scored(log, run)
        if not log.is_odd:
            return result
        return self._scored(log.as_int32(), run) if log.is_array else _unreadable()

    def _scored(self, log: AccuracyLog, run: JudgedRun) -> TestResult:
        """Score a complete log by the official rules. Raises GradingError for a log that cannot be graded."""
        benchmark = run.benchmark
        outputs = LoggedOutputs(log, open_decoder(benchmark, None, self.dataset.max_new_tokens))
        graders, repeats = graders_of(benchmark.name), benchmark.dataset(accuracy=True).repeats
        evaluation = evaluate(
            outputs, run.references, graders, (GradingMode.OFFICIAL,), repeats, lambda *_: None
        )
        warnings = tuple(same_output_warnings(evaluation, benchmark))
        return _result(evaluation, run.thresholds[MIN_ACCURACY], warnings)

    def read(self, text: str) -> VerifiedFigures:
        """The figure is the score in percent."""
        return replace(super().read(text), figure=stated_number(text, "Accuracy score"))

    def stated_mean(self, text: str) -> float | None:
        """That of the evaluator's printout; the official script has none."""
        return mean_tokens(text)

    def recheck_figures(self, text: str) -> Iterator[str]:
        """Score and threshold."""
        score, against = stated_number(text, "Accuracy score"), stated_number(text, "Accuracy threshold")
        if score is None or not self.threshold <= score <= MOST_PERCENT:
            found = "not stated" if score is None else score
            yield f"accuracy score is {found}, expected {self.threshold} to {MOST_PERCENT:g}"
        if against is not None and against != self.threshold:
            yield f"was verified against {against}, expected {self.threshold}"

    def cross_check(self, text: str, detail: LoadgenDetail) -> str | None:
        """Also where the score is not that of the evaluator's printout, from which the script reads it."""
        score, printed = stated_number(text, "Accuracy score"), _PRINTED.findall(text)
        if printed and score is not None and float(printed[-1]) != score:
            return f"accuracy score is {score}, the evaluator's printout above it has {printed[-1]}"
        return super().cross_check(text, detail)


def _result(evaluation: Evaluation, threshold: float, warnings: tuple[str, ...]) -> TestResult:
    """Compare the score as it is printed, like the official script, which reads it from the printout."""
    official = evaluation.scores[GradingMode.OFFICIAL]
    found = official.metrics[EXACT_MATCH]
    score = float(str(found))
    passed = score >= threshold
    printed = replace(found, value=score)  # the card's target is the verdict's
    metric = MetricResult(EXACT_MATCH, printed, MetricRule(threshold, (1.0, math.inf)))
    target = TargetResult(GradingMode.OFFICIAL, official, (metric,), warnings=warnings)
    card = scorecard(evaluation, target) + "\n"
    lines = [
        *_TITLE,
        f"Accuracy score: {score}",
        f"Accuracy threshold: {threshold}",
        f"Accuracy check pass: {passed}",
        "TEST PASS" if passed else "TEST FAIL",
    ]
    summary = f"exact_match {score} of {official.total} samples, threshold {threshold}"
    return TestResult(passed, summary, card + "\n".join(lines) + "\n", card, warnings)


def _unreadable() -> TestResult:
    """The official script's file for a log that its evaluator cannot score."""
    lines = [*_TITLE, "Error: Could not parse accuracy score", "TEST FAIL"]
    return TestResult(False, "the official evaluator gives no score", "\n".join(lines) + "\n")
