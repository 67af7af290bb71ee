"""TEST06 from the command to its file: real LoadGen, datasets of the official sizes."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import run_compliance as program
from tests.harness.compliance.program import run_compliance, user_conf
from tests.harness.submission.recorded_runs import RECIPES, ending
from tests.made_up.cnn import DATACENTER, EDGE, END_OF_TURN, ROWS
from tests.made_up.deepseek_r1 import DEEPSEEK
from tests.made_up.deepseek_r1 import END as END_OF_SENTENCE
from tests.made_up.synthetic import AnsweringServer
from tests.runs import main_here

CHECKOUT = os.environ.get("HARNESS_MLCOMMONS_INFERENCE")
LOGGED = 100  # of audit.config
R1 = DEEPSEEK.name
# Tokens of each answer, and the last one.
ENDS = {DATACENTER: (20, END_OF_TURN), R1: (32, END_OF_SENTENCE)}
SAMPLES = {**ROWS, R1: DEEPSEEK.dataset(accuracy=False).samples}


@pytest.fixture(scope="module")
def dataset_of(tmp_path_factory):
    """The file of a benchmark's dataset, written once."""
    return cache(lambda benchmark: RECIPES[benchmark].write(tmp_path_factory.mktemp("data")).dataset)


def test06(folder, dataset_of, benchmark, scenario, answer=None):
    recipe = RECIPES[benchmark]
    with AnsweringServer(answer or recipe.short_answer, facts=recipe.facts) as server:
        return run_compliance(
            folder,
            *("--benchmark", benchmark, "--test", "TEST06", "--scenario", scenario),
            *("--input-file", dataset_of(benchmark), "--server-url", server.url),
            *("--user-conf", user_conf(folder), "--output-dir", folder / "out"),
        )


test06.__test__ = False  # type: ignore[attr-defined]  # not a test case
SLOW = [
    pytest.param(benchmark, scenario, marks=pytest.mark.engine)
    for benchmark in ENDS
    for scenario in ("offline", "server", "interactive")
    if (benchmark, scenario) != (R1, "server")
]


@pytest.mark.parametrize(("benchmark", "scenario"), [*SLOW, (R1, "server")])
def test_one_end_of_each_output_passes(benchmark, scenario, dataset_of, tmp_path):
    done = test06(tmp_path, dataset_of, benchmark, scenario)
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
        assert official(folder / "run", tmp_path / "theirs", scenario) == text


def official(logs, output, scenario):
    """What the official script writes."""
    script = Path(CHECKOUT) / "compliance/TEST06/run_verification.py"
    words = [sys.executable, script, "-c", logs, "-o", output, "-s", scenario.capitalize(), "-d", "int32"]
    subprocess.run(words, check=True, capture_output=True)
    return (output / "TEST06/verify_accuracy.txt").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--benchmark", EDGE, "--test", "TEST06"], f"{EDGE} has no TEST06; it needs no compliance test"),
        (["--benchmark", EDGE, "--test", "all"], f"{EDGE} needs no compliance test"),
        (["--benchmark", DATACENTER, "--test", "TEST07"], f"{DATACENTER} has no TEST07; it needs TEST06"),
        (["--benchmark", R1, "--test", "TEST06", "--scenario", "single-stream"], "single-stream"),
    ],
)
def test_what_the_benchmark_does_not_have(words, said, dataset_of, tmp_path, capfd):
    given = [*words, "--input-file", str(dataset_of(R1)), "--output-dir", str(tmp_path / "out")]
    with AnsweringServer(ending(), facts=RECIPES[R1].facts) as server:
        code, stdout, stderr = main_here(capfd, program.main, [*given, "--server-url", server.url])
        assert server.requests == []
    assert (code, stdout) == (2, "")
    (line,) = stderr.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()
