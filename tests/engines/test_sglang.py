"""Real SGLang on the CPU: the protocol, every stream shape, all scenarios, a ladder, data parallelism."""

import functools
import json
import subprocess
import sys
import urllib.request
from itertools import chain

import pytest

from harness.dataset import tokenizer
from harness.peak.ladder.ladder_files import read_ladder
from tests.engines import sglang_server as sglang
from tests.engines.test_embedded_runs import figure
from tests.kit import any_written, wait_until
from tests.runs import ROOT, command, quick_conf, run_mlperf, small_dataset, write_dataset

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

VERSION = (ROOT / "sglang/VERSION").read_text().strip()
NEW_TOKENS = 20
SYSTEM = [200006, 17360, 200008, 3575]
FOX = "The quick brown fox jumps over the lazy dog."
EXACT = 2  # the first prompts, with which the two likeliest tokens are never equal
# One is longer than the sliding window of 128 tokens, and its repetitions lead to ties.
TEXTS = ["def add(a, b):", "Grüße aus Zürich! " * 30, "1 2 3 4 5 6 7", "人工智能", "a"]


@functools.cache
def prompts():
    return [SYSTEM, *map(tokenizer.encode, [FOX, *TEXTS])]


@pytest.fixture
def greedy(tmp_path):
    """Flags of a deterministic run: greedy decoding, exactly NEW_TOKENS tokens."""
    config = tmp_path / "greedy.json"
    config.write_text(json.dumps({"temperature": 0.0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}))
    return ("--generation-config", config, "--input-file", write_dataset(tmp_path / "p.parquet", prompts()))


@functools.cache
def gaps_of(outputs):
    """Those of the answers to all prompts, and of a foreign answer; equal answers are not computed again."""
    foreign = tokenizer.encode(" and runs away from all the other animals")
    pairs = zip([*prompts(), tokenizer.encode(FOX)], [*map(list, outputs), foreign], strict=True)
    return sglang.greedy_gaps(list(pairs))


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
    outputs = tuple(tuple(answers[index]) for index in range(len(prompts())))
    if sglang_server.ranks == 1:  # sums over several are rounded otherwise, which decides between equals
        assert outputs_of_the_first.setdefault("ids", outputs) == outputs
    *gaps, foreign = gaps_of(outputs)
    # Else what follows could not fail: ids that are not the model's choice are far from it.
    assert min(foreign) > 5 * sglang.GREEDY_GAP
    assert [len(gap) for gap in gaps] == [NEW_TOKENS] * len(prompts())
    assert set(chain(*gaps[:EXACT])) == {0.0}
    assert max(chain(*gaps)) < sglang.GREEDY_GAP
    for server in run.record["servers"]:
        version = VERSION if sglang_server.ranks == 1 else f"{VERSION} (Rust server)"
        assert (server["engine"], server["version"]) == ("SGLang", version)


@pytest.mark.parametrize("scenario", ["offline", "server", "interactive", "single-stream"])
def test_performance(sglang_server, greedy, scenario, tmp_path):
    """No failure and no LoadGen error; TPOT is the same in LoadGen's summary and in requests.parquet."""
    where = ("--server-url", sglang_server.url, *greedy)
    # Of the 30th percentile LoadGen estimates SingleStream's from as few queries as there are prompts.
    run = run_mlperf(tmp_path, *where, scenario=scenario, qps=4, duration_ms=5000, percentile=30)
    assert run.failures == {}
    assert "No errors encountered during test." in run.loadgen_summary
    rows = run.requests
    assert all(row["osl"] == NEW_TOKENS and row["finish_reason"] == "length" for row in rows)
    if scenario != "offline":
        tpots = [(row["reported_done_ns"] - row["reported_first_ns"]) / (row["osl"] - 1) for row in rows]
        loadgens = figure(run.loadgen_summary, "Mean Time per Output Token")
        assert sum(tpots) / len(tpots) == pytest.approx(loadgens, rel=0.05)


