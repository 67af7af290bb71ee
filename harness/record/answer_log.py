"""The answers of an accuracy run, written during the run, so that it can be resumed.

A worker appends one record per answer to ``answers-<worker>.bin``: a header (ANSWER), the output ids as
little-endian int32, and a crc32 over both. A record that a crash cut short is not an answer.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.record.journal import ANSWERS_FILE
from harness.record.server_changes import usable_samples

MAGIC = b"ANS1"
ANSWER = struct.Struct("<4sIIB3x")  # magic, sample index, number of ids, FINISH_REASONS index
CRC = struct.Struct("<I")
_MOST_IDS = 1 << 24


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    """The place of an answer in a file."""

    path: Path
    sample_index: int
    offset: int
    """of its first id in the file, in bytes"""
    count: int
    """output ids"""
    finish: int
    """index in FINISH_REASONS"""

    def output_ids(self) -> npt.NDArray[np.int32]:
        """All output ids, shape (count,), int32."""
        return np.fromfile(self.path, "<i4", self.count, offset=self.offset)


def encode_answer(sample_index: int, finish: int, output_ids: bytes) -> bytes:
    """One record; ``output_ids`` are little-endian int32."""
    record = ANSWER.pack(MAGIC, sample_index, len(output_ids) // 4, finish) + output_ids
    return record + CRC.pack(zlib.crc32(record))


def read_saved_answers(journals: Iterable[Path], samples: int) -> dict[int, SavedAnswer]:
    """By sample index, the first complete answer to each of ``samples`` samples in these journal folders.

    Answers that may be another model's are left out (harness/record/server_changes.py).
    """
    found: dict[int, SavedAnswer] = {}
    for journal in journals:
        usable = usable_samples(journal)
        for path in sorted(journal.glob(ANSWERS_FILE.format("*"))):
            for answer in read_answers(path):
                if answer.sample_index < samples and (usable is None or answer.sample_index in usable):
                    found.setdefault(answer.sample_index, answer)
    return found


def read_answers(path: Path) -> Iterator[SavedAnswer]:
    """Every intact record of a file; damaged bytes between records are skipped."""
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        position = data.find(MAGIC)
        while position >= 0:
            answer = _answer_at(path, data, position)
            if answer is None:
                position = data.find(MAGIC, position + 1)
                continue
            yield answer
            end = answer.offset + 4 * answer.count + CRC.size
            position = end if data[end : end + len(MAGIC)] == MAGIC else data.find(MAGIC, end)


def _answer_at(path: Path, data: mmap, position: int) -> SavedAnswer | None:
    start = position + ANSWER.size
    if start > len(data):
        return None
    _, sample_index, count, finish = ANSWER.unpack_from(data, position)
    end = start + 4 * count
    if not 0 < count <= _MOST_IDS or end + CRC.size > len(data):
        return None
    if zlib.crc32(data[position:end]) != CRC.unpack_from(data, end)[0]:
        return None
    return SavedAnswer(path, sample_index, start, count, finish)
