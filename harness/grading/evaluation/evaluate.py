"""The evaluation: one pass over the log, then the tasks that need processes, then the score."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from harness.grading.decoding.output import Output
from harness.grading.decoding.output_sources import Entry, Outputs, Place
from harness.grading.evaluation.answer_order import AnswerShape, shape
from harness.grading.evaluation.references import Reference, repeats_are_whole
from harness.grading.graders.grader import DatasetKind, Grader, RemarkingGrader, TaskRunner
from harness.grading.graders.grader_sets import GraderSet
from harness.grading.scoring.accuracy_score import DatasetScore, Lengths, Score, lengths, total
from harness.grading.scoring.grade import (
    EXACT_MATCH,
    AccuracyMetric,
    Grade,
    GradingMode,
    Progress,
    Reason,
    Task,
    Total,
)
from harness.grouping import by_key
from harness.loadgen_logs.accuracy_log import Checklist, Coverage, Cut
from harness.text import counted

_NO_RUNNERS: Mapping[DatasetKind, TaskRunner] = MappingProxyType({})


class Logged(msgspec.Struct, frozen=True):
    """A sample's entry in the log, or its row of the table."""

    seq_id: int
    tokens: int | None
    """The OSL; None for a row without it."""
    defect: Reason | None
    """A reason for having no answer, as Output has it."""
    has_final: bool | None
    """Whether a final part was begun, as Output has it."""
    place: Place
    shape: AnswerShape | None = None
    """The shape of its answer; None as in ``answer_order.shape``."""
    is_first_apart: bool = False
    """Whether ``token_data`` alone has its first token, which the official evaluators do not read."""
    unknown: int = 0
    """Ids that the tokenizer does not have, as Output has it."""

    @property
    def truncated(self) -> bool:
        """Whether the token limit ended it."""
        return self.defect in (Reason.TRUNCATED, Reason.LOOPING)


class GradedSample(msgspec.Struct, frozen=True):
    """One sample with its grades."""

    qsl_idx: int
    reference: Reference
    logged: Logged | None
    """None for a sample that the log lacks."""
    grades: Mapping[GradingMode, Grade]
    """The grade by the rules of each requested mode."""
    remarks: tuple[str, ...] | None = None
    """None where the grader makes no remarks."""

    @property
    def has_output(self) -> bool:
        """False for a sample that the log lacks, and for a row of a table without an output."""
        return self.logged is not None and self.logged.defect is not Reason.MISSING

    @property
    def place(self) -> Place:
        """Of the output of a sample that has an entry."""
        assert self.logged is not None
        return self.logged.place

    @property
    def main_grade(self) -> Grade:
        """The grade by the official rules, by the strict ones where these alone were asked for."""
        return self.grades.get(GradingMode.OFFICIAL) or self.grades[GradingMode.STRICT]

    @property
    def length(self) -> str:
        """The number of its tokens, for people."""
        tokens = None if self.logged is None else self.logged.tokens
        return "length unknown" if tokens is None else counted(tokens, "token")

    @property
    def disagrees(self) -> bool:
        """Whether the two modes differ on right or wrong."""
        return len({grade.correct for grade in self.grades.values()}) > 1


