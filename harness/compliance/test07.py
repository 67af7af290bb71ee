"""TEST07: the answers of a performance run score as high as the threshold asks."""

from collections.abc import Sequence

from harness.compliance.rules import MIN_ACCURACY, RULE, ComplianceRule, ComplianceVerdict
from harness.config.benchmark import Benchmark
from harness.errors import GradingError
from harness.grading.evaluate import Evaluation, evaluate
from harness.grading.grade import Mode
from harness.grading.output_decoder import OutputDecoder, require_own_tokenizer
from harness.grading.references import DatasetKind, Reference
from harness.grading.reports.console import scorecard
from harness.grading.target import TargetResult
from harness.loadgen_logs.accuracy_log import AccuracyLog

_DECIMALS = 3  # of exact_match in the evaluator's printout, from which the official script takes the score


def require_gradable(references: Sequence[Reference]) -> None:
    """Programs need a sandbox and their tests; the compliance dataset has none. GradingError."""
    programs = sum(row.kind is DatasetKind.LIVECODEBENCH for row in references)
    if programs:
        raise GradingError(
            f"TEST07: {programs} of {len(references)} references are LiveCodeBench problems, expected GPQA; "
            "pass the compliance dataset (datasets/download.sh --what acc)"
        )


def grade_answers(
    log: AccuracyLog,
    references: Sequence[Reference],
    benchmark: Benchmark,
    rule: ComplianceRule,
    thresholds: dict[str, float],
) -> ComplianceVerdict:
    """Score a whole log by the official rules. Raises GradingError for a log that cannot be graded."""
    require_own_tokenizer(benchmark, None)
    decoder = OutputDecoder(rule.dataset.max_new_tokens)
    repeats = benchmark.dataset(accuracy=True).repeats
    evaluation = evaluate(log, references, decoder, (Mode.OFFICIAL,), repeats, None, lambda *_: None)
    return _result(evaluation, thresholds[MIN_ACCURACY])


def _result(evaluation: Evaluation, threshold: float) -> ComplianceVerdict:
    """Held against the score as it is printed, like the official script, which knows no other."""
    whole = evaluation.scores[Mode.OFFICIAL]
    score = round(whole.percentage, _DECIMALS)
    passed = score >= threshold
    card = scorecard(evaluation, TargetResult(Mode.OFFICIAL, whole, threshold, None, ())) + "\n"
    lines = [
        *("", RULE, "TEST07 Verification Summary", RULE),
        f"Accuracy score: {score}",
        f"Accuracy threshold: {threshold}",
        f"Accuracy check pass: {passed}",
        "TEST PASS" if passed else "TEST FAIL",
    ]
    summary = f"exact_match {score} of {whole.total} samples, threshold {threshold}"
    return ComplianceVerdict(passed, summary, card + "\n".join(lines) + "\n", card)


def unreadable() -> ComplianceVerdict:
    """The official script's file for a log that its evaluator gives no score of."""
    lines = [
        "",
        RULE,
        "TEST07 Verification Summary",
        RULE,
        "Error: Could not parse accuracy score",
        "TEST FAIL",
    ]
    return ComplianceVerdict(False, "the official evaluator gives no score", "\n".join(lines) + "\n")
