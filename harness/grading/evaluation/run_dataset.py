"""The true answers to the dataset that a run has answered, and whether given ones are those."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from harness.config.benchmark import Benchmark, DatasetRule
from harness.config.official_data import downloaded
from harness.dataset.table import Table, open_table
from harness.dataset.token_columns import COLUMNS, token_rows
from harness.errors import DatasetError
from harness.files import sha256_of
from harness.grading.evaluation.references import load_references
from harness.record.run_record import RunRecord

_SHOWN = 12  # digits


def true_answers(record: RunRecord | None, official: DatasetRule) -> Path | None:
    """The dataset of the run, or else the official one; None where neither is here."""
    own = [] if record is None else [record.plan.client.input_file]
    return next((file for file in (*own, downloaded(official.file, Path())) if _is_here(file)), None)


def other_dataset(record: RunRecord, references: Path, benchmark: Benchmark) -> str:
    """How the references differ from the dataset of a run, in one line; "" if they do not.

    A file with another sha256 may hold the same answers in another format, or the answers to a dataset that
    has none. Raises DatasetError for references that cannot be read.
    """
    if not references.is_file():
        return ""
    wanted, dataset = record.settled.dataset_sha256, record.plan.client.input_file
    if (found := sha256_of(references)) == wanted:
        return ""
    if references.absolute() == dataset:
        return (
            f"{dataset} was changed or replaced since the run: it has sha256 {found[:_SHOWN]}, the run's had "
            f"{wanted[:_SHOWN]}; so no score of it counts, restore the run's, or pass it as --reference-data"
        )
    if not _is_here(dataset) or sha256_of(dataset) != wanted:
        what = "that file is not here to compare their rows"
    elif not (what := _difference(references, dataset, benchmark)):
        return ""
    return (
        f"{references} has sha256 {found[:_SHOWN]}, the run's dataset is {dataset} with {wanted[:_SHOWN]}: "
        f"{what}; so no score of it counts, pass the run's dataset as --reference-data"
    )


def other_rows(outputs: Path, references: Path, benchmark: Benchmark) -> str:
    """How the references differ from the true answers in a table of outputs, in one line; "" if they do not.

    Also "" where the table has none, and for another number of rows or a damaged file, which are refused.
    """
    what = ""
    with suppress(DatasetError):
        given, own = _truths(references, benchmark), _truths(outputs, benchmark)
        if len(given) == len(own):
            what = _first_difference("true answer", given, own)
    if not what:
        return ""
    return (
        f"{references} has other true answers than {outputs} itself: {what}; so no score of it counts, omit "
        "--reference-data, or pass the dataset of these outputs"
    )


def _is_here(path: Path) -> bool:
    """Whether it is a file that this user can read; that of another user's run may be out of reach."""
    return os.access(path, os.R_OK) and path.is_file()


def _difference(references: Path, dataset: Path, benchmark: Benchmark) -> str:
    """The first difference in true answers, or else in prompts, as far as both have them; "" for none."""
    given, asked = open_table(references), open_table(dataset)
    if not set(benchmark.dataset(accuracy=True).truth_columns).isdisjoint(asked.names):
        answers, wanted = _truths(references, benchmark), None
        with suppress(DatasetError):  # A column of that name may hold none to grade: a run needs none.
            wanted = _truths(dataset, benchmark)
        if wanted is not None:
            return _first_difference("true answer", answers, wanted)
    if not set(COLUMNS).isdisjoint(given.names):
        return _first_difference("prompt", _prompts(given), _prompts(asked))
    return _other_length(len(_truths(references, benchmark)), len(_prompts(asked)))


def _truths(path: Path, benchmark: Benchmark) -> list[tuple[str, str]]:
    return [(row.dataset, row.truth) for row in load_references(path, benchmark)]


def _prompts(table: Table) -> list[bytes]:
    rows = token_rows(table)
    return [ids.tobytes() for ids in np.split(rows.ids, rows.offsets[1:-1])]


def _first_difference(what: str, given: Sequence[object], wanted: Sequence[object]) -> str:
    rows = [row for row, pair in enumerate(zip(given, wanted, strict=False)) if pair[0] != pair[1]]
    if not rows:
        return _other_length(len(given), len(wanted))
    return f"row {rows[0]} has another {what}, as {len(rows)} of {len(given)} rows have"


def _other_length(given: int, wanted: int) -> str:
    return "" if given == wanted else f"it has {given} rows, the dataset {wanted}"
