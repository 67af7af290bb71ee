"""Tables of graded outputs: --save-outputs, and the rows that eval_accuracy.py writes.

Both are parquet, or a pickled DataFrame if the file is named so.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from harness.dataset.extended_table import NewColumn, write_extended, write_frame
from harness.dataset.table import open_table
from harness.errors import DatasetError
from harness.files import PICKLE_SUFFIXES, atomic_write, explained_write, loses_content, not_replaced
from harness.grading.decoding.output_sources import IDS, LENGTH, TEXT, Outputs
from harness.grading.evaluation.evaluate import GradedSample
from harness.grading.scoring.grade import EXACT_MATCH, GradingMode
from harness.grouping import by_key

ANSWER, ACCURACY = "extracted_answer", "prompt_accuracy"  # the columns, as upstream names them
INDEX = "qsl_idx"
_BATCH = 64

OutputRow = dict[str, Any]


def require_own_table(path: Path, column: str, flag: str) -> None:
    """Raise ConfigError where a file to replace is neither empty nor a table with this column."""
    if not loses_content(path):
        return
    try:
        is_own = column in open_table(path).names
    except DatasetError:
        is_own = False
    if not is_own:
        raise not_replaced(path, "table of graded outputs", flag)


def save_outputs(path: Path, graded: Sequence[GradedSample], outputs: Outputs) -> None:
    """Write one row for each sample that has an output, in the order of qsl_idx. Raises ConfigError.

    Parquet is written in batches and needs little memory; a pickle is built in memory.
    """
    rows = (_row(sample, outputs) for sample in graded if sample.has_output)
    with explained_write(path, "--save-outputs"), atomic_write(path) as file:
        if path.suffix.lower() in PICKLE_SUFFIXES:
            write_frame(file, by_key(cell for row in rows for cell in row.items()).items())
        else:
            _write_parquet(file, rows)


def _row(sample: GradedSample, outputs: Outputs) -> OutputRow:
    assert sample.logged is not None
    row: OutputRow = {
        INDEX: sample.qsl_idx,
        "seq_id": sample.logged.seq_id,
        "dataset": sample.reference.dataset,
        "ground_truth": sample.reference.truth,
        "model_output": outputs.text(sample.place).encode("utf-8", "replace").decode(),
        "output_token_ids": outputs.ids(sample.place),
    }
    for mode, grade in sample.grades.items():
        prefix = "" if mode is GradingMode.OFFICIAL else "strict_"
        row[f"{prefix}extracted_answer"] = grade.answer
        row[f"{prefix}is_correct"] = grade.correct
        row[f"{prefix}evaluation_details"] = f"{grade.reason} {grade.detail}".strip()
        scores = {f"{prefix}{name}": float(score) for name, score in grade.scores.items()}
        scores.pop(f"{prefix}{EXACT_MATCH}", None)  # is_correct has it
        row |= scores
    if sample.remarks is not None:
        row["remarks"] = " ".join(sample.remarks)
    return row


def _write_parquet(file: IO[bytes], rows: Iterator[OutputRow]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = next(rows)
    schema = _schema(first)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        everything = itertools.chain([first], rows)
        while batch := list(itertools.islice(everything, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema))


def _schema(row: OutputRow) -> Any:
    import pyarrow as pa

    kinds = {INDEX: pa.int64(), "seq_id": pa.int64(), "output_token_ids": pa.list_(pa.int32())}
    kinds |= {name: pa.bool_() for name in row if name.endswith("is_correct")}
    kinds |= {name: pa.float64() for name, value in row.items() if isinstance(value, float)}
    return pa.schema([(name, kinds.get(name, pa.string())) for name in row])


# --- the references' rows with their grades ----------------------------------------------------


def write_evaluated(path: Path, references: Path, graded: Sequence[GradedSample], outputs: Outputs) -> None:
    """Write every row of ``references`` with its official grade, the strict one where it alone was made.

    The outputs of a log come with them; a table of outputs has them. The grades of a sample without an entry
    in the log are null. Raises ConfigError if the file cannot be written.
    """

    def of_output(value: Callable[[GradedSample], Any]) -> Callable[[int], Any]:
        return lambda index: None if graded[index].logged is None else value(graded[index])

    columns = [
        NewColumn(ANSWER, "string", of_output(lambda sample: sample.main_grade.answer)),
        NewColumn(ACCURACY, "float64", of_output(_accuracy)),
    ]
    table = open_table(references)
    if TEXT not in table.names and IDS not in table.names:
        columns = [
            NewColumn(TEXT, "string", of_output(lambda sample: outputs.text(sample.place))),
            NewColumn(IDS, "ids", of_output(lambda sample: outputs.ids(sample.place))),
            NewColumn(LENGTH, "int32", of_output(lambda sample: sample.logged and sample.logged.tokens)),
            *columns,
        ]
    with explained_write(path, "place"):
        write_extended(path, table, range(len(graded)), columns)


def _accuracy(sample: GradedSample) -> float | None:
    """100 or 0; null for a text metric."""
    correct = sample.main_grade.correct
    return None if correct is None else 100.0 * correct
