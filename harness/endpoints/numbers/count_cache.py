"""The requests of events.jsonl with counted tokens, kept beside it: check and page need not count again."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.endpoints.samples import SAMPLE
from harness.files import atomic_write

COUNTS = "token_counts.parquet"
FINISH_REASONS = ("", "stop", "length", "tool_calls", "content_filter", "function_call", "other")

_FIELDS = np.dtype([*SAMPLE.descr, ("isl", "<i8"), ("finish", "<i8")])
_FORM = "1"  # changes with what is counted, or how


class Cached(NamedTuple):
    """What is kept."""

    rows: npt.NDArray[np.void]
    """the fields of SAMPLE, `isl` and `finish`, in the order of issue"""
    duration_ns: int
    ended: bool
    broken: str
    """where the file breaks off; empty where it does not"""


def read_cached(folder: Path, key: str) -> Cached | None:
    """What was kept for this key; None if nothing was, or it cannot be read."""
    try:
        table = pq.read_table(folder / COUNTS)
        kept = {name.decode(): value.decode() for name, value in (table.schema.metadata or {}).items()}
        if kept.get("key") != f"{_FORM} {key}":
            return None
        rows = np.zeros(table.num_rows, _FIELDS)
        for name in _FIELDS.names or ():
            rows[name] = table[name].to_numpy()
        return Cached(rows, int(kept["duration_ns"]), kept["ended"] == "True", kept["broken"])
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None


def write_cached(folder: Path, key: str, counted: Cached) -> None:
    """Keep it; nothing is kept in a folder that cannot be written to."""
    columns = {name: np.ascontiguousarray(counted.rows[name]) for name in _FIELDS.names or ()}
    facts = {
        "key": f"{_FORM} {key}",
        "duration_ns": str(counted.duration_ns),
        "ended": str(counted.ended),
        "broken": counted.broken,
    }
    table = pa.table(columns).replace_schema_metadata(facts)
    with suppress(OSError), atomic_write(folder / COUNTS) as file:
        pq.write_table(table, file)
