"""Answers of a server that has changed: which of a journal may be used."""

import numpy as np
from msgspec.structs import replace

from harness.record.answer_log import encode_answer, read_saved_answers
from harness.record.journal import ANSWERS_FILE, QUERIES_FILE, encode_row, read_journal
from harness.record.outcome import FailureKind
from harness.record.server_changes import (
    ServerChange,
    counted_changes,
    keep_change,
    keep_settings,
    with_other_settings,
)
from tests.records import ENDED

# Sample, replica, time of its end; the last answer is in the journal without its row.
ROWS = [(0, 0, 50), (1, 1, 50), (2, 1, 150), (3, 0, 150), (4, 1, 151)]
FAILED = (5, 1, 152)


def journal(folder):
    rows = [(*row, 0) for row in ROWS] + [(*FAILED, FailureKind.TIMEOUT)]
    (folder / QUERIES_FILE.format("worker0")).write_bytes(
        b"".join(
            encode_row(100 + sample, sample, 0, replica, 1, 2, 3, 4, end, 5, 2, 1, 1, failure, 0, 0)
            for sample, replica, end, failure in rows
        )
    )
    ids = np.array([7, 8], "<i4").tobytes()
    samples = [*(row[0] for row in ROWS), 6]
    (folder / ANSWERS_FILE.format("worker0")).write_bytes(
        b"".join(encode_answer(sample, 1, ids) for sample in samples)
    )


def change(right_until_ns):
    return ServerChange(
        url="http://b", replica=1, was={"model": "A"}, now={"model": "B"}, right_until_ns=right_until_ns
    )


def test_answers_since_the_server_was_last_right_are_not_resumed(tmp_path):
    journal(tmp_path)
    assert sorted(read_saved_answers([tmp_path], 10)) == [0, 1, 2, 3, 4, 6]
    keep_change(tmp_path, change(100))
    assert sorted(read_saved_answers([tmp_path], 10)) == [0, 1, 3]
    keep_change(tmp_path, change(0))
    assert sorted(read_saved_answers([tmp_path], 10)) == [0, 3]
    with (tmp_path / "changes.jsonl").open("ab") as file:
        file.write(b'{"url": "cut sho')  # by a full disk
    assert read_saved_answers([tmp_path], 10) == {}


def test_answers_in_doubt_are_counted(tmp_path):
    journal(tmp_path)
    rows = read_journal(tmp_path).rows
    assert [one.answers for one in counted_changes(rows, [change(0), change(100), change(151)])] == [3, 2, 0]
    (one,) = counted_changes(rows, [change(100)])
    assert one.doubt.startswith("http://b: model A is now B: its 2 answers since it was last asked")


def test_start_options_of_later_moments_are_kept_with_the_answers(tmp_path):
    """A run that uses these answers again compares with them, too; a crash may have cut the last line."""
    assert list(with_other_settings(tmp_path)) == []
    later = [replace(ENDED.servers[0], settings={"tp_size": size}) for size in (2, 4)]
    for server in later:
        keep_settings(tmp_path, server)
    assert list(with_other_settings(tmp_path)) == later
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    assert list(with_other_settings(tmp_path)) == later[:1]
