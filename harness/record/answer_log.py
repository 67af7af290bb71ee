"""The answers that workers keep during a run.

An accuracy run keeps the answer to each sample, so that it can be resumed: a worker appends one record per
answer to ``answers-<worker>.bin``: a header (ANSWER), the output ids as little-endian int32, and a crc32 over
both. A record that a crash cut short is not an answer.

A point of MLPerf Endpoints sends each sample several times and keeps every answer, for the reference
tokenizer: the records of ``query_answers-<worker>.bin`` have a query's id, and the first text's time.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from mmap import MAP_PRIVATE, PROT_READ, mmap
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from harness.record.journal import ANSWERS_FILE, CRC, QUERY_ANSWERS_FILE, read_counts, read_journal
from harness.record.server_changes import usable_samples

MAGIC = b"ANS1"
ANSWER = struct.Struct("<4sIIB3x")  # magic, sample index, number of ids, FINISH_REASONS index
QUERY_MAGIC = b"ANQ1"
# Magic, query id, number of ids, FINISH_REASONS index, tokens up to the first text, its arrival.
QUERY_ANSWER = struct.Struct("<4sIIB3xIq")

KeptAnswers = Literal["of samples", "of queries"]


class SavedAnswer(msgspec.Struct, frozen=True):
    """The place of an answer in a file."""

    path: Path
    sample_index: int
    offset: int
    """of its first id in the file, in bytes"""
    count: int
    """output ids"""
    finish: int
    """index in FINISH_REASONS"""
    counted: int | None = None
    """the server's own count, of an answer that came as text"""

    def output_ids(self) -> npt.NDArray[np.int32]:
        """All output ids, shape (count,), int32."""
        return np.fromfile(self.path, "<i4", self.count, offset=self.offset)


class QueryAnswer(msgspec.Struct, frozen=True):
    """The answer to a query."""

    query_id: int
    place: SavedAnswer
    """of its ids; the index there is the query's, too"""
    visible_tokens: int
    """tokens up to and including the event with the first text; 0 where it has none, or was not streamed"""
    visible_ns: int
    """arrival of that event, CLOCK_MONOTONIC; 0 where it has no text, or was not streamed"""


def encode_answer(sample_index: int, finish: int, output_ids: bytes) -> bytes:
    """One record; ``output_ids`` are little-endian int32."""
    record = ANSWER.pack(MAGIC, sample_index, len(output_ids) // 4, finish) + output_ids
    return record + CRC.pack(zlib.crc32(record))


def encode_query_answer(
    query_id: int, finish: int, visible_ns: int, visible_tokens: int, output_ids: bytes
) -> bytes:
    """One record of a query; ``output_ids`` are little-endian int32."""
    count = len(output_ids) // 4
    record = QUERY_ANSWER.pack(QUERY_MAGIC, query_id, count, finish, visible_tokens, visible_ns) + output_ids
    return record + CRC.pack(zlib.crc32(record))


def read_query_answers(journal: Path) -> Iterator[QueryAnswer]:
    """Every intact answer to a query in a journal's folder, in no order.

    Damaged bytes between records are skipped. Raises OSError.
    """
    for path in sorted(journal.glob(QUERY_ANSWERS_FILE.format("*"))):
        for fields, offset in _records(path, QUERY_ANSWER, QUERY_MAGIC):
            _, query_id, count, finish, visible_tokens, visible_ns = fields
            place = SavedAnswer(path, query_id, offset, count, finish)
            yield QueryAnswer(query_id, place, visible_tokens, visible_ns)


def read_saved_answers(journals: Iterable[Path], samples: int) -> dict[int, SavedAnswer]:
    """By sample index, the first complete answer to each of ``samples`` samples in these journal folders.

    Answers that may be another model's are left out (harness/record/server_changes.py).
    """
    found: dict[int, SavedAnswer] = {}
    for journal in journals:
        usable, counted = usable_samples(journal), _counted(journal)
        for path in sorted(journal.glob(ANSWERS_FILE.format("*"))):
            for answer in read_answers(path):
                index = answer.sample_index
                if index < samples and (usable is None or index in usable) and index not in found:
                    found[index] = replace(answer, counted=counted.get(index)) if counted else answer
    return found


def _counted(journal: Path) -> dict[int, int]:
    """By sample index, the server's own count of each answer that came as text in a journal's folder."""
    if not len(counts := read_counts(journal)):
        return {}
    rows = read_journal(journal).rows
    sample_of = dict(zip(rows["query_id"].tolist(), rows["sample_index"].tolist(), strict=True))
    known = zip(counts["query_id"].tolist(), counts["counted"].tolist(), strict=True)
    # A crash may have kept an answer without its row.
    return {sample_of[query]: counted for query, counted in known if query in sample_of}


def read_answers(path: Path) -> Iterator[SavedAnswer]:
    """Every intact record of a file; damaged bytes between records are skipped."""
    for (_, sample_index, count, finish), offset in _records(path, ANSWER, MAGIC):
        yield SavedAnswer(path, sample_index, offset, count, finish)


def _records(path: Path, header: struct.Struct, magic: bytes) -> Iterator[tuple[tuple[int, ...], int]]:
    """The header of each intact record, whose third field is the number of ids, and where they begin."""
    if not path.stat().st_size:
        return
    # A shared mapping, which is what mmap's ACCESS_READ makes, is refused for direct I/O by FUSE (ENODEV).
    with path.open("rb") as file, mmap(file.fileno(), 0, MAP_PRIVATE, PROT_READ) as data:
        position = data.find(magic)
        while position >= 0:
            fields = _record_at(data, position, header)
            if fields is None:
                position = data.find(magic, position + 1)
                continue
            offset = position + header.size
            yield fields, offset
            position = data.find(magic, offset + 4 * fields[2] + CRC.size)


def _record_at(data: mmap, position: int, header: struct.Struct) -> tuple[int, ...] | None:
    start = position + header.size
    if start > len(data):
        return None
    fields: tuple[int, ...] = header.unpack_from(data, position)
    end = start + 4 * fields[2]
    if end + CRC.size > len(data):
        return None
    if zlib.crc32(data[position:end]) != CRC.unpack_from(data, end)[0]:
        return None
    return fields
