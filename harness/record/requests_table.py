"""requests.parquet: a row per query, from the journal's rows.

A moment that never came is null, as is the failure of a query that completed. Every field's metadata holds
its unit and description (COLUMNS).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.arrays import Integers, distinct
from harness.arrow import CLOCK, arrow_numbers, arrow_texts
from harness.files import atomic_write
from harness.record.journal import FINISH_REASONS, NOWHERE, TIMES, Rows
from harness.record.outcome import FailureKind

_NUMBERS = ("query_id", "sample_index", "worker", "isl", "osl", "first_event_tokens", "retries")
_NS = "ns, CLOCK_MONOTONIC"

# Unit and description of every column, in their order; docs/reference/requests_parquet.md has the same table.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "query_id": ("", "LoadGen's id of the query; without LoadGen its number"),
    "sample_index": ("", "row of the dataset"),
    "worker": ("", "client process that had the query; 65535 where it was lost"),
    "replica": ("", "URL of the server that it was sent to; null where it was never sent, or was lost"),
    "issued_ns": (_NS, "LoadGen called the issue callback"),
    "sent_ns": (_NS, "the last byte of the request was handed to the kernel"),
    "first_byte_ns": (_NS, "the first byte of the response arrived"),
    "first_token_ns": (_NS, "the event with the first token arrived; null where the answer was not streamed"),
    "last_byte_ns": (_NS, "the byte that completed the answer arrived; of a query that failed, the last one"),
    "reported_first_ns": (_NS, "LoadGen got the first token; null in Offline"),
    "reported_done_ns": (_NS, "LoadGen got the end, of an answer or a failure"),
    "visible_ns": (
        _NS,
        "points of Endpoints: the event with the first text arrived; null where there is none",
    ),
    "visible_tokens": ("tokens", "points of Endpoints: up to and including that event"),
    "isl": ("tokens", "prompt (input sequence length); 0: lost"),
    "osl": ("tokens", "answer (output sequence length), the first token included; 0: failed"),
    "first_event_tokens": ("tokens", "in the event that carried the first token; of a text its pieces"),
    "retries": ("requests", "sent again after a failure"),
    "counted": ("tokens", "answers that came as text: the server's own count; osl is of the encoded text"),
    "resumed": ("", "true: the answer is of an earlier attempt; only reported_* are times of this one"),
    "finish_reason": ("", "stop or length; null where the query failed"),
    "failure": ("", "kind of failure; null where the query completed"),
    "failure_detail": ("", "evidence of the failure"),
}


class ByQuery(msgspec.Struct, frozen=True):
    """Values of some queries: arrays of one length, in any order."""

    query_id: npt.NDArray[np.uint64]
    columns: Mapping[str, Integers]
    """by name, which COLUMNS has; 0 is null"""


def requests_table(
    rows: Rows,
    replicas: Sequence[str],
    details: Mapping[int, str] | None = None,
    joined: Iterable[ByQuery] = (),
    tokenizer: str | None = None,
) -> pa.Table:
    """The table in order of issue. ``replicas``: the URL of each number; ``details``: by query id.

    ``joined``: further columns; ``tokenizer``: what encoded answers that came as text.
    """
    order = np.lexsort((rows["query_id"], rows["issued_ns"]))

    def ordered(name: str) -> npt.NDArray[Any]:  # a column at a time: all of a long run take 100 MB
        return rows[name][order]

    query_ids = ordered("query_id")
    columns: dict[str, pa.Array] = {name: arrow_numbers(ordered(name)) for name in _NUMBERS}
    columns |= {name: _or_null(ordered(name)) for name in TIMES}
    for one in joined:
        columns |= {name: _or_null(values) for name, values in _joined(query_ids, one)}
    columns["replica"] = _labels(ordered("replica"), {**dict(enumerate(replicas)), NOWHERE: None})
    columns["resumed"] = arrow_numbers(ordered("resumed") == 1)
    columns["finish_reason"] = _labels(ordered("finish"), {**dict(enumerate(FINISH_REASONS)), 0: None})
    columns["failure"] = _labels(ordered("failure"), {0: None, **{kind: kind.label for kind in FailureKind}})
    columns["failure_detail"] = _details(query_ids, details or {})
    answers = "token ids" if tokenizer is None else f"text, encoded again with {tokenizer}"
    return _described({name: columns[name] for name in COLUMNS if name in columns}, answers)


def _described(columns: Mapping[str, pa.Array], answers: str) -> pa.Table:
    fields = []
    for name, values in columns.items():
        unit, description = COLUMNS[name]
        fields.append(pa.field(name, values.type, metadata={"unit": unit, "description": description}))
    schema = pa.schema(fields, metadata={"clock": CLOCK, "answers": answers})
    return pa.Table.from_arrays(list(columns.values()), schema=schema)


def write_requests(path: Path, table: pa.Table) -> None:
    """Write the table; the file appears complete or not at all. Raises OSError."""
    with atomic_write(path) as file:
        pq.write_table(table, file, compression="zstd")


def _or_null(values: Integers) -> pa.Array:
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


def _joined(query_ids: npt.NDArray[np.uint64], one: ByQuery) -> Iterator[tuple[str, Integers]]:
    """The columns by name, with a value for each of the queries."""
    order = np.argsort(one.query_id)
    known = one.query_id[order]
    at = np.minimum(np.searchsorted(known, query_ids), len(known) - 1)
    found = known[at] == query_ids if len(known) else np.zeros(len(query_ids), dtype=bool)
    for name, source in one.columns.items():
        values = np.zeros(len(query_ids), dtype=np.int64)
        values[found] = source[order][at[found]]
        yield name, values
