"""The settings that LoadGen itself reads back."""

import json
import subprocess
import sys

import pytest

from harness.campaign.expected import DEFAULTS
from harness.config.benchmark import load_benchmark
from harness.config.rule_checks import locked_settings, round_settings, setting_deviations
from harness.config.scenario import Scenario

# One process for each test: a second FromConfig in one process is an invalid run.
READ_BACK = """
import json, sys
from sut.loadgen.binding import TestSpec, configure, read_back
print(json.dumps(read_back(configure(TestSpec(**json.loads(sys.argv[1]))))))
"""


@pytest.mark.parametrize(
    ("name", "scenario"),
    [("gpt-oss-120b", Scenario.INTERACTIVE), ("llama3.1-8b-edge", Scenario.SINGLE_STREAM)],
)
def test_settings_of_an_earlier_round(name, scenario, tmp_path):
    """In place of LoadGen's own, its seeds too, and below the user's; what neither has is LoadGen's."""
    benchmark = load_benchmark(name, "v6.0")
    user_conf = tmp_path / "user.conf"
    user_conf.write_text("*.*.min_duration = 700000\n")
    spec = {
        "model_key": benchmark.model_key(scenario),
        "scenario": scenario.loadgen,
        "accuracy": False,
        "user_conf": str(user_conf),
        "mlperf_conf": None,
        "round_settings": round_settings(benchmark, scenario),
        "audit_text": None,
        "audit_config": "",
        "samples": 100_000,
        "log_dir": "",
        "journal_dir": "",
    }
    command = [sys.executable, "-c", READ_BACK, json.dumps(spec)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout.splitlines()[-1])
    assert setting_deviations(locked_settings(benchmark, scenario), found, (), 0) == ()
    assert found["schedule_rng_seed"] == 3936089224930324775
    locked = benchmark.loadgen.settings
    assert found | DEFAULTS | locked == found | locked
