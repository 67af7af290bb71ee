"""accuracy_result.json as a value: what the evaluator found in the log of an accuracy run.

harness/grading/reports/result_file.py writes the file, with further fields for other readers.
"""

import json
from pathlib import Path
from typing import Self

import msgspec

from harness.errors import ConfigError
from harness.files import ACCURACY_RESULT


class MetricFigures(msgspec.Struct, frozen=True):
    """A metric and its bounds."""

    value: float
    lowest: float
    highest: float | None
    """None where there is no upper bound"""
    met: bool


class TargetFigures(msgspec.Struct, frozen=True):
    """The metrics by the rules of ``mode``."""

    mode: str
    met: bool
    metrics: dict[str, MetricFigures]


class OutputTokens(msgspec.Struct, frozen=True):
    """Lengths of the outputs, in tokens."""

    mean: float
    min: int
    max: int
    truncated_share: float
    """part of the outputs that the token limit ended"""


class DatasetFigures(msgspec.Struct, frozen=True):
    """Right answers of a data set."""

    correct: int
    total: int
    accuracy: float
    """percent"""


class ModeFigures(msgspec.Struct, frozen=True):
    """The data sets of one mode; none for a text metric, which has no right answers."""

    per_dataset: dict[str, DatasetFigures] = {}


class AccuracyResult(msgspec.Struct, frozen=True, kw_only=True):
    """One scored run; ``modes``, ``reasons`` and ``right`` are by mode, official and strict."""

    target: TargetFigures
    output_tokens: OutputTokens
    modes: dict[str, ModeFigures]
    missing: tuple[int, ...] = ()
    """samples without an output: no entry in the log, or an empty row of a table"""
    reasons: dict[str, dict[str, dict[str, int]]] = {}
    """outputs by data set and reason of their grade"""
    right: dict[str, str | None] = {}
    """`1` or `0` for each sample; None for metrics that know neither"""
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The result in a run's folder; None where it was not scored.

        Raises ConfigError for a damaged file.
        """
        path = folder / ACCURACY_RESULT
        if not path.is_file():
            return None
        try:
            return msgspec.convert(json.loads(path.read_bytes()), cls)
        except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise ConfigError(
                f"{path} is no result of the evaluator ({error}); score the log again"
            ) from None
