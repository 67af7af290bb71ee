"""The sources of outputs to grade: LoadGen's accuracy log, or a table with an output in each row."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from harness.config.benchmark import Benchmark
from harness.config.generation import MOST_NUMBER
from harness.dataset.table import ParquetTable, Table, is_binary_table, open_table
from harness.errors import ConfigError, DatasetError, GradingError
from harness.files import ACCURACY_LOG
from harness.grading.decoding.harmony import HarmonyText
from harness.grading.decoding.output import Output, TextOutput, ThinkingText
from harness.grading.decoding.output_decoder import (
    BUILT_IN,
    OutputDecoder,
    SourceSettings,
    open_decoder,
    settings_of_run,
)
from harness.grading.scoring.grade import Reason
from harness.loadgen_logs.accuracy_log import INT64, AccuracyLog, Cut, LogEntry, TokenIds
from harness.text import counted, first_few, printable

# The columns of a table of outputs, as upstream names them.
TEXT, IDS, LENGTH, BACKEND = "model_output", "tok_model_output", "tok_model_output_len", "model_backend"
_OTHER_TABLE = f"; pass {ACCURACY_LOG} or a table of outputs"
FAILURE = "failure"  # our column: why a row has no output
METADATA = "mlperf_run_eval"  # the key, in a parquet file's schema, of the settings of run_eval.py as JSON

_ALL = slice(None)
_LISTED = 5  # failed rows named before "and N more"
# How the text of an output is read, by the name of the tokenizer in a benchmark's definition.
_TEXT_OUTPUTS: Mapping[str, type[TextOutput]] = {
    BUILT_IN: HarmonyText,
    "llama-3.1": TextOutput,
    "deepseek-r1": ThinkingText,
}


class Place(NamedTuple):
    """The place of an output: bytes of a log, a row of a table."""

    offset: int
    size: int


class Entry(NamedTuple):
    """One output of a log or a table."""

    qsl_idx: int
    seq_id: int
    """LoadGen's number of the query; -1 for a row of a table."""
    place: Place
    output: Callable[[], Output]
    """Decodes it."""
    is_first_apart: bool = False
    """Whether ``token_data`` of a log alone has its first token."""


class Outputs(Protocol):
    """Outputs that can be iterated any number of times; ``cut`` is known after a complete iteration."""

    @property
    def cut(self) -> Cut | None:
        """The place where a log broke off."""

    @property
    def is_int64(self) -> bool:
        """Whether a log has its ids as int64."""

    def __iter__(self) -> Iterator[Entry]:
        """Every entry in the file's order."""

    def ids(self, place: Place) -> TokenIds | None:
        """The ids of an entry; None where the file has none for it."""

    def text(self, place: Place, part: slice = _ALL) -> str:
        """The text of a part of its tokens, special tokens by name; of its characters where it has no ids."""


class LoggedOutputs:
    """The outputs in an accuracy log."""

    def __init__(self, log: AccuracyLog, decoder: OutputDecoder) -> None:
        self._log, self._decoder = log, decoder

    @property
    def cut(self) -> Cut | None:
        """As Outputs."""
        return self._log.cut

    @property
    def is_int64(self) -> bool:
        """As Outputs."""
        return self._log.width == INT64

    def __iter__(self) -> Iterator[Entry]:
        return map(self._entry, self._log)

    def _entry(self, entry: LogEntry) -> Entry:
        place, output = Place(entry.offset, entry.size), partial(self._decoder.output, entry)
        return Entry(entry.qsl_idx, entry.seq_id, place, output, entry.is_first_apart)

    def ids(self, place: Place) -> TokenIds:
        """As Outputs."""
        return self._log.read_at(*place)

    def text(self, place: Place, part: slice = _ALL) -> str:
        """As Outputs."""
        return self._decoder.decode(self.ids(place)[part])


class RowTokens(NamedTuple):
    """The ids in a row of a table, as SampleTokens."""

    qsl_idx: int
    token_ids: TokenIds


_Cell = TypeVar("_Cell")


