"""The result of run_eval.py: answers and failures of the rows, and the file of them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from harness.cli.signals import SignalName, exit_code_after
from harness.dataset.extended_table import NewColumn, unreadable_columns, write_extended
from harness.dataset.samples import SampleSet, load_samples
from harness.dataset.table import Table, open_table
from harness.errors import ConfigError, GradingError
from harness.files import PARQUET_SUFFIXES
from harness.grading.decoding.output_decoder import BUILT_IN, OutputDecoder, open_decoder, tokenizer_beside
from harness.grading.decoding.output_sources import BACKEND, FAILURE, IDS, LENGTH, METADATA, TEXT, RowTokens
from harness.loadgen_logs.accuracy_log import TokenIds
from harness.record.answer_log import SavedAnswer
from harness.record.outcome import FailureKind
from harness.rows.attempts import OTHER_OUTPUT, EvalSettings
from harness.rows.eval_plan import EvalPlan
from harness.text import one_line


class EvalResult(msgspec.Struct, frozen=True, kw_only=True):
    """``failures``: kind and detail by sample index. ``errors``: why rows have neither answer nor
    failure, or why their answers are not complete.

    ``is_unfit``: the answers are kept, and none to continue with. ``was_complete``: nothing was left to do.
    ``written``: whether the file is there; ``has_truths``: and true answers in it. ``kept``: answers of
    earlier attempts. ``warm_up_s``: the trial requests; ``elapsed_s``: from the first request to the last
    answer, of all attempts.
    """

    plan: EvalPlan
    samples: int
    kept: int
    answers: Mapping[int, SavedAnswer]
    failures: Mapping[int, tuple[FailureKind, str]]
    errors: tuple[str, ...] = ()
    is_unfit: bool = False
    warnings: tuple[str, ...] = ()
    interrupted_by: SignalName | None = None
    without_text: int = 0
    has_truths: bool = False
    written: bool = False
    was_complete: bool = False
    warm_up_s: float = 0.0
    elapsed_s: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether every row has its answer or its failure."""
        return len(self.answers) + len(self.failures) == self.samples

    @property
    def exit_code(self) -> int:
        """The program's: 0 all answered, 4 with failures, errors, or ended early, 128 + the signal."""
        done = self.was_complete or (self.written and not self.failures and not self.errors)
        return exit_code_after(self.interrupted_by, good=done)

    @property
    def tokens(self) -> int:
        """The number of tokens of all answers."""
        return sum(answer.count for answer in self.answers.values())

    @property
    def failure_kinds(self) -> dict[str, int]:
        """Failed rows by kind, the most frequent first."""
        return dict(Counter(kind.label for kind, _ in self.failures.values()).most_common())


class OutputTexts(msgspec.Struct):
    """The texts of outputs; ``missing`` counts those that the tokenizer cannot decode."""

    decoder: OutputDecoder | None
    missing: int = 0

    def of(self, index: int, ids: TokenIds) -> str | None:
        """The text that a grader of the benchmark reads; None without a tokenizer that has these ids."""
        if self.decoder is None:
            return None
        try:
            return self.decoder.output(RowTokens(index, ids)).text
        except GradingError:
            self.missing += 1
            return None


class OutputTable:
    """The rows of a dataset, and the table of them with their answers (sut.rows.run_rows.RowFiles)."""

    def __init__(self, plan: EvalPlan) -> None:
        self._plan = plan
        self._table: Table
        self._texts: OutputTexts

    def read(self) -> SampleSet:
        """The prompts. Raises ConfigError and DatasetError."""
        client = self._plan.client
        samples = load_samples(client.input_file, vocabulary_size=client.benchmark.vocabulary_size)
        samples = samples.part(self._plan.skip, self._plan.count)
        self._table = open_table(client.input_file)
        return samples

    def settings_in(self, path: Path) -> EvalSettings | None:
        """The settings in the schema of a parquet file with all answers; None elsewhere.

        Raises ConfigError for a damaged file.
        """
        if path.suffix.lower() not in PARQUET_SUFFIXES:
            return None
        try:
            text = (pq.read_schema(path).metadata or {}).get(METADATA.encode(), b"")
            settings = msgspec.json.decode(text, type=EvalSettings)
            lengths = pq.read_table(path, columns=[LENGTH])[LENGTH]
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        except (OSError, pa.ArrowInvalid) as error:
            raise ConfigError(
                f"{path}: the file exists and cannot be read ({one_line(error)}); {OTHER_OUTPUT}"
            ) from error
        return None if lengths.null_count else settings

    def warnings(self) -> tuple[str, ...]:
        """The columns that the table will lack. Raises ConfigError for a tokenizer of another model."""
        self._texts, warnings = open_texts(self._plan)
        return (*column_warnings(self._table), *warnings)

    def write(self, result: EvalResult, settings: EvalSettings, on_row: Callable[[int], None]) -> EvalResult:
        """Write every row with its answer or its failure; ``on_row`` gets the rows done. Raises OSError."""
        plan, answers, failures = self._plan, result.answers, result.failures

        def text(index: int) -> str | None:
            on_row(index + 1)
            return self._texts.of(index, answers[index].output_ids()) if index in answers else None

        def failure(index: int) -> str | None:
            return ": ".join((failures[index][0].label, failures[index][1])) if index in failures else None

        columns = (
            NewColumn(TEXT, "string", text),
            NewColumn(IDS, "ids", lambda index: answers[index].output_ids() if index in answers else None),
            NewColumn(LENGTH, "int32", lambda index: answers[index].count if index in answers else None),
            NewColumn(BACKEND, "string", lambda index: plan.client.backend),
            NewColumn(FAILURE, "string", failure),
        )
        rows = range(plan.skip, plan.skip + result.samples)
        facts = {METADATA: msgspec.json.encode(settings).decode()}
        write_extended(plan.output, self._table, rows, columns, facts)
        truths = plan.client.benchmark.dataset(accuracy=True).truth_columns
        return replace(
            result,
            written=True,
            without_text=self._texts.missing,
            has_truths=not set(truths).isdisjoint(self._table.names),
        )


def open_texts(plan: EvalPlan) -> tuple[OutputTexts, tuple[str, ...]]:
    """The texts of a plan's outputs, and a warning where there will be none.

    Raises ConfigError for a given tokenizer that is not the benchmark's.
    """
    client, benchmark, limit = plan.client, plan.client.benchmark, plan.client.parameters.max_new_tokens
    if client.tokenizer is not None:
        return OutputTexts(open_decoder(benchmark, client.tokenizer, limit)), ()
    beside = tokenizer_beside(client.input_file, benchmark)
    if client.backend == "embedded" and benchmark.tokenizer != BUILT_IN and beside is None:
        why = "the embedded engine's model has another tokenizer"
    else:
        try:
            return OutputTexts(open_decoder(benchmark, beside, limit)), ()
        except ConfigError as error:
            why = str(error)
    return OutputTexts(None), (f"{TEXT} will be empty, {IDS} has the ids: {why}",)


def column_warnings(source: Table) -> Iterator[str]:
    """Columns of the dataset that are not in the file. Reads every column once."""
    ours = [name for name in source.names if name in (TEXT, IDS, LENGTH, BACKEND, FAILURE)]
    if ours:
        yield f"{source.path}: its columns {', '.join(ours)} are those of an earlier run and are replaced"
    for name, why in unreadable_columns(source).items():
        yield f"column {name} is left out of the file: {why}"
