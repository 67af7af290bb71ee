"""TEST06 from the command to its file: real LoadGen, datasets of the official sizes."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.harness.compliance.official import CHECKOUT, run_script
from tests.harness.compliance.program import run_here, user_conf
from tests.harness.submission.edits import row
from tests.harness.submission.recorded_runs import RECIPES
from tests.made_up.cnn import DATACENTER, END_OF_TURN, ROWS
from tests.made_up.deepseek_r1 import DEEPSEEK
from tests.made_up.deepseek_r1 import END as END_OF_SENTENCE
from tests.made_up.synthetic import AnsweringServer

LOGGED = 100  # of audit.config
R1 = DEEPSEEK.name
# Tokens of each answer, and the last one.
ENDS = {DATACENTER: (20, END_OF_TURN), R1: (32, END_OF_SENTENCE)}
SAMPLES = {**ROWS, R1: DEEPSEEK.dataset(accuracy=False).samples}


@pytest.fixture(scope="module")
def dataset_of(tmp_path_factory):
    """The file of a benchmark's dataset, written once."""
    return cache(lambda benchmark: RECIPES[benchmark].write(tmp_path_factory.mktemp("data")).dataset)


SLOW = [
    pytest.param(benchmark, scenario, marks=pytest.mark.engine)
    for benchmark in ENDS
    for scenario in ("offline", "server", "interactive")
    if (benchmark, scenario) != (R1, "server")
]


@pytest.mark.parametrize(("benchmark", "scenario"), [*SLOW, (R1, "server")])
def test_one_end_of_each_output_passes(benchmark, scenario, dataset_of, tmp_path, capfd):
    recipe = RECIPES[benchmark]
    with AnsweringServer(recipe.short_answer, facts=recipe.facts) as server:
        done = run_here(
            capfd,
            *("--benchmark", benchmark, "--test", "TEST06", "--scenario", scenario, "--no-report"),
            *("--input-file", dataset_of(benchmark), "--server-url", server.url),
            *("--user-conf", user_conf(tmp_path), "--output-dir", tmp_path / "out"),
        )
    assert done.code == 0, done.stdout + done.stderr
    folder = tmp_path / "out" / scenario / "TEST06"
    first = "Skipped" if scenario == "offline" else "True"
    text = (folder / "verify_accuracy.txt").read_text()
    assert text.splitlines() == [
        f"First token check pass: {first}",
        "EOS check pass: True",
        "Sample length check pass: True",
        "TEST06 verification complete",
    ]
    log = json.loads((folder / "accuracy" / "mlperf_log_accuracy.json").read_text())
    outputs = [np.frombuffer(bytes.fromhex(entry["data"]), np.int32) for entry in log]
    assert len(outputs) == LOGGED
    assert {(len(ids), int(ids[-1])) for ids in outputs} == {ENDS[benchmark]}
    record = json.loads((folder / "run" / "run.json").read_text())
    assert record["deviations"] == []
    assert record["plan"]["samples"] == SAMPLES[benchmark]
    if CHECKOUT:
        words = ("-s", scenario.capitalize(), "-d", "int32")
        assert run_script(Path(CHECKOUT), "TEST06", folder / "run", "verify_accuracy.txt", *words) == text
    # Of a part of the samples, the log does not show by itself that the test's settings were in effect.
    row(".", effective_accuracy_log_sampling_target=10_000)(folder / "run")
    again = run_here(capfd, "verify", "TEST06", "--log-dir", folder / "run")  # the run names its benchmark
    assert again.code == 2 and "effective_accuracy_log_sampling_target was 10000" in again.stderr
