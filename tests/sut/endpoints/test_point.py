"""A performance point against stub servers: load, order, salt, answers, faults."""

import multiprocessing
import os
import re
import resource
import signal
import threading
from itertools import count

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.cli.signals import interruptible
from harness.config.benchmark import load_benchmark
from harness.dataset import tokenizer
from harness.endpoints.point_run import WARM_UP, read_point_run
from harness.endpoints.salting import text_after
from harness.errors import ConfigError
from harness.record.answer_log import read_query_answers
from harness.record.journal import read_journal
from sut.endpoints.point import _cut, run_point
from sut.issuers.passes import SampleOrder
from sut.supervisor import monitor
from tests.endpoints_kit import point_run
from tests.kit import PATIENCE_S
from tests.stub import Fault, StubServer, every, expected_ids
from tests.sut.endpoints.rehearsing import (
    PROMPTS,
    ROWS,
    SEEDS,
    SYSTEM,
    USER,
    Watcher,
    client_of,
    curve_of,
    opened,
    point_of,
    rehearsed,
)

TOKENS = 8
KNOBS = {"event_delay_s": 0.004, "first_delay_s": 0.01}
MARK = re.compile(r"\[([0-9a-f]+)\] ")
SHARED = [*SYSTEM, *USER]
ORDER = SampleOrder(ROWS, SEEDS.sample_index)


def rows_of(folder, name="requests.parquet"):
    return sorted(pq.read_table(folder / name).to_pylist(), key=lambda row: row["query_id"])


def in_flight(requests):
    """The most requests at the servers at once."""
    times = [(one.received_ns, 1) for one in requests] + [(one.last_sent_ns, -1) for one in requests]
    return int(np.cumsum([step for _, step in sorted(times)]).max())


def test_a_point_over_two_replicas(tmp_path):
    point, watcher = point_of(4, passes=3), Watcher()
    with StubServer(**KNOBS) as one, StubServer(**KNOBS) as other:
        run = rehearsed(
            tmp_path, point, one.url, other.url, watcher=watcher, tokenizer=os.path.relpath(__file__)
        )
    folder = tmp_path / "r4"
    assert run.tokenizer == __file__  # the check counts with it, wherever it is called
    assert (run.complete, run.errors, run.failures) == (True, (), {})
    assert (run.issued, run.completed, run.passes) == (3 * ROWS, 3 * ROWS, 3)
    assert read_point_run(folder) == run
    rows = rows_of(folder)
    assert [row["query_id"] for row in rows] == list(range(3 * ROWS))
    for number in range(3):
        issued = [row["sample_index"] for row in rows[number * ROWS : (number + 1) * ROWS]]
        assert issued == ORDER.of(number + 1)
        assert sorted(issued) == list(range(ROWS))
    issued, ended = ([row[name] for row in rows] for name in ("issued_ns", "last_byte_ns"))
    assert run.issue_s == pytest.approx((max(issued) - min(issued)) / 1e9)
    assert run.drain_s == pytest.approx((max(ended) - max(issued)) / 1e9)
    assert run.own is not None and run.own.tokens == 3 * ROWS * TOKENS
    assert run.own.seconds == pytest.approx(run.issue_s + run.drain_s)
    assert run.network is not None and run.network.count >= 20
    assert 0 < run.network.min_ns <= run.network.p50_ns
    # Those of the trial are the first request of each server.
    sent = [*one.requests[1:], *other.requests[1:]]
    assert len(sent) == 8 + 3 * ROWS
    assert in_flight(sent) == 4


def test_a_point_whose_clocks_were_slewed_is_not_complete(tmp_path, monkeypatch):
    """By as much as chronyd slews them in 12 s to mend an error of a second."""
    readings = count()
    monkeypatch.setattr(monitor, "slewed_ns", lambda: min(next(readings), 1) * 10**9)
    with StubServer(**KNOBS) as stub:
        run = rehearsed(tmp_path, point_of(2), stub.url)
    (error,) = run.errors
    assert re.match(r"this machine's clocks ran 1\.00 s fast in the \d+\.\d\d s of its", error)
    assert (run.complete, run.failures) == (False, {})


def test_the_warm_up_is_declared_and_kept_apart(tmp_path):
    with StubServer(**KNOBS) as stub:
        run = rehearsed(tmp_path, point_of(3), stub.url)
    warm_up, rows = run.warm_up, rows_of(tmp_path / "r3", "warm_up.parquet")
    assert (warm_up.requests_issued, warm_up.requests_completed, warm_up.concurrency) == (6, 6, 3)
    assert [row["query_id"] for row in rows] == list(range(WARM_UP, WARM_UP + 6))
    assert [row["sample_index"] for row in rows] == ORDER.of(0)[:6]
    first = rows_of(tmp_path / "r3")[0]["issued_ns"]
    assert warm_up.duration_s == pytest.approx((first - rows[0]["issued_ns"]) / 1e9)
    assert str(tmp_path / "dataset.parquet") in warm_up.data_source and "salted" in warm_up.data_source
    assert warm_up.initialization_steps


