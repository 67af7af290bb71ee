"""What is observed of a run that has ended early, whenever that was."""

import errno
import json
import shutil
import threading

import pytest

from harness.analysis.answer_lengths import LengthWatch
from harness.config.run_options import RunOptions
from harness.config.run_plan import resolve_plan
from harness.errors import ConfigError
from harness.files import PROGRESS
from harness.progress import progress_files
from harness.record.run_record import RunRecord
from sut.run import _write_first, run
from sut.supervisor.session import QuerySession
from tests.kit import full_disk
from tests.records import started
from tests.runs import quick_conf, small_dataset
from tests.stub import StubServer


def plan_of(folder, server, **more):
    options = RunOptions(
        input_file=small_dataset(folder)[0],
        server_url=server.url,
        user_conf=folder / "quick.conf",
        output_dir=folder / "results",
        max_new_tokens=8,
        **more,
    )
    return resolve_plan(options)


def run_of(folder, server, **callbacks):
    """The record of a run in this process, and what run.json says of it."""
    plan = plan_of(folder, server)
    found = run(plan, **callbacks)
    assert RunRecord.read(plan.client.log_dir / "run.json").verdict == found.verdict
    return found, plan.client.log_dir


def test_a_run_that_ends_before_its_workers_start_has_its_verdict(tmp_path):
    """Someone removes user.conf while the servers answer the trial requests."""
    conf = quick_conf(tmp_path)

    def removed(request):
        conf.unlink(missing_ok=True)
        return True

    with StubServer(gate=removed) as server:
        record, _ = run_of(tmp_path, server)
    assert record.verdict.result == "INVALID"
    assert "quick.conf" in record.verdict.reasons[0]


def test_a_folder_that_is_removed_before_the_first_query_gets_none(tmp_path, monkeypatch, capfd):
    """LoadGen would go on without its logs; encoders may take seconds to start."""
    quick_conf(tmp_path)
    start = QuerySession.start_workers

    def removed(session, *given):
        start(session, *given)
        shutil.rmtree(session._journal_dir.parent)

    monkeypatch.setattr(QuerySession, "start_workers", removed)
    with StubServer() as server:
        record = run(plan_of(tmp_path, server))
        assert len(server.requests) == 1  # the trial
    assert record.verdict.reasons[0].endswith(" was removed or replaced during the run")
    assert "Failed to open" not in capfd.readouterr().err


def test_a_large_record_has_room_on_a_full_disk(tmp_path):
    """With hundreds of servers the one with the verdict is larger than all that is kept for a few."""
    quick_conf(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"note": "a" * 40_000}))
    sizes = []

    def look(request):
        names = ("run.json", ".reserve")
        if request.index:  # after the trial
            sizes.append([(plan.client.log_dir / name).stat().st_size for name in names])
        return True

    with StubServer(gate=look) as server:
        plan = plan_of(tmp_path, server, generation_config=config)
        assert run(plan).verdict.result == "VALID"
    record, reserve = sizes[0]
    assert 1 << 16 < 4 * record <= reserve


def test_a_run_without_room_for_its_verdict_leaves_no_record(tmp_path, monkeypatch):
    """The next command took it for a run that was killed."""
    monkeypatch.setattr("sut.run.reserve_for", full_disk)
    with pytest.raises(ConfigError, match="No space left on device"):
        _write_first(started(log_dir=tmp_path))
    assert not any(tmp_path.iterdir())


def test_a_change_of_answers_that_was_told_while_a_run_lasted_is_in_its_record(tmp_path, monkeypatch):
    """The end, which compares replicas over the whole run, may not show it."""
    quick_conf(tmp_path)
    with StubServer() as server:
        watch = LengthWatch([server.url], lambda mean, answers: "")
        watch.changes.append("1 of 1 replicas give answers of other lengths than before")
        monkeypatch.setattr("sut.run._length_watch", lambda record: watch)
        record, _ = run_of(tmp_path, server)
    assert watch.changes[0] in record.warnings


def test_all_lines_of_the_progress_are_written_where_the_last_one_fails(tmp_path, monkeypatch):
    """The caller's disk is full from the second line on."""
    monkeypatch.setattr(progress_files, "_EVERY_S", 0.0)
    quick_conf(tmp_path)
    given: list[object] = []

    def full(line):
        if given:
            raise OSError(errno.ENOSPC, "No space left on device", "mine.log")
        given.append(line)

    with StubServer(gate=lambda request: request.index == 0) as server:
        record, log_dir = run_of(tmp_path, server, on_line=full)
    assert record.verdict.result == "INVALID" and "mine.log" in record.verdict.reasons[0]
    assert not [one for one in threading.enumerate() if one.name.startswith("progress")]
    assert [json.loads(line)["ended"] for line in (log_dir / PROGRESS).open()] == [False, True]


def test_memory_that_runs_out_at_the_end_is_said_with_a_remedy(tmp_path, monkeypatch, caplog):
    """A MemoryError says nothing of itself."""
    quick_conf(tmp_path)

    def no_memory(line):
        raise MemoryError

    with StubServer(gate=lambda request: request.index == 0) as server:
        record, _ = run_of(tmp_path, server, on_line=no_memory)
    said = "out of memory; free memory, or lift the limit on it (ulimit -v)"
    assert f"warning: no last line of the progress: {said}" in caplog.messages
    assert record.verdict.result == "INVALID" and said in record.verdict.reasons[0]
