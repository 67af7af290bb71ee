"""requests.parquet: a row per query, from the journal's rows.

A moment that never came is null, as is the failure of a query that completed. Every field's metadata holds
its unit and description (COLUMNS).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.arrays import distinct
from harness.arrow import CLOCK, arrow_numbers, arrow_texts
from harness.files import atomic_write
from harness.record.journal import FINISH_REASONS, NOWHERE, TIMES, Rows
from harness.record.outcome import FailureKind

COUNTS = ("isl", "osl", "first_event_tokens", "retries")
_NS = "ns, CLOCK_MONOTONIC"

# Unit and description of every column; docs/reference/requests_parquet.md has the same table.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "query_id": ("", "LoadGen's id of the query"),
    "sample_index": ("", "row of the dataset"),
    "worker": ("", "client process that had the query; 65535 where it was lost"),
    "replica": ("", "URL of the server that it was sent to; null where it was never sent"),
    "issued_ns": (_NS, "LoadGen called the issue callback"),
    "sent_ns": (_NS, "the last byte of the request was handed to the kernel"),
    "first_byte_ns": (_NS, "the first byte of the response arrived"),
    "first_token_ns": (_NS, "the event with the first token arrived; null where the answer was not streamed"),
    "last_byte_ns": (_NS, "the byte that completed the answer arrived"),
    "reported_first_ns": (_NS, "LoadGen got the first token"),
    "reported_done_ns": (_NS, "LoadGen got the end"),
    "isl": ("tokens", "prompt (input sequence length)"),
    "osl": ("tokens", "answer (output sequence length), the first token included"),
    "first_event_tokens": ("tokens", "in the event that carried the first token"),
    "visible_ns": (
        _NS,
        "points of Endpoints: the event with the first text arrived; null where there is none",
    ),
    "visible_tokens": ("tokens", "points of Endpoints: up to and including that event"),
    "counted": ("tokens", "answers that came as text: the server's own count; osl is of the encoded text"),
    "retries": ("requests", "sent again after a failure"),
    "resumed": ("", "true: the answer is of an earlier attempt and has no times"),
    "finish_reason": ("", "stop or length; null where the query failed"),
    "failure": ("", "kind of failure; null where the query completed"),
    "failure_detail": ("", "evidence of the failure"),
}


class CallTimes(msgspec.Struct, frozen=True):
    """Times at which LoadGen was called: three arrays of one length, in any order."""

    query_id: npt.NDArray[np.uint64]
    first_ns: npt.NDArray[np.int64]
    """with the first token, CLOCK_MONOTONIC; 0: never"""
    done_ns: npt.NDArray[np.int64]
    """with the end, CLOCK_MONOTONIC; 0: never"""


class FirstTexts(msgspec.Struct, frozen=True):
    """The first text of answers: three arrays of one length, in any order."""

    query_id: npt.NDArray[np.uint64]
    time_ns: npt.NDArray[np.int64]
    """arrival, CLOCK_MONOTONIC; 0: none, or not streamed"""
    tokens: npt.NDArray[np.int64]
    """up to and including its event; 0: none"""


class TextCounts(msgspec.Struct, frozen=True):
    """The servers' own counts of answers that came as text."""

    tokenizer: str
    """what encoded them"""
    rows: Rows
    """COUNT_ROWs, in any order"""