class _Rows(ABC, Generic[_Cell]):
    """The outputs in a column of a table. Sample i is row i.

    A row without an output is an entry too, as upstream's evaluator has it. ``lengths``: numbers of tokens,
    None where a row has none.
    """

    cut = None
    is_int64 = False

    def __init__(self, rows: Sequence[_Cell | None], lengths: Sequence[int | None]) -> None:
        self._rows, self._lengths = rows, lengths

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Entry]:
        for index in range(len(self._rows)):
            yield Entry(index, -1, Place(index, 1), partial(self._output, index))

    @property
    def has_output(self) -> bool:
        """Whether a row has one."""
        return any(row is not None for row in self._rows)

    def _output(self, index: int) -> Output:
        row, length = self._rows[index], self._lengths[index]
        if row is None:  # upstream's evaluator reads the empty text
            return TextOutput("", length, defect=Reason.MISSING)
        return self._read(index, row, length)

    @abstractmethod
    def _read(self, index: int, row: _Cell, length: int | None) -> Output: ...


class IdRows(_Rows[TokenIds]):
    """The outputs in a table's column of ids."""

    def __init__(
        self, rows: Sequence[TokenIds | None], lengths: Sequence[int | None], decoder: OutputDecoder
    ) -> None:
        super().__init__(rows, lengths)
        self._decoder = decoder

    def _read(self, index: int, row: TokenIds, length: int | None) -> Output:
        return self._decoder.output(RowTokens(index, row))

    def ids(self, place: Place) -> TokenIds | None:
        """As Outputs."""
        return self._rows[place.offset]

    def text(self, place: Place, part: slice = _ALL) -> str:
        """As Outputs."""
        row = self._rows[place.offset]
        return "" if row is None else self._decoder.decode(row[part])


class TextRows(_Rows[str]):
    """The outputs in a table's column of texts."""

    def __init__(
        self, rows: Sequence[str | None], lengths: Sequence[int | None], kind: type[TextOutput]
    ) -> None:
        super().__init__(rows, lengths)
        self._kind = kind

    def _read(self, index: int, row: str, length: int | None) -> Output:
        return self._kind(row, length)

    def ids(self, place: Place) -> None:
        """As Outputs."""
        return

    def text(self, place: Place, part: slice = _ALL) -> str:
        """As Outputs."""
        return (self._rows[place.offset] or "")[part]


def settings_of(path: Path) -> SourceSettings:
    """The settings of the run that left a log or a table. Raises DatasetError."""
    if not is_binary_table(path):
        return settings_of_run(path)
    return _settings_of_table(open_table(path)) if path.is_file() else SourceSettings()


def open_outputs(path: Path, benchmark: Benchmark, tokenizer: str | None) -> tuple[Outputs, tuple[str, ...]]:
    """The outputs in a log or a table, and notes on how a table is read and why rows of it have no output.

    A table is graded by its ids, as a log is; by its texts where a text has no ids or where the benchmark's
    tokenizer is not there. Raises ConfigError, DatasetError, GradingError.
    """
    table = open_table(path) if is_binary_table(path) else None
    settings = settings_of_run(path) if table is None else _settings_of_table(table)
    if settings.benchmark not in (None, benchmark.name):
        source = "run.json" if table is None else "schema"
        raise GradingError(
            f"{path}: its {source} names the benchmark {settings.benchmark}, "
            f"but --benchmark is {benchmark.name}; pass --benchmark {settings.benchmark}"
        )
    limit = settings.max_new_tokens or benchmark.dataset(accuracy=True).max_new_tokens
    if table is None:
        decoder = open_decoder(benchmark, tokenizer, limit)
        return LoggedOutputs(AccuracyLog(path), decoder), ()
    rows, notes = _open_rows(table, benchmark, tokenizer, limit)
    notes = (*notes, *_failures(table))
    if len(rows) and not rows.has_output:
        raise GradingError("; ".join((f"{path}: no row has an output, so nothing can be graded", *notes)))
    return rows, notes


