"""Kept answers: read back whole, whatever a crash has cut or damaged."""

import errno
import mmap

import numpy as np
import pytest

from harness.record import answer_log
from harness.record.answer_log import (
    ANSWER,
    MAGIC,
    encode_answer,
    encode_query_answer,
    read_answers,
    read_query_answers,
    read_saved_answers,
)


def record(sample, finish, ids):
    return encode_answer(sample, finish, np.array(ids, "<i4").tobytes())


ANSWERS = [(3, 1, [7]), (0, 2, [200005, 0, -1, 5]), (9, 1, list(range(20))), (1, 3, [1, 2])]
RECORDS = [record(*answer) for answer in ANSWERS]


def write(path, data):
    path.write_bytes(data)
    return path


def found(path):
    return [(a.sample_index, a.finish, a.output_ids().tolist()) for a in read_answers(path)]


def test_cut_at_every_byte(tmp_path):
    """What was whole before the cut is there; what was not, is not."""
    data, ends = b"".join(RECORDS), np.cumsum([len(one) for one in RECORDS])
    for cut in range(len(data) + 1):
        path = write(tmp_path / "answers-0.bin", data[:cut])
        assert found(path) == ANSWERS[: int((ends <= cut).sum())], cut


def test_one_damaged_byte_costs_one_answer(tmp_path):
    """Any single byte: never a wrong answer, and the others stay readable."""
    for hit, record_hit in enumerate(RECORDS):
        for position in range(len(record_hit)):
            damaged = bytearray(record_hit)
            damaged[position] ^= 0x41
            data = b"".join([*RECORDS[:hit], damaged, *RECORDS[hit + 1 :]])
            got = found(write(tmp_path / "answers-0.bin", data))
            assert got == ANSWERS[:hit] + ANSWERS[hit + 1 :], (hit, position)


def test_zeros_of_a_power_cut(tmp_path):
    """A file system may leave zeros where bytes were to come; a later attempt never writes behind them."""
    data = RECORDS[0] + bytes(5000) + RECORDS[1]
    assert found(write(tmp_path / "answers-0.bin", data)) == ANSWERS[:2]


@pytest.mark.parametrize("inner", [MAGIC + bytes(ANSWER.size), RECORDS[1]])
def test_ids_that_look_like_a_record(tmp_path, inner):
    """The magic inside an answer's ids is no record."""
    ids = np.frombuffer(inner, "<i4").tolist() * 3
    path = write(tmp_path / "answers-0.bin", record(5, 1, ids) + RECORDS[0])
    assert found(path) == [(5, 1, ids), ANSWERS[0]]


def test_the_first_answer_counts_and_strangers_do_not(tmp_path):
    for name in ("attempt.1", "attempt.2"):
        (tmp_path / name).mkdir()
    write(tmp_path / "attempt.1/answers-0.bin", record(3, 1, [7]) + record(40, 1, [8]))
    write(tmp_path / "attempt.2/answers-0.bin", record(3, 1, [9]) + record(4, 1, [10]))
    write(tmp_path / "attempt.2/answers-1.bin", b"")
    kept = read_saved_answers([tmp_path / "attempt.1", tmp_path / "attempt.2"], samples=40)
    assert {index: answer.output_ids().tolist() for index, answer in kept.items()} == {3: [7], 4: [10]}


QUERY_ANSWERS = [(1 << 31, 1, 500, 4, [7]), (0, 2, 0, 0, [200005, 0, -1, 5]), (9, 1, 1 << 60, 1, [1, 2])]
QUERY_RECORDS = [
    encode_query_answer(query, finish, at, tokens, np.array(ids, "<i4").tobytes())
    for query, finish, at, tokens, ids in QUERY_ANSWERS
]


def found_queries(folder):
    return [
        (a.query_id, a.place.finish, a.visible_ns, a.visible_tokens, a.place.output_ids().tolist())
        for a in read_query_answers(folder)
    ]


def test_answers_to_queries_cut_at_every_byte(tmp_path):
    data, ends = b"".join(QUERY_RECORDS), np.cumsum([len(one) for one in QUERY_RECORDS])
    for cut in range(len(data) + 1):
        write(tmp_path / "query_answers-0.bin", data[:cut])
        assert found_queries(tmp_path) == QUERY_ANSWERS[: int((ends <= cut).sum())], cut


def test_answers_to_queries_are_no_answers_to_samples(tmp_path):
    """A resumed accuracy run reads nothing of a point, and a point nothing of it."""
    write(tmp_path / "query_answers-0.bin", QUERY_RECORDS[2] + RECORDS[0])
    write(tmp_path / "answers-0.bin", RECORDS[0] + QUERY_RECORDS[1])
    assert found_queries(tmp_path) == QUERY_ANSWERS[2:]
    assert list(read_saved_answers([tmp_path], samples=40)) == [3]


def test_answers_on_a_file_system_without_shared_mappings(tmp_path, monkeypatch):
    """FUSE with direct I/O refuses them, read-only ones too (fuse_file_mmap in Linux before 6.6)."""

    def private(descriptor, length, flags=mmap.MAP_SHARED, prot=0, access=mmap.ACCESS_DEFAULT):
        if flags & mmap.MAP_SHARED or access != mmap.ACCESS_DEFAULT:
            raise OSError(errno.ENODEV, "No such device")
        return mmap.mmap(descriptor, length, flags, prot)

    path = write(tmp_path / "answers-0.bin", b"".join(RECORDS))
    monkeypatch.setattr(answer_log, "mmap", private)
    assert found(path) == ANSWERS
