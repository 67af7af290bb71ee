"""Whether the target is met, and warnings about the score."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from harness.analysis.equal_lengths import equally_long
from harness.config.benchmark import Benchmark, MetricRule
from harness.errors import ConfigError
from harness.grading.evaluation.answer_order import Answered, misplaced
from harness.grading.evaluation.evaluate import Evaluation
from harness.grading.graders.grader import LIVECODEBENCH, MATH500
from harness.grading.graders.grader_sets import GraderSet
from harness.grading.livecodebench import packages
from harness.grading.sandbox.tiers import Sandbox, Tier
from harness.grading.scoring.accuracy_score import MetricValue, Score, Standing, standing
from harness.grading.scoring.grade import SANDBOX_LIMITS, GradingMode, Reason
from harness.text import counted, first_few

_SUSPICIOUS_SHARE = 0.1  # of outputs; where more are without a final part, a setting is wrong
_LISTED = 20  # indexes named before "and N more"
_COMPARISON_LIMITS = (Reason.TIMEOUT, Reason.KILLED, *SANDBOX_LIMITS)


class MetricResult(msgspec.Struct, frozen=True):
    """A metric and its bounds; a value equal to a bound passes."""

    name: str
    result: MetricValue
    rule: MetricRule
    standing: Standing | None = None
    """Its place among the published runs; None where they do not compare."""

    @property
    def value(self) -> float:
        """The value, not rounded."""
        return self.result.value

    @property
    def lowest(self) -> float:
        """The lowest passing value."""
        return self.rule.bounds[0]

    @property
    def highest(self) -> float:
        """The highest passing value."""
        return self.rule.bounds[1]

    @property
    def is_met(self) -> bool:
        """Whether both the value and its printed form pass: the official checker reads the latter."""
        least, most = self._extremes
        return self.lowest <= least and most <= self.highest

    @property
    def sentence(self) -> str:
        """The value and the bound that it misses, or else the lowest one."""
        least, most = self._extremes
        if most > self.highest:
            side, value, word = 1, most, "above"
        else:
            side, value, word = 0, least, "below" if least < self.lowest else "at least"
        ratio, bound = self.rule.passing[side], self.rule.bounds[side]
        of = "" if ratio == 1 else f" ({_short(100 * ratio)} % of {_short(self.rule.reference)})"
        digits = next(n for n in range(4, 20) if value == bound or _short(value, n) != _short(bound, n))
        return f"{self.name} {_short(value, digits)} is {word} {_short(bound, digits)}{of}"

    def __str__(self) -> str:
        """The value as it is printed, and its bounds."""
        most = " or more" if math.isinf(self.highest) else f" to {_short(self.highest)}"
        return f"{self.result}, expected {_short(self.lowest)}{most}"

    @property
    def _extremes(self) -> tuple[float, float]:
        """The smaller and the larger of the value and the printed one."""
        least, most = sorted((self.value, float(str(self.result))))
        return least, most


def _short(number: float, decimals: int = 4) -> str:
    """Without zeros at the end."""
    return f"{number:.{decimals}f}".rstrip("0").rstrip(".")


class TargetResult(msgspec.Struct, frozen=True):
    """A score compared with the accuracy target."""

    mode: GradingMode
    """The mode of ``score``: official where it was computed."""
    score: Score
    metrics: tuple[MetricResult, ...]
    """The metrics with bounds, the most important one first."""
    lacks: int = 0
    """Samples without an entry in the log, where no score of the others can meet the target."""
    warnings: tuple[str, ...] = ()
    foremost: tuple[str, ...] = ()
    """The first of the warnings: those with which the score says nothing, or too little."""

    @property
    def is_met(self) -> bool:
        """Whether every metric passes."""
        return not self.lacks and all(metric.is_met for metric in self.metrics)

    @property
    def line(self) -> str:
        """The verdict with what decides it: every metric that fails, or the most important one."""
        main, *others = self.metrics
        if self.is_met:
            error = self.score.standard_error
            spread = "" if error is None else f", standard error {error:.2f}"
            parts = [f"{main.sentence}, margin {main.value - main.lowest:+.3f}{spread}"]
            met = others
        else:
            failed = [metric for metric in self.metrics if not metric.is_met]
            met = [metric for metric in self.metrics if metric.is_met]
            parts = [f"{counted(self.lacks, 'sample')} without an entry in the log"] if self.lacks else []
            parts += [metric.sentence for metric in failed]
        if met:
            parts.append(
                f"{', '.join(metric.name for metric in met)} met {'theirs' if met[1:] else 'its own'}"
            )
        return f"Target {'PASS' if self.is_met else 'FAIL'} by the {self.mode} rules: {'; '.join(parts)}"


def require_metrics(benchmark: Benchmark, graders: GraderSet) -> None:
    """Raises ConfigError where a metric that must be reported is not computed."""
    computed = graders.metrics
    absent = [name for name, rule in benchmark.accuracy.items() if rule.bounds[0] and name not in computed]
    if absent or not computed.keys() & benchmark.accuracy.keys():
        wanted = ", ".join(benchmark.accuracy) or "nothing"
        raise ConfigError(
            f"--benchmark {benchmark.name}: its definition has bounds for {wanted}, its graders compute "
            f"{', '.join(computed)}"
        )


def check_target(evaluation: Evaluation, benchmark: Benchmark, sandbox: Sandbox | None) -> TargetResult:
    """Compare an evaluation with the bounds and, if it is complete, with the published runs."""
    mode = _main_mode(evaluation)
    score, rule = evaluation.scores[mode], benchmark.dataset(accuracy=True)
    is_full = score.total == rule.samples
    results = tuple(
        _metric_result(name, value, benchmark.accuracy[name], is_full and mode is GradingMode.OFFICIAL)
        for name, value in score.metrics.items()
        if name in benchmark.accuracy
    )
    foremost = (
        *_tokenizer_warnings(evaluation),
        *_module_warnings(evaluation),
        *_extra_module_warnings(evaluation),
        *_order_warnings(evaluation),
    )
    warnings = [
        *foremost,
        *_log_warnings(evaluation),
        *_output_warnings(evaluation),
        *same_output_warnings(evaluation, benchmark),
        *_program_warnings(evaluation, mode),
        *_comparison_warnings(evaluation, mode),
        *_sandbox_warnings(evaluation, sandbox),
    ]
    if not is_full:
        warnings.append(
            f"{score.total} samples, the official set has {rule.samples}: not comparable to published runs"
        )
    if rule.repeats and (strange := sorted(set(score.datasets) - set(rule.repeats))):
        warnings.append(
            f"{', '.join(strange)}: not among the benchmark's data sets ({', '.join(rule.repeats)}), "
            "counted as one repeat"
        )
    return TargetResult(mode, score, results, len(evaluation.left_out), tuple(warnings), foremost)


def _main_mode(evaluation: Evaluation) -> GradingMode:
    return GradingMode.OFFICIAL if GradingMode.OFFICIAL in evaluation.scores else GradingMode.STRICT


def _metric_result(name: str, result: MetricValue, rule: MetricRule, comparable: bool) -> MetricResult:
    compared = standing(result.value, rule.published) if comparable and rule.published else None
    return MetricResult(name, result, rule, compared)


def _tokenizer_warnings(evaluation: Evaluation) -> Iterator[str]:
    """Ids of the model's vocabulary that stand for no token of the tokenizer."""
    found = [one for one in evaluation.graded if one.logged is not None and one.logged.unknown]
    if found:
        unknown = sum(one.logged.unknown for one in found if one.logged is not None)
        yield (
            f"the tokenizer has no token for {counted(unknown, 'id')} in {counted(len(found), 'output')}, "
            "which is no text, as officially: the model answered so, or --tokenizer is not the one of the "
            f"model that ran: {listed([one.qsl_idx for one in found])}"
        )