class Evaluation(msgspec.Struct, frozen=True):
    """The samples of a log, its state, and the score of each mode. Samples are named by qsl_idx."""

    graded: tuple[GradedSample, ...]
    """Every sample in the order of qsl_idx."""
    missing: tuple[int, ...]
    """Samples without an output."""
    cut: Cut | None
    """The place where the log broke off; None: it is complete."""
    lengths: Lengths
    scores: Mapping[GradingMode, Score]
    left_out: tuple[int, ...] = ()
    """Samples without an entry that the official evaluator does not score; other missing ones are wrong."""
    repeated: tuple[int, ...] = ()
    """Samples with several entries, of which the first was graded."""
    remarks: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The meaning of each remark that a grader may make."""
    is_int64: bool = False
    """Whether the log has its ids as int64."""

    @property
    def has_right_and_wrong(self) -> bool:
        """False for text metrics, whose grades are neither."""
        return any(score.datasets for score in self.scores.values())


def evaluate(
    outputs: Outputs,
    references: Sequence[Reference],
    graders: GraderSet,
    modes: Sequence[GradingMode],
    repeats: Mapping[str, int],
    progress: Progress,
    runners: Mapping[DatasetKind, TaskRunner] = _NO_RUNNERS,
) -> Evaluation:
    """Grade a complete run. ``runners`` are those of the graders with tasks among ``graders``.

    Raises GradingError for a log that is not one output per sample, and what the runners raise.
    """
    read = _read(outputs, references, graders, modes, progress)
    graded = _with_tasks_done(read.found, references, runners, progress)
    samples = tuple(
        GradedSample(index, reference, read.logged[index], graded[index], read.remarks.get(index))
        if index in graded
        else _missing(index, reference, graders.metrics, modes)
        for index, reference in enumerate(references)
    )
    left_out = () if graders.missing_are_wrong else read.coverage.missing
    scored = [one for one in samples if one.logged is not None] if left_out else samples
    return Evaluation(
        graded=samples,
        missing=tuple(one.qsl_idx for one in samples if not one.has_output),
        cut=outputs.cut,
        lengths=_lengths(samples),
        scores={mode: _score(scored, mode, graders.metrics, repeats) for mode in modes},
        left_out=left_out,
        repeated=read.coverage.repeated,
        remarks=_meanings(graders),
        is_int64=outputs.is_int64,
    )


class _Read(msgspec.Struct, frozen=True):
    """Every output of a log, by qsl_idx."""

    logged: Mapping[int, Logged]
    found: Mapping[int, Mapping[GradingMode, Grade | Task]]
    """The grades, or the tasks that lead to them."""
    remarks: Mapping[int, tuple[str, ...]]
    coverage: Coverage


def _read(
    outputs: Outputs,
    references: Sequence[Reference],
    graders: GraderSet,
    modes: Sequence[GradingMode],
    progress: Progress,
) -> _Read:
    checklist = Checklist(len(references))
    logged: dict[int, Logged] = {}
    found: dict[int, dict[GradingMode, Grade | Task]] = {}
    remarks: dict[int, tuple[str, ...]] = {}
    for entry in outputs:
        index = entry.qsl_idx
        if not checklist.tick(index, first_counts=graders.first_entry_counts):
            continue
        reference, output = references[index], entry.output()
        grader = graders.by_kind[reference.kind]
        found[index] = grade(output, reference, grader, modes)
        answered = shape(output, reference, graders.by_kind, found[index].get(GradingMode.STRICT))
        logged[index] = _logged(entry, output, answered)
        if isinstance(grader, RemarkingGrader):
            remarks[index] = grader.remarks(output, reference.prompt)
        progress(len(found), len(references), "outputs")
    return _Read(logged, found, remarks, checklist.coverage())


def grade(
    output: Output, reference: Reference, grader: Grader, modes: Sequence[GradingMode]
) -> dict[GradingMode, Grade | Task]:
    """The grade of an output by the rules of each mode, or the task that leads to it."""
    rules = {GradingMode.OFFICIAL: grader.official, GradingMode.STRICT: grader.strict}
    return {mode: rules[mode](output, reference.truth) for mode in modes}


def _with_tasks_done(
    found: Mapping[int, Mapping[GradingMode, Grade | Task]],
    references: Sequence[Reference],
    runners: Mapping[DatasetKind, TaskRunner],
    progress: Progress,
) -> dict[int, dict[GradingMode, Grade]]:
    """All grades: the tasks are done, and their grades stand in their places."""
    tasks: dict[DatasetKind, list[Task]] = {}
    for index, by_mode in found.items():
        waiting = [task for task in by_mode.values() if isinstance(task, Task)]
        tasks.setdefault(references[index].kind, []).extend(waiting)
    grades: dict[Task, Grade] = {}
    for kind, wanted in tasks.items():
        if wanted:
            grades |= runners[kind].grade(dict.fromkeys(wanted), progress)
    return {
        index: {mode: grades[item] if isinstance(item, Task) else item for mode, item in by_mode.items()}
        for index, by_mode in found.items()
    }


def _logged(entry: Entry, output: Output, answered: AnswerShape | None) -> Logged:
    return Logged(
        seq_id=entry.seq_id,
        tokens=output.tokens,
        defect=output.defect,
        has_final=output.has_final,
        place=entry.place,
        shape=answered,
        is_first_apart=entry.is_first_apart,
        unknown=output.unknown,
    )


def _meanings(graders: GraderSet) -> dict[str, str]:
    """The meanings of all graders' remarks."""
    remarking = [grader for grader in graders.by_kind.values() if isinstance(grader, RemarkingGrader)]
    return {name: meaning for grader in remarking for name, meaning in grader.REMARKS.items()}


