"""A point on a real engine: it reads the salted prompts, and counts their tokens itself."""

import pyarrow.parquet as pq
import pytest

from harness.dataset.samples import load_samples
from harness.record.answer_log import read_query_answers
from sut.endpoints.point import run_point
from sut.issuers.passes import SampleOrder
from tests.runs import PERFORMANCE
from tests.sut.endpoints.rehearsing import SEEDS, Watcher, client_of, curve_of, opened, point_of


@pytest.mark.engine
@pytest.mark.parametrize("offline", ["none", "dedicated"])
def test_a_point(llama_server, tmp_path, offline):
    samples = load_samples(PERFORMANCE, vocabulary_size=201088)
    count, held = len(samples), {"none": 4, "dedicated": 2 * len(samples)}[offline]
    point = point_of(held, name="point", offline=offline)
    client = client_of(tmp_path, llama_server.url, tokens=6, backend="openai", dataset=PERFORMANCE)
    curve = curve_of(point, samples=count)
    run = run_point(curve, point, opened(client), tmp_path / "point", Watcher())
    assert (run.complete, run.errors, run.failures) == (True, (), {})
    rows = pq.read_table(tmp_path / "point" / "requests.parquet").to_pylist()
    rows.sort(key=lambda row: row["query_id"])
    order = SampleOrder(count, SEEDS.sample_index)
    assert [row["sample_index"] for row in rows] == [*order.of(1), *order.of(2)]
    # The engine's own count of a prompt's tokens is compared with the client's: another one is a failure.
    assert {row["isl"] - int(samples.lengths[row["sample_index"]]) for row in rows} == {19 + 3}
    answers = {one.query_id: one for one in read_query_answers(tmp_path / "point" / "journal")}
    assert all(answers[row["query_id"]].place.count == row["osl"] > 0 for row in rows)
    assert run.own is not None and run.own.tokens == sum(row["osl"] for row in rows)
    assert (run.own.ttft is None) is (offline == "dedicated")
