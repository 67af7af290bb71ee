"""The requests of events.jsonl with counted tokens, kept beside it: check and page need not count again."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.endpoints.run_folder import EVENTS
from harness.endpoints.samples import SAMPLE, Samples
from harness.files import atomic_write, sha256_of

COUNTS = "token_counts.parquet"
FINISH_REASONS = ("", "stop", "length", "tool_calls", "content_filter", "function_call", "other")

COUNTED = np.dtype([*SAMPLE.descr, ("isl", "<i8"), ("finish", "<i8")])
_FORM = "2"  # changes with what is counted, or how


class Cached(NamedTuple):
    """What is kept."""

    rows: npt.NDArray[np.void]
    """of COUNTED, in the order of issue"""
    duration_ns: int
    ended: bool
    broken: str
    """where the file breaks off; empty where it does not"""

    @property
    def samples(self) -> Samples:
        """The rows without `isl` and `finish`."""
        return self.rows[list(SAMPLE.names or ())].astype(SAMPLE)


def count_key(events: Path, tokenizer: Iterable[Path]) -> str:
    """Changes with the events and with the files of the tokenizer. Raises OSError.

    By content: a copy, an archive or a download may give other files the same size and time. SHA-256 takes a
    second for 1.7 GB.
    """
    return " ".join(map(sha256_of, (events, *tokenizer)))


def read_cached(folder: Path, key: str) -> Cached | None:
    """What was kept for this key, as count_key makes it; None if nothing was, or it cannot be read."""
    kept = _kept(folder)
    return None if kept is None or kept[0] != f"{_FORM} {key}" else kept[1]


def counted_samples(folder: Path) -> Samples | None:
    """The requests of a run folder with the tokens that its last reader counted; None if outdated."""
    kept = _kept(folder)
    try:
        if kept is None or kept[0].split()[:2] != [_FORM, sha256_of(folder / EVENTS)]:
            return None
    except OSError:
        return None
    return kept[1].samples


def _kept(folder: Path) -> tuple[str, Cached] | None:
    """The key and what was kept for it."""
    try:
        table = pq.read_table(folder / COUNTS)
        facts = {name.decode(): value.decode() for name, value in (table.schema.metadata or {}).items()}
        rows = np.zeros(table.num_rows, COUNTED)
        for name in COUNTED.names or ():
            rows[name] = table[name].to_numpy()
        found = Cached(rows, int(facts["duration_ns"]), facts["ended"] == "True", facts["broken"])
        return facts["key"], found
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError):
        return None


def write_cached(folder: Path, key: str, counted: Cached) -> None:
    """Keep it; nothing is kept in a folder that cannot be written to."""
    columns = {name: np.ascontiguousarray(counted.rows[name]) for name in COUNTED.names or ()}
    facts = {
        "key": f"{_FORM} {key}",
        "duration_ns": str(counted.duration_ns),
        "ended": str(counted.ended),
        "broken": counted.broken,
    }
    table = pa.table(columns).replace_schema_metadata(facts)
    with suppress(OSError), atomic_write(folder / COUNTS) as file:
        pq.write_table(table, file)
