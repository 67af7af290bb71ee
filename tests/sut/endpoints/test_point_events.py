"""A point on the stub, in Endpoints' files and definitions."""

import json

import pyarrow.parquet as pq
import pytest

from harness.endpoints.numbers.both_definitions import both_definitions
from harness.endpoints.numbers.event_reader import read_events
from harness.endpoints.numbers.event_writer import write_events
from harness.endpoints.numbers.result_summary import write_summary
from tests.stub import StubServer
from tests.sut.endpoints.rehearsing import PROMPTS, point_of, rehearsed

pytestmark = pytest.mark.engine
PASSES, TOKENS = 2, 16


def test_from_the_journal_to_the_summary(tmp_path):
    with StubServer(event_delay_s=0.01) as stub:
        run = rehearsed(tmp_path, point_of(4, passes=PASSES), stub.url, tokens=TOKENS)
    assert run.complete, run.errors
    folder = tmp_path / "r4"
    assert write_events(folder, None, ended=True) == PASSES * len(PROMPTS)
    events = read_events(folder, None)
    assert (events.ended, events.notes) == (True, ())
    # The salt is part of what was sent.
    assert sorted(events.isl)[0] > len(PROMPTS[0])
    summary = write_summary(folder, events, client="this one", window=(0, len(PROMPTS)))
    assert json.loads((folder / "performance" / "result_summary.json").read_text()) == summary
    assert summary["n_samples_completed"] == run.own.queries
    assert summary["window"]["n_samples_issued"] == len(PROMPTS)
    rows = {row.name: row for row in both_definitions(run.own, summary)}
    # The first tokens of gpt-oss are markers: text comes later, or in the same read on a busy machine.
    table = pq.read_table(folder / "requests.parquet")
    later = events.samples["first_ns"] - table["first_token_ns"].to_numpy()
    assert (later >= 0).all() and (later > 0).any()
    assert (events.samples["complete_ns"] == table["last_byte_ns"].to_numpy()).all()
    assert rows["output tokens"].ours == run.own.queries * TOKENS
    assert summary["latency"]["percentiles"]["90.0"] <= run.own.latency.p90_ns
