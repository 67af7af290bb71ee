import json

import numpy as np
import pytest
from msgspec.structs import replace

from harness.endpoints.numbers.both_definitions import both_definitions
from harness.endpoints.numbers.event_reader import RunEvents
from harness.endpoints.numbers.result_summary import stat_block, summarize, write_summary
from harness.endpoints.point_run import OwnNumbers
from harness.endpoints.samples import SAMPLE
from harness.peak.ladder.steps import Latency
from tests.harness.endpoints.numbers.event_files import MS, OFFICIAL_RUN

OFFICIAL = json.loads((OFFICIAL_RUN / "performance" / "result_summary.json").read_text())


def run(count: int = 10, **fields) -> RunEvents:
    """Requests issued every 10 ms: TTFT 5 ms, latency 25 ms, 11 tokens, 10 after the first fragment."""
    samples = np.zeros(count, SAMPLE)
    samples["issued_ns"] = 1000 * MS + np.arange(count) * 10 * MS
    samples["first_ns"] = samples["issued_ns"] + 5 * MS
    samples["complete_ns"] = samples["issued_ns"] + 25 * MS
    samples["output_tokens"], samples["suffix_tokens"] = 11, 10
    for name, values in fields.items():
        samples[name] = values
    duration = int(samples["complete_ns"].max()) - 1000 * MS
    return RunEvents(samples, np.full(count, 7), np.ones(count, np.uint8), duration, ended=True)


def test_the_keys_are_the_official_ones():
    found = summarize(run())
    assert set(OFFICIAL) - set(found) == {"run_config"}  # the settings are in config.yaml
    assert set(found) <= set(OFFICIAL)
    assert set(OFFICIAL["latency"]) - set(found["latency"]) == {"early_stopping_percentiles"}
    assert set(found["ttft"]) <= set(OFFICIAL["ttft"])
    assert found["ttft"]["percentiles"].keys() == OFFICIAL["ttft"]["percentiles"].keys()


@pytest.mark.parametrize(("values", "deviation"), [([5], 0.0), ([1, 3], 2**0.5)])
def test_the_deviation_is_that_of_a_sample(values, deviation):
    """As in the official client's report.py: over n - 1, and 0 of a single value."""
    assert stat_block(np.array(values))["std_dev"] == pytest.approx(deviation)


def test_the_whole_run():
    found = summarize(run())
    assert (found["qps"], found["tps"]) == (10 / 0.115, 110 / 0.115)
    assert found["tpot"]["percentiles"]["90.0"] == 2 * MS
    assert found["output_sequence_lengths"]["total"] == 110
    assert found["input_sequence_lengths"]["avg"] == 7
    assert (found["duration_ns"], found["complete"]) == (115 * MS, True)


def test_an_answer_in_one_fragment_has_no_tpot():
    found = summarize(run(suffix_tokens=np.arange(10) % 2 * 10))
    assert (found["tpot"]["min"], found["tpot"]["max"], found["tpot"]["avg"]) == (2 * MS, 2 * MS, 2 * MS)


def test_a_window_counts_what_was_issued_in_it_over_the_time_of_issuing():
    output = np.where(np.arange(10) < 4, 11, 101)
    window = summarize(run(output_tokens=output), (4, 8))["window"]
    assert window["n_samples_issued"] == 4
    assert window["duration_ns"] == 30 * MS
    assert window["tps"] == 404 / 0.03
    assert window["first_request"] == 4


@pytest.mark.parametrize("count", [1, 2, 10, 11, 100, 101, 999])
def test_percentiles_are_values_at_whole_ranks(count):
    """As the rules say: index int(p * (n - 1)) of the sorted values."""
    values = np.random.default_rng(count).permutation(np.arange(count) * 3)
    found = stat_block(values)["percentiles"]
    expected = np.percentile(values, [float(key) for key in found], method="lower")
    assert list(found.values()) == expected.tolist()


def test_percentiles_differ_from_ours_at_a_round_count():
    assert stat_block(np.arange(100))["percentiles"]["90.0"] == 89  # LoadGen's is 90: floor(0.9 * 100)


def test_nothing_was_measured():
    found = summarize(run(first_ns=0, complete_ns=0, output_tokens=0, suffix_tokens=0))
    assert [found[name] for name in ("ttft", "tpot", "latency", "output_sequence_lengths", "tps")] == [
        *({},) * 4,
        None,
    ]
    assert (
        summarize(RunEvents(np.zeros(0, SAMPLE), np.zeros(0), np.zeros(0, np.uint8), 0, True))["qps"] is None
    )


def test_the_file_says_what_it_is(tmp_path):
    write_summary(tmp_path, run(), client="ours 1.0", window=(0, 5), steady_state={"status": "windowable"})
    found = json.loads((tmp_path / "performance" / "result_summary.json").read_text())
    assert (found["label"], found["client"]) == ("not an MLPerf result", "ours 1.0")
    assert found["steady_state"] == {"status": "windowable"}


def test_the_submission_checker_reads_it(tmp_path):
    checker = pytest.importorskip("submission_checker.models.file.point_summary")
    written = write_summary(tmp_path, run(), client="ours")
    found = checker.PointSummary.model_validate(written)
    assert found.system_tps == written["tps"]
    assert (found.tpot_p90_ms, found.ttft_p90_ms) == (2, 5)
    assert found.n_samples_completed + found.n_samples_failed == found.n_samples_issued


OWN = OwnNumbers(
    queries=10,
    tokens=120,
    seconds=0.12,
    tokens_per_s=1000.0,
    queries_per_s=83.3,
    ttft=Latency(count=10, p50_ns=4 * MS, p90_ns=5 * MS, p99_ns=6 * MS),
    tpot=Latency(count=10, p50_ns=1 * MS, p90_ns=2 * MS, p99_ns=3 * MS),
    latency=None,
)


def test_both_definitions_side_by_side():
    rows = {row.name: row for row in both_definitions(OWN, summarize(run()))}
    assert rows["output tokens"][1:4] == ("tokens", 120, 110)
    assert rows["TTFT p90"][1:4] == ("ms", 5, 5)
    assert rows["TPOT p90"][1:4] == ("ms", 2, 2)
    assert all(row.reason for row in rows.values())


def test_one_definition_alone():
    damaged = {"ttft": None, "tpot": {"percentiles": {}}, "tps": "many"}
    assert [row.endpoints for row in both_definitions(OWN, damaged)] == [None] * 4
    untimed = replace(OWN, ttft=None, tpot=None)
    assert [row.ours for row in both_definitions(untimed, OFFICIAL)][2:] == [None] * 2
