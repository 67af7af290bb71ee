"""The rehearsal of an Endpoints curve, as MLCommons's own viewer reads it."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from harness.peak.ladder.endpoints import ENDPOINTS, UNMET, unmet, write_endpoints
from harness.peak.ladder.ladder_result import user_tokens_per_s
from harness.peak.ladder.steps import NOT_A_RESULT
from tests.harness.peak.ladder.made import ladder, step

VIEWER = "mlperf_endpoints_visualizer"


@pytest.mark.skipif(find_spec(VIEWER) is None, reason="mlperf-viz is not installed")
def test_the_official_viewer_shows_every_step(tmp_path):
    made = ladder()
    write_endpoints(tmp_path, made)
    program = Path(sys.executable).parent / "mlperf-viz"
    words = [program, tmp_path / ENDPOINTS, "--strict", "--export", tmp_path / "bundle.json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    bundle = json.loads((tmp_path / "bundle.json").read_text())
    assert bundle["warnings"] == []
    (submission,) = bundle["submissions"]
    assert NOT_A_RESULT in json.dumps(submission["combined_submission"])
    shown = {run["run"]["direct_fields"]["concurrency"]: run["run"] for run in bundle["runs"]}
    assert list(shown) == [one.concurrency for one in made.steps]
    for one in made.steps:
        derived, direct = (shown[one.concurrency][key] for key in ("derived_fields", "direct_fields"))
        assert derived["system_tps"] == pytest.approx(one.tokens_per_s)
        assert derived["tps_per_user"] == pytest.approx(user_tokens_per_s(one))
        assert derived["qps"] == pytest.approx(one.queries / one.seconds)
        assert derived["ttft"] == pytest.approx(one.ttft.p90_ns / 1e6)
        assert direct["measured_latency_tpot_p99"] == pytest.approx(one.tpot.p99_ns / 1e6)
        assert direct["average_output_tokens"] == one.osl_mean


def test_the_rules_that_are_not_kept_are_named(tmp_path):
    write_endpoints(tmp_path, ladder())
    text = (tmp_path / ENDPOINTS / UNMET).read_text()
    assert NOT_A_RESULT in text and "6 points" in text and "4 passes" in text and "1200 s" in text
    official = tuple(step(2**power, 100, seconds=1200.0, queries=4 * 6396) for power in range(8))
    left = list(unmet(ladder(*official)))
    assert len(left) == len(list(unmet(ladder()))) - 3  # points, seconds, passes
    unsteady = msgspec.structs.replace(official[0], steady=False)
    assert len(list(unmet(ladder(unsteady, *official[1:])))) == len(left) + 1


def test_a_ladder_without_a_step_leaves_no_point(tmp_path):
    write_endpoints(tmp_path, ladder(steps=()))
    assert [path.name for path in (tmp_path / ENDPOINTS).iterdir()] == [UNMET]
