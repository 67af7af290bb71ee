"""The reference server of pytorch/: transformers' own tokens, SGLang's protocol, what it refuses, its end."""

import concurrent.futures
import contextlib
import json
import random
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from harness.config.protocol import own_protocol
from harness.dataset import tokenizer
from sut.wire import make_wire
from tests.engines import pytorch_server as pytorch
from tests.engines.sglang_server import ServerProcess
from tests.kit import free_ports, parameters, wait_until
from tests.runs import run_mlperf, write_dataset

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.usefixtures("torch_installed")]

NEW_TOKENS = 40
# More than rows; the window of gpt-oss's sliding layer is 16 tokens.
LENGTHS = (5, 40, 12, 90, 3, 16, 17)
PROMPTS = [[random.Random(n).randrange(3, pytorch.SMALL) for _ in range(n)] for n in LENGTHS]
SENTENCES = [tokenizer.encode(f"Sample {n}: the quick brown fox") for n in range(12)]
LARGE = "gpt-oss-120b"
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
SAMPLED = [
    {},
    {"temperature": 0.7},
    {"top_k": 5},
    {"top_p": 0.8},
    {"temperature": 1.3, "top_k": 40, "top_p": 0.9},
]
ONE_KIND = pytest.mark.parametrize("model", pytorch.KINDS[:1], indirect=True)


def greedy(tokens):
    return {"temperature": 0.0, "max_new_tokens": tokens, "min_new_tokens": tokens}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The folder of all models: of each kind one with few ids, and one with gpt-oss's vocabulary."""
    folder = tmp_path_factory.mktemp("models")
    small = [(kind, pytorch.SMALL, folder / kind) for kind in pytorch.KINDS]
    pytorch.make_models(*small, ("gpt-oss", tokenizer.VOCABULARY_SIZE, folder / LARGE))
    return folder


@pytest.fixture(scope="module", params=pytorch.KINDS)
def model(request, models):
    return models / request.param


@pytest.fixture(scope="module")
def generated(models):
    """transformers' answers, by model: the greedy ones, then those of SAMPLED."""
    jobs = []
    for kind in pytorch.KINDS:
        jobs.append(pytorch.job(models / kind, PROMPTS, NEW_TOKENS))
        jobs += [pytorch.job(models / kind, PROMPTS[:3], 20, seed=42, **NEUTRAL | given) for given in SAMPLED]
    jobs.append(pytorch.job(models / LARGE, SENTENCES, 16))
    answers = {}
    for job, ids in zip(jobs, pytorch.generated(*jobs), strict=True):
        answers.setdefault(Path(job["model"]), []).append(ids)
    return answers


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "server.log"
    with pytorch.PyTorchServer(model, free_ports(1), log, "--max-batch-size", str(pytorch.BATCH)) as running:
        yield running


def request(url, prompt, stream=False, **sampling):
    body = {"input_ids": prompt, "sampling_params": sampling, "stream": stream}
    return urllib.request.Request(f"{url}/generate", json.dumps(body).encode())


def ask(url, prompt, stream=False, **sampling):
    """Status, and the body as it is."""
    try:
        with urllib.request.urlopen(request(url, prompt, stream, **sampling), timeout=120) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def answer(url, prompt, stream=False, **sampling):
    """The ids and the finish reason, read by the harness's own protocol."""
    status, body = ask(url, prompt, stream, **sampling)
    assert status == 200, body
    asked = parameters(max_new_tokens=sampling["max_new_tokens"])
    reader = make_wire(own_protocol("sglang"), asked, pytorch.SMALL, "").answer()
    events = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event] if stream else [body]
    assert not stream or events.pop() == b"[DONE]"
    assert not any(map(reader.feed, events))
    outcome = reader.finish()
    assert outcome.prompt_tokens == len(prompt)
    return outcome.output_ids.tolist(), json.loads(events[-1])["meta_info"]["finish_reason"]


def answers(url, asked):
    """The ids for each (prompt, stream, sampling), all asked at once."""
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        futures = [pool.submit(answer, url, prompt, stream, **given) for prompt, stream, given in asked]
        return [future.result()[0] for future in futures]


def metrics(url):
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return {name.removeprefix("pytorch:"): int(value) for name, value in map(str.split, lines)}


# -- the tokens


