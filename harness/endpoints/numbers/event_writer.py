"""events.jsonl of our own runs: the journal's rows and answers in the official form.

Processes turn ids into text; lines are written in the order of time. A request that failed has an error at
the last moment that is known of it, and no end: the journal does not say when a failure was noticed.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from harness.cli.processes import computing
from harness.endpoints.numbers import event_record as form
from harness.endpoints.numbers.answer_text import open_text
from harness.endpoints.numbers.event_reader import Progress, silent
from harness.endpoints.numbers.event_record import Event, Fault, Prompt
from harness.endpoints.point_run import WARM_UP
from harness.endpoints.run_folder import EVENTS
from harness.errors import DatasetError, RunError
from harness.files import JOURNAL_DIR, atomic_write
from harness.machine import usable_cores
from harness.record.answer_log import QueryAnswer, read_query_answers
from harness.record.journal import FINISH_REASONS, TIMES, Rows, read_journal
from harness.record.outcome import FailureKind

_Value = TypeVar("_Value")

_BATCH = 2048  # events that a process takes at a time
_ALONE = 4096  # fewer events are written sooner than a process starts
_KINDS = (form.ISSUED, form.FIRST, form.COMPLETE, form.FAILED)
_NO_PROMPT = Prompt()  # prompts are the dataset's and the salts'
_MOMENT = np.dtype([("ns", "<i8"), ("kind", "<u1"), ("row", "<u4")])


def write_events(
    folder: Path,
    tokenizer: Path | None,
    progress: Progress = silent,
    *,
    ended: bool,
    processes: int | None = None,
) -> int:
    """Write events.jsonl of a run folder from its journal; the number of requests.

    ``tokenizer`` is a model's folder or tokenizer.json; None is gpt-oss's. ``ended``: whether the run ended
    by its rule; else the session has no end. The warm-up is left out. Raises DatasetError where a completed
    request has no answer in the journal, OSError where the file cannot be written, RunError where a process
    was killed.
    """
    journal = read_journal(folder / JOURNAL_DIR)
    counted = (journal.rows["issued_ns"] > 0) & (journal.rows["query_id"] < WARM_UP)
    rows = np.sort(journal.rows[counted], order=["issued_ns", "query_id"])
    batches = _batches(rows, journal.details, _answers(folder / JOURNAL_DIR, rows))
    total, done = sum(len(batch.moments) for batch in batches), 0
    killed = RunError(
        "a process that wrote events was killed, perhaps for lack of memory; free memory and repeat the "
        "command: no request is sent again"
    )
    with atomic_write(folder / EVENTS) as file:
        first, last = _span(rows)
        file.write(_session(first, form.STARTED, form.START))
        # Each process loads the tokenizer.
        among = 0 if processes == 1 or len(batches) <= _ALONE // _BATCH else processes or usable_cores()
        with computing(partial(_lines, tokenizer), batches, among, 1, killed) as written:
            for batch, lines in zip(batches, written, strict=True):
                file.write(lines)
                done += len(batch.moments)
                progress(done, total)
        file.write(_session(last, form.STOP, *([form.ENDED] if ended else [])))
    return len(rows)


class _Batch(NamedTuple):
    """Moments in the order of time, with what a process must know of their requests."""

    moments: npt.NDArray[np.void]
    """of _MOMENT"""
    rows: Rows
    """of each moment"""
    details: Mapping[int, str]
    answers: Mapping[int, QueryAnswer]
    """by query id"""


def _batches(rows: Rows, details: Mapping[int, str], answers: Mapping[int, QueryAnswer]) -> list[_Batch]:
    moments = _moments(rows, answers)
    batches = []
    for begin in range(0, len(moments), _BATCH):
        some = moments[begin : begin + _BATCH]
        of_some = rows[some["row"]]
        ids = of_some["query_id"].tolist()
        batches.append(_Batch(some, of_some, _only(ids, details), _only(ids, answers)))
    return batches


def _only(ids: Sequence[int], values: Mapping[int, _Value]) -> dict[int, _Value]:
    return {each: values[each] for each in ids if each in values}


def _moments(rows: Rows, answers: Mapping[int, QueryAnswer]) -> npt.NDArray[np.void]:
    """All moments of the requests, in the order of time; at the same time in that of _KINDS."""
    failed = rows["failure"] > 0
    last_known = np.max([rows[name] for name in TIMES], axis=0)
    kept = map(answers.get, rows["query_id"].tolist())
    first_ns = np.fromiter((answer.visible_ns if answer else 0 for answer in kept), np.int64, len(rows))
    times = (
        rows["issued_ns"],
        first_ns,
        np.where(failed, 0, rows["last_byte_ns"]),
        np.where(failed, last_known, 0),
    )
    parts = []
    for kind, ns in enumerate(times):
        (at,) = np.nonzero(ns)
        part = np.zeros(len(at), _MOMENT)
        part["ns"], part["kind"], part["row"] = ns[at], kind, at
        parts.append(part)
    return np.sort(np.concatenate(parts), order=["ns", "kind", "row"])


def _answers(journal: Path, rows: Rows) -> dict[int, QueryAnswer]:
    found = {answer.query_id: answer for answer in read_query_answers(journal)}
    completed = rows["query_id"][rows["failure"] == 0].tolist()
    missing = [query_id for query_id in completed if query_id not in found]
    if missing:
        raise DatasetError(
            f"{journal}: {len(missing)} of {len(completed)} completed requests have no answer, such as "
            f"{missing[0]}; expected one for each, so that its tokens can be counted; run the point again"
        )
    return found


def _lines(tokenizer: Path | None, batch: _Batch) -> bytes:
    answer_of, lines = open_text(tokenizer), []
    for moment, row in zip(batch.moments, batch.rows, strict=True):
        kind, query_id = _KINDS[moment["kind"]], int(row["query_id"])
        more: dict[str, Any] = {}
        if kind == form.ISSUED:
            more = {"data": _NO_PROMPT}
        elif kind == form.COMPLETE:
            kept = batch.answers[query_id]
            answer = answer_of(kept.place.output_ids(), kept.visible_tokens)
            finish = FINISH_REASONS[row["finish"]]
            more = {"data": answer, "finish_reason": finish, "worker_id": int(row["worker"])}
        elif kind == form.FAILED:
            more = {"data": Fault(FailureKind(row["failure"]).label, batch.details.get(query_id, ""))}
        lines.append(_line(Event(kind, int(moment["ns"]), f"{query_id:032x}", **more)))
    return b"".join(lines)


def _span(rows: Rows) -> tuple[int, int]:
    """The first and the last known moment of all requests; 0 without one."""
    known = np.concatenate([rows[name][rows[name] > 0] for name in TIMES])
    return (int(known.min()), int(known.max())) if len(known) else (0, 0)


def _session(ns: int, *kinds: str) -> bytes:
    """Events of the session at one moment."""
    return b"".join(_line(Event(kind, ns)) for kind in kinds)


def _line(event: Event) -> bytes:
    return _ENCODER.encode(event) + b"\n"


_ENCODER = msgspec.json.Encoder()
