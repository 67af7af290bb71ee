"""Real servers asked in every API: the same greedy ids, but for what is known to be left out of texts."""

import json
from datetime import date

import httpx
import pytest

from harness.dataset import tokenizer
from tests.engines.models.scripted_gpt_oss import ANSWER as ANSWER_TEXT
from tests.runs import run_mlperf, write_dataset

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SUBJECTS = ("fox", "dog", "grüne Frosch", "猫")
TEXTS = [f"The quick brown {subject} jumps over the lazy dog." for subject in SUBJECTS]
NEW_TOKENS = 40
ANSWER = tokenizer.encode_harmony(ANSWER_TEXT)
WITHOUT_END = ANSWER[:-1]
# A chat says neither the headers of channels nor the ends of messages.
SAID = tokenizer.encode(" Think about it twice, then done") + tokenizer.encode(" Hello🦥!")


def prompts_of(api):
    """What an API is asked by: a chat as gpt-oss's template renders it, with the date of this moment."""
    if api != "chat":
        return TEXTS
    return [
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        f"Knowledge cutoff: 2024-06\nCurrent date: {date.today()}\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
        f"<|start|>user<|message|>{text}<|end|><|start|>assistant"
        for text in TEXTS
    ]


def asked(folder, url, api, prompts, *flags, stream="on", backend="openai"):
    """A greedy accuracy run in an API."""
    config = folder / "greedy.json"
    config.write_text(json.dumps({"temperature": 0.0, "max_new_tokens": NEW_TOKENS}))
    dataset = write_dataset(folder / "p.parquet", [tokenizer.encode_harmony(prompt) for prompt in prompts])
    where = ("--backend", backend, "--server-url", url, "--api", api, "--stream", stream)
    run = run_mlperf(
        folder, "--accuracy", *where, "--input-file", dataset, "--generation-config", config, *flags
    )
    assert run.code == 0, run.stdout + run.stderr
    return run


def test_the_scripted_answer_has_an_analysis_and_a_final_part():
    """Else nothing below would be about channels; the sloth is three tokens, none of them a character."""
    assert tokenizer.decode(ANSWER) == ANSWER_TEXT
    sloth = tokenizer.encode("🦥")
    assert len(sloth) == 3
    assert set(sloth) <= set(ANSWER)


@pytest.mark.parametrize(
    ("api", "stream", "expected"),
    [
        # It leaves ids of tokens that end inside a character out of its events, not out of complete answers.
        ("generate", "off", ANSWER),
        # Its text never has the end token.
        ("completions", "on", WITHOUT_END),
        ("completions-text", "off", WITHOUT_END),
        ("chat", "on", SAID),
    ],
)
def test_llamacpp(scripted_llama, api, stream, expected, tmp_path):
    prompts = prompts_of(api)
    run = asked(tmp_path, scripted_llama.url, api, prompts, stream=stream)
    assert run.accuracy_log == dict.fromkeys(range(len(prompts)), expected)
    (server,) = run.record["servers"]
    answers = "ids" if api == "generate" else "text"
    assert (server["wire"], server["api"], server["answers"]) == ("llamacpp", api, answers)
    if answers == "text":
        encoded, sizes = run.record["encoded"], (len(prompts) * len(ids) for ids in (expected, ANSWER))
        assert (encoded["ids"], encoded["counted"]) == tuple(sizes)


@pytest.mark.parametrize("api", ["completions", "generate", "completions-text", "chat"])
def test_vllm(scripted_vllm, api, tmp_path):
    """Ids come back in every API, those of channels and the end too."""
    if scripted_vllm.rust and api == "chat":
        pytest.skip("its front end in Rust has no chat of gpt-oss without a tool parser that vLLM refuses")
    prompts = prompts_of(api)
    run = asked(tmp_path, scripted_vllm.url, api, prompts, backend="vllm")
    assert run.accuracy_log == dict.fromkeys(range(len(prompts)), ANSWER)
    (server,) = run.record["servers"]
    assert (server["wire"], server["api"], server["answers"]) == ("openai", api, "ids")
    assert (server["engine"], "Rust" in server["version"]) == ("vllm", scripted_vllm.rust)


def test_vllm_ignores_ids_in_a_chat(scripted_vllm, tmp_path):
    """It answers an empty chat: refused before the run, with what it takes."""
    dataset = write_dataset(tmp_path / "p.parquet", [tokenizer.encode(text) for text in TEXTS])
    where = ("--backend", "vllm", "--server-url", scripted_vllm.url, "--api", "chat-ids")
    run = run_mlperf(tmp_path, *where, "--input-file", dataset, "--max-new-tokens", NEW_TOKENS)
    assert run.code == 3, run.stdout
    assert "the trial request by --api chat-ids failed" in run.stderr
    assert "use --api completions (ids in, ids out)" in run.stderr


@pytest.mark.parametrize("api", ["completions", "completions-text", "chat-ids", "chat"])
def test_sglang(sglang_server, api, tmp_path):
    """Ids as from /generate; those of chats are of its text, of random tokens often others.

    Its text, not ours of its ids: 200019 to 201087 are in the model's vocabulary, not in its tokenizer's.
    """
    day, prompts = date.today(), prompts_of(api)
    one_at_a_time = ("--max-concurrency", 1)  # the size of a batch changes roundings
    run = asked(tmp_path, sglang_server.url, api, prompts, *one_at_a_time, backend="sglang")
    (server,) = run.record["servers"]
    answers = "text" if api.startswith("chat") else "ids"
    assert (server["wire"], server["api"], server["answers"]) == ("sglang", api, answers)
    own = [generated(sglang_server.url, prompt) for prompt in prompts]
    if answers == "text":
        expected = [tokenizer.encode_harmony(answer["text"]) for answer in own]
    else:
        expected = [answer["output_ids"] for answer in own]
    if api == "chat" and date.today() != day:
        pytest.skip("midnight: the server has put another date before the prompts")
    assert run.accuracy_log == dict(enumerate(expected))


def generated(url, prompt):
    """What SGLang's own endpoint answers."""
    texts = {"skip_special_tokens": False, "no_stop_trim": True}
    sampling = {"temperature": 0.0, "max_new_tokens": NEW_TOKENS, **texts}
    body = {"input_ids": tokenizer.encode_harmony(prompt), "sampling_params": sampling}
    return httpx.post(f"{url}/generate", json=body, timeout=60, trust_env=False).json()
