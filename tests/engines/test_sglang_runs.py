"""The program against real SGLang on the CPU: every stream shape, all scenarios, data parallelism."""

import json
import subprocess
import sys
import urllib.request

import pytest

from harness.dataset import tokenizer
from harness.peak.files import read_state
from tests.engines import sglang_server as sglang
from tests.engines.test_embedded_runs import figure
from tests.runs import run_mlperf, write_dataset

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

VERSION = (sglang.ROOT / "sglang/VERSION").read_text().strip()
NEW_TOKENS = 20
TEXTS = ["The quick brown fox", "def add(a, b):", "Grüße aus Zürich! " * 30, "1 2 3 4 5 6 7", "人工智能", "a"]


def prompts():
    return [tokenizer.encode(text) for text in TEXTS]


@pytest.fixture
def greedy(tmp_path):
    """Flags of a deterministic run: greedy decoding, exactly NEW_TOKENS tokens."""
    config = tmp_path / "greedy.json"
    config.write_text(json.dumps({"temperature": 0.0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}))
    dataset = write_dataset(tmp_path / "prompts.parquet", prompts())
    return ("--generation-config", config, "--input-file", dataset)


@pytest.fixture(scope="session")
def outputs_of_the_first():
    return {}


@pytest.mark.parametrize("stream", ["auto", "on"])
@pytest.mark.parametrize("sglang_server", list(sglang.CONFIGURATIONS), indirect=True)
def test_greedy_ids_through_the_harness(sglang_server, stream, greedy, outputs_of_the_first, tmp_path):
    """LoadGen's accuracy log holds transformers' greedy tokens, the same ones in every shape, complete."""
    # One at a time: the size of a batch changes roundings, and equal tokens their order.
    where = ("--server-url", sglang_server.url, "--stream", stream, "--max-concurrency", 1)
    run = run_mlperf(tmp_path, "--accuracy", *where, *greedy)
    assert run.code == 0, run.stdout + run.stderr
    assert all((row["first_token_ns"] is not None) == (stream == "on") for row in run.requests)
    answers = run.accuracy_log
    outputs = [answers[index] for index in range(len(TEXTS))]
    assert outputs_of_the_first.setdefault("ids", outputs) == outputs
    gaps = sglang.greedy_gaps(list(zip(prompts(), outputs, strict=True)))
    assert [len(gap) for gap in gaps] == [NEW_TOKENS] * len(TEXTS)
    assert max(max(gap) for gap in gaps) < sglang.GREEDY_GAP
    (server,) = run.record["servers"]
    assert (server["engine"], server["version"]) == ("SGLang", VERSION)


@pytest.mark.parametrize("scenario", ["offline", "server", "interactive", "single-stream"])
def test_performance(sglang_server, greedy, scenario, tmp_path):
    """No failure and no LoadGen error; TPOT is the same in LoadGen's summary and in requests.parquet."""
    run = run_mlperf(
        tmp_path, *("--server-url", sglang_server.url, *greedy), scenario=scenario, qps=4, duration_ms=5000
    )
    assert run.failures == {}
    assert "No errors encountered during test." in run.loadgen_summary
    rows = run.requests
    assert all(row["osl"] == NEW_TOKENS and row["finish_reason"] == "length" for row in rows)
    if scenario != "offline":
        tpots = [(row["reported_done_ns"] - row["reported_first_ns"]) / (row["osl"] - 1) for row in rows]
        loadgens = figure(run.loadgen_summary, "Mean Time per Output Token")
        assert sum(tpots) / len(tpots) == pytest.approx(loadgens, rel=0.05)


def test_a_ladder(sglang_server, greedy, tmp_path):
    """Fixed numbers in flight without LoadGen: every answer is complete, each step has its figures."""
    words = ("ladder", "--server-url", sglang_server.url, "--concurrency", "1,3", "--seconds", "8")
    folder = tmp_path / "peak/server/ladder"
    command = [sys.executable, sglang.ROOT / "find_peak.py", *words, "--output-dir", tmp_path, *greedy]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    ladder = read_state(folder)
    assert not any(step.failed for step in ladder.steps)
    assert all(step.queries and step.tpot and step.osl_mean == NEW_TOKENS for step in ladder.steps)
    print(done.stdout)


@pytest.mark.parametrize("sglang_server", ["dp-2"], indirect=True)
def test_data_parallel_offline(sglang_server, greedy, tmp_path):
    """Twice what both replicas run at once is in flight, and both replicas get work."""
    before = prefilled_tokens(sglang_server.url)
    run = run_mlperf(tmp_path, "--server-url", sglang_server.url, *greedy)
    assert run.code == 0, run.stdout + run.stderr
    server = run.record["servers"][0]
    assert (server["dp_size"], server["max_running_requests"]) == (2, 2 * sglang.MAX_RUNNING_REQUESTS)
    assert run.record["plan"]["concurrency"] == 2 * 2 * sglang.MAX_RUNNING_REQUESTS
    after = prefilled_tokens(sglang_server.url)
    assert before.keys() == after.keys() == {0, 1}
    assert all(after[rank] > before[rank] for rank in after)


def prefilled_tokens(url):
    """Prompt tokens that each data-parallel replica has computed so far, by its rank."""
    with urllib.request.urlopen(f"{url}/v1/loads", timeout=30) as response:
        loads = json.load(response)["loads"]
    return {load["dp_rank"]: load["total_prefill_uncached_tokens"] for load in loads}