@pytest.mark.engine
def test_each_request_has_a_salt_of_its_own_before_the_users_text(tmp_path):
    """Nothing else of a prompt changes. The same seeds give the same salts elsewhere; another point has
    others, as has another run of the point, whose servers may still have the prompts of the first."""
    marks, plain = [], {tokenizer.decode(prompt) for prompt in PROMPTS}
    for place, name in (("one", "r2"), ("two", "r2"), ("one", "other"), ("one", "r2")):
        folder = tmp_path / place
        folder.mkdir(exist_ok=True)
        with StubServer() as stub:
            run = rehearsed(folder, point_of(2, name=name), stub.url)
        sent = [one.prompt_ids for one in stub.requests[1:]]  # after the trial
        found = []
        for ids in sent:
            assert ids[: len(SHARED)] == SHARED
            text = tokenizer.decode(ids)
            mark = MARK.match(text, len(tokenizer.decode(SHARED)))
            assert mark is not None
            assert text.replace(mark[0], "") in plain
            found.append(mark[1])
        assert len(found) == len(set(found)) == 4 + run.issued
        assert {row["isl"] for row in rows_of(folder / name)} == set(map(len, sent))
        marks.append(set(found))
    assert marks[0] == marks[1]
    assert not marks[0] & marks[2] and not marks[0] & marks[3]
    assert min(map(len, marks[0])) * 3.5 >= 128  # each pair of digits holds 7 bits


def test_without_a_place_for_the_salt_nothing_is_sent(tmp_path):
    prompts = [*PROMPTS[:7], [5, 6, 7], *PROMPTS[8:]]
    with StubServer() as stub:
        with pytest.raises(ConfigError, match=r"row 7.*<\|start\|>user<\|message\|>"):
            rehearsed(tmp_path, point_of(2), stub.url, prompts=prompts)
        assert stub.requests == []
    assert not (tmp_path / "r2").exists()


@pytest.mark.engine
def test_an_unsalted_point_sends_the_dataset_as_it_is(tmp_path):
    point = point_of(2)
    with StubServer() as stub:
        run = rehearsed(tmp_path, point, stub.url, curve=curve_of(point, salt_bits=0))
    assert run.complete and run.warm_up.data_source.endswith("not salted")
    assert {tuple(one.prompt_ids) for one in stub.requests} == set(map(tuple, PROMPTS))


@pytest.mark.engine
def test_answers_are_kept_by_query_with_the_arrival_of_their_first_text(tmp_path):
    with StubServer(**KNOBS) as stub:
        run = rehearsed(tmp_path, point_of(2), stub.url)
    hidden = text_after(load_benchmark(run.curve.benchmark))
    assert hidden == 3  # <|channel|>, its name, <|message|>
    answers = {one.query_id: one for one in read_query_answers(tmp_path / "r2" / "journal")}
    rows = [*rows_of(tmp_path / "r2"), *rows_of(tmp_path / "r2", "warm_up.parquet")]
    assert sorted(answers) == sorted(row["query_id"] for row in rows)
    prompts = {tuple(expected_ids(one.prompt_ids, TOKENS)) for one in stub.requests[1:]}
    assert {tuple(one.place.output_ids().tolist()) for one in answers.values()} == prompts
    for row in rows:
        answer = answers[row["query_id"]]
        assert (row["visible_ns"], row["visible_tokens"]) == (answer.visible_ns, answer.visible_tokens)
        assert row["first_token_ns"] <= row["visible_ns"] <= row["last_byte_ns"]
        assert row["visible_tokens"] > hidden  # the fourth, unless several came at once
    assert min(row["visible_tokens"] for row in rows) == hidden + 1
    assert len(read_journal(tmp_path / "r2" / "journal").rows) == len(rows)


@pytest.mark.engine
def test_passes_are_issued_until_the_time_is_over(tmp_path):
    watcher = Watcher()
    with StubServer(**KNOBS) as stub:
        run = rehearsed(tmp_path, point_of(6, passes=1, issue_s=2.0), stub.url, watcher=watcher)
    assert run.complete and run.passes > 1
    assert run.issued == run.passes * ROWS and run.issue_s >= 2.0
    assert any(phase.startswith("pass ") and "of at least 2 s" in phase for phase in watcher.phases)


