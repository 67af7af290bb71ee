"""A worker's journal: fixed rows, answers and failure lines, appended in batches.

A thread writes them: a disk that hangs holds up no query.
"""

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path

import msgspec

from harness.record.answer_log import KeptAnswers, encode_answer, encode_query_answer
from harness.record.journal import (
    ANSWERS_FILE,
    COUNTS_FILE,
    FAILURES_FILE,
    FINISH_REASONS,
    NOWHERE,
    QUERIES_FILE,
    QUERY_ANSWERS_FILE,
    RETRIES_FILE,
    encode_count,
    encode_row,
)
from harness.record.outcome import Completion, Failure

_FINISH = {reason: code for code, reason in enumerate(FINISH_REASONS)}
_OTHER = _FINISH["other"]


class _Appender:
    """A file that grows; what the disk does not take is kept for the next flush."""

    __slots__ = ("_descriptor", "_taken", "waiting")

    def __init__(self, path: Path) -> None:
        # It is opened now: when it is needed, there may be no descriptor left.
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.waiting = bytearray()
        self._taken = bytearray()

    def take(self) -> bool:
        """Take what waits, for ``write``; returns whether there is anything to write."""
        self._taken += self.waiting
        self.waiting.clear()
        return bool(self._taken)

    def write(self) -> None:
        """Write what was taken to the kernel. Raises OSError (disk full)."""
        while self._taken:
            del self._taken[: os.write(self._descriptor, self._taken)]


class JournalWriter:
    """Appends to the journal's files of one worker: queries, failures, retries, answers and counts.

    ``answers``: whether the output ids are kept: of samples, as an accuracy run does, or of queries.
    ``counts``: whether the server's own counts are kept, beside those of the ids.
    ``flush`` writes to the kernel: after that, the data survives the process. ``flush_behind`` lets a thread.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        worker: int,
        *,
        answers: KeptAnswers | None = None,
        counts: bool = False,
    ) -> None:
        self._worker = worker
        self._queries = _Appender(directory / QUERIES_FILE.format(name))
        self._by_query = answers == "of queries"
        file = QUERY_ANSWERS_FILE if self._by_query else ANSWERS_FILE
        self._answers = _Appender(directory / file.format(name)) if answers else None
        self._counts = _Appender(directory / COUNTS_FILE.format(name)) if counts else None
        self._failures = _Appender(directory / FAILURES_FILE.format(name))
        self._retries = _Appender(directory / RETRIES_FILE.format(name))
        # In this order: an answer comes before its row.
        files = (self._answers, self._counts, self._queries, self._failures, self._retries)
        self._files = tuple(file for file in files if file is not None)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._writing: Future[None] | None = None
        self._began_ns = self._longest_ns = 0

    def add(
        self,
        query_id: int,
        sample_index: int,
        replica: int,
        times_ns: tuple[int, int, int, int, int],
        isl: int,
        first_event_tokens: int,
        outcome: Completion | Failure,
        retries: int = 0,
        visible: tuple[int, int] = (0, 0),
    ) -> None:
        """Record one finished query; ``times_ns`` in the order of QUERY_ROW.

        ``visible``: when its first text arrived, and the tokens that had then.
        """
        osl = finish = failure = 0
        if isinstance(outcome, Completion):
            osl = len(outcome.output_ids)
            finish = _FINISH.get(outcome.finish_reason, _OTHER)
            if self._answers is not None:
                # The answer comes before the row: a run with a row but not its answer could not be resumed.
                ids = outcome.output_ids.tobytes()
                self._answers.waiting += (
                    encode_query_answer(query_id, finish, *visible, ids)
                    if self._by_query
                    else encode_answer(sample_index, finish, ids)
                )
            if self._counts is not None and outcome.counted is not None:
                self._counts.waiting += encode_count(query_id, osl, outcome.counted)
        else:
            failure = int(outcome.kind)
            at = replica if times_ns[1] else NOWHERE  # it may have waited for one
            self._failures.waiting += _line(query_id, sample_index, outcome, at)
        # Values are passed by position: by name they cost a microsecond more.
        self._queries.waiting += encode_row(
            *(query_id, sample_index, self._worker, replica, *times_ns),
            *(isl, osl, first_event_tokens, finish, failure, retries, 0),
        )

    def add_resumed(
        self,
        query_id: int,
        sample_index: int,
        replica: int,
        isl: int,
        osl: int,
        finish: int,
        counted: int | None = None,
    ) -> None:
        """Record a query that an earlier attempt at this run had answered."""
        if self._counts is not None and counted is not None:
            self._counts.waiting += encode_count(query_id, osl, counted)
        self._queries.waiting += encode_row(
            *(query_id, sample_index, self._worker, replica, 0, 0, 0, 0, 0),
            *(isl, osl, 0, finish, 0, 0, 1),
        )

    def add_retry(self, query_id: int, sample_index: int, failure: Failure) -> None:
        """Record that a query failed and is sent again."""
        self._retries.waiting += _line(query_id, sample_index, failure)

    def flush(self) -> None:
        """Write everything that waits, and wait for it. Raises OSError (disk full) and keeps the rest."""
        if self._writing is not None:
            wait_for([self._writing])
            self._writing = None
        if self._take():
            self._write()

    def flush_behind(self) -> None:
        """Have everything that waits written, unless the disk has not taken the last yet: never waits for it.

        Raises OSError of the last write (disk full): the rest is kept.
        """
        if self._writing is not None:
            if not self._writing.done():
                return
            ended, self._writing = self._writing, None
            ended.result()
        if self._take():
            self._writing = self._thread.submit(self._write)

    @property
    def longest_ns(self) -> int:
        """The longest time that a write took, up to now for one that has not ended."""
        if self._writing is None or self._writing.done():
            return self._longest_ns
        return max(self._longest_ns, time.monotonic_ns() - self._began_ns)

    def _take(self) -> bool:
        self._began_ns = time.monotonic_ns()
        taken = [file.take() for file in self._files]
        return any(taken)

    def _write(self) -> None:
        try:
            for file in self._files:
                file.write()
        finally:
            self._longest_ns = max(self._longest_ns, time.monotonic_ns() - self._began_ns)


def _line(query_id: int, sample_index: int, failure: Failure, replica: int = NOWHERE) -> bytes:
    values = {
        "query_id": query_id,
        "sample_index": sample_index,
        "kind": failure.kind.label,
        "detail": failure.detail,
        "time_ns": time.monotonic_ns(),
        "replica": replica,
    }
    return msgspec.json.encode(values) + b"\n"