def _missing(
    qsl_idx: int, reference: Reference, metrics: Mapping[str, AccuracyMetric], modes: Sequence[GradingMode]
) -> GradedSample:
    """A sample without an entry: wrong in every mode, or left out of the score."""
    scores = dict.fromkeys(metrics, 0.0)
    nothing = Grade(scores, False if EXACT_MATCH in scores else None, None, Reason.MISSING)
    return GradedSample(qsl_idx, reference, None, dict.fromkeys(modes, nothing))


def _lengths(samples: Sequence[GradedSample]) -> Lengths:
    logged = [sample.logged for sample in samples if sample.logged is not None]
    tokens = [entry.tokens for entry in logged if entry.tokens is not None]
    return lengths(tokens, sum(entry.truncated for entry in logged))


def _score(
    samples: Sequence[GradedSample],
    mode: GradingMode,
    metrics: Mapping[str, AccuracyMetric],
    repeats: Mapping[str, int],
) -> Score:
    datasets = dict(sorted(by_key((one.reference.dataset, one) for one in samples).items()))
    parts = {name: _dataset_score(part, mode, repeats.get(name, 1)) for name, part in datasets.items()}
    values = {}
    for name, metric in metrics.items():
        found = {key: [_value(one, name, metric, mode) for one in part] for key, part in datasets.items()}
        scores = {key: [value for value in part if value is not None] for key, part in found.items()}
        values[name] = total(metric, scores, repeats)
    return Score(len(samples), {name: part for name, part in parts.items() if part is not None}, values)


def _value(sample: GradedSample, name: str, metric: AccuracyMetric, mode: GradingMode) -> float | None:
    """The contribution of a sample to a metric; None where it has none."""
    if metric.total is Total.ENTRIES:
        return int(sample.logged is not None)
    if metric.total is Total.TOKENS:
        return 0 if sample.logged is None else sample.logged.tokens
    return sample.grades[mode].scores[name]


def _dataset_score(samples: Sequence[GradedSample], mode: GradingMode, repeats: int) -> DatasetScore | None:
    """None where a grade is neither right nor wrong."""
    right = [sample.grades[mode].correct for sample in samples]
    if None in right:
        return None
    score = DatasetScore(sum(map(bool, right)), len(right), repeats)
    if not repeats_are_whole([sample.reference for sample in samples], repeats):
        return score
    pairs = [(sample.reference, bool(one)) for sample, one in zip(samples, right, strict=True)]
    by_repeat = by_key((row.repeat, one) for row, one in pairs)
    by_question = by_key((row.question, one) for row, one in pairs)
    percentages = tuple(100 * sum(by_repeat[number]) / len(by_repeat[number]) for number in range(repeats))
    return replace(score, by_repeat=percentages, solved=tuple(map(sum, by_question.values())))
