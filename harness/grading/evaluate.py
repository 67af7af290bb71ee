"""The evaluation: one pass over the log, then the programs in their sandbox, then the score."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.grading.graded import Graded, Logged, absent
from harness.grading.graders import aime, gpqa, livecodebench
from harness.grading.harmony import Output
from harness.grading.livecodebench.journal import OutcomeJournal
from harness.grading.livecodebench.runner import Bench, Progress, Task, grade
from harness.grading.livecodebench.trial import Outcome
from harness.grading.output_decoder import Reader
from harness.grading.references import Reference, Subject, by_dataset, repeats_are_whole
from harness.grading.score import DatasetScore, Lengths, Score, lengths
from harness.grading.verdict import FailedTest, Mode, Verdict, unanswered
from harness.loadgen_logs.accuracy_log import AccuracyLog, Checklist, Cut


@dataclass(frozen=True, slots=True)
class Programs:
    """What grading programs needs; the journal keeps their outcomes for the next call."""

    bench: Bench
    journal: Path
    restart: bool


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Every sample in the order of qsl_idx, the log's state, and the score of each mode."""

    graded: tuple[Graded, ...]
    missing: tuple[int, ...]
    cut: Cut | None
    lengths: Lengths
    scores: Mapping[Mode, Score]


Pending = dict[int, tuple[Logged, Mapping[Mode, livecodebench.Extraction]]]


def evaluate(
    log: AccuracyLog,
    references: Sequence[Reference],
    reader: Reader,
    modes: tuple[Mode, ...],
    repeats: Mapping[str, int],
    programs: Programs | None,
    progress: Progress,
) -> Evaluation:
    """Grade a whole log. ``programs`` may be None where no reference is a programming problem.

    Raises GradingError for a log that is not one output per sample, and what the sandbox raises.
    """
    checklist = Checklist(len(references))
    graded: dict[int, Graded] = {}
    pending: Pending = {}
    for count, entry in enumerate(log, 1):
        checklist.tick(entry.qsl_idx)
        reference, output = references[entry.qsl_idx], reader.output(entry)
        logged = Logged.of(entry, output)
        if reference.subject is Subject.LIVECODEBENCH:
            pending[entry.qsl_idx] = logged, {mode: _EXTRACTORS[mode](output) for mode in modes}
        else:
            verdicts = verdicts_on(output, reference, modes)
            graded[entry.qsl_idx] = Graded(entry.qsl_idx, reference, logged, verdicts)
        progress(count, len(references), "outputs")
    if pending and programs is not None:
        graded |= _grade_programs(pending, references, programs, progress)
    coverage = checklist.coverage()
    graded |= {index: absent(index, references[index], modes) for index in coverage.missing}
    samples = tuple(graded[index] for index in range(len(references)))
    return Evaluation(samples, coverage.missing, log.cut, _lengths(samples), _scores(samples, modes, repeats))


def verdicts_on(output: Output, reference: Reference, modes: Sequence[Mode]) -> dict[Mode, Verdict]:
    """The verdicts on an answer that is no program, by each mode's rules."""
    return {mode: _GRADERS[reference.subject, mode](output, reference.truth) for mode in modes}


Grader = Callable[[Output, str], Verdict]

_GRADERS: dict[tuple[Subject, Mode], Grader] = {
    (Subject.AIME, Mode.OFFICIAL): lambda output, truth: aime.official(output, int(truth)),
    (Subject.AIME, Mode.STRICT): lambda output, truth: aime.strict(output, int(truth)),
    (Subject.GPQA, Mode.OFFICIAL): gpqa.official,
    (Subject.GPQA, Mode.STRICT): gpqa.strict,
}
_EXTRACTORS: dict[Mode, Callable[[Output], livecodebench.Extraction]] = {
    Mode.OFFICIAL: livecodebench.official,
    Mode.STRICT: livecodebench.strict,
}


def _grade_programs(
    pending: Pending, references: Sequence[Reference], programs: Programs, progress: Progress
) -> dict[int, Graded]:
    tasks = {
        (index, mode): Task(mode, references[index].truth, extraction.code)
        for index, (_, extractions) in pending.items()
        for mode, extraction in extractions.items()
        if extraction.code
    }
    journal = OutcomeJournal(programs.journal, programs.restart)
    try:
        outcomes = grade(dict.fromkeys(tasks.values()), programs.bench, journal, progress)
    finally:
        journal.close()
    graded = {}
    for index, (logged, extractions) in pending.items():
        verdicts = {
            mode: _program_verdict(
                extraction, outcomes.get(tasks[index, mode]) if (index, mode) in tasks else None
            )
            for mode, extraction in extractions.items()
        }
        graded[index] = Graded(index, references[index], logged, verdicts)
    return graded


def _program_verdict(extraction: livecodebench.Extraction, outcome: Outcome | None) -> Verdict:
    if outcome is None:
        return unanswered(extraction.reason)
    if outcome.failed_test is None:
        return Verdict(outcome.passed, extraction.code, outcome.reason, outcome.detail, outcome.raced)
    detail = f"test {outcome.failed_test + 1}: {outcome.detail}".removesuffix(": ")
    failure = FailedTest(outcome.failed_test, outcome.output)
    return Verdict(outcome.passed, extraction.code, outcome.reason, detail, outcome.raced, failure)


def _lengths(samples: Sequence[Graded]) -> Lengths:
    logged = [sample.logged for sample in samples if sample.logged is not None]
    return lengths([entry.tokens for entry in logged], sum(entry.truncated for entry in logged))


def _scores(
    samples: Sequence[Graded], modes: Sequence[Mode], repeats: Mapping[str, int]
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


def _dataset_score(samples: Sequence[Graded], mode: Mode, repeats: int) -> DatasetScore:
    right = [sample.verdicts[mode].correct for sample in samples]
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
