"""The reference file of an accuracy run: which data set each sample is of, and its true answer."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.dataset.table import open_table
from harness.errors import DatasetError

_DATASET, _TRUTH, _PROMPT = "dataset", "ground_truth", "text_input"


class DatasetKind(StrEnum):
    """Which grader a data set takes, by what its name contains."""

    AIME = "aime"
    GPQA = "gpqa"
    LIVECODEBENCH = "livecodebench"


@dataclass(frozen=True, slots=True)
class Reference:
    """One sample. ``repeat`` counts earlier samples of the same ``question``.

    Both are None where prompts are unknown. Questions are numbered over all data sets.
    """

    dataset: str
    kind: DatasetKind
    truth: str
    repeat: int | None
    question: int | None = None


def load_references(path: Path) -> tuple[Reference, ...]:
    """All rows in file order, index = qsl_idx. DatasetError for anything that cannot be graded against."""
    columns = _columns(path)
    prompts = columns.get(_PROMPT, [None] * len(columns[_DATASET]))
    seen: Counter[tuple[str, str]] = Counter()
    numbers: dict[tuple[str, str], int] = {}
    rows = []
    for number, (name, truth, prompt) in enumerate(
        zip(columns[_DATASET], columns[_TRUTH], prompts, strict=True)
    ):
        dataset, kind = _kind(name, f"{path}: row {number}")
        checked = _CHECKS[kind](truth, f"{path}: row {number}")
        identity = checked if kind is DatasetKind.LIVECODEBENCH else prompt
        key = dataset, str(identity)
        question = numbers.setdefault(key, len(numbers))
        same = (None, None) if identity is None else (seen[key], question)
        rows.append(Reference(dataset, kind, checked, *same))
        seen[key] += 1
    if not rows:
        raise DatasetError(f"{path}: no rows, expected the samples of an accuracy run")
    return tuple(rows)


def repeats_are_whole(rows: Sequence[Reference], repeats: int) -> bool:
    """Whether every repeat of a data set holds the same number of samples, and there are ``repeats``."""
    sizes = Counter(row.repeat for row in rows)
    return set(sizes) == set(range(repeats)) and len(set(sizes.values())) == 1


def by_dataset(rows: Sequence[Reference]) -> dict[str, list[int]]:
    """Sample indexes of each data set, data sets in alphabetical order."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        found[row.dataset].append(index)
    return dict(sorted(found.items()))


def _columns(path: Path) -> dict[str, list[Any]]:
    table = open_table(path)
    required = [table.first_column((name,)) for name in (_DATASET, _TRUTH)]
    return {name: table.column(name) for name in (*required, _PROMPT) if name in table.names}


def _kind(name: object, where: str) -> tuple[str, DatasetKind]:
    dataset = name.lower() if isinstance(name, str) else ""
    for kind in DatasetKind:
        if kind in dataset:
            return dataset, kind
    raise DatasetError(f"{where}: dataset {name!r}, there are graders for {', '.join(DatasetKind)}")


def _aime_truth(value: object, where: str) -> str:
    text = str(value).strip()
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    if not re.fullmatch(r"\d{1,3}", text):
        raise DatasetError(f"{where}: ground_truth {value!r}, expected an integer from 0 to 999")
    return str(int(text))


def _gpqa_truth(value: object, where: str) -> str:
    text = str(value).strip().upper()
    if text not in tuple("ABCD"):
        raise DatasetError(f"{where}: ground_truth {value!r}, expected one letter from A to D")
    return text


def _code_truth(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DatasetError(f"{where}: ground_truth {value!r}, expected a LiveCodeBench question_id")
    return value


_CHECKS: dict[DatasetKind, Callable[[object, str], str]] = {
    DatasetKind.AIME: _aime_truth,
    DatasetKind.GPQA: _gpqa_truth,
    DatasetKind.LIVECODEBENCH: _code_truth,
}
