"""The program on the embedded engine: a real model behind a real server, all scenarios and both modes."""

import re
import shlex
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.dataset.model_tokenizer import load_tokenizer
from tests.runs import ACCURACY, PERFORMANCE, SAMPLES, run_mlperf

NEWS, NEWS_TOKENIZER = SAMPLES / "cnn_sample.json", SAMPLES / "cnn_sample_tokenizer.json"
END_OF_TURN = 128009
QUESTIONS, QUESTIONS_TOKENIZER = SAMPLES / "r1_sample.parquet", SAMPLES / "r1_sample_tokenizer.json"
THOUGHT_END, END_OF_SENTENCE = 128799, 1
SCENARIOS = ["offline", "server", "interactive", "single-stream"]
NEW_TOKENS = 6


def embedded(tmp_path, *arguments, **settings):
    where = ("--backend", "embedded", "--max-new-tokens", NEW_TOKENS)
    return run_mlperf(tmp_path, *where, *arguments, **settings)


@pytest.mark.engine
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_accuracy(scenario, tmp_path):
    """LoadGen logs every sample exactly once, with as many tokens as requests.parquet has."""
    run = embedded(tmp_path, "--accuracy", "--input-file", ACCURACY, scenario=scenario, qps=20)
    assert run.code == 0, run.stdout + run.stderr
    assert "No errors encountered during test." in run.loadgen_summary
    answers = run.accuracy_log
    assert sorted(answers) == list(range(pq.read_metadata(ACCURACY).num_rows))
    assert {row["sample_index"]: row["osl"] for row in run.requests} == {
        index: len(ids) for index, ids in answers.items()
    }
    assert all(0 <= token < 201088 for ids in answers.values() for token in ids)
    log = run.log_dir / "mlperf_log_accuracy.json"
    words = scoring_command(run)
    assert [Path(word).name for word in words[:2]] == [Path(sys.executable).name, "eval_mlperf_accuracy.py"]
    assert tmp_path / words[words.index("--mlperf-log") + 1] == log


@pytest.mark.engine
@pytest.mark.parametrize(
    ("benchmark", "scenario"),
    [("llama3.1-8b", "offline"), ("llama3.1-8b", "server"), ("llama3.1-8b-edge", "single-stream")],
)
def test_llama(benchmark, scenario, tmp_path):
    """The benchmark with a vocabulary and articles of our own: ids as its sample's tokenizer has them."""
    answers, printed = scored(tmp_path, benchmark, NEWS, NEWS_TOKENIZER, scenario=scenario, qps=4)
    assert sorted(answers) == list(range(24))
    assert {len(ids) for ids in answers.values() if ids[-1] != END_OF_TURN} <= {128}
    assert re.search(r"'rouge1': '[\d.]+', .*'gen_len': \d+, 'gen_num': 24\}", printed)


@pytest.mark.engine
@pytest.mark.parametrize("scenario", ["offline", "server", "interactive"])
def test_deepseek(scenario, tmp_path):
    """The benchmark on questions of our own in its five kinds; an answer is a thought and a letter."""
    sample = (QUESTIONS, QUESTIONS_TOKENIZER)
    answers, printed = scored(tmp_path, "deepseek-r1", *sample, scenario=scenario, qps=20)
    assert sorted(answers) == list(range(32))
    assert all(ids.count(THOUGHT_END) == 1 and ids[-1] == END_OF_SENTENCE for ids in answers.values())
    assert set(re.findall(r"(?m)^(\w+), official: ", printed)) >= {"aime1983", "gpqa", "math500", "mmlu_pro"}
    figures = literal_eval(printed.splitlines()[-1])
    assert figures["num-samples"] == 32
    assert figures["tokens_per_sample"] == sum(map(len, answers.values())) / 32