def test_a_dedicated_offline_run_issues_everything_at_once(tmp_path):
    """The server answers none of its requests before it has all of them."""
    point, total = point_of(2 * ROWS, name="offline", offline="dedicated"), 2 * ROWS

    def has_all(request):
        # The trial, then the warm-up; the requests of the passes are the last.
        return request.index < 1 + 16 or len(stub.requests) == 1 + 16 + total

    with StubServer(gate=has_all) as stub:
        run = rehearsed(tmp_path, point, stub.url)
    rows = rows_of(tmp_path / "offline")
    assert run.complete and run.issued == len(rows) == total
    assert run.warm_up.requests_issued == 16
    assert len({row["issued_ns"] for row in rows}) == 1
    assert [row["sample_index"] for row in rows] == [*ORDER.of(1), *ORDER.of(2)]
    untimed = ("first_token_ns", "visible_ns", "visible_tokens")
    assert {row[name] for row in rows for name in untimed} == {None}
    assert not any(one.body["stream"] for one in stub.requests[1:])
    warmed = rows_of(tmp_path / "offline", "warm_up.parquet")
    assert max(row["last_byte_ns"] for row in warmed) < rows[0]["issued_ns"]
    assert not any("at once, of which" in warning for warning in run.warnings)


@pytest.mark.engine
def test_an_offline_run_says_that_it_holds_fewer_in_flight(tmp_path):
    point = point_of(2 * ROWS, name="offline", offline="dedicated")
    with StubServer(event_delay_s=0.01) as stub:
        client = msgspec.structs.replace(client_of(tmp_path, stub.url), max_concurrency=5)
        run = run_point(curve_of(point), point, opened(client), tmp_path / "offline", Watcher())
    assert run.complete and run.issued == 2 * ROWS
    assert any("24 requests are issued at once, of which the client holds 5" in one for one in run.warnings)
    assert in_flight(stub.requests[1:]) == 5


@pytest.mark.engine
def test_failed_requests_are_counted(tmp_path):
    watcher = Watcher()
    with StubServer(faults=every(9, Fault.CUT_CHUNKED, first=20), event_delay_s=0.05) as stub:
        run = rehearsed(tmp_path, point_of(4, passes=3), stub.url, watcher=watcher)
    rows = rows_of(tmp_path / "r4")
    failed = sum(row["failure"] == "truncated" for row in rows)
    assert run.failures == {"truncated": failed} and failed > 0
    assert run.complete and run.issued == 3 * ROWS == run.completed + failed
    assert any("FAILED (truncated" in phase for phase in watcher.phases)


@pytest.mark.parametrize(
    ("issued", "completed", "failed", "passes", "complete"),
    [
        (36, 34, 2, 3, True),
        (48, 48, 0, 4, True),  # until the time was over
        (36, 35, 0, 3, False),  # a row is missing
        (35, 36, 0, 3, False),
        (37, 37, 0, 3, False),
        (24, 24, 0, 2, False),
    ],
)
def test_a_point_ends_with_complete_passes_in_which_each_request_has_an_end(
    issued, completed, failed, passes, complete
):
    point = point_of(4, passes=3, issue_s=1.0)
    run = msgspec.structs.replace(
        point_run(point),
        curve=curve_of(point),
        issued=issued,
        completed=completed,
        failures={"truncated": failed} if failed else {},
        passes=passes,
    )
    assert (not [*_cut(run)]) == complete


@pytest.mark.engine
def test_a_server_that_dies_leaves_a_point_that_is_not_complete(tmp_path):
    with StubServer(**KNOBS) as stub:
        watcher = Watcher(lambda phase: stub.stop() if phase.startswith("pass") else None)
        point = point_of(4, passes=200)
        run = rehearsed(tmp_path, point, stub.url, watcher=watcher)
    assert not run.complete and run.errors
    kept = read_point_run(tmp_path / "r4")
    assert kept == run and kept.completed == sum(row["failure"] is None for row in rows_of(tmp_path / "r4"))
    assert kept.completed > 0


@pytest.mark.engine
def test_one_of_two_servers_that_dies_is_named(tmp_path):
    """Also at once, as the point is to be run again."""
    said, late = threading.Event(), threading.Event()

    def look(phase):
        if phase.startswith("pass"):
            dying.stop()
        if phase.startswith(f"lost: {dying.url} was out of use (Ctrl-C, then repeat the command), "):
            said.set()
        elif len(watcher.phases) > PATIENCE_S:
            late.set()

    waits = {"gate": lambda request: request.index < ROWS or said.is_set() or late.is_set()}
    watcher = Watcher(look)
    with StubServer(**KNOBS, **waits) as stub, StubServer(**KNOBS) as dying:
        run = rehearsed(tmp_path, point_of(4, passes=30), stub.url, dying.url, watcher=watcher)
    assert said.is_set() and not run.complete
    assert any(dying.url in error for error in run.errors)


