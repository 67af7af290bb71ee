"""The references' rows with their grades, as upstream's eval_accuracy.py writes them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.dataset.extended_table import NewColumn, write_extended
from harness.dataset.table import open_table
from harness.errors import GradingError
from harness.grading.evaluate import GradedSample
from harness.grading.grade import Mode
from harness.grading.outputs import IDS, LENGTH, TEXT, Outputs

ANSWER, ACCURACY = "extracted_answer", "prompt_accuracy"


def write_evaluated(path: Path, references: Path, graded: Sequence[GradedSample], outputs: Outputs) -> None:
    """Write every row of ``references`` with its official grade, the strict one where it alone was made.

    The outputs of a log come with them; a table of outputs has them. The grades of a sample without an entry
    in the log are null. Raises GradingError if the file cannot be written.
    """

    def of_output(value: Callable[[GradedSample], Any]) -> Callable[[int], Any]:
        return lambda index: None if graded[index].logged is None else value(graded[index])

    columns = [
        NewColumn(ANSWER, "string", of_output(lambda sample: _grade(sample).answer)),
        NewColumn(ACCURACY, "float64", of_output(_accuracy)),
    ]
    table = open_table(references)
    if TEXT not in table.names and IDS not in table.names:
        columns = [
            NewColumn(TEXT, "string", of_output(lambda sample: outputs.text(*_place(sample)))),
            NewColumn(IDS, "ids", of_output(lambda sample: outputs.ids(*_place(sample)))),
            NewColumn(LENGTH, "int32", of_output(lambda sample: sample.logged and sample.logged.tokens)),
            *columns,
        ]
    try:
        write_extended(path, table, range(len(graded)), columns)
    except OSError as error:
        raise GradingError(f"{path}: cannot be written ({error}); choose another --output-file") from error


def _grade(sample: GradedSample) -> Any:
    return sample.grades.get(Mode.OFFICIAL) or sample.grades[Mode.STRICT]


def _accuracy(sample: GradedSample) -> float | None:
    """100 or 0; null for a text metric."""
    correct = _grade(sample).correct
    return None if correct is None else 100.0 * correct


def _place(sample: GradedSample) -> tuple[int, int]:
    assert sample.logged is not None  # asked for samples with an output only
    return sample.logged.offset, sample.logged.size
