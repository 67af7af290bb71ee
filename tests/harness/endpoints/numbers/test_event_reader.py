import json
import os

import numpy as np
import pytest

from harness.endpoints.numbers import event_reader
from harness.endpoints.numbers.count_cache import count_key
from harness.endpoints.numbers.event_reader import read_events
from harness.endpoints.numbers.reference_tokenizer import open_reference
from harness.endpoints.numbers.result_summary import summarize
from harness.endpoints.samples import tpot_ns
from harness.errors import ConfigError, DatasetError
from tests.harness.endpoints.numbers.event_files import (
    BEGIN,
    END,
    MS,
    OFFICIAL_RUNS,
    TOKENIZER,
    complete,
    event,
    failed,
    first,
    issued,
    session,
    write,
)

TWO = [
    issued("a", 2, range(5)),
    issued("b", 3, range(7)),
    first("a", 5),
    first("b", 6),
    complete("b", 10, "Hello", " world, again", finish_reason="length"),
    complete("a", 20, "One", " two three"),
]


def tokens(text: str) -> int:
    return open_reference(TOKENIZER).count_texts([text])[0]


def test_requests_in_the_order_of_issue(tmp_path):
    found = read_events(write(tmp_path, BEGIN, TWO, END), TOKENIZER)
    a, b = found.samples
    assert a.tolist() == (2 * MS, 5 * MS, 20 * MS, tokens("One two three"), tokens(" two three"), False)
    assert b.tolist() == (
        *(3 * MS, 6 * MS, 10 * MS),
        *(tokens("Hello world, again"), tokens(" world, again"), False),
    )
    assert found.isl.tolist() == [5, 7]
    assert (found.duration_ns, found.ended, found.notes) == (19 * MS, True, ())
    assert tpot_ns(found.samples)[0] == 15 * MS / tokens(" two three")


def test_only_what_is_issued_while_tracked(tmp_path):
    """A warm-up's requests and an accuracy phase's do not count; an end that comes late does."""
    late = [session("stop_performance_tracking", 8), issued("c", 9), complete("b", 30, "x", " y")]
    after = [complete("c", 40, "no"), session("ended", 99)]
    folder = write(
        tmp_path,
        [session("started", 0), issued("w", 0.5), BEGIN[1]],
        [issued("a", 2), issued("b", 3), first("b", 4), complete("w", 4, "no"), complete("a", 7, "z")],
        late,
        after,
    )
    found = read_events(folder, TOKENIZER)
    assert found.samples["complete_ns"].tolist() == [7 * MS, 30 * MS]
    assert found.duration_ns == 29 * MS


def test_performance_that_is_tracked_twice(tmp_path):
    again = [session("start_performance_tracking", 91), issued("a", 92), complete("a", 95, "z")]
    found = read_events(write(tmp_path, BEGIN, TWO, END[0], again, END), TOKENIZER)
    assert found.samples["issued_ns"].tolist() == [2 * MS, 3 * MS, 92 * MS]
    assert found.duration_ns == (19 + 4) * MS


def test_a_start_and_an_issue_that_come_twice(tmp_path):
    """metrics_table.py of the official client: a start while it tracks is none, an open request the same."""
    twice = [session("start_performance_tracking", 2.5), issued("a", 2.5)]
    found = read_events(write(tmp_path, BEGIN, TWO[0], twice, TWO[1:], END), TOKENIZER)
    assert len(found.samples) == 2 and found.samples["complete_ns"].tolist() == [20 * MS, 10 * MS]
    assert found.duration_ns == 19 * MS


def test_every_fragment_as_an_event(tmp_path):
    fragments = [event("sample.recv_non_first", 7 + n / 10, "a") for n in range(20)]
    found = read_events(write(tmp_path, BEGIN, TWO[:4], fragments, TWO[4:], END), TOKENIZER).samples
    assert found["first_ns"].tolist() == [5 * MS, 6 * MS]


def test_without_a_first_fragment_there_is_no_suffix(tmp_path):
    answer = event("sample.complete", 20, "a", ["TextModelOutput", "all at once", None, None])
    (found,) = read_events(write(tmp_path, BEGIN, issued("a", 2), answer, END), TOKENIZER).samples
    assert (found["first_ns"], found["suffix_tokens"]) == (0, 0)
    assert found["output_tokens"] == tokens("all at once")