def test_other_weights_in_mid_run_are_no_valid_result(sglang_server, greedy, tmp_path):
    def name_weights(version):
        body = json.dumps({"new_version": version, "abort_all_requests": False})
        page(f"{sglang_server.url}/update_weight_version", body.encode())

    words = ("--scenario", "server", "--server-url", sglang_server.url, *greedy)
    words = command(tmp_path, *words, "--user-conf", quick_conf(tmp_path, qps=4, duration_ms=5000))
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log_dir = tmp_path / "server" / "performance"
    try:
        wait_until(lambda: any_written(log_dir, "journal/queries-*.bin"))
        name_weights("v2")
        said, _ = run.communicate(timeout=600)
    finally:
        name_weights("default")
        run.kill()
    assert run.returncode == 4, said
    record = json.loads((log_dir / "run.json").read_text())
    (change,) = record["changed"]
    assert (change["was"], change["now"]) == ({"weight_version": "default"}, {"weight_version": "v2"})
    assert record["servers"][0]["weight_version"] == "default"
    assert any("weight version default is now v2" in reason for reason in record["verdict"]["reasons"])


def test_a_ladder(sglang_server, greedy, tmp_path):
    """Fixed numbers in flight without LoadGen: every answer is complete, each step has its figures."""
    words = ("ladder", "--server-url", sglang_server.url, "--concurrency", "1,3", "--seconds", "8")
    command = [sys.executable, ROOT / "find_peak.py", *words, "--output-dir", tmp_path, *greedy]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    ladder = read_ladder(tmp_path / "peak/server/ladder")
    assert not any(step.failed for step in ladder.steps)
    assert all(step.queries and step.tpot and step.osl_mean == NEW_TOKENS for step in ladder.steps)


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


@pytest.mark.parametrize("sglang_server", ["rust-ranks"], indirect=True)
@pytest.mark.parametrize("stream", ["off", "on"])
def test_ranks_that_listen_at_a_port_each(sglang_server, greedy, stream, tmp_path):
    """SGLang's Rust server, asked at its one known port: both ranks get work, and each its own limit."""
    port = int(sglang_server.url.rpartition(":")[2])
    urls = [f"http://127.0.0.1:{port + rank}" for rank in range(sglang.RANKS)]
    before = [prefilled_tokens(url)[0] for url in urls]  # each calls itself the first
    run = run_mlperf(tmp_path, "--server-url", sglang_server.url, "--stream", stream, *greedy)
    assert run.code == 0, run.stdout + run.stderr
    assert f"beside {sglang_server.url}, the first of its machine, also" in run.stderr
    servers, limit = run.record["servers"], sglang.MAX_RUNNING_REQUESTS // sglang.RANKS
    assert [server["url"] for server in servers] == urls
    assert [server["listener"]["rank"] for server in servers] == [0, 1]
    assert [(one["dp_size"], one["max_running_requests"]) for one in servers] == [(1, limit)] * sglang.RANKS
    assert run.record["plan"]["concurrency"] == 2 * sglang.MAX_RUNNING_REQUESTS
    assert all(prefilled_tokens(url)[0] > tokens for url, tokens in zip(urls, before, strict=True))


