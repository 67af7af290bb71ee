import json
from functools import partial

import numpy as np
import pytest

from harness.dataset import tokenizer as o200k
from harness.endpoints.numbers import event_writer
from harness.endpoints.numbers.answer_text import harmony_answer, open_text
from harness.endpoints.numbers.event_reader import read_events
from harness.endpoints.numbers.event_record import Answer
from harness.endpoints.numbers.event_writer import write_events
from harness.endpoints.numbers.reference_tokenizer import open_reference
from harness.endpoints.point_run import WARM_UP
from harness.errors import DatasetError
from harness.record.answer_log import encode_query_answer
from harness.record.journal import FAILURES_FILE, QUERIES_FILE, QUERY_ANSWERS_FILE, encode_row
from harness.record.outcome import FailureKind
from tests.harness.endpoints.numbers.event_files import MS, TOKENIZER

reader = partial(open_reference, TOKENIZER)
TEXTS = ["The quick brown fox", " jumps", "One two three four five six seven"]


def ids_of(text: str) -> np.ndarray:
    return np.array(reader()._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)


def row(query_id, issued_ms, first_ms, last_ms, *, osl=4, finish=1, failure=0, worker=0):
    times = [int(ms * MS) for ms in (issued_ms, issued_ms + 0.1, first_ms, first_ms, last_ms)]
    return encode_row(query_id, 0, worker, 0, *times, 7, osl, 1, finish, failure, 0, 0)


def journal(folder, answers=(0, 1, 2)):
    """Three requests that end in another order than that of their issue, one that fails, and a warm-up."""
    made = folder / "journal"
    made.mkdir()
    rows = [
        row(WARM_UP, 1, 2, 3),
        row(1, 6, 9, 20, finish=2),
        row(0, 5, 8, 30),
        row(3, 10, 0, 0, osl=0, finish=0, failure=FailureKind.HTTP_STATUS),
    ]
    (made / QUERIES_FILE.format(0)).write_bytes(b"".join(rows))
    (made / QUERIES_FILE.format(1)).write_bytes(row(2, 7, 0, 40, worker=1))
    (made / FAILURES_FILE.format(0)).write_text(
        '{"query_id": 3, "kind": "http_status", "detail": "HTTP 500"}\n'
    )
    first = {0: (8, 1), 1: (11, 1), 2: (0, 0)}  # ms of the first text, ids up to it; the last is not streamed
    kept = [
        encode_query_answer(
            number, 1, first[number][0] * MS, first[number][1], ids_of(TEXTS[number]).tobytes()
        )
        for number in answers
    ]
    (made / QUERY_ANSWERS_FILE.format(0)).write_bytes(b"".join(kept))
    return folder


