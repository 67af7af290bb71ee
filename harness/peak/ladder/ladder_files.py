"""The files of a ladder: ladder.json after each step, its tables and the requests at the end."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.arrow import arrow_numbers, arrow_values
from harness.files import JOURNAL_DIR, REQUESTS, atomic_write
from harness.peak.ladder.ladder_result import Ladder
from harness.peak.ladder.measurement import StepRows
from harness.peak.ladder.steps import NOT_A_RESULT, Latency, ReplicaStep, Step
from harness.record.journal import read_journal
from harness.record.requests_table import requests_table, write_requests

LADDER_STATE = "ladder.json"
LADDER_STEPS = "ladder.parquet"
LADDER_REPLICAS = "ladder_replicas.parquet"
LADDER_PAGE = "ladder.html"

_SAMPLES = ("ttft_samples_ns", "tpot_samples_ns", "osl_samples")  # in requests.parquet, too


def write_state(folder: Path, ladder: Ladder) -> None:
    """Write ladder.json without single requests, complete or not at all. Raises OSError."""
    steps = tuple(msgspec.structs.replace(step, **dict.fromkeys(_SAMPLES, ())) for step in ladder.steps)
    shown = msgspec.structs.replace(ladder, steps=steps)
    with atomic_write(folder / LADDER_STATE) as file:
        file.write(msgspec.json.format(msgspec.json.encode(shown), indent=1))


def read_ladder(folder: Path) -> Ladder:
    """The ladder of a folder, without single requests. Raises OSError and ValueError."""
    return msgspec.json.decode((folder / LADDER_STATE).read_bytes(), type=Ladder)


def write_ladder(folder: Path, ladder: Ladder, steps: Sequence[StepRows]) -> None:
    """Write everything but the page. Raises OSError."""
    write_state(folder, ladder)
    _write_table(folder / LADDER_STEPS, [_step_row(step) for step in ladder.steps])
    replicas = [_replica_row(step, one) for step in ladder.steps for one in step.replicas]
    _write_table(folder / LADDER_REPLICAS, replicas)
    write_requests(folder / REQUESTS, _requests(folder, ladder, steps))


def _step_row(step: Step) -> dict[str, object]:
    plain = {
        name: getattr(step, name)
        for name in Step.__struct_fields__
        if name not in (*_SAMPLES, "ttft", "tpot", "replicas", "failures", "notes")
    }
    latencies = _latency_columns("ttft", step.ttft) | _latency_columns("tpot", step.tpot)
    own = {"failed": step.failed, "notes": "; ".join(step.notes)}
    return plain | {"tokens_per_s_user": step.user_tokens_per_s} | latencies | own


def _replica_row(step: Step, replica: ReplicaStep) -> dict[str, object]:
    plain = {
        name: getattr(replica, name) for name in ReplicaStep.__struct_fields__ if name not in ("ttft", "tpot")
    }
    latencies = _latency_columns("ttft", replica.ttft) | _latency_columns("tpot", replica.tpot)
    return {"concurrency": step.concurrency} | plain | latencies


def _latency_columns(name: str, latency: Latency | None) -> dict[str, object]:
    fields = Latency.__struct_fields__
    return {f"{name}_{one}": None if latency is None else getattr(latency, one) for one in fields}


def _write_table(path: Path, rows: Sequence[dict[str, object]]) -> None:
    if not rows:
        return
    columns = {name: arrow_values([row[name] for row in rows]) for name in rows[0]}
    table = pa.Table.from_arrays(list(columns.values()), list(columns), metadata={"label": NOT_A_RESULT})
    with atomic_write(path) as file:
        pq.write_table(table, file, compression="zstd")


def _requests(folder: Path, ladder: Ladder, steps: Sequence[StepRows]) -> pa.Table:
    """All requests that ended, with the step in which they ended and what they count for there."""
    journal, urls = read_journal(folder / JOURNAL_DIR), [server.url for server in ladder.servers]
    if not steps:
        return requests_table(journal.rows, urls, journal.details)
    rows = np.concatenate([one.rows for one in steps])
    order = np.lexsort((rows["query_id"], rows["issued_ns"]))  # the table's own
    sizes = [len(one.rows) for one in steps]
    table = requests_table(rows, urls, journal.details)
    added = {
        "concurrency": np.repeat([one.concurrency for one in steps], sizes),
        "in_window": np.concatenate([one.in_window for one in steps]),
        "in_latencies": np.concatenate([one.in_latencies for one in steps]),
    }
    for name, values in added.items():
        table = table.append_column(name, arrow_numbers(values[order]))
    return table.replace_schema_metadata({**(table.schema.metadata or {}), "label": NOT_A_RESULT})
