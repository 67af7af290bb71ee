"""requests.parquet and folders of runs, made up with known figures."""

import json
import shutil
from pathlib import Path

import numpy as np

from harness.files import ACCURACY_RESULT, REQUESTS, RUN_RECORD, SUMMARY
from harness.record.journal import QUERY_ROW
from harness.record.outcome import FailureKind
from harness.record.requests_table import requests_table, write_requests
from harness.record.run_record import RunRecord
from tests.records import ENDED

LOGS = Path(__file__).parents[2] / "data/loadgen"
START = 10**15  # CLOCK_MONOTONIC, ns
REPLICAS = [f"http://replica{number}:30000" for number in range(3)]


def rows(count: int = 900, seed: int = 1, slow: int | None = None) -> np.ndarray:
    """Journal rows: 30 queries a second, TTFT about 0.5 s, TPOT 40 ms, 30 % more on the ``slow`` replica."""
    random = np.random.default_rng(seed)
    made = np.zeros(count, QUERY_ROW)
    made["query_id"] = made["sample_index"] = np.arange(count)
    made["issued_ns"] = START + np.sort(random.random(count) * count / 30 * 1e9).astype(np.int64)
    made["sent_ns"] = made["issued_ns"] + 1000
    made["first_token_ns"] = made["issued_ns"] + (random.gamma(4, 0.125, count) * 1e9).astype(np.int64)
    made["first_byte_ns"] = made["first_token_ns"]
    made["replica"] = np.arange(count) % len(REPLICAS)
    made["isl"], made["osl"] = random.integers(50, 2000, count), random.integers(2, 200, count)
    tpot = 4e7 * np.where(made["replica"] == slow, 1.3, 1.0)
    made["last_byte_ns"] = made["first_token_ns"] + ((made["osl"] - 1) * tpot).astype(np.int64)
    made["first_event_tokens"] = made["finish"] = 1
    return made


def failed(made: np.ndarray, *numbers: int) -> np.ndarray:
    """The same rows, of which some failed without an end."""
    made = made.copy()
    at = list(numbers)
    made["failure"][at], made["finish"][at] = FailureKind.TIMEOUT, 0
    made["first_token_ns"][at] = made["last_byte_ns"][at] = 0
    return made


def folder(path: Path, made: np.ndarray, record: RunRecord = ENDED, logs: str = "server_invalid") -> Path:
    """A run's folder with these rows."""
    path.mkdir(parents=True, exist_ok=True)
    write_requests(path / REQUESTS, requests_table(made, REPLICAS))
    record.write(path / RUN_RECORD)
    shutil.copy(LOGS / logs / SUMMARY, path)
    return path


RESULT = {  # the fields of the evaluator's result that pages show
    "target": {
        "mode": "official",
        "met": True,
        "metrics": {"exact_match": {"value": 83.2, "lowest": 82.3, "highest": None, "met": True}},
    },
    "output_tokens": {"mean": 9000.5, "min": 3, "max": 20000, "truncated_share": 0.01},
    "missing": [4],
    "modes": {"official": {"per_dataset": {"aime": {"correct": 200, "total": 240, "accuracy": 83.3}}}},
    "reasons": {"official": {"aime": {"correct": 200, "wrong": 39, "missing": 1}}},
}


def score(path: Path, **changed: object) -> None:
    """Put the evaluator's result into a run's folder."""
    (path / ACCURACY_RESULT).write_text(json.dumps(RESULT | changed))
