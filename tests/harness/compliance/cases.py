"""Logs on which the official verification scripts were run, and the folders that hold them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.benchmark import load_benchmark
from harness.grading.evaluation.references import Reference, load_references
from tests.harness.grading.logs import array, entry, harmony_ids, hexed
from tests.runs import SAMPLES

REFERENCE = SAMPLES / "compliance_sample.parquet"
ANSWERS = 30  # rows of REFERENCE
BOUNDS = (1150.38, 1406.02)
EOS = 2

# Output lengths in tokens of every sample.
LENGTHS: dict[str, Sequence[int]] = {
    "within": [1200, 1300, 1400],
    "too short": [1100, 1150, 1200],
    "too long": [1400, 1410, 1420],
    "at the lower bound": [1150] * 31 + [1151] * 19,
    "just below it": [1150] * 32 + [1151] * 18,
    "at the upper bound": [1406] * 49 + [1407],
    "just above it": [1406] * 48 + [1407] * 2,
    "empty ones count": [0, 0, 1300, 1300, 1300],
    "all empty": [0, 0, 0],
    "one": [1278],
    "int64": [600, 640],
    "first token aside": [1151, 1151],
    "spread": [1, 9000, 12, 700, 350, 65, 10240, 2, 1, 3],
}

# How many of ANSWERS are right, and the threshold.
SCORES: dict[str, tuple[int, float]] = {
    "pass": (20, 60.698),
    "fail": (18, 60.698),
    "one more": (19, 60.698),
    "as printed, not as it is": (20, 66.667),
    "above as printed": (20, 66.668),
    "none": (0, 60.698),
    "none needed": (0, 0.0),
    "all": (30, 100.0),
}


def _log06(*outputs: tuple[list[int], list[int], int]) -> str:
    """Rows of data, token_data and token_count."""
    rows = [
        f'{{ "seq_id" : {i}, "qsl_idx" : {i}, "data" : "{hexed(data)}", "token_data" : "{hexed(first)}", '
        f'"token_count" : {count} }}'
        for i, (data, first, count) in enumerate(outputs)
    ]
    return array(rows)


_GOOD = ([5, 6, 7, EOS], [5], 4)
# LoadGen's scenario and the log.
CONSISTENCY: dict[str, tuple[str, str]] = {
    "good": ("Server", _log06(_GOOD, ([8, 9], [8], 2))),
    "good offline": ("Offline", _log06(_GOOD)),
    "no end": ("Server", _log06(([5, 6, 7], [5], 3))),
    "two ends": ("Server", _log06(_GOOD, ([5, 6, EOS, EOS], [5], 4))),
    "ends in the middle": ("Server", _log06(([5, EOS, EOS, 7, EOS], [5], 5))),
    "nothing but an end": ("Server", _log06(([EOS], [EOS], 1))),
    "two ends alone": ("Server", _log06(([EOS, EOS], [EOS], 2))),
    "three ends alone": ("Server", _log06(([EOS, EOS, EOS], [EOS], 3))),
    "another first": ("Server", _log06(_GOOD, ([5, 6], [4], 2))),
    "another first offline": ("Offline", _log06(([5, 6], [4], 2))),
    "two first tokens": ("Server", _log06(([5, 6, 7], [5, 6], 3))),
    "second differs": ("Server", _log06(([5, 6, 7], [5, 7], 3))),
    "empty first": ("Server", _log06(([5, 6], [], 2))),
    "empty": ("Server", _log06(([], [], 0))),
    "first left out of data": ("Server", _log06(([6, 7], [5], 3))),
    "count too low": ("Server", _log06(([5, 6, 7], [5], 2))),
    "count too high": ("Offline", _log06(([5, 6, 7], [5], 4))),
    "no token_data": ("Server", array([entry(0, [5, 6], first="data")])),
    "no token_data offline": ("Offline", array([entry(0, [5, 6], first="data")])),
}


# Words are counted, of ``data`` alone: each int64 id is two, a first token in ``token_data`` alone is none.
_SHAPES: dict[str, dict[str, Any]] = {"int64": {"width": 8}, "first token aside": {"first": "token_data"}}


def lengths_log(name: str) -> str:
    rng, lengths = np.random.default_rng(9), LENGTHS[name]
    order, shape = rng.permutation(len(lengths)).tolist(), _SHAPES.get(name, {})
    return array(entry(i, rng.integers(1000, 9000, lengths[i]).tolist(), **shape) for i in order)


@cache
def references() -> tuple[Reference, ...]:
    return load_references(REFERENCE, load_benchmark("gpt-oss-120b"))


def answers_log(right: int) -> str:
    """The first ``right`` answers are true, the others name another letter."""
    said = [
        row.truth if i < right else "ABCD"["ABCD".index(row.truth) - 1] for i, row in enumerate(references())
    ]
    return array(entry(i, harmony_ids(f"**Answer:** {letter}")) for i, letter in enumerate(said))


def write_logs(folder: Path, log: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mlperf_log_accuracy.json").write_text(log)
    return folder
