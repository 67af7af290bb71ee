"""The rehearsal of the guide's example on the embedded engine, killed at random moments."""

import json
import os
import random
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from harness.campaign.journal import history
from tests.runs import ROOT

POINTS = int(os.environ.get("HARNESS_KILL_POINTS", "1"))
EXAMPLE = ROOT / "configs/submission/example.toml"
CUT_OFF = ("started", "opened")
LLAMA = """
[benchmarks."llama3.1-8b".offline]
[benchmarks."llama3.1-8b".server]
"""
# With many kills: its grader takes minutes more, and tests/documents rehearses its page, too.
DEEPSEEK = """
[benchmarks.deepseek-r1.offline]
[benchmarks.deepseek-r1.server]
"""


def rehearse(file: Path, **words) -> subprocess.Popen[str]:
    command = [ROOT / "mlperf", "campaign", file, "--rehearsal"]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **words)


@pytest.mark.engine
@pytest.mark.timeout(3000)
def test_benchmarks_are_rehearsed_in_spite_of_kills(tmp_path):
    file = tmp_path / EXAMPLE.name
    names = {"gpt-oss-120b", "llama3.1-8b"} | ({"deepseek-r1"} if POINTS > 1 else set())
    file.write_text(EXAMPLE.read_text() + LLAMA + (DEEPSEEK if POINTS > 1 else ""))
    dice = random.Random(f"rehearsal {POINTS}")
    for _ in range(POINTS):
        campaign = rehearse(file)
        time.sleep(dice.uniform(1, 40))
        campaign.kill()
        campaign.communicate()
    campaign = rehearse(file)
    output, _ = campaign.communicate()
    assert campaign.returncode == 0, output[-4000:]
    events = list(history(tmp_path / "mlperf_results_rehearsal/campaign"))
    done = [one["step"] for one in events if one.get("state") == "done"]
    # A kill may come between a step's end and its event: then its result stands, and it is not made again.
    cut = {one["step"] for one, after in pairwise(events) if (one["event"], after["event"]) == CUT_OFF}
    assert len(done) == len(set(done))
    assert len(cut) <= POINTS
    assert len(cut | set(done)) == 2 * (5 + 4 * (len(names) - 1)) + 2
    tree = tmp_path / "rehearsal"
    logs = sorted(tree.with_name("rehearsal.kept").rglob("accuracy/mlperf_log_accuracy.json"))
    assert len(logs) >= 2 * len(names)
    for log in logs:
        samples = [one["qsl_idx"] for one in json.loads(log.read_text())]
        assert len(samples) == len(set(samples))
    assert {path.parent.name for path in tree.rglob("Offline")} == names
