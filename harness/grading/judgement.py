"""Whether the target is met, and when not to believe the score."""

from dataclasses import dataclass

from harness.benchmark import DatasetRule, PublishedRuns
from harness.grading.evaluate import Evaluation
from harness.grading.sandbox import Sandbox, Tier
from harness.grading.scorecard import Score, Standing, standing
from harness.grading.verdict import Mode, Reason

_LISTED = 20  # indexes named before "and N more"


@dataclass(frozen=True, slots=True)
class Judgement:
    """``score`` is the one held against the target in percent: the official one where it was computed."""

    mode: Mode
    score: Score
    target: float
    standing: Standing | None
    warnings: tuple[str, ...]

    @property
    def is_met(self) -> bool:
        """Whether the score reaches the target."""
        return self.score.percentage >= self.target

    @property
    def line(self) -> str:
        """The verdict in one line, with its margin and, where it is known, the standard error."""
        said, percentage = ("PASS" if self.is_met else "FAIL"), self.score.percentage
        error = self.score.standard_error
        spread = "" if error is None else f", standard error {error:.2f}"
        return (
            f"Target {said}: {self.mode} score {percentage:.3f} against {self.target:.2f}, "
            f"margin {percentage - self.target:+.3f}{spread}"
        )


def judge(
    evaluation: Evaluation,
    target: float,
    rule: DatasetRule,
    published: PublishedRuns | None,
    sandbox: Sandbox | None,
) -> Judgement:
    """Compare an evaluation with its target and, where it is a full one, with the published runs."""
    mode = Mode.OFFICIAL if Mode.OFFICIAL in evaluation.scores else Mode.STRICT
    score = evaluation.scores[mode]
    is_full = score.total == rule.samples
    comparable = published if is_full and mode is Mode.OFFICIAL else None
    place = standing(score.percentage, comparable) if comparable else None
    warnings = [*_log_warnings(evaluation), *_sandbox_warnings(evaluation, sandbox)]
    if not is_full:
        warnings.append(
            f"{score.total} samples, the official set has {rule.samples}: not comparable to published runs"
        )
    if strange := sorted(set(score.datasets) - set(rule.repeats)):
        warnings.append(
            f"{', '.join(strange)}: not among the benchmark's data sets ({', '.join(rule.repeats)}), "
            "counted as one repeat"
        )
    return Judgement(mode, score, target, place, tuple(warnings))


def _log_warnings(evaluation: Evaluation) -> list[str]:
    warnings = []
    if evaluation.cut is not None:
        warnings.append(f"the log breaks off at byte {evaluation.cut.offset}: {evaluation.cut.reason}")
    if evaluation.missing:
        count, shown = len(evaluation.missing), listed(evaluation.missing)
        warnings.append(f"{count} samples have no entry and count as wrong: {shown}")
    return warnings


def _sandbox_warnings(evaluation: Evaluation, sandbox: Sandbox | None) -> list[str]:
    warnings = []
    if sandbox is not None and sandbox.tier is Tier.UNSANDBOXED:
        warnings.append("model-written code ran WITHOUT a sandbox (--allow-unsandboxed)")
    lost = tuple(
        sample.qsl_idx
        for sample in evaluation.graded
        if any(verdict.reason is Reason.SANDBOX_LOST for verdict in sample.verdicts.values())
    )
    if lost:
        warnings.append(
            f"{len(lost)} programs count as wrong because their sandbox was lost twice: {listed(lost)}"
        )
    return warnings


def listed(indexes: tuple[int, ...]) -> str:
    """Indexes for a message, the first of many."""
    shown = ", ".join(map(str, indexes[:_LISTED]))
    return shown if len(indexes) <= _LISTED else f"{shown} and {len(indexes) - _LISTED} more"
