"""The reference file of an accuracy run: which data set each sample is of, and its true answer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.config.benchmark import Benchmark
from harness.dataset.table import Table, open_table
from harness.errors import DatasetError
from harness.grading.graders.grader import LIVECODEBENCH, DatasetKind, Grader
from harness.grading.graders.grader_sets import graders_of

_DATASET = "dataset"


class Reference(msgspec.Struct, frozen=True):
    """One sample of the accuracy dataset."""

    dataset: str
    kind: DatasetKind
    truth: str
    """The true answer, as its grader takes it."""
    repeat: int | None
    """The number of earlier samples of the same question; None where questions cannot be distinguished."""
    question: int | None = None
    """The question's number over all data sets; None as for ``repeat``."""
    prompt: str | None = None
    """The prompt; None where the file has none as text."""


def load_references(path: Path, benchmark: Benchmark, remedy: str = "") -> tuple[Reference, ...]:
    """All rows in file order, index = qsl_idx. DatasetError for anything that cannot be graded against.

    ``remedy``: for a file of another kind; without one it is that of ``./mlperf score``.
    Raises ConfigError for a benchmark without graders. One with a single grader needs no column of data sets.
    """
    graders = graders_of(benchmark.name).by_kind
    table = open_table(path)
    remedy = remedy or (
        f"; pass the accuracy dataset of {benchmark.name} as --reference-data, or another --benchmark"
    )
    names = _dataset_names(table, graders, remedy)
    rule = benchmark.dataset(accuracy=True)
    column = table.first_column(rule.truth_columns, remedy)
    truths = table.column(column)
    names = names or [next(iter(graders))] * len(truths)
    prompt_column = next((name for name in rule.prompt_columns if name in table.names), None)
    prompts = table.column(prompt_column) if prompt_column else [None] * len(truths)
    seen: Counter[tuple[str, str]] = Counter()
    numbers: dict[tuple[str, str], int] = {}
    rows = []
    for number, (name, value, prompt) in enumerate(zip(names, truths, prompts, strict=True)):
        if (found := _kind(name, graders)) is None:
            known = f"there are graders for {', '.join(graders)}"
            raise DatasetError(f"{path}: row {number}: dataset {name!r}, {known}{remedy}")
        dataset, kind = found
        try:
            truth = graders[kind].check_reference(value)
        except ValueError as error:
            raise DatasetError(f"{path}: row {number}: {column} {value!r}, expected {error}") from None
        identity = truth if kind == LIVECODEBENCH else prompt  # the reference of a program names its question
        key = dataset, str(identity)
        question = numbers.setdefault(key, len(numbers))
        repeat, question_of = (None, None) if identity is None else (seen[key], question)
        text = prompt if isinstance(prompt, str) else None
        rows.append(Reference(dataset, kind, truth, repeat, question_of, text))
        seen[key] += 1
    if not rows:
        raise DatasetError(f"{path}: no rows, expected the samples of an accuracy run")
    return tuple(rows)


def repeats_are_whole(rows: Sequence[Reference], repeats: int) -> bool:
    """Whether every repeat of a data set holds the same number of samples, and there are ``repeats``."""
    sizes = Counter(row.repeat for row in rows)
    return set(sizes) == set(range(repeats)) and len(set(sizes.values())) == 1


def _dataset_names(table: Table, graders: Mapping[DatasetKind, Grader], remedy: str) -> list[Any]:
    """The data set of each row; empty where the file has no such column and there is one kind only."""
    if len(graders) == 1 and _DATASET not in table.names:
        return []
    return table.column(table.first_column((_DATASET,), remedy))


def _kind(name: object, graders: Mapping[DatasetKind, Grader]) -> tuple[str, DatasetKind] | None:
    dataset = name.lower() if isinstance(name, str) else ""
    return next(((dataset, kind) for kind in graders if kind in dataset), None)
