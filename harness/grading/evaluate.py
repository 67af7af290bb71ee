"""The evaluation: one pass over the log, then the programs in their sandbox, then the score."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.grading.grade import FailedTest, Grade, GradedSample, Logged, Mode, absent, unanswered
from harness.grading.graders import aime, gpqa, livecodebench
from harness.grading.harmony import HarmonyOutput, Output
from harness.grading.livecodebench.journal import ResultJournal
from harness.grading.livecodebench.run_solution import ProgramResult
from harness.grading.livecodebench.runner import ExecutionConfig, Progress, Task, run_programs
from harness.grading.output_decoder import OutputDecoder
from harness.grading.references import DatasetKind, Reference, by_dataset, repeats_are_whole
from harness.grading.score import DatasetScore, Lengths, Score, lengths
from harness.loadgen_logs.accuracy_log import AccuracyLog, Checklist, Cut, LogEntry


@dataclass(frozen=True, slots=True)
class Programs:
    """What grading programs needs; the journal keeps their outcomes for the next call."""

    execution: ExecutionConfig
    journal: Path
    restart: bool


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Every sample in the order of qsl_idx, the log's state, and the score of each mode."""

    graded: tuple[GradedSample, ...]
    missing: tuple[int, ...]
    cut: Cut | None
    lengths: Lengths
    scores: Mapping[Mode, Score]


Pending = dict[int, tuple[Logged, Mapping[Mode, livecodebench.Extraction]]]


def evaluate(
    log: AccuracyLog,
    references: Sequence[Reference],
    decoder: OutputDecoder,
    modes: tuple[Mode, ...],
    repeats: Mapping[str, int],
    programs: Programs | None,
    progress: Progress,
) -> Evaluation:
    """Grade a whole log. ``programs`` may be None where no reference is a programming problem.

    Raises GradingError for a log that is not one output per sample, and what the sandbox raises.
    """
    checklist = Checklist(len(references))
    graded: dict[int, GradedSample] = {}
    pending: Pending = {}
    for count, entry in enumerate(log, 1):
        checklist.tick(entry.qsl_idx)
        reference, output = references[entry.qsl_idx], decoder.output(entry)
        logged = _logged(entry, output)
        if reference.kind is DatasetKind.LIVECODEBENCH:
            pending[entry.qsl_idx] = logged, {mode: _EXTRACTORS[mode](output) for mode in modes}
        else:
            grades = grades_of(output, reference, modes)
            graded[entry.qsl_idx] = GradedSample(entry.qsl_idx, reference, logged, grades)
        progress(count, len(references), "outputs")
    if pending and programs is not None:
        graded |= _grade_programs(pending, references, programs, progress)
    coverage = checklist.coverage()
    graded |= {index: absent(index, references[index], modes) for index in coverage.missing}
    samples = tuple(graded[index] for index in range(len(references)))
    return Evaluation(samples, coverage.missing, log.cut, _lengths(samples), _scores(samples, modes, repeats))


def grades_of(output: Output, reference: Reference, modes: Sequence[Mode]) -> dict[Mode, Grade]:
    """The verdicts on an answer that is no program, by each mode's rules."""
    return {mode: _GRADERS[reference.kind, mode](output, reference.truth) for mode in modes}


Grader = Callable[[Output, str], Grade]

_GRADERS: dict[tuple[DatasetKind, Mode], Grader] = {
    (DatasetKind.AIME, Mode.OFFICIAL): lambda output, truth: aime.official(output, int(truth)),
    (DatasetKind.AIME, Mode.STRICT): lambda output, truth: aime.strict(output, int(truth)),
    (DatasetKind.GPQA, Mode.OFFICIAL): gpqa.official,
    (DatasetKind.GPQA, Mode.STRICT): gpqa.strict,
}
_EXTRACTORS: dict[Mode, Callable[[Output], livecodebench.Extraction]] = {
    Mode.OFFICIAL: livecodebench.official,
    Mode.STRICT: livecodebench.strict,
}


def _grade_programs(
    pending: Pending, references: Sequence[Reference], programs: Programs, progress: Progress
) -> dict[int, GradedSample]:
    tasks = {
        (index, mode): Task(mode, references[index].truth, extraction.code)
        for index, (_, extractions) in pending.items()
        for mode, extraction in extractions.items()
        if extraction.code
    }
    journal = ResultJournal(programs.journal, programs.restart)
    try:
        outcomes = run_programs(dict.fromkeys(tasks.values()), programs.execution, journal, progress)
    finally:
        journal.close()
    graded = {}
    for index, (logged, extractions) in pending.items():
        grades = {
            mode: _program_verdict(
                extraction, outcomes.get(tasks[index, mode]) if (index, mode) in tasks else None
            )
            for mode, extraction in extractions.items()
        }
        graded[index] = GradedSample(index, references[index], logged, grades)
    return graded


def _program_verdict(extraction: livecodebench.Extraction, outcome: ProgramResult | None) -> Grade:
    if outcome is None:
        return unanswered(extraction.reason)
    if outcome.failed_test is None:
        return Grade(outcome.passed, extraction.code, outcome.reason, outcome.detail, outcome.raced)
    detail = f"test {outcome.failed_test + 1}: {outcome.detail}".removesuffix(": ")
    failure = FailedTest(outcome.failed_test, outcome.output)
    return Grade(outcome.passed, extraction.code, outcome.reason, detail, outcome.raced, failure)


def _logged(entry: LogEntry, output: HarmonyOutput) -> Logged:
    state = (output.defect, output.has_final)
    return Logged(entry.seq_id, len(entry.token_ids), *state, entry.offset, entry.size)


def _lengths(samples: Sequence[GradedSample]) -> Lengths:
    logged = [sample.logged for sample in samples if sample.logged is not None]
    return lengths([entry.tokens for entry in logged], sum(entry.truncated for entry in logged))


def _scores(
    samples: Sequence[GradedSample], modes: Sequence[Mode], repeats: Mapping[str, int]
) -> dict[Mode, Score]:
    datasets = by_dataset([sample.reference for sample in samples])
    return {
        mode: Score(
            {
                name: _dataset_score([samples[index] for index in indexes], mode, repeats.get(name, 1))
                for name, indexes in datasets.items()
            }
        )
        for mode in modes
    }


def _dataset_score(samples: Sequence[GradedSample], mode: Mode, repeats: int) -> DatasetScore:
    right = [sample.grades[mode].correct for sample in samples]
    score = DatasetScore(sum(right), len(right), repeats)
    if not repeats_are_whole([sample.reference for sample in samples], repeats):
        return score
    by_repeat = [
        [correct for correct, sample in zip(right, samples, strict=True) if sample.reference.repeat == number]
        for number in range(repeats)
    ]
    solved: Counter[int | None] = Counter({sample.reference.question: 0 for sample in samples})
    for correct, sample in zip(right, samples, strict=True):
        solved[sample.reference.question] += correct
    percentages = tuple(100 * sum(part) / len(part) for part in by_repeat)
    return replace(score, by_repeat=percentages, solved=tuple(solved.values()))