def test_greedy_tokens_of_requests_that_come_and_go_are_those_of_a_padded_batch(server, model, generated):
    expected = generated[model][0]
    # Two lengths, so that rows end and join while others are in the middle.
    sizes = [NEW_TOKENS if place % 2 == 0 else NEW_TOKENS // 3 for place in range(len(PROMPTS))]
    asked = [(prompt, place % 3 == 0, greedy(sizes[place])) for place, prompt in enumerate(PROMPTS)]
    found = answers(server.url, asked)
    assert found == [ids[:size] for ids, size in zip(expected, sizes, strict=True)]
    assert len({token for ids in found for token in ids}) > 50  # no model that repeats itself


def test_seeded_samples_are_generates(server, model, generated):
    for options, expected in zip(SAMPLED, generated[model][1:], strict=True):
        sampling = {"max_new_tokens": 20, "min_new_tokens": 20, "sampling_seed": 42, **options}
        assert answers(server.url, [(prompt, False, sampling) for prompt in PROMPTS[:3]]) == expected, options


@ONE_KIND
def test_samples_without_a_seed_differ(server):
    sampling = {"max_new_tokens": 20, "min_new_tokens": 20}
    assert answer(server.url, PROMPTS[0], **sampling) != answer(server.url, PROMPTS[0], **sampling)


@ONE_KIND
def test_where_an_answer_ends(server):
    ids, reason = answer(server.url, PROMPTS[0], **greedy(NEW_TOKENS))
    assert reason == {"type": "length", "length": NEW_TOKENS}
    stop = ids[7]
    first = ids.index(stop)
    sampling = {"temperature": 0.0, "max_new_tokens": NEW_TOKENS, "stop_token_ids": [stop]}
    stopped = answer(server.url, PROMPTS[0], **sampling)
    assert stopped == (ids[: first + 1], {"type": "stop", "matched": stop})
    longer, _ = answer(server.url, PROMPTS[0], **sampling, min_new_tokens=first + 2)
    assert longer[:first] == ids[:first]
    assert len(longer) >= first + 2
    assert stop not in longer[: first + 1]
    unstopped, reason = answer(server.url, PROMPTS[0], **sampling, ignore_eos=True)
    assert unstopped[: first + 1] == ids[: first + 1]
    assert reason["type"] == "length"


# -- what it refuses


@pytest.mark.parametrize(
    ("prompt", "sampling", "message"),
    [
        ([], {}, "input_ids is empty"),
        ([pytorch.SMALL], {}, "token id 512 is outside the vocabulary of 512"),
        ([-1], {}, "token id -1 is outside"),
        ([5], {"stop_token_ids": [9999]}, "token id 9999 is outside"),
        ([5] * 4000, {"max_new_tokens": 97}, "exceed the context of 4096"),
        ("text", {}, "Expected `array`, got `str` - at `$.input_ids`"),
        ([[5]], {}, "Expected `int`, got `array`"),
        ([5], {"top_k": 0}, "top_k is 0, expected -1 (off)"),
        ([5], {"top_p": 0}, "top_p"),
        ([5], {"temperature": -1}, "temperature"),
        ([5], {"temperature": 1e300}, "temperature"),
        ([5], {"max_new_tokens": 0}, "max_new_tokens"),
        ([5], {"max_new_tokens": 3, "min_new_tokens": 4}, "min_new_tokens is 4, max_new_tokens 3"),
        ([5], {"sampling_seed": 2**64}, "sampling_seed"),
        ([5], {"repetition_penalty": 1.1}, "unknown field `repetition_penalty`"),
    ],
)
@ONE_KIND
def test_refused_with_400(server, prompt, sampling, message):
    status, body = ask(server.url, prompt, stream=True, **sampling)
    assert status == 400
    assert message in json.loads(body)["error"]["message"]


@ONE_KIND
def test_a_request_without_a_token_to_choose_fails_alone(server):
    """Every id is an end that may not come yet: that request fails, the server goes on."""
    everything = list(range(pytorch.SMALL))
    status, body = ask(server.url, [5], stop_token_ids=everything, min_new_tokens=1)
    assert (status, b"not finite" in body) == (500, True)
    assert b'"type":"abort"' in ask(server.url, [5], True, stop_token_ids=everything, min_new_tokens=1)[1]
    assert answer(server.url, [5], max_new_tokens=1)[0]


# -- clients that leave, and the end


@ONE_KIND
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_frees_its_row(server, stream):
    asked = request(server.url, [5], stream, **greedy(4000))
    if stream:
        with urllib.request.urlopen(asked, timeout=60) as response:
            assert response.readline().startswith(b"data: ")
            assert metrics(server.url)["num_running_reqs"] == 1
    else:
        with contextlib.suppress(TimeoutError):
            urllib.request.urlopen(asked, timeout=1)
    wait_until(lambda: metrics(server.url)["num_running_reqs"] == 0)


@ONE_KIND
def test_ended_in_the_middle_every_answer_is_an_abort(model, tmp_path):
    with (
        pytorch.PyTorchServer(model, free_ports(1), tmp_path / "log", "--max-batch-size", "1") as server,
        concurrent.futures.ThreadPoolExecutor(3) as pool,
    ):
        streams = (True, False, True)
        asked = [pool.submit(ask, server.url, [5], stream, **greedy(4000)) for stream in streams]
        wait_until(lambda: metrics(server.url)["num_queue_reqs"] == 2)
        server.process.send_signal(signal.SIGTERM)
        for future, stream in zip(asked, streams, strict=True):
            status, body = future.result()
            assert status == (200 if stream else 500)
            assert b"the server is ending" in body
        assert server.process.wait(60) == 0


FAILING = """
import sys
sys.path.insert(0, "pytorch")
import serve
from reference_server.batch import Batch

def decode(batch, tokens):
    raise MemoryError("made up")

Batch.decode = decode
sys.exit(serve.main())
"""


@ONE_KIND
def test_a_model_that_fails_ends_the_server(model, tmp_path):
    port = free_ports(1)
    words = [str(pytorch.interpreter()), "-c", FAILING, "--model-path", str(model), "--port", str(port)]
    with ServerProcess(words, port, pytorch.environment(), tmp_path / "log") as server:
        status, body = ask(server.url, [5], stream=True)
        assert status == 200
        assert b'"type":"abort"' in body and b"the model has failed: MemoryError: made up" in body
        assert server.process.wait(60) == 1
        assert "serve.py: the model has failed: MemoryError: made up" in server.log


# -- tensor parallelism


def test_two_ranks_give_the_same_tokens(server, model, tmp_path):
    if model.name == "gpt-oss":
        with pytest.raises(AssertionError, match="no tensor-parallel plan for gpt_oss; use --tp 1"):
            pytorch.PyTorchServer(model, free_ports(1), tmp_path / "log", "--tp", "2").__enter__()
        return
    if pytorch.interpreter("accelerate") is None:
        pytest.skip("this Python has no accelerate; SGLang's environment has none")
    with pytorch.PyTorchServer(model, free_ports(1), tmp_path / "log", "--tp", "2") as divided:
        for prompt in PROMPTS[:3]:
            one, two = (answer(where.url, prompt, **greedy(NEW_TOKENS)) for where in (server, divided))
            assert one == two


# -- runs


@pytest.fixture(scope="module")
def urls(models, tmp_path_factory):
    """URLs of two replicas with gpt-oss's vocabulary."""
    folder = tmp_path_factory.mktemp("replicas")
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(pytorch.PyTorchServer(models / LARGE, free_ports(1), folder / f"{n}.log"))
            for n in (0, 1)
        ]
        yield ",".join(server.url for server in servers)