def _extra_module_warnings(evaluation: Evaluation) -> Iterator[str]:
    """Programs that passed by the official rules with a package that may be installed here alone."""
    passed = (
        grade.answer
        for sample in evaluation.graded
        if sample.reference.kind == LIVECODEBENCH
        and (grade := sample.grades.get(GradingMode.OFFICIAL))
        and grade.correct
    )
    found = [extra for code in passed if (extra := packages.extra_modules(code or ""))]
    if found:
        by_name = Counter(name for extra in found for name in sorted(extra))
        counts = ", ".join(f"{name} {count}" for name, count in by_name.most_common())
        yield (
            f"{counted(len(found), 'program')} passed with modules that are installed here, and that the "
            f"official environment is not known to have, so that its score may be lower: {counts}"
        )


def _module_warnings(evaluation: Evaluation) -> Iterator[str]:
    """Programs that failed, in some mode, because a package is not installed here."""
    absent = absent_modules(evaluation)
    if not absent:
        return
    counts = ", ".join(f"{name} {count}" for name, count in absent.most_common())
    ours = [name for name in absent if name in packages.OFFICIAL]
    remedy = (
        f"the official environment has {', '.join(ours)}: run ./setup.sh, then this command again"
        if ours
        else "setup.sh installs what the official environment is known to have, and that is not among it"
    )
    programs = counted(absent.total(), "program")
    yield f"{programs} failed for modules that are not installed: {counts}; {remedy}"


