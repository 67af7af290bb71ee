"""The outcome of a run: what its verdict, its score and its compliance test say together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from harness.errors import ConfigError
from harness.files import COMPLIANCE_RUN
from harness.grading.scoring.grade import GradingMode
from harness.loadgen_logs.summary_and_detail import printed
from harness.record.accuracy_result import AccuracyResult, MetricFigures
from harness.record.run_record import RunRecord
from harness.text import milliseconds

Status = Literal["good", "bad", "warn", "plain"]
STATUS_OF: Mapping[bool | None, Status] = {True: "good", False: "bad", None: "plain"}

_CLOSE = 0.9  # of a limit: from here on a value is near it


class ComplianceOutcome(msgspec.Struct, frozen=True):
    """The verification of a compliance test, as its folder holds it."""

    test: str
    passed: bool | None
    """None: there is no verification yet, or it has no verdict"""
    official: bool = True
    figure: float | None = None
    """the score of TEST07 in percent, the mean output length of TEST09 in tokens"""
    bounds: str = ""
    """what the figure is compared with, such as ``at least 60.698``"""

    @property
    def measured(self) -> str:
        """``65.556, at least 60.698``; "" without a figure."""
        return ", ".join(filter(None, ("" if self.figure is None else f"{self.figure:g}", self.bounds)))


class Verdict(msgspec.Struct, frozen=True):
    """The word that decides what a run is worth."""

    text: str
    status: Status


class RunOutcome(msgspec.Struct, frozen=True):
    """A run in its folder."""

    folder: Path
    record: RunRecord | None
    """None where run.json is damaged"""
    score: AccuracyResult | None = None
    """None for a run that was not scored"""
    compliance: ComplianceOutcome | None = None
    """None for a run that is no compliance test"""

    @property
    def result(self) -> str:
        """The verdict on the run itself."""
        if self.record is None:
            return "DAMAGED"
        return "NOT ENDED" if self.record.verdict is None else self.record.verdict.result

    @property
    def verdict(self) -> Verdict:
        """That of the test where the run is for one, else the run's; of a VALID run that of its score."""
        if self.compliance is not None and self.compliance.passed is not None:
            word = "PASS" if self.compliance.passed else "FAIL"
            return Verdict(f"{self.compliance.test} {word}", "good" if self.compliance.passed else "bad")
        if self.result != "VALID":
            return Verdict(self.result, "bad")
        if self.score is not None:
            target = self.score.target
            word = "PASS" if target.met else "FAIL"
            if target.mode != GradingMode.OFFICIAL:  # no submission takes such a score
                return Verdict(f"STRICT SCORE {word}", "warn")
            return Verdict(f"SCORE {word}", "good" if target.met else "bad")
        if self.compliance is not None:
            return Verdict(f"{self.compliance.test} NOT VERIFIED", "warn")
        if self.record is not None and self.record.plan.accuracy:
            return Verdict("NOT SCORED", "warn")
        return Verdict("VALID", "good")

    @property
    def passed(self) -> bool:
        """Whether the run is all that a submission asks of it, but for deviations from the rules.

        A compliance run may be slow: its verdict is that of its test.
        """
        return self.verdict.status == "good"

    @property
    def official(self) -> bool:
        """Whether the run, and its test, keep all rules of the benchmark."""
        return (
            self.record is not None
            and not self.record.deviations
            and (self.compliance is None or self.compliance.official)
        )

    @property
    def mark(self) -> str:
        """``, NOT OFFICIAL``, behind the verdict of such a run; else ""."""
        return "" if self.official else ", NOT OFFICIAL"

    @property
    def metrics(self) -> list[tuple[str, MetricFigures]]:
        """The metrics of the score, the failed ones first."""
        found = {} if self.score is None else self.score.target.metrics
        return sorted(found.items(), key=lambda item: item[1].met)

    @property
    def p99_parts(self) -> dict[str, float]:
        """The p99 of TTFT and TPOT as parts of their limits, where these are for it."""
        if self.record is None or self.record.loadgen is None:
            return {}
        loadgen, limits = self.record.loadgen, self.record.p99_limits_ns
        found = {name: loadgen.percentile_ns(name) for name in limits}
        return {name: p99 / limits[name] for name, p99 in found.items() if p99 is not None and limits[name]}

    @property
    def figure(self) -> str:
        """The score beside its bound, the test's figure, or LoadGen's figure."""
        if self.metrics:
            name, metric = self.metrics[0]
            return f"{name} {metric_text(metric)}"
        if self.compliance is not None and self.compliance.measured:
            return self.compliance.measured
        return "-" if self.record is None else loadgen_figure(self.record) or "-"


def loadgen_figure(record: RunRecord) -> str:
    """The result of a performance run, as LoadGen has it: ``38,646.16 tokens/s``; "" where it has none."""
    if (summary := record.loadgen) is None:
        return ""
    for rate, unit in ((summary.tokens_per_s, "tokens/s"), (summary.samples_per_s, "samples/s")):
        if rate is not None:
            return f"{printed(rate)} {unit}"
    p90 = summary.percentile_ns("latency", "90.00")
    return "" if p90 is None else f"p90 {milliseconds(p90)} ms"


def limit_status(part: float) -> Status:
    """The status of a value as a part of its limit."""
    return "bad" if part > 1 else "warn" if part > _CLOSE else "good"


def metric_text(metric: MetricFigures) -> str:
    """``83.6009, target 82.2987``; the bound that is missed where it is the upper one."""
    value, lowest, highest = metric.value, metric.lowest, metric.highest
    if highest is not None and value > highest:
        return f"{number(value)}, at most {number(highest)}"
    return f"{number(value)}, target {number(lowest)}"


def score_line(folder: Path) -> str:
    """``exact_match 83.1230 (NOT met)``; "" for a run that was not scored, or whose result is damaged."""
    try:
        result = AccuracyResult.read(folder)
    except ConfigError:
        return ""
    metrics = {} if result is None else result.target.metrics
    shown = (f"{name} {number(one.value)}{'' if one.met else ' (NOT met)'}" for name, one in metrics.items())
    return ", ".join(shown)


def number(value: float) -> str:
    """Four decimals; none for large numbers and for counts, such as ``gen_len``. A percentage is no count."""
    is_count = value > 100 and value.is_integer()
    return f"{value:,.0f}" if is_count or abs(value) >= 10_000 else f"{value:.4f}"


def result_folder(run: Path) -> Path:
    """The folder of a run; of a compliance test's run that of the test, where it is verified."""
    return run.parent if run.name == COMPLIANCE_RUN else run