@pytest.mark.parametrize(
    ("scenario", "accuracy", "stream"),
    [
        ("offline", True, "auto"),
        ("offline", True, "on"),
        ("server", True, "auto"),
        ("offline", False, "auto"),
        ("server", False, "auto"),
    ],
)
def test_runs_over_two_replicas(urls, models, generated, scenario, accuracy, stream, tmp_path):
    config = tmp_path / "greedy.json"
    config.write_text(json.dumps(greedy(16)))
    run = run_mlperf(
        tmp_path,
        *("--backend", "pytorch", "--server-url", urls, "--stream", stream),
        *("--input-file", write_dataset(tmp_path / "prompts.parquet", SENTENCES)),
        *("--generation-config", config, *(["--accuracy"] if accuracy else [])),
        scenario=scenario,
        qps=10,
        duration_ms=2000,
    )
    assert run.failures == {}, run.stdout + run.stderr
    assert "No errors encountered during test." in run.loadgen_summary
    # Elsewhere the limits of TTFT and TPOT decide, which a busy machine may miss.
    if scenario == "offline" or accuracy:
        assert (run.code, run.result) == (0, "VALID")
    assert "NOT OFFICIAL" in run.stdout
    assert {server["engine"] for server in run.record["servers"]} == {"PyTorch"}
    assert {row["replica"] for row in run.requests} == set(urls.split(","))
    streamed = scenario == "server" or stream == "on"
    assert all((row["first_token_ns"] is not None) == streamed for row in run.requests)
    if accuracy:
        assert [[run.accuracy_log[n] for n in range(12)]] == generated[models / LARGE]