@pytest.mark.engine
@pytest.mark.parametrize("api", ["completions-text", "chat"])
@pytest.mark.parametrize(
    ("benchmark", "dataset"),
    [("gpt-oss-120b", ACCURACY), ("deepseek-r1", QUESTIONS), ("llama3.1-8b", NEWS)],
)
def test_prompts_as_text(benchmark, dataset, api, tmp_path):
    """The server makes the ids of the dataset of them; llama3.1-8b's prompts have no chat template."""
    flags = ("--benchmark", benchmark, "--accuracy", "--input-file", dataset, "--max-samples", 8)
    run = embedded(tmp_path, *flags, "--api", api)
    if (benchmark, api) == ("llama3.1-8b", "chat"):
        assert (run.code, "starting the embedded engine" in run.stderr) == (2, False)
        assert run.stderr.endswith("; --api completions-text sends complete prompts\n")
        return
    assert run.code == 0, run.stdout + run.stderr
    assert sorted(run.accuracy_log) == list(range(8))


def scored(folder, benchmark, sample, tokenizer, **settings):
    """The answers to a sample, and what the evaluator prints, by the command that the run printed.

    A model with random weights answers with tokens that the sample's tokenizer has, and fails the target.
    """
    flags = ("--backend", "embedded", "--benchmark", benchmark, "--accuracy", "--input-file", sample)
    run = run_mlperf(folder, *flags, **settings)
    assert run.code == 0, run.stdout + run.stderr
    assert "Result: VALID, NOT OFFICIAL" in run.stdout
    answers, known = run.accuracy_log, set(load_tokenizer(tokenizer).get_vocab().values())
    assert {token for ids in answers.values() for token in ids} <= known
    done = subprocess.run(scoring_command(run), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 5, done.stderr
    return answers, done.stdout


def scoring_command(run):
    (hint,) = (line for line in run.stdout.splitlines() if line.startswith("Score it with: "))
    return shlex.split(hint.removeprefix("Score it with: "))


@pytest.mark.engine
def test_streamed_and_complete_answers_are_the_same(tmp_path):
    """Greedy, one request at a time: a batch of another size can change the order of two equal tokens."""
    config = tmp_path / "greedy.json"
    config.write_text('{"temperature": 0.0, "ignore_eos": true}')
    flags = ("--accuracy", "--input-file", ACCURACY, "--max-samples", 16, "--max-concurrency", 1)
    answers = []
    for stream in ("on", "off"):
        run = embedded(tmp_path, *flags, "--generation-config", config, "--stream", stream)
        assert run.code == 0, run.stdout + run.stderr
        assert all((row["first_token_ns"] is not None) == (stream == "on") for row in run.requests)
        answers.append(run.accuracy_log)
    assert answers[0] == answers[1]


@pytest.mark.engine
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_performance(scenario, tmp_path):
    """No failure, no LoadGen error; only the latency limits may be beyond a shared two-core machine."""
    run = embedded(tmp_path, "--input-file", PERFORMANCE, scenario=scenario, qps=15, duration_ms=5000)
    assert run.record["verdict"]["complete"], run.record["verdict"]["reasons"]
    assert scenario != "offline" or (run.code, run.result) == (0, "VALID")
    assert run.failures == {}
    assert "No errors encountered during test." in run.loadgen_summary
    assert run.record["statistics"]["queries"] == run.record["statistics"]["completed"] >= 64
    if scenario == "server":
        assert_tpot_is_loadgens(run)


def assert_tpot_is_loadgens(run):
    """TPOT in LoadGen's summary equals (last - first) / (n - 1) of requests.parquet."""
    rows = pq.read_table(run.log_dir / "requests.parquet").to_pandas()
    gaps = rows["osl"] - 1
    ours = (rows["last_byte_ns"] - rows["first_token_ns"]) / gaps
    as_reported = (rows["reported_done_ns"] - rows["reported_first_ns"]) / gaps
    loadgens = figure(run.loadgen_summary, "Mean Time per Output Token")
    assert as_reported.mean() == pytest.approx(loadgens, rel=0.1)  # by n instead of n - 1: a sixth less
    # Arrival and report differ by the client's share, which a machine full of other tests makes large.
    assert ours.mean() == pytest.approx(loadgens, rel=0.5)
    least, most = np.percentile(as_reported, (45, 55))  # neighbours of the median may be far apart
    assert 0.95 * least <= figure(run.loadgen_summary, "50.00 percentile time to output token") <= 1.05 * most


def figure(summary: str, name: str) -> int:
    found = re.search(rf"^{re.escape(name)} \(ns\)\s*:\s*(\d+)", summary, re.MULTILINE)
    assert found, name
    return int(found[1])
