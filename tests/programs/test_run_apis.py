"""Runs through APIs of text, against a stub server that answers what encodes to the ids of the others."""

from datetime import date

import pytest

from tests.runs import run_mlperf, write_dataset
from tests.stub import StubServer, expected_words
from tests.stub.words import ids_of, text_of, word_ids

pytestmark = pytest.mark.engine

SYSTEM = (
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
    "Knowledge cutoff: 2024-06\nCurrent date: {today}\n\nReasoning: high\n\n"
    "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
)
ROWS, TOKENS = 8, 12
TODAY = date.today()  # once: midnight may come in a test


def rendered(messages):
    """As gpt-oss's template renders them today."""
    said = [f"<|start|>{one['role']}<|message|>{one['content']}<|end|>" for one in messages]
    return ids_of(SYSTEM.format(today=TODAY) + "".join(said) + "<|start|>assistant")


def of_words(prompt):
    return expected_words(prompt, TOKENS)


@pytest.mark.parametrize(
    ("api", "flags", "knobs", "answers"),
    [
        ("completions-text", ("--stream", "off"), {}, "ids"),
        ("chat", ("--stream", "on"), {"returns_ids": False, "parts": ("reasoning", "content")}, "text"),
    ],
)
def test_the_log_is_that_of_ids(api, flags, knobs, answers, tmp_path, capfd):
    texts = [text_of(word_ids()[row * 30 : row * 30 + 15 + row]) for row in range(ROWS)]
    prompts = [rendered([{"role": "user", "content": text}]) for text in texts]
    dataset = write_dataset(tmp_path / "words.parquet", prompts)
    with StubServer(answers=of_words, template=rendered, **knobs) as stub:
        where = ("--server-url", stub.url, "--backend", "openai", "--api", api, "--input-file", dataset)
        run = run_mlperf(tmp_path, *where, "--max-new-tokens", 16, "--accuracy", *flags, here=capfd)
    assert (run.code, run.result) == (0, "VALID"), run.stdout + run.stderr
    assert run.accuracy_log == {row: of_words(prompt) for row, prompt in enumerate(prompts)}
    assert [(one["api"], one["answers"]) for one in run.record["servers"]] == [(api, answers)]