def test_a_signal_ends_a_point_and_keeps_what_was_answered(tmp_path):
    once = iter([signal.SIGINT])

    def interrupt(phase):
        if phase.startswith("pass") and (number := next(once, None)) is not None:
            signal.raise_signal(number)

    with StubServer(**KNOBS) as stub, interruptible():
        run = rehearsed(tmp_path, point_of(4, passes=200), stub.url, watcher=Watcher(interrupt))
    assert (run.complete, run.interrupted_by) == (False, "SIGINT")
    assert read_point_run(tmp_path / "r4") == run
    assert 0 < run.completed <= run.issued
    answers = [one for one in read_query_answers(tmp_path / "r4" / "journal") if one.query_id < WARM_UP]
    assert len(answers) == run.completed == len(rows_of(tmp_path / "r4"))


@pytest.mark.engine
def test_the_warm_up_fills_the_servers_and_is_not_longer_than_a_pass(tmp_path):
    with StubServer() as stub, StubServer() as other, StubServer() as third:
        urls = (stub.url, other.url, third.url)
        sizes = [
            rehearsed(tmp_path, point_of(held, passes=1), *urls).warm_up.requests_issued
            for held in (1, 4, 10, 15)
        ]
    assert sizes == [3, 8, ROWS, 15]


@pytest.mark.engine
def test_servers_that_close_connections_have_no_round_trip(tmp_path):
    with StubServer(close_after_response=True) as stub:
        run = rehearsed(tmp_path, point_of(2), stub.url)
    assert run.complete and run.network is None
    assert any("round trip" in warning for warning in run.warnings)


@pytest.mark.engine
def test_a_signal_in_the_warm_up_leaves_a_point_without_requests(tmp_path):
    def interrupt(phase):
        assert phase.startswith("warm-up: 0 of 8")
        signal.raise_signal(signal.SIGINT)

    with StubServer(gate=lambda request: request.index < 1) as stub, interruptible():
        run = rehearsed(tmp_path, point_of(4), stub.url, watcher=Watcher(interrupt))
    assert (run.complete, run.interrupted_by, run.issued, run.completed) == (False, "SIGINT", 0, 0)
    assert (run.warm_up.requests_issued, run.warm_up.requests_completed) == (4, 0)
    assert read_point_run(tmp_path / "r4") == run
    assert rows_of(tmp_path / "r4") == rows_of(tmp_path / "r4", "warm_up.parquet") == []


@pytest.mark.engine
def test_a_table_that_cannot_be_written_is_an_error_of_the_point(tmp_path):
    def block(phase):
        (tmp_path / "r2" / "requests.parquet.partial").mkdir(exist_ok=True)

    with StubServer(event_delay_s=0.05) as stub:
        run = rehearsed(tmp_path, point_of(2, passes=3), stub.url, watcher=Watcher(block))
    (error,) = run.errors
    assert error.startswith(f"{tmp_path}/r2/requests.parquet could not be written: ") and not run.complete
    assert read_point_run(tmp_path / "r2") == run


@pytest.mark.engine
def test_a_journal_that_cannot_grow_ends_the_point(tmp_path):
    """As on a full disk: what was written by then stays, and is said to be incomplete."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, hard))  # 50 answers
    try:
        with StubServer(event_delay_s=0.0001) as stub:
            run = rehearsed(tmp_path, point_of(4, passes=20), stub.url, tokens=400, num_workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not run.complete and "journal" in run.errors[0]
    assert read_point_run(tmp_path / "r4") == run
    assert 0 < run.completed == len([row for row in rows_of(tmp_path / "r4") if row["failure"] is None])


@pytest.mark.engine
def test_a_worker_that_is_killed_leaves_a_point_that_is_not_complete(tmp_path):
    once = iter([True])

    def kill(phase):
        if phase.startswith("pass") and next(once, False):
            # Workers start after the issuing process; the names of processes count them.
            names = {int(one.name.rpartition("-")[2]): one for one in multiprocessing.active_children()}
            names[max(names)].kill()

    with StubServer(**KNOBS) as stub:
        run = rehearsed(tmp_path, point_of(4, passes=60), stub.url, watcher=Watcher(kill), num_workers=2)
    assert not run.complete and "SIGKILL" in run.errors[0]
    assert run.failures.get("worker_lost", 0) <= 4
    assert read_point_run(tmp_path / "r4") == run


@pytest.mark.engine
def test_another_run_of_a_point_moves_the_first_aside(tmp_path):
    with StubServer() as stub:
        first = rehearsed(tmp_path, point_of(2), stub.url)
        second = rehearsed(tmp_path, point_of(2), stub.url)
    (aside,) = tmp_path.glob("r2.*")
    assert read_point_run(aside) == first
    assert read_point_run(tmp_path / "r2") == second