def requests_table(
    rows: Rows,
    replicas: Sequence[str],
    details: Mapping[int, str] | None = None,
    reported: CallTimes | None = None,
    texts: FirstTexts | None = None,
    counts: TextCounts | None = None,
) -> pa.Table:
    """The table in order of issue. ``replicas``: the URL of each number; ``details``: by query id."""
    rows = rows[np.lexsort((rows["query_id"], rows["issued_ns"]))]
    columns: dict[str, pa.Array] = {
        name: arrow_numbers(rows[name]) for name in ("query_id", "sample_index", "worker")
    }
    columns["replica"] = _labels(rows["replica"], {**dict(enumerate(replicas)), NOWHERE: None})
    columns |= {name: _moments(rows[name]) for name in TIMES}
    if reported is not None:
        moments = _joined(rows["query_id"], reported.query_id, reported.first_ns, reported.done_ns)
        columns |= zip(("reported_first_ns", "reported_done_ns"), map(_moments, moments), strict=True)
    if texts is not None:
        found = _joined(rows["query_id"], texts.query_id, texts.time_ns, texts.tokens)
        columns |= zip(("visible_ns", "visible_tokens"), map(_moments, found), strict=True)
    columns |= {name: arrow_numbers(rows[name]) for name in COUNTS}
    if counts is not None:
        own = _joined(rows["query_id"], counts.rows["query_id"], counts.rows["counted"])
        columns["counted"] = _moments(own[0])
    columns["resumed"] = arrow_numbers(rows["resumed"] == 1)
    columns["finish_reason"] = _labels(rows["finish"], {**dict(enumerate(FINISH_REASONS)), 0: None})
    columns["failure"] = _labels(rows["failure"], {0: None, **{kind: kind.label for kind in FailureKind}})
    columns["failure_detail"] = _details(rows["query_id"], details or {})
    answers = "token ids" if counts is None else f"text, encoded again with {counts.tokenizer}"
    return _described(pa.Table.from_arrays(list(columns.values()), list(columns)), answers)


def _described(table: pa.Table, answers: str) -> pa.Table:
    fields = []
    for field in table.schema:
        unit, description = COLUMNS[field.name]
        fields.append(field.with_metadata({"unit": unit, "description": description}))
    facts = {
        "clock": CLOCK,
        "answers": answers,
    }
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields, metadata=facts))


def write_requests(path: Path, table: pa.Table) -> None:
    """Write the table; the file appears complete or not at all. Raises OSError."""
    with atomic_write(path) as file:
        pq.write_table(table, file, compression="zstd")


def _moments(values: npt.NDArray[np.int64]) -> pa.Array:
    return arrow_numbers(values, values == 0)


def _labels(numbers: npt.NDArray[np.integer], names: Mapping[int, str | None]) -> pa.DictionaryArray:
    """Numbers as a dictionary column; a number without a name is ``unknown_<number>``, a None name null."""
    present = distinct(numbers)
    labels = [names.get(number, f"unknown_{number}") for number in present.tolist()]
    codes = np.searchsorted(present, numbers).astype(np.int32)
    missing = np.array([label is None for label in labels], dtype=bool)[codes]
    dictionary = arrow_texts([label or "" for label in labels])
    return pa.DictionaryArray.from_arrays(arrow_numbers(codes, missing), dictionary)


def _details(query_ids: npt.NDArray[np.uint64], details: Mapping[int, str]) -> pa.Array:
    """Failures are few, so their rows are found instead of looking up every row."""
    texts: list[str | None] = [None] * len(query_ids)
    if details:
        wanted = np.fromiter(details, dtype=np.uint64, count=len(details))
        for position in np.flatnonzero(np.isin(query_ids, wanted)).tolist():
            texts[position] = details[int(query_ids[position])]
    return arrow_texts(texts)


def _joined(
    query_ids: npt.NDArray[np.uint64], ids: npt.NDArray[np.uint64], *columns: npt.NDArray[np.int64]
) -> list[npt.NDArray[np.int64]]:
    """The columns' values by query id; 0 where ``ids`` do not have it."""
    order = np.argsort(ids)
    known = ids[order]
    at = np.minimum(np.searchsorted(known, query_ids), len(known) - 1)
    found = known[at] == query_ids if len(known) else np.zeros(len(query_ids), dtype=bool)
    joined = [np.zeros(len(query_ids), dtype=np.int64) for _ in columns]
    for column, source in zip(joined, columns, strict=True):
        column[found] = source[order][at[found]]
    return joined
