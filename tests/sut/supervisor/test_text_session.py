"""A session whose server answers in text: its encoders, as processes, from their start to their end."""

import os
import signal
import threading
from types import SimpleNamespace

import pytest

from harness.config.run_options import parse_options
from harness.config.run_plan import resolve_plan
from harness.errors import RunError
from harness.files import JOURNAL_DIR, ROOT
from harness.grading.decoding.text_tokenizer import TextTokenizer
from harness.record.journal import read_counts, read_journal
from harness.record.outcome import FailureKind
from harness.record.settled import Placement
from sut.client.endpoint import Access, resolve_endpoint
from sut.ipc.request_store import render_requests
from sut.issuers.rows import RowsInOrder
from sut.supervisor.session import QuerySession, wires_of
from sut.wire.fields import AnswersSeen
from sut.worker.worker import Destination
from tests.kit import sample_set, scripted, wait_until
from tests.sut.recorded_text import COUNTED, IN_STREAM, NAMED, PROTOCOL, QUERY, TEXT, answering

SMALL = TextTokenizer(str(ROOT / "datasets/samples/r1_sample_tokenizer.json"), "")  # opens at once
LENGTH = len(SMALL.open().encode(TEXT, add_special_tokens=False).ids)
ROWS = 6
HELD = 4  # in flight, half of them in each worker


def counted(body):
    return body.replace(b'"completion_tokens":%d' % COUNTED, b'"completion_tokens":%d' % LENGTH)


@pytest.fixture
def text_session(tmp_path):
    """A session of two workers with rows for one server, which waits for the gate; its name for the rest."""
    gate = threading.Event()
    with scripted(answering(IN_STREAM.response, counted, gate)) as (url, _):
        flags = ["--scenario", "server", "--server-url", url, "--output-dir", str(tmp_path)]
        flags += ["--input-file", str(tmp_path / "x.parquet"), "--max-new-tokens", str(LENGTH)]
        (tmp_path / "x.parquet").touch()
        plan = resolve_plan(parse_options(flags)).client
        samples = sample_set(tmp_path, [[7] * (QUERY + 1)] * ROWS)
        seen = AnswersSeen(names=frozenset({NAMED["model"]}))
        path = "/v1/completions"
        destination = Destination(
            (resolve_endpoint(url, path, Access()),), PROTOCOL, "m", seen, tokenizer=SMALL
        )
        with QuerySession(plan, RowsInOrder(range(ROWS)), Placement(2, "")) as session:
            store = render_requests(samples, wires_of(plan, destination))
            session.start_workers(destination, store, 2, HELD)
            servers = SimpleNamespace(
                urls=[url],
                recovered=lambda url: True,
                none_left=lambda: "",
                changes=(),
                watch=lambda *_: None,
                health=lambda url: "",
                work=lambda url: None,
            )
            yield SimpleNamespace(
                session=session, gate=gate, servers=servers, journal=plan.log_dir / JOURNAL_DIR
            )


@pytest.mark.engine
def test_rows_are_answered_and_the_encoders_end_with_their_workers(text_session):
    text_session.gate.set()
    assert not text_session.session.run(lambda totals: None, text_session.servers)
    rows, counts = read_journal(text_session.journal).rows, read_counts(text_session.journal)
    assert rows["osl"].tolist() == [LENGTH] * ROWS
    assert sorted(counts.tolist()) == [(query, LENGTH, LENGTH) for query in range(ROWS)]
    seen = text_session.session.observations()
    assert seen.client.encoders == 2
    assert [child.process.exitcode for child in text_session.session._encoders] == [0, 0]
    assert seen.cpu_s is not None and not seen.errors


@pytest.mark.engine
def test_an_encoder_that_is_killed_ends_the_run_with_one_line(text_session):
    victim = text_session.session._encoders[1].process
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(RunError, match=rf"encoder 1 \(pid {victim.pid}\) was killed by SIGKILL, .*token ids"):
        text_session.session.run(lambda totals: text_session.gate.set(), text_session.servers)
    text_session.session.abort()
    failures = set(read_journal(text_session.journal).rows["failure"].tolist())
    assert failures <= {0, FailureKind.ENCODER_LOST}


@pytest.mark.engine
def test_what_a_killed_worker_had_in_flight_no_longer_is(text_session):
    """The other worker, which chooses the server with the fewest, would keep off this one."""
    session, loads = text_session.session, []

    def observe(totals):
        loads.extend(session.in_flight().tolist())
        if loads[-1] == HELD and len(loads) < 5:
            session._workers[1].process.kill()
        else:
            text_session.gate.set()

    assert session.run(observe, text_session.servers)
    assert loads[:2] == [HELD, HELD // 2]


@pytest.mark.engine
def test_encoders_end_with_killed_workers(text_session):
    for child in text_session.session._workers:
        child.process.kill()
    wait_until(lambda: all(not child.process.is_alive() for child in text_session.session._encoders))
