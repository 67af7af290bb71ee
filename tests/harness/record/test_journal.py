"""The journal: what the writer appends is read back whole, what a crash leaves is counted, never guessed."""

import itertools
import time

import numpy as np
import pytest

from harness.record.journal import (
    FINISH_REASONS,
    QUERY_ROW,
    failure_reasons,
    first_failure,
    read_journal,
    read_loadgen_calls,
)
from harness.record.outcome import Completion, Failure, FailureKind
from sut.worker.journal_writer import JournalWriter

TIMES = (1_000, 2_000, 3_000, 4_000, 5_000)
SIZE = QUERY_ROW.itemsize


def completion(tokens=4, reason="stop"):
    return Completion(np.arange(tokens, dtype=np.int32), reason)


URLS = ("http://a:1", "http://b:1")


def write(directory, outcomes, *, name="0", worker=0, first_id=100):
    """One row for each outcome, ids counting from ``first_id``; the path of the rows."""
    writer = JournalWriter(directory, name, worker)
    for number, outcome in enumerate(outcomes):
        writer.add(first_id + number, number, 1, TIMES, 2048, 1, outcome)
    writer.flush()
    return directory / f"queries-{name}.bin"


def test_every_field_of_a_completion_comes_back(tmp_path):
    writer = JournalWriter(tmp_path, "3", 3)
    writer.add(2**64 - 1, 2**32 - 1, 65535, (1, 2, 3, 4, 2**63 - 1), 131072, 8, completion(32768, "length"))
    writer.flush()
    (row,) = read_journal(tmp_path).rows
    assert {name: row[name].item() for name in QUERY_ROW.names if name != "crc"} == {
        "query_id": 2**64 - 1,
        "sample_index": 2**32 - 1,
        "worker": 3,
        "replica": 65535,
        "issued_ns": 1,
        "sent_ns": 2,
        "first_byte_ns": 3,
        "first_token_ns": 4,
        "last_byte_ns": 2**63 - 1,
        "isl": 131072,
        "osl": 32768,
        "first_event_tokens": 8,
        "finish": 2,
        "failure": 0,
        "retries": 0,
        "resumed": 0,
    }


@pytest.mark.parametrize(
    ("reason", "stored"),
    [("stop", "stop"), ("length", "length"), ("eos", "other"), ("", ""), ("other", "other")],
)
def test_finish_reasons(tmp_path, reason, stored):
    write(tmp_path, [completion(1, reason)])
    assert FINISH_REASONS[read_journal(tmp_path).rows["finish"][0]] == stored


def test_failures_keep_kind_and_detail(tmp_path):
    odd = ["", "two\nlines\r\n", '"quotes" and \\', "\u2028 ü 漢 \x00 \x1b[31m", "x" * 10_000]
    details = dict(enumerate([*odd, *(kind.label for kind in FailureKind)], 100))
    kinds = [FailureKind.MALFORMED] * len(odd) + list(FailureKind)
    failures = [Failure(kind, detail) for kind, detail in zip(kinds, details.values(), strict=True)]
    write(tmp_path, [*failures, completion()])
    journal = read_journal(tmp_path)
    assert journal.rows["failure"].tolist() == [*kinds, 0]
    assert journal.rows["osl"].tolist() == [0] * len(kinds) + [4]
    assert journal.details == details


@pytest.mark.parametrize(
    ("apart_s", "said"), [(0.0, ""), (2.0, "4 failures came 1.2 s after the last bytes")]
)
def test_failures_of_one_moment_are_of_no_limit_of_time(tmp_path, monkeypatch, apart_s, said):
    """Queries of a server that died, whose batches gave each a token at one moment, were sent apart."""
    ends = itertools.count(10**12, round(apart_s * 1e9))
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(ends))
    ages = (f"{age} s after its request, 1.2 s after the last bytes" for age in (9.4, 7.3, 5.2, 3.1))
    write(tmp_path, [Failure(FailureKind.TRUNCATED, age) for age in ages])
    found = read_journal(tmp_path).time_limit
    assert found.startswith(said) if said else not found


