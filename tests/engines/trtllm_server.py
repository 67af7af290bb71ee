"""trtllm-serve's front end over a made-up engine as a test server, and the answers recorded from it.

``python -m tests.engines.trtllm_server`` records them anew: tests/data/trtllm_*.txt.
"""

import gzip
import json
import re
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.engines import pytorch_server, trtllm_sources
from tests.engines.sglang_server import HERE, ServerProcess
from tests.engines.trtllm_front_end import ENDINGS
from tests.kit import DATA, free_ports

VOCABULARY = Path(sys.prefix) / "share/o200k_base.tiktoken.gz"
PACKAGES = ("fastapi", "uvicorn", "openai", "openai_harmony", "xgrammar")
# " the quick brown fox jumps over the lazy dog" of gpt-oss.
WORDS = [290, 4853, 19705, 68347, 65613, 1072, 290, 29082, 6446]

_SAMPLING = {"model": "gpt-oss-120b", "max_tokens": 20, "temperature": 1.0, "skip_special_tokens": False}
_STREAM = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": False}}
_IDS = {"detokenize": False, "include_stop_str_in_output": True}


def prompt(ending: str, tokens: int = 5, step: int = 2) -> list[int]:
    """A prompt that the engine answers with WORDS; see trtllm_front_end.Job."""
    return [ENDINGS.index(ending), tokens, step, *WORDS]


def _completion(ending: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/completions", {"prompt": prompt(ending)} | _SAMPLING | fields


def _chat(ending: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {"messages": [], "prompt_token_ids": prompt(ending)} | _SAMPLING | fields


# The name in tests/data -> path and body of the request.
RECORDED = {
    "trtllm_stop": _completion("end", **_IDS, **_STREAM),
    "trtllm_whole_stop": _completion("end", **_IDS),
    "trtllm_stop_word": _completion("stop word", **_IDS, **_STREAM),
    "trtllm_stop_word_stripped": _completion("stop word", detokenize=False, **_STREAM),
    "trtllm_no_end_token": _completion("no end token", **_IDS, **_STREAM),
    "trtllm_length": _completion("end", **_IDS | {"max_tokens": 3}, **_STREAM),
    "trtllm_cancelled": _completion("cancelled", **_IDS, **_STREAM),
    "trtllm_usage_in_each": _completion("end", **_IDS, stream=True, stream_options={"include_usage": True}),
    "trtllm_error_unknown_field": _completion("end", return_token_ids=True),
    "trtllm_error_refused": _completion("refused", **_IDS, **_STREAM),
    "trtllm_text": _completion("end", **_STREAM),
    "trtllm_whole_text": _completion("end"),
    "trtllm_chat": _chat("end", **_STREAM),
    "trtllm_whole_chat": _chat("end"),
    "trtllm_chat_stop_word_stripped": _chat("stop word", **_STREAM),
    "trtllm_error_chat_detokenize": _chat("end", detokenize=False),
}


# The same for a gpt-oss, whose chat goes through harmony_adapter.py: bodies for /v1/chat/completions.
_USER = [{"role": "user", "content": "the lazy dog"}]
_HARMONY = _SAMPLING | {"messages": _USER}
RECORDED_OF_GPT_OSS: dict[str, dict[str, Any]] = {
    "trtllm_harmony": _HARMONY | _STREAM,
    "trtllm_whole_harmony": _HARMONY,
    "trtllm_whole_harmony_prompt_ignored": _SAMPLING | {"messages": [], "prompt_token_ids": prompt("end")},
}


class TrtllmServer(ServerProcess):
    """A context manager around the server of two models; ``url`` of one, ``harmony_url`` of the other.

    The first is gpt-oss-120b without its adapter, as with DISABLE_HARMONY_ADAPTER=1.
    """

    def __init__(self, folder: Path, log_path: Path) -> None:
        interpreter = pytorch_server.interpreter(*PACKAGES)
        script = HERE / "trtllm_front_end.py"
        words = [str(interpreter), "-P", str(script), str(trtllm_sources.sources()), str(VOCABULARY)]
        port = free_ports(2)
        models = {"gpt-oss-120b": "llama", "gpt-oss-harmony": "gpt_oss"}
        for number, (name, kind) in enumerate(models.items()):
            model = folder / name
            model.mkdir()
            (model / "config.json").write_text(json.dumps({"model_type": kind}))
            words += [str(model), str(port + number)]
        # Where openai_harmony looks for its vocabulary, which it else downloads.
        (folder / "o200k_base.tiktoken").write_bytes(gzip.decompress(VOCABULARY.read_bytes()))
        environment = pytorch_server.environment() | {"TIKTOKEN_ENCODINGS_BASE": str(folder)}
        super().__init__(words, port, environment, log_path)
        self.harmony_url = f"http://127.0.0.1:{port + 1}"


def ask(url: str, path: str, body: dict[str, Any] | bytes) -> tuple[int, bytes]:
    """Status and body of an answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def page(url: str) -> bytes:
    """What a GET answers."""
    with urllib.request.urlopen(url, timeout=60) as response:
        return bytes(response.read())


def without_chance(answer: bytes) -> bytes:
    """The answer without its random ids, each of which becomes the next number, times and places."""
    ids = dict.fromkeys(re.findall(rb"cmpl-([0-9a-f]{32})", answer))
    for number, found in enumerate(ids):
        answer = answer.replace(found, b"%032x" % number)
    answer = re.sub(rb'"created":\d+', b'"created":1763900000', answer)
    return re.sub(rb'File \\".*?/(tensorrt_llm/[^"]*)\\", line \d+', rb'File \\"\1\\", line 1', answer)


def recorded_now(server: TrtllmServer) -> dict[str, tuple[int, bytes]]:
    """Status and body of every recorded request's answer, by its name."""
    answers = {name: ask(server.url, path, body) for name, (path, body) in RECORDED.items()}
    path = "/v1/chat/completions"
    answers |= {name: ask(server.harmony_url, path, body) for name, body in RECORDED_OF_GPT_OSS.items()}
    return {name: (status, without_chance(body)) for name, (status, body) in answers.items()}


def _record() -> None:
    with tempfile.TemporaryDirectory() as folder, TrtllmServer(Path(folder), Path(folder, "log")) as server:
        for name, (_, body) in recorded_now(server).items():
            (DATA / f"{name}.txt").write_bytes(body)


if __name__ == "__main__":
    _record()