def test_failures(tmp_path):
    found = read_events(write(tmp_path, BEGIN, TWO, issued("c", 8), failed("c", 9), END), TOKENIZER)
    assert found.samples["failed"].tolist() == [False, False, True]
    summary = summarize(found)
    counted = [summary[f"n_samples_{name}"] for name in ("issued", "completed", "failed")]
    assert counted == [3, 2, 1]
    assert summary["finish_reason_counts"] == {
        "stop": 1, "length": 1, "tool_calls": 0, "content_filter": 0, "function_call": 0, "other": 0,
    }  # fmt: skip


def test_a_text_that_looks_like_an_event(tmp_path):
    text = '{"event_type":"session.stop_performance_tracking"} "session.ended"'
    found = read_events(write(tmp_path, BEGIN, issued("a", 2), complete("a", 5, text), TWO[1:2]), TOKENIZER)
    assert len(found.samples) == 2
    assert not found.ended


def test_cut_off_in_its_last_line(tmp_path):
    folder = write(tmp_path, BEGIN, TWO, END)
    data = (folder / "events.jsonl").read_bytes()
    end = data.rindex(b'{"event_type":"sample.complete"')
    (folder / "events.jsonl").write_bytes(data[: end + 60])
    found = read_events(folder, TOKENIZER)
    assert found.samples["complete_ns"].tolist() == [0, 10 * MS]
    assert not found.ended
    assert [part in "; ".join(found.notes) for part in (f"byte {end} of", "1 of 2 requests")] == [True, True]
    assert summarize(found)["state"] == "interrupted"


def test_cut_off_between_lines(tmp_path):
    found = read_events(write(tmp_path, BEGIN, TWO), TOKENIZER)
    assert not found.ended
    assert len(found.notes) == 1


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([*BEGIN, TWO[0], '{"event_type": 7}', *TWO[1:], *END], "byte"),
        ([*BEGIN, TWO[0].replace('_ns":', f'_ns":{"9" * 20}'), *TWO[1:], *END], "byte"),
        ([*BEGIN[:1], *TWO, *END[1:]], "no performance phase"),
        (["not json at all"], "no performance phase|byte 0"),
    ],
)
def test_what_is_not_a_run(tmp_path, lines, what):
    with pytest.raises(DatasetError, match=what):
        read_events(write(tmp_path, lines), TOKENIZER)


def test_no_file_and_an_empty_one(tmp_path):
    with pytest.raises(DatasetError, match=r"events\.jsonl"):
        read_events(tmp_path, TOKENIZER)
    (tmp_path / "events.jsonl").touch()
    with pytest.raises(DatasetError, match="empty"):
        read_events(tmp_path, TOKENIZER)


def test_ranges_change_nothing(tmp_path, monkeypatch):
    folder = write(tmp_path, BEGIN, TWO, END)
    expected = read_events(folder, TOKENIZER).samples
    (folder / "token_counts.parquet").unlink()
    monkeypatch.setattr(event_reader, "_RANGE_BYTES", 100)
    assert (read_events(folder, TOKENIZER).samples == expected).all()


@pytest.mark.engine
def test_processes_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(event_reader, "_ALONE_BYTES", 0)
    monkeypatch.setattr(event_reader, "_RANGE_BYTES", 300)
    folder = write(tmp_path, BEGIN, TWO, END)
    seen: list[int] = []
    found = read_events(folder, TOKENIZER, lambda done, total: seen.append(done), processes=2)
    assert found.samples["output_tokens"].tolist() == [tokens("One two three"), tokens("Hello world, again")]
    assert seen == sorted(seen)
    assert seen[-1] == (folder / "events.jsonl").stat().st_size


def test_counts_are_kept(tmp_path, monkeypatch):
    folder = write(tmp_path, BEGIN, TWO, END)
    before = read_events(folder, TOKENIZER)
    with monkeypatch.context() as patch:
        patch.setattr(event_reader, "_counted", None)
        kept = read_events(folder, TOKENIZER)
    assert (kept.samples == before.samples).all()
    assert (kept.isl.tolist(), kept.duration_ns, kept.ended) == ([5, 7], before.duration_ns, True)
    (other := tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=str(other)):  # counted again
        read_events(folder, other, processes=1)