def absent_modules(evaluation: Evaluation) -> Counter[str]:
    """The number of samples whose program failed for a module that is not installed, by module."""
    return Counter(
        name
        for sample in evaluation.graded
        if sample.reference.kind == LIVECODEBENCH
        for name in {packages.absent_module(grade.detail) for grade in sample.grades.values()}
        if name
    )


def _log_warnings(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.cut is not None:
        yield f"the log is cut off at byte {evaluation.cut.offset}: {evaluation.cut.reason}"
    if absent := tuple(one.qsl_idx for one in evaluation.graded if one.logged is None):
        effect = "left out, so that the target is not met" if evaluation.left_out else "counted as wrong"
        yield f"{counted(len(absent), 'sample')} without an entry, {effect}: {listed(absent)}"
    if empty := tuple(sorted(set(evaluation.missing) - set(absent))):
        yield f"{counted(len(empty), 'row')} without an output, counted as empty, score 0: {listed(empty)}"
    if apart := tuple(one.qsl_idx for one in evaluation.graded if one.logged and one.logged.is_first_apart):
        yield (
            f"{counted(len(apart), 'output')} with the first token in token_data alone: it was put in front, "
            "which the official evaluator does not do, so that its score is another one: "
            f"{listed(apart)}"
        )
    if evaluation.has_right_and_wrong and evaluation.is_int64:
        yield (
            "the log has its ids as int64: they were read so, but the official evaluator reads int32 alone, "
            "so that its score of this log is another one"
        )
    if evaluation.repeated:
        samples, shown = counted(len(evaluation.repeated), "sample"), listed(evaluation.repeated)
        yield (
            f"{samples} with several entries, of which the first counts, as officially; the client completed "
            f"a query twice: {shown}"
        )


def _output_warnings(evaluation: Evaluation) -> Iterator[str]:
    """Signs of a wrong log, of wrong references or of wrong settings of the server."""
    logged = [one.logged for one in evaluation.graded if one.logged is not None and one.has_output]
    empty = [entry for entry in logged if entry.defect is Reason.EMPTY]
    if without := sum(entry.tokens == 0 for entry in empty):
        yield (
            f"{without} of {len(logged)} outputs have no token: their queries failed, or the server ended "
            "them at once; report.html of the run lists failures"
        )
    if blank := len(empty) - without:
        yield f"{blank} of {len(logged)} outputs have no text: white space or special tokens alone"
    ended = [entry for entry in logged if entry.defect is None]
    without = sum(entry.has_final is False for entry in ended)
    if without > _SUSPICIOUS_SHARE * len(ended):
        yield (
            f"{without} of {len(ended)} outputs that ended by themselves have no final part (gpt-oss's final "
            "channel, DeepSeek's text after </think>): the server removed special tokens "
            "(skip_special_tokens), or the log is another model's"
        )
    if evaluation.remarks and all(sample.reference.prompt is None for sample in evaluation.graded):
        yield "the reference data have no prompts as text: outputs were not compared with them"


def same_output_warnings(evaluation: Evaluation, benchmark: Benchmark) -> Iterator[str]:
    """A warning where a question's outputs, which are drawn at random, are all of one length.

    Outputs that the limit of tokens ended say nothing.
    """
    ended = [
        (one.reference.question, one.logged.tokens)
        for one in evaluation.graded
        if one.logged is not None and not one.logged.truncated
    ]
    known = [pair for pair in ended if None not in pair]  # a table of texts has no tokens
    found = equally_long(*np.array(known, dtype=np.int64).reshape(-1, 2).T)
    if benchmark.generation.temperature and found:
        same, again = found
        yield (
            f"{same} of {again} further outputs to a question have exactly as many tokens as the one before: "
            f"the server did not sample at temperature {benchmark.generation.temperature:g} as asked, or "
            "answered from a cache"
        )


def _order_warnings(evaluation: Evaluation) -> Iterator[str]:
    """Answers that belong to other references, by the grades that decide on the target."""
    mode = _main_mode(evaluation)
    rows = [
        Answered(one.reference, one.logged.shape, one.grades[mode].answer, bool(one.grades[mode].correct))
        for one in evaluation.graded
        if one.logged is not None
    ]
    if (reason := misplaced(rows)) is not None:
        yield (
            "the references seem to be of other samples, or in another order, so that the score says "
            f"nothing: {reason}. Pass the --reference-data that the run read (input_file in its run.json), "
            "with its rows in their order"
        )


def _program_warnings(evaluation: Evaluation, mode: GradingMode) -> Iterator[str]:
    """Grades of programs that may differ on another machine or in another run."""
    programs = [sample for sample in evaluation.graded if sample.reference.kind != MATH500]
    grades = [(sample.qsl_idx, sample.grades[mode]) for sample in programs]
    limits = Counter(grade.reason for _, grade in grades if grade.reason in SANDBOX_LIMITS)
    if limits:
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(limits.items()))
        failed = counted(limits.total(), "program")
        yield f"{failed} failed by a limit that only our sandbox has: {counts}"
    starved = tuple(index for index, grade in grades if grade.starved)
    if starved:
        yield (
            f"{counted(len(starved), 'program')} ran out of time while others had the processors, counted as "
            f"timeouts; the same command on a quieter machine grades them again: {listed(starved)}"
        )
    raced = tuple(index for index, grade in grades if grade.raced)
    if raced:
        yield (
            f"{counted(len(raced), 'program')} both passed and failed when repeated (a thread that is not "
            f"joined), counted as failed: {listed(raced)}"
        )


