"""trtllm-serve's own request models, post-processing and HTTP server, over a made-up engine (no GPU)."""

import json

import pytest

from harness.record.outcome import FailureKind
from tests.engines import pytorch_server, trtllm_server, trtllm_sources
from tests.engines.trtllm_front_end import ENGINE_ERROR, REFUSAL, answer_of
from tests.kit import DATA, wait_until, wire_of
from tests.runs import run_mlperf, write_dataset

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

MOST = 40
GOOD = [
    trtllm_server.prompt(("end", "stop word", "no end token")[n % 3], 4 + n, 1 + n % 4) for n in range(12)
]


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    if reason := trtllm_sources.missing():
        pytest.skip(reason)
    if pytorch_server.interpreter(*trtllm_server.PACKAGES) is None:
        pytest.skip(
            f"HARNESS_PYTORCH_PYTHON names no Python with torch and {', '.join(trtllm_server.PACKAGES)}"
        )
    folder = tmp_path_factory.mktemp("trtllm")
    with trtllm_server.TrtllmServer(folder, folder / "log") as running:
        yield running


def engine(server):
    """What the engine was asked and what was aborted."""
    return json.loads(trtllm_server.page(f"{server.url}/metrics"))[0]


# -- requests


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("changes", "meant"),
    [
        ({}, {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_tokens": 0, "seed": None}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"top_k": 1, "temperature": 0.0}, {"top_k": 1, "temperature": 0.0}),
        ({"top_p": 0.9, "temperature": 0.7}, {"top_p": 0.9, "temperature": 0.7}),
        ({"min_new_tokens": 3, "seed": 42}, {"min_tokens": 3, "seed": 42}),
        ({"skip_special_tokens": True}, {"skip_special_tokens": True}),
        ({"extra": {"min_p": 0.1, "ignore_eos": True}}, {"min_p": 0.1, "ignore_eos": True}),
    ],
)
def test_each_field_is_taken_with_its_meaning(server, stream, changes, meant):
    prompt = trtllm_server.prompt("end")
    body = wire_of("trtllm", stream=stream, **changes).render(json.dumps(prompt).encode())
    status, answer = trtllm_server.ask(server.url, "/v1/completions", body)
    assert status == 200, answer
    always = {
        "max_tokens": 20,
        "detokenize": False,
        "include_stop_str_in_output": True,
        "n": 1,
        "end_id": 200002,
    }
    asked = engine(server)["asked"][-1]
    assert asked.items() >= (always | meant | {"prompt": prompt, "streaming": stream}).items()


def test_the_recorded_answers_are_what_it_sends(server):
    for name, (status, answer) in trtllm_server.recorded_now(server).items():
        recorded = (DATA / f"{name}.txt").read_bytes()
        if "_error_" in name:  # FastAPI's words differ by version
            assert (status, json.loads(answer)["type"]) == (400, json.loads(recorded)["type"]), name
        else:
            assert (status, answer) == (200, recorded), name


def test_what_gpt_oss_loses_in_its_chat():
    """Why ids go to completions: no recorded answer of harmony_adapter.py has all that was made."""
    ignored = json.loads((DATA / "trtllm_whole_harmony_prompt_ignored.txt").read_bytes())
    assert ignored["usage"]["prompt_tokens"] != len(trtllm_server.prompt("end"))
    whole = json.loads((DATA / "trtllm_whole_harmony.txt").read_bytes())
    assert whole["choices"][0]["message"]["content"] == "brown fox jumps"
    streamed = (DATA / "trtllm_harmony.txt").read_text()
    assert '"content":" brown"' in streamed
    assert "jumps" not in streamed  # the last step
    assert '"completion_tokens":15' in streamed


# -- runs


def run(server, folder, prompts, *words, most=MOST, url=None, **more):
    config = folder / "generation.json"
    config.write_text(json.dumps({"temperature": 1.0, "max_new_tokens": most}))
    data = write_dataset(folder / "prompts.parquet", prompts)
    where = ("--backend", "trtllm", "--server-url", url or server.url, "--input-file", data)
    return run_mlperf(folder, *where, "--generation-config", config, *words, **more)


@pytest.mark.parametrize("stream", ["off", "on"])
def test_the_accuracy_log_has_the_engines_ids(server, stream, tmp_path):
    done = run(server, tmp_path, GOOD, "--accuracy", "--stream", stream)
    assert (done.code, done.result, done.failures) == (0, "VALID", {}), done.stdout + done.stderr
    expected = [answer_of(prompt, MOST)[0] for prompt in GOOD]
    assert [done.accuracy_log[n] for n in range(len(GOOD))] == expected
    assert all((row["first_token_ns"] is not None) == (stream == "on") for row in done.requests)


@pytest.mark.parametrize("stream", ["off", "on"])
def test_text_of_ids_in_chat_is_encoded_to_the_engines_ids(server, stream, tmp_path):
    """As NVIDIA's harness asks; the end token is in the text, and so among the ids."""
    done = run(server, tmp_path, GOOD, "--accuracy", "--stream", stream, "--api", "chat-ids")
    assert (done.code, done.result, done.failures) == (0, "VALID", {}), done.stdout + done.stderr
    expected = [answer_of(prompt, MOST)[0] for prompt in GOOD]
    assert [done.accuracy_log[n] for n in range(len(GOOD))] == expected


def test_gpt_oss_ignores_the_ids_of_a_chat(server, tmp_path):
    """With its adapter; the trial request shows it."""
    done = run(server, tmp_path, GOOD, "--api", "chat-ids", url=server.harmony_url)
    assert done.code == 3
    assert "was counted as 67" in done.stderr
    assert "use --api completions" in done.stderr


def test_a_server_run(server, tmp_path):
    done = run(server, tmp_path, GOOD, scenario="server", qps=10, duration_ms=1500)
    assert done.failures == {}, done.stdout + done.stderr
    assert "No errors encountered during test." in done.loadgen_summary
    assert all(row["osl"] == len(answer_of(GOOD[row["sample_index"]], MOST)[0]) for row in done.requests)


# The kind of the Failure of a streamed answer, and of a complete one.
FAILING = {
    "timeout": (FailureKind.FINISH_REASON, FailureKind.FINISH_REASON),
    "cancelled": (FailureKind.FINISH_REASON, FailureKind.FINISH_REASON),
    "error": (FailureKind.TRUNCATED, FailureKind.HTTP_STATUS),  # no event says so: the connection breaks
    "error at once": (FailureKind.TRUNCATED, FailureKind.HTTP_STATUS),
    "refused": (FailureKind.HTTP_STATUS, FailureKind.HTTP_STATUS),
    "never": (FailureKind.TIMEOUT, FailureKind.TIMEOUT),
}


@pytest.mark.parametrize("stream", ["on", "off"])
def test_each_failure_there_is_a_failure_here(server, stream, tmp_path):
    """It has its kind, and the engine stops the request that the client gave up."""
    prompts = [GOOD[0], *map(trtllm_server.prompt, FAILING)]
    aborted = len(engine(server)["aborted"])
    words = ("--stream", stream, "--timeout", "3s", "--no-fail-fast")
    done = run(server, tmp_path, prompts, *words, most=400)
    assert (done.code, done.result) == (4, "INVALID"), done.stdout + done.stderr
    found = {row["sample_index"]: row["failure"] for row in done.requests}
    kinds = [pair[stream == "off"].label for pair in FAILING.values()]
    assert [found[n] for n in range(len(prompts))] == [None, *kinds]
    wait_until(lambda: len(engine(server)["aborted"]) > aborted and not engine(server)["running"])


def test_an_error_says_why(server):
    for ending, message in (("refused", REFUSAL), ("error", ENGINE_ERROR)):
        body = {"prompt": trtllm_server.prompt(ending), "model": "m", "max_tokens": 9, "detokenize": False}
        status, answer = trtllm_server.ask(server.url, "/v1/completions", body)
        assert (status, json.loads(answer)["message"]) == (400, message)