@pytest.mark.parametrize("sglang_server", ["dp-2"], indirect=True)
def test_a_killed_rank_is_named_and_ends_the_run(sglang_server, tmp_path):
    """With one scheduler killed the HTTP process goes on. It stays broken: the last test of this server."""
    dataset, _ = small_dataset(tmp_path, rows=96, length=40)
    flags = ("--accuracy", "--server-url", sglang_server.url, "--input-file", dataset, "--stream", "on")
    flags += ("--max-concurrency", 8, "--max-new-tokens", 200, "--progress-timeout", 90)
    words = command(tmp_path, *flags, "--user-conf", quick_conf(tmp_path))
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log_dir = tmp_path / "offline" / "accuracy"
    try:
        wait_until(lambda: any_written(log_dir, "journal/queries-*.bin"))
        # Answers of equal length end together: at that moment the rank reports that none is running.
        wait_until(lambda: is_at_work(sglang_server.url, rank=1))
        group = str(sglang_server.process.pid)
        subprocess.run(["pkill", "-KILL", "-g", group, "-f", "scheduler_DP1"], check=True)
        said, _ = run.communicate(timeout=600)
    finally:
        run.kill()
    record = json.loads((log_dir / "run.json").read_text())
    assert run.returncode == 4, said
    assert record["verdict"]["reasons"][0].startswith(
        f"ended early: dp_rank 1 of {sglang_server.url} stands since"
    )
    lines = [json.loads(line) for line in (log_dir / "progress.jsonl").read_text().splitlines()]
    assert any(line["standing"] for line in lines)
    # The other rank may have ended its own requests, and a busy machine stand still: those are events, too.
    (event,) = (
        one for one in record["events"] if one["kind"] not in ("silence", "silence_ends", "suspended")
    )
    assert (event["kind"], event["server"]) == ("rank_stands", sglang_server.url)
    assert [rank["rank"] for rank in record["server_load"]["ranks"]] == [0, 1]
    assert "Resume it with" in said


def is_at_work(url, rank):
    """Whether the metrics say that a data-parallel replica runs requests."""
    lines = page(f"{url}/metrics").splitlines()
    running = [line for line in lines if line.startswith("sglang:num_running_reqs{")]
    return any(f'dp_rank="{rank}"' in line and float(line.split()[-1]) > 0 for line in running)


def prefilled_tokens(url):
    """Prompt tokens that each data-parallel replica has computed so far, by its rank."""
    loads = json.loads(page(f"{url}/v1/loads"))["loads"]
    return {load["dp_rank"]: load["total_prefill_uncached_tokens"] for load in loads}


# -- the protocol that the code expects


def page(url, body=None):
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def generate(server, prompt=SYSTEM, **parameters):
    """The last event but the end mark."""
    sampling = {"temperature": 0.0, "top_k": -1, "skip_special_tokens": False, "ignore_eos": True}
    sampling |= {"max_new_tokens": NEW_TOKENS, **parameters}
    body = {"input_ids": prompt, "sampling_params": sampling, "stream": True}
    *_, last, done = page(f"{server.url}/generate", json.dumps(body).encode()).strip().split("\n\n")
    assert done == "data: [DONE]"
    return json.loads(last.removeprefix("data: "))


def test_the_stop_token_is_part_of_the_answer_and_counted(sglang_server):
    ids = generate(sglang_server)["output_ids"]
    answer = generate(sglang_server, stop_token_ids=[ids[2]], ignore_eos=False)
    assert answer["output_ids"] == ids[:3]
    assert answer["meta_info"]["completion_tokens"] == 3
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": ids[2]}


def test_a_refused_request_is_an_error_inside_a_200_response(sglang_server):
    assert generate(sglang_server, [5] * 8000, max_new_tokens=1000)["error"]["code"] == 400
    refused = generate(sglang_server, temperature=1.0, top_k=0)
    assert "top_k must be -1" in refused["error"]["message"]


def test_least_length_and_seed_have_these_names(sglang_server):
    ids = generate(sglang_server)["output_ids"]
    assert generate(sglang_server, sampling_seed=42)["output_ids"] == ids
    longer = generate(sglang_server, stop_token_ids=[ids[0]], ignore_eos=False, min_new_tokens=3)
    assert longer["meta_info"]["completion_tokens"] >= 3


def test_the_server_reports_what_the_preflight_asks(sglang_server):
    info = json.loads(page(f"{sglang_server.url}/server_info"))
    asked = ("version", "context_length", "dp_size", "stream_interval", "incremental_streaming_output")
    assert [info[key] for key in asked] == [VERSION, sglang.CONTEXT_LENGTH, 1, 1, False]
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == sglang.MAX_RUNNING_REQUESTS