def _open_rows(
    table: Table, benchmark: Benchmark, tokenizer: str | None, limit: int
) -> tuple[IdRows | TextRows, tuple[str, ...]]:
    """The rows of a table by their ids, or by their texts with a note why."""

    def by_text(reason: str) -> tuple[TextRows, tuple[str, ...]]:
        return _text_rows(table, benchmark), (f"graded by the column {TEXT}, {reason}",)

    if IDS not in table.names:
        return by_text(f"as there is no column {IDS}")
    try:
        decoder = open_decoder(benchmark, tokenizer, limit)
    except ConfigError as error:
        if tokenizer is not None or not _has_texts(table):
            raise
        return by_text(f"not by {IDS}: {error}")
    ids = list(_id_rows(table))
    if _has_texts(table):
        for row, text in enumerate(table.cells(TEXT)):
            if _is_null(text):
                ids[row] = None  # upstream's evaluator reads no ids
            elif ids[row] is None:
                return by_text(f"as row {row} has a text there and no {IDS}")
    return IdRows(ids, list(_lengths(table)) if LENGTH in table.names else [None] * len(ids), decoder), ()


def _has_texts(table: Table) -> bool:
    """Whether a row has one: run_eval.py writes none without a tokenizer."""
    return TEXT in table.names and not all(map(_is_null, table.cells(TEXT)))


class _Parameters(msgspec.Struct, frozen=True):
    max_new_tokens: int | None = None


class _Settings(msgspec.Struct, frozen=True):
    """Of harness.rows.attempts.EvalSettings what is read here."""

    benchmark: str | None = None
    parameters: _Parameters = _Parameters()


def _settings_of_table(table: Table) -> SourceSettings:
    """The settings that run_eval.py wrote into the schema of a parquet file; empty for any other table."""
    if not isinstance(table, ParquetTable):
        return SourceSettings()
    text = (table.schema.metadata or {}).get(METADATA.encode(), b"{}")
    try:
        settings = msgspec.json.decode(text, type=_Settings)
    except msgspec.DecodeError:
        return SourceSettings()
    return SourceSettings(settings.benchmark, settings.parameters.max_new_tokens)


def _failures(table: Table) -> Iterator[str]:
    """The rows that failed in run_eval.py, with their failures; of many only the first."""
    cells = table.column(FAILURE) if FAILURE in table.names else []
    failed = [f"{row} ({printable(str(cell))})" for row, cell in enumerate(cells) if not _is_null(cell)]
    if failed:
        yield f"{counted(len(failed), 'row')} failed: {first_few(failed, _LISTED)}"


def _id_rows(table: Table) -> Iterator[TokenIds | None]:
    for row, cell in enumerate(table.cells(IDS)):
        yield None if _is_null(cell) else _ids(table.path, row, cell)


def _ids(path: Path, row: int, cell: Any) -> TokenIds:
    try:
        ids = np.asarray(cell)
        if ids.ndim == 1 and (ids.dtype.kind in "iu" or not len(ids)):
            whole = ids.astype(np.int32)
            if np.array_equal(whole, ids):
                return whole
    except ValueError:  # lists of different lengths
        pass
    raise DatasetError(f"{path}: row {row}: {IDS} is not a list of token ids of 32 bits")


def _text_rows(table: Table, benchmark: Benchmark) -> TextRows:
    table.first_column((TEXT,), _OTHER_TABLE)
    texts, lengths = list(_texts(table)), list(_lengths(table))
    if any(text is not None for text in texts) and all(length is None for length in lengths):
        raise DatasetError(f"{table.path}: {LENGTH} is empty in every row, expected numbers of tokens")
    return TextRows(texts, lengths, _TEXT_OUTPUTS[benchmark.tokenizer or ""])


def _texts(table: Table) -> Iterator[str | None]:
    for row, cell in enumerate(table.cells(TEXT)):
        if not isinstance(cell, str) and not _is_null(cell):
            raise DatasetError(f"{table.path}: row {row}: {TEXT} is a {type(cell).__name__}, expected text")
        yield None if _is_null(cell) else cell


def _lengths(table: Table) -> Iterator[int | None]:
    """The numbers of tokens; upstream's evaluator leaves the rows without one out of their mean."""
    for row, cell in enumerate(table.cells(LENGTH)):
        if not _is_null(cell) and (
            not isinstance(cell, int | float) or not 0 <= cell <= MOST_NUMBER or cell % 1
        ):
            raise DatasetError(f"{table.path}: row {row}: {LENGTH} is {cell!r}, expected a number of tokens")
        yield None if _is_null(cell) else int(cell)


def _is_null(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and np.isnan(cell))
