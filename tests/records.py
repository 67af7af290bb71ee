"""A recorded run.json and what tests make of it: records, rows of a journal, folders of runs."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from harness.analysis.replicas import replica_balance
from harness.config.plans import ClientPlan
from harness.config.scenario import Scenario
from harness.files import ACCURACY_LOG, ACCURACY_RESULT, REQUESTS, RUN_RECORD, SUMMARY
from harness.record.journal import QUERY_ROW, Rows
from harness.record.outcome import FailureKind
from harness.record.requests_table import requests_table, write_requests
from harness.record.run_record import ReplicaNetwork, RunRecord
from harness.record.settled import Settled

# Of a server run of the embedded engine with configs/quick.conf: INVALID, for the engine was too slow.
PATH = Path(__file__).parent / "data/runs/server.json"
ENDED = RunRecord.read(PATH)

# A server on the same network that loses nothing.
NEAR = ReplicaNetwork(
    connects=64,
    connect_mean_ns=300_000.0,
    connect_max_ns=900_000,
    failed_connects=0,
    waited=0,
    waited_mean_ns=None,
    rtt_mean_ns=210_000.0,
    rtt_min_ns=200_000,
    sent=5000,
    retransmitted=0,
    received=90_000,
    gaps=0,
)


# LoadGen's own of a short run.
_LOGS = Path(__file__).parent / "data/loadgen/single_stream_percentile_50"
_ANSWER = '[\n{ "seq_id" : 0, "qsl_idx" : 0, "data" : "07000000", "token_count" : 1 }\n]\n'


def write_logs(folder: Path, answers: Path | None = None) -> None:
    """Complete logs of LoadGen; ``answers``: the folder of the accuracy log, where it is another one."""
    shutil.copytree(_LOGS, folder, dirs_exist_ok=True)
    (answers or folder).mkdir(exist_ok=True)
    ((answers or folder) / ACCURACY_LOG).write_text(_ANSWER)


def with_plan(record: RunRecord, **fields: Any) -> RunRecord:
    """The same record of another plan; the names are those of run.json's ``plan``."""
    settled, client = (
        {name: fields.pop(name) for name in list(fields) if name in kind.__struct_fields__}
        for kind in (Settled, ClientPlan)
    )
    plan = replace(record.plan, client=replace(record.plan.client, **client), **fields)
    return replace(record, plan=plan, settled=replace(record.settled, **settled))


def started(**plan: Any) -> RunRecord:
    """The record before the first query of an offline run without deviations."""
    return with_plan(
        RunRecord(
            plan=ENDED.plan,
            settled=ENDED.settled,
            provenance=ENDED.provenance,
            servers=ENDED.servers,
            started=ENDED.started,
            clock=ENDED.clock,
        ),
        **{"scenario": Scenario.OFFLINE, **plan},
    )


def text(**fields: Any) -> str:
    """The recorded file with other fields."""
    return json.dumps(json.loads(PATH.read_text()) | fields)


def verdict(result: str, *reasons: str, complete: bool = False, **fields: Any) -> str:
    """The recorded file with another verdict, and without deviations but those in ``fields``."""
    found = {"result": result, "reasons": reasons, "complete": complete}
    return text(**{"deviations": [], "verdict": found} | fields)


START = 10**15  # CLOCK_MONOTONIC, ns
REPLICAS = [f"http://replica{number}:30000" for number in range(3)]


def rows_with(count: int, **columns: Any) -> Rows:
    """Rows of a journal: 0 but for these columns, each a number or a value for each row."""
    made = np.zeros(count, QUERY_ROW)
    for name, values in columns.items():
        made[name] = values
    return made


def rows(count: int = 900, seed: int = 1, slow: int | None = None) -> Rows:
    """Journal rows: 30 queries a second, TTFT about 0.5 s, TPOT 40 ms, 30 % more on the ``slow`` replica."""
    random = np.random.default_rng(seed)
    made = rows_with(count, query_id=np.arange(count), sample_index=np.arange(count))
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


def failed(made: Rows, *numbers: int) -> Rows:
    """The same rows, of which some failed without an end."""
    made = made.copy()
    at = list(numbers)
    made["failure"][at], made["finish"][at] = FailureKind.TIMEOUT, 0
    made["first_token_ns"][at] = made["last_byte_ns"][at] = 0
    return made


def folder(path: Path, made: Rows, record: RunRecord = ENDED, logs: str = "server_invalid") -> Path:
    """A run's folder with these rows, of which the record has the replicas' figures."""
    path.mkdir(parents=True, exist_ok=True)
    if record.balance is None:
        record = replace(record, balance=replica_balance(made, REPLICAS, None))
    write_requests(path / REQUESTS, requests_table(made, REPLICAS))
    record.write(path / RUN_RECORD)
    shutil.copy(PATH.parents[1] / "loadgen" / logs / SUMMARY, path)
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
