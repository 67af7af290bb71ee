"""The block steady_state, recomputed from a log with the reference tokenizer."""

import pytest

from harness.endpoints.checks.finding import Severity
from harness.endpoints.checks.recompute import recomputed_block, recounted
from harness.endpoints.checks.tree_check import check_tree
from harness.endpoints.curve import Point
from harness.endpoints.planning.rules import load_endpoints_rules
from harness.endpoints.point_run import write_point_run
from tests.endpoints_kit import point_run
from tests.harness.endpoints.checks.passing import config, summary, write
from tests.harness.endpoints.steady.made_up_runs import SHAPES, run_of
from tests.harness.endpoints.steady.made_up_runs import write_run as write_shape

pytestmark = pytest.mark.engine  # a minute in all

SIZE, LEVEL = 40, 64


def run_folder(folder, shape: str):
    """A run folder of gpt-oss with a log of this shape."""
    samples = run_of(SHAPES[shape], 1)
    write_shape(folder, samples, LEVEL)
    settings = config(LEVEL)
    settings["datasets"][0]["samples"] = SIZE
    write(folder / "config.yaml", settings)
    counts = {"n_samples_issued": len(samples), "n_samples_completed": len(samples)}
    (folder / "performance").mkdir()
    write(folder / "performance/result_summary.json", summary(LEVEL) | counts)
    with (folder / "events.jsonl").open("a") as log:
        log.write('{"event_type": "session.ended", "timestamp_ns": 1000000000000000}\n')
    return folder


def block(run):
    """``steady_state`` of a log."""
    return recomputed_block(recounted(run), SIZE, load_endpoints_rules().least_issue_s(LEVEL))


@pytest.mark.parametrize(("shape", "verdict"), [("plateau", "STEADY STATE"), ("drifts up", "not found")])
def test_the_verdict_of_a_log(tmp_path, shape, verdict):
    found = block(run_folder(tmp_path / "r64", shape))
    assert isinstance(found, dict) and found["verdict"] == verdict


def test_a_block_that_the_log_does_not_bear_out(tmp_path):
    run = run_folder(tmp_path / "r64", "drifts up")
    claimed = block(run_folder(tmp_path / "other", "plateau"))
    write(run / "performance/result_summary.json", summary(LEVEL) | {"steady_state": claimed})
    found = check_tree(run)
    assert any(one.got == "verdict is STEADY STATE" for one in found if one.severity is Severity.ERROR)


def test_a_check_shows_how_many_bytes_it_has_counted(tmp_path):
    run, shown = run_folder(tmp_path / "r64", "plateau"), []
    check_tree(run, progress=lambda *step: shown.append(step))
    size = (run / "events.jsonl").stat().st_size
    assert shown[-1] == (size, size, "bytes of r64")


def test_tokens_are_counted_with_the_tokenizer_that_the_rehearsal_was_given(tmp_path):
    run = run_folder(tmp_path / "r64", "plateau")
    point = Point(name="r64", concurrency=LEVEL, band="low", issue_s=600, passes=1)
    write_point_run(run, point_run(point, tokenizer="/no/such/tokenizer.json"))
    assert "/no/such/tokenizer.json: no such file" in recounted(run)


@pytest.mark.parametrize("what", ["no texts", "another model", "no tokenizer of its model", "no log"])
def test_what_cannot_be_recomputed_says_why(tmp_path, nothing_downloaded, what):
    run = run_folder(tmp_path / "r64", "plateau")
    log = run / "events.jsonl"
    if what == "no texts":
        log.write_text("".join(line for line in log.read_text().splitlines(True) if "complete" not in line))
    elif what == "another model":
        write(run / "config.yaml", config(LEVEL) | {"submission_ref": {}, "model_params": {"name": "x"}})
    elif what == "no tokenizer of its model":  # gpt-oss's, which is built in, would count other tokens
        write(run / "config.yaml", config(LEVEL) | {"model_params": {"name": "Llama-3.1-8B-Instruct"}})
    else:
        log.unlink()
    assert isinstance(recounted(run), str)


def test_a_steady_state_needs_streamed_answers(tmp_path):
    run = run_folder(tmp_path / "r64", "plateau")
    log = run / "events.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(True) if "recv_first" not in line))
    assert block(run) == "the log holds no streamed text"