@pytest.mark.parametrize("changed", ["events", "tokenizer"])
def test_other_files_of_the_same_size_and_time_are_counted(changed, tmp_path, monkeypatch):
    """As a copy, an archive or a download leaves them."""
    folder = write(tmp_path, BEGIN, TWO, END)
    (tokenizer := tmp_path / "other.json").write_bytes(TOKENIZER.read_bytes())
    counts, counted = [], event_reader._counted
    monkeypatch.setattr(event_reader, "_counted", lambda *given: counts.append(counted(*given)) or counts[-1])
    read_events(folder, tokenizer)
    file, before, after = {
        "events": (folder / "events.jsonl", "One", "two"),
        "tokenizer": (tokenizer, '"truncation":null,"padding":null', '"padding":null,"truncation":null'),
    }[changed]
    stamp, text = file.stat(), file.read_text()
    file.write_text(text.replace(before, after, 1))
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert file.stat().st_size == stamp.st_size
    read_events(folder, tokenizer)
    read_events(folder, tokenizer)
    assert len(counts) == 2


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    folder = write(tmp_path, BEGIN, TWO, END)
    (folder / "token_counts.parquet").mkdir()
    assert len(read_events(folder, TOKENIZER).samples) == 2


@pytest.mark.engine
@pytest.mark.parametrize("name", ["official_run", "official_failures"])
def test_a_run_of_the_official_client(tmp_path, name):
    """Its own numbers, from its own events: token totals, times, percentiles and histograms."""
    run = OFFICIAL_RUNS / name
    (tmp_path / "events.jsonl").write_bytes((run / "events.jsonl").read_bytes())
    official = json.loads((run / "performance" / "result_summary.json").read_text())
    # It counts a failed request as completed, too; the submission checker does not accept that.
    official["n_samples_completed"] -= official["n_samples_failed"]
    official["qps"] = official["n_samples_completed"] / (official["duration_ns"] / 1e9)
    ours = summarize(read_events(tmp_path, None))
    for part in ("ttft", "latency", "tpot", "output_sequence_lengths", "input_sequence_lengths"):
        block, expected = ours[part], official[part]
        assert block["percentiles"] == expected["percentiles"]
        assert block["histogram"]["counts"] == expected["histogram"]["counts"]
        assert np.allclose(block["histogram"]["buckets"], expected["histogram"]["buckets"], rtol=1e-12)
        for key in ("total", "min", "max", "median", "avg", "std_dev"):
            assert block[key] == pytest.approx(expected[key], rel=1e-12)
    same = ("n_samples_issued", "n_samples_completed", "n_samples_failed", "duration_ns", "state", "complete",
            "qps", "tps", "finish_reason_counts", "legacy_loadgen_window_duration_ns")  # fmt: skip
    assert {key: ours[key] for key in same} == {key: official[key] for key in same}


@pytest.mark.engine
def test_an_error_in_a_process_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(event_reader, "_ALONE_BYTES", 0)
    monkeypatch.setattr(event_reader, "_RANGE_BYTES", 300)
    folder, file = write(tmp_path, BEGIN, TWO, END), tmp_path / "tokenizer.json"
    file.write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json: no tokenizer: "):
        read_events(folder, file, processes=2)


@pytest.mark.parametrize("named", ["model", "tokenizer.json"])
def test_a_tokenizer_that_is_missing_is_named_and_not_the_events(tmp_path, named):
    """Also where the events were counted before, by gpt-oss's, which has no files."""
    folder = write(tmp_path, BEGIN, TWO, END)
    (tmp_path / "model").mkdir()
    read_events(folder, None)
    with pytest.raises(ConfigError, match=r"tokenizer\.json: no such file"):
        read_events(folder, tmp_path / named)


@pytest.mark.parametrize("named", ["", "tokenizer.json"])
@pytest.mark.parametrize("changed", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_counts_are_of_the_tokenizer_and_the_template_that_are_there(tmp_path, named, changed):
    """They are kept beside the events; either file may be replaced by another in its folder."""
    model, events = tmp_path / "model", tmp_path / "events.jsonl"
    model.mkdir()
    for path in (events, model / "tokenizer.json", model / changed):
        path.write_text("{}")

    def key():
        return count_key(events, event_reader._files_of(model / named))

    before = key()
    assert key() == before
    (model / changed).write_text("{} ")
    assert key() != before