def test_every_file_is_open_before_the_first_failure(tmp_path):
    """By then there may be no descriptor left; answers are only kept where they count."""
    write(tmp_path, [completion()])
    names = {"queries-0.bin", "failures-0.jsonl", "retries-0.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == names
    JournalWriter(tmp_path, "0", 0, answers="of samples")
    assert {path.name for path in tmp_path.iterdir()} == names | {"answers-0.bin"}


def test_nothing_is_written_before_the_flush(tmp_path):
    writer = JournalWriter(tmp_path, "0", 0)
    writer.add(1, 1, 0, TIMES, 1, 1, completion())
    assert len(read_journal(tmp_path).rows) == 0
    writer.flush()
    writer.flush()
    assert len(read_journal(tmp_path).rows) == 1


def test_workers_are_read_together_and_append_to_what_is_there(tmp_path):
    write(tmp_path, [completion()] * 2, first_id=0)
    write(tmp_path, [completion()], first_id=2)
    write(tmp_path, [Failure(FailureKind.SEND, "x")] * 2, name="1", worker=1, first_id=10)
    journal = read_journal(tmp_path)
    assert journal.rows["query_id"].tolist() == [0, 1, 2, 10, 11]
    assert journal.rows["worker"].tolist() == [0, 0, 0, 1, 1]
    assert sorted(journal.details) == [10, 11]


def test_the_last_row_cut_at_every_byte(tmp_path):
    path = write(tmp_path, [completion()] * 3)
    data = path.read_bytes()
    for kept in range(SIZE):
        path.write_bytes(data[: 2 * SIZE + kept])
        journal = read_journal(tmp_path)
        assert (journal.rows["query_id"].tolist(), journal.broken) == ([100, 101], min(kept, 1)), kept


def test_a_flipped_bit_breaks_its_row_alone(tmp_path):
    path = write(tmp_path, [completion(), Failure(FailureKind.TIMEOUT, "late"), completion()])
    first, hit, last = (path.read_bytes()[at : at + SIZE] for at in (0, SIZE, 2 * SIZE))
    flipped = [(int.from_bytes(hit, "little") ^ 1 << bit).to_bytes(SIZE, "little") for bit in range(8 * SIZE)]
    path.write_bytes(first + b"".join(flipped) + last)
    journal = read_journal(tmp_path)
    assert (journal.rows["query_id"].tolist(), journal.broken) == ([100, 102], 8 * SIZE)


def test_a_hole_of_zeros_is_broken(tmp_path):
    """What a file system may leave of a write after a power cut."""
    path = write(tmp_path, [completion()])
    path.write_bytes(path.read_bytes() + bytes(2 * SIZE))
    journal = read_journal(tmp_path)
    assert (len(journal.rows), journal.broken) == (1, 2)


def test_a_failure_line_cut_anywhere(tmp_path):
    write(tmp_path, [Failure(FailureKind.TIMEOUT, "first"), Failure(FailureKind.HTTP_STATUS, "second")])
    path = tmp_path / "failures-0.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    for kept in range(len(second) - 1):
        path.write_bytes(first + second[:kept])
        journal = read_journal(tmp_path)
        assert journal.details == {100: "first"}, kept
        assert journal.rows["failure"].tolist() == [FailureKind.TIMEOUT, FailureKind.HTTP_STATUS]
        assert journal.broken == 0


@pytest.mark.parametrize(
    "line",
    [b"", b"garbage", b"[]", b'{"query_id": "7", "detail": "x"}', b'{"query_id": 7}', b"\xff\xfe", b"\x00"],
)
def test_a_strange_failure_line_does_not_hide_the_others(tmp_path, line):
    write(tmp_path, [Failure(FailureKind.TIMEOUT, "kept")])
    path = tmp_path / "failures-0.jsonl"
    path.write_bytes(line + b"\n" + path.read_bytes())
    assert read_journal(tmp_path).details == {100: "kept"}


def test_nothing_there(tmp_path):
    for directory in (tmp_path, tmp_path / "missing"):
        journal = read_journal(directory)
        assert (len(journal.rows), journal.details, journal.broken) == (0, {}, 0)
        assert journal.rows.dtype == QUERY_ROW
        assert len(read_loadgen_calls(directory)) == 0


def test_files_of_idle_workers_and_of_others_are_left_alone(tmp_path):
    write(tmp_path, [completion()])
    (tmp_path / "queries-1.bin").touch()
    (tmp_path / "failures-1.jsonl").touch()
    (tmp_path / "queries-0.bin.bak").write_bytes(b"x")
    (tmp_path / "notes.bin").write_bytes(b"x")
    assert (len(read_journal(tmp_path).rows), read_journal(tmp_path).broken) == (1, 0)


def test_failure_reasons(tmp_path):
    """The most frequent kind first, each with an example; lines that a crash cut short do not count."""
    assert failure_reasons(tmp_path) == ""
    late = Failure(FailureKind.TIMEOUT, "no end within 5 s")
    write(tmp_path, [Failure(FailureKind.ABORTED, "gone"), late, late])
    with (tmp_path / "failures-0.jsonl").open("ab") as file:
        file.write(b'{"query_id":7,"deta')
    assert failure_reasons(tmp_path) == "timeout (no end within 5 s), aborted (gone)"


def test_the_first_failure_is_the_earliest_of_all_workers(tmp_path):
    assert first_failure(tmp_path, URLS) == ""
    for worker, detail in (
        ("10", "the server is gone"),
        ("2", "connection refused"),
        ("0", "no replica left"),
    ):
        write(tmp_path, [Failure(FailureKind.CONNECT, detail)], name=worker)
    assert first_failure(tmp_path, URLS) == "the first, at http://b:1: the server is gone"
    assert failure_reasons(tmp_path) == "connect (the server is gone)"


def test_a_first_failure_that_cannot_be_read_ends_no_run(tmp_path):
    """It is asked for while a run lasts, by the alarm of a lost one and by the warning of one that is not."""
    (tmp_path / "failures-0.jsonl").mkdir()
    assert first_failure(tmp_path, URLS) == ""


def test_the_first_failure_has_the_remedy_of_its_status(tmp_path):
    write(tmp_path, [Failure(FailureKind.HTTP_STATUS, "HTTP 502: Bad Gateway")])
    said = "the first: HTTP 502: Bad Gateway; a gateway reaches no server behind it"
    assert first_failure(tmp_path, URLS[:1]) == said


@pytest.mark.parametrize(
    ("sent_ns", "detail"), [(0, "no end within 5 s"), (2, "http://b:1: Connection refused")]
)
def test_the_first_failure_names_no_replica_that_it_need_not(tmp_path, sent_ns, detail):
    """A query that waited for a replica was sent to none, though its row has 0."""
    writer = JournalWriter(tmp_path, "0", 0)
    writer.add(1, 1, sent_ns // 2, (1, sent_ns, 0, 0, 0), 9, 0, Failure(FailureKind.TIMEOUT, detail))
    writer.flush()
    assert first_failure(tmp_path, URLS) == f"the first: {detail}"