def _comparison_warnings(evaluation: Evaluation, mode: GradingMode) -> Iterator[str]:
    """Mathematical answers whose comparison was ended by a limit, which the official rules do not have."""
    ended = tuple(
        sample.qsl_idx
        for sample in evaluation.graded
        if sample.reference.kind == MATH500 and sample.grades[mode].reason in _COMPARISON_LIMITS
    )
    if ended:
        yield (
            f"{counted(len(ended), 'MATH-500 answer')} counted as wrong because a limit ended the "
            f"comparison, which the official rules do not have: {listed(ended)}"
        )


def _sandbox_warnings(evaluation: Evaluation, sandbox: Sandbox | None) -> Iterator[str]:
    if sandbox is not None and sandbox.tier is Tier.UNSANDBOXED:
        yield "model-written code ran WITHOUT a sandbox (--allow-unsandboxed)"
    if sandbox is not None and sandbox.tier is Tier.NAMESPACES:
        yield "there is no seccomp filter for this processor: model-written code ran in namespaces alone"
    lost = tuple(
        sample.qsl_idx
        for sample in evaluation.graded
        if any(grade.reason is Reason.SANDBOX_LOST for grade in sample.grades.values())
    )
    if lost:
        yield (
            f"{counted(len(lost), 'sample')} counted as wrong because the sandbox was lost twice, often for "
            f"want of memory; repeat the command with more of it, which grades them again: {listed(lost)}"
        )


def listed(indexes: Sequence[int]) -> str:
    """Indexes for a message; of many only the first."""
    return first_few(indexes, _LISTED)