def lines(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_events_in_the_order_of_time(tmp_path):
    assert write_events(journal(tmp_path), TOKENIZER, ended=True) == 4
    found = [
        (event["event_type"], event["timestamp_ns"] / MS, event["sample_uuid"][-1:])
        for event in lines(tmp_path)
    ]
    assert found == [
        ("session.started", 5, ""),
        ("session.start_performance_tracking", 5, ""),
        ("sample.issued", 5, "0"),
        ("sample.issued", 6, "1"),
        ("sample.issued", 7, "2"),
        ("sample.recv_first", 8, "0"),
        ("sample.issued", 10, "3"),
        ("error.generic", 10.1, "3"),
        ("sample.recv_first", 11, "1"),
        ("sample.complete", 20, "1"),
        ("sample.complete", 30, "0"),
        ("sample.complete", 40, "2"),
        ("session.stop_performance_tracking", 40, ""),
        ("session.ended", 40, ""),
    ]


def test_what_events_hold(tmp_path):
    write_events(journal(tmp_path), TOKENIZER, ended=True)
    data = {(event["event_type"], event["sample_uuid"][-1:]): event for event in lines(tmp_path)}
    assert data["sample.issued", "0"]["data"] == ["PromptData", *[None] * 7]
    assert data["error.generic", "3"]["data"] == ["ErrorData", "http_status", "HTTP 500"]
    first = reader()._tokenizer.decode(ids_of(TEXTS[0])[:1].tolist())
    end = data["sample.complete", "0"]
    assert end["data"] == ["TextModelOutput", [first, TEXTS[0].removeprefix(first)], None, None]
    assert (end["finish_reason"], end["worker_id"]) == ("stop", 0)
    assert data["sample.complete", "1"]["finish_reason"] == "length"
    assert data["sample.complete", "2"]["data"] == ["TextModelOutput", TEXTS[2], None, None]


def test_they_are_read_as_those_of_any_client(tmp_path):
    write_events(journal(tmp_path), TOKENIZER, ended=True)
    found = read_events(tmp_path, TOKENIZER)
    assert found.samples["issued_ns"].tolist() == [5 * MS, 6 * MS, 7 * MS, 10 * MS]
    assert found.samples["first_ns"].tolist() == [8 * MS, 11 * MS, 0, 0]
    assert found.samples["complete_ns"].tolist() == [30 * MS, 20 * MS, 40 * MS, 0]
    assert found.samples["output_tokens"].tolist() == [*map(len, map(ids_of, TEXTS)), 0]
    assert found.samples["failed"].tolist() == [False, False, False, True]
    assert (found.duration_ns, found.notes) == (35 * MS, ())


def test_a_run_that_was_interrupted(tmp_path):
    write_events(journal(tmp_path), TOKENIZER, ended=False)
    found = read_events(tmp_path, TOKENIZER)
    assert not found.ended
    assert len(found.samples) == 4


@pytest.mark.engine
def test_processes_change_nothing(tmp_path, monkeypatch):
    write_events(journal(tmp_path), TOKENIZER, ended=True)
    expected = (tmp_path / "events.jsonl").read_bytes()
    monkeypatch.setattr(event_writer, "_BATCH", 3)
    monkeypatch.setattr(event_writer, "_ALONE", 3)
    seen: list[tuple[int, int]] = []
    write_events(tmp_path, TOKENIZER, lambda done, total: seen.append((done, total)), ended=True, processes=2)
    assert (tmp_path / "events.jsonl").read_bytes() == expected
    assert seen == [(3, 10), (6, 10), (9, 10), (10, 10)]


def test_a_completed_request_without_its_answer(tmp_path):
    with pytest.raises(DatasetError, match="1 of 3 completed requests"):
        write_events(journal(tmp_path, answers=(0, 2)), TOKENIZER, ended=True)
    assert not (tmp_path / "events.jsonl").exists()


CHANNEL, MESSAGE, START, END, RETURN = (
    o200k.SPECIAL[f"<|{name}|>"] for name in ("channel", "message", "start", "end", "return")
)


def harmony(*parts: int | str) -> np.ndarray:
    ids = [each for part in parts for each in ([part] if isinstance(part, int) else o200k.encode(part))]
    return np.array(ids, np.int32)


THOUGHT = (CHANNEL, "analysis", MESSAGE, "We think hard.", END)
FINAL = (START, "assistant", CHANNEL, "final", MESSAGE, "It is 42.", RETURN)


@pytest.mark.parametrize(
    ("parts", "first", "answer"),
    [
        ((*THOUGHT, *FINAL), 4, Answer("It is 42.", ("We", " think hard."))),
        ((*THOUGHT, *FINAL), 5, Answer("It is 42.", ("We think", " hard."))),
        # An event of the form alone: the first fragment is what shows next.
        ((*THOUGHT, *FINAL), 1, Answer("It is 42.", ("We", " think hard."))),
        ((*THOUGHT, *FINAL), 0, Answer("It is 42.", "We think hard.")),
        ((*THOUGHT, *FINAL), 99, Answer("It is 42.", ("We think hard.",))),
        (THOUGHT[:4], 4, Answer("", ("We", " think hard."))),
        (FINAL[2:], 4, Answer(("It", " is 42."))),
        ((*THOUGHT, START, "assistant", MESSAGE, "42."), 0, Answer("42.", "We think hard.")),
        (("no form at all",), 1, Answer(("no", " form at all"))),
        (("cut", RETURN), 1, Answer(("cut",))),
        ((o200k.SPECIAL["<|startoftext|>"], "cut"), 2, Answer(("cut",))),
        (("🙂🙂🙂 a",), 1, Answer(("🙂", "🙂🙂 a"))),
        ((RETURN,), 1, Answer(())),
    ],
)
def test_text_of_harmony(parts, first, answer):
    assert harmony_answer(harmony(*parts), first) == answer


def test_plain_text_has_no_special_tokens():
    end = reader()._tokenizer.token_to_id("<|eot_id|>")
    ids = np.append(ids_of("One two three"), end).astype(np.int32)
    text = open_text(TOKENIZER)(ids, 1)
    assert "".join(text.output) == "One two three"
    assert len(text.output) == 2
