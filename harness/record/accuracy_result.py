"""accuracy_result.json as a value: what the evaluator found in the log of an accuracy run.

harness/grading/reports/result_file.py writes the file, with further fields for other readers.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from harness.errors import ConfigError
from harness.files import ACCURACY_RESULT, RUN_RECORD

_DIGITS = 12  # of a sha256, in messages


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
    accuracy_log_sha256: str = ""
    """of the scored log; "" where the run names none"""

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The result in a run's folder; None where it was not scored.

        Raises ConfigError for a damaged file, and for the score of another log than the run left.
        """
        path = folder / ACCURACY_RESULT
        if not path.is_file():
            return None
        try:
            found = msgspec.convert(json.loads(path.read_bytes()), cls)
        except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise ConfigError(
                f"{path} is no result of the evaluator ({error}); score the log again"
            ) from None
        scored, left = found.accuracy_log_sha256, left_log_sha256(folder)
        if scored and left and scored != left:
            raise ConfigError(
                f"{path} is the score of another log (sha256 {scored[:_DIGITS]}) than the run in this folder "
                f"left ({left[:_DIGITS]}); score the log of this run"
            )
        return found


class _LeftLog(msgspec.Struct, frozen=True):
    """The part of run.json that names the log; a record of another version has it, too."""

    accuracy_log_sha256: str = ""


def left_log_sha256(folder: Path) -> str:
    """Of the accuracy log that the run in a folder left; "" where no run.json names one."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((folder / RUN_RECORD).read_bytes(), type=_LeftLog).accuracy_log_sha256
    return ""
