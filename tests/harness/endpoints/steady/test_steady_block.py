"""The blocks of point.yaml and result_summary.json."""

import json

import msgspec
import pytest

from harness.endpoints.steady.steady_block import (
    HeadlineShift,
    block_of,
    block_of_summary,
    headline,
    steady_block,
    steady_headline,
)
from harness.endpoints.steady.steady_point import steady_state
from tests.harness.endpoints.steady.made_up_runs import SHAPES, Shape, line, run_of

_CONCURRENCY = 64


def judged(name):
    return steady_state(run_of(SHAPES[name], 1), SHAPES[name].size, 1200)


def test_the_block_of_a_plateau():
    assert steady_block(judged("plateau")) == {
        "status": "windowable",
        "verdict": "STEADY STATE",
        "window": {
            "super_pass_start": 1,
            "super_pass_end": 8,
            "super_pass_size": 40,
            "n_samples": 320,
            "duration_s": 1595.0,
        },
        "state": {"tpot_p50": "Plateau", "tpot_p90": "Plateau"},
    }


@pytest.mark.parametrize(("name", "found"), [("plateau", True), ("too short", False), ("few passes", False)])
def test_only_what_was_not_found_has_a_reason(name, found):
    """As in the official client's headline."""
    made = headline(judged(name))
    assert (made.found, made.reason is None) == (found, found)


def test_only_a_level_shift_has_an_anomaly():
    assert {name for name in SHAPES if "anomaly" in steady_block(judged(name))} == {
        *("steps up late", "steps down late")
    }
    assert steady_block(judged("steps up late"))["anomaly"]["change_point_sp"] == 24


def test_a_shift_that_the_official_client_did_not_detect_is_none():
    found = headline(judged("plateau"))
    looked = msgspec.structs.replace(found, anomaly=HeadlineShift(detected=False))
    one, other = (block_of(read, complete=9, required_s=0.0) for read in (found, looked))
    assert one == other and one["verdict"] == "STEADY STATE"


def test_without_a_plateau_there_is_no_window():
    block = steady_block(judged("few passes"))
    assert block == {"status": "insufficient_passes", "verdict": "not found"}
    drifting = Shape(line(20, 60, 10), noise=0.0, scatter=0.0)
    state = steady_state(run_of(drifting, 1), drifting.size, 1200)
    assert state.requests is None
    assert steady_block(state)["state"] == {"tpot_p50": "Drifting Up", "tpot_p90": "Drifting Up"}


@pytest.mark.parametrize("name", SHAPES)
def test_the_official_checker_accepts_it(name):
    """Its vocabulary, and its rule that status and window agree."""
    checker = pytest.importorskip("submission_checker.models.file.steady_state")
    read = checker.SteadyState.model_validate(steady_block(judged(name)))
    assert read.status in checker.STEADY_STATE_STATUSES
    assert read.verdict in checker.STEADY_STATE_VERDICTS
    assert set(read.state.values()) <= set(checker.GATING_STATES)
    spans = read.window.super_passes
    if read.is_official:
        assert spans >= checker.MIN_TREND_N
        assert not read.drifting_metrics
    assert read.status != "insufficient_passes" or spans is None


@pytest.mark.parametrize("name", SHAPES)
def test_a_result_summary_is_enough_for_the_block(name):
    """As a run folder of the official client has it: through JSON."""
    state = judged(name)
    summary = json.loads(json.dumps(msgspec.to_builtins(headline(state))))
    block = steady_block(state)
    if state.status == "partial_dataset":  # A headline does not say whether its only super-pass is complete.
        block["status"] = "insufficient_passes"
    assert block_of_summary({"steady_state": summary}, _CONCURRENCY) == block


def test_the_block_of_a_summary_holds_the_keys_of_both_files():
    state = judged("plateau")
    found = steady_headline(state)
    block = steady_block(state)
    assert found["window"].items() >= block.pop("window").items()
    assert found.items() >= block.items()
    assert (found["found"], found["window"]["sp_lo"], found["window"]["sp_hi"]) == (True, 0, 8)


def test_this_clients_own_summary_has_the_block_as_it_is():
    state = judged("part of a pass")
    assert state.status == "partial_dataset"  # which a headline does not say
    assert block_of_summary({"steady_state": steady_headline(state)}, _CONCURRENCY) == steady_block(state)


@pytest.mark.parametrize("found", [None, [], {}, {"found": True, "window": {"sp_lo": "x"}}])
def test_what_is_no_headline_is_no_block(found):
    assert block_of_summary({"steady_state": found}, _CONCURRENCY) is None


def test_fields_that_another_version_adds_or_lacks_do_no_harm():
    state = judged("plateau")
    found = msgspec.to_builtins(headline(state)) | {"new": 1, "tps": {"per_user": 1.0}, "ttft": {}}
    found["window"] = {name: found["window"][name] for name in ("sp_lo", "sp_hi", "n_samples")}
    del found["short_window"]["dominant"]
    assert block_of_summary({"steady_state": found}, _CONCURRENCY) == steady_block(state)
