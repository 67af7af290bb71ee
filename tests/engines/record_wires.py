"""Records how a running server answers: python -m tests.engines.record_wires SERVER URL FOLDER

SERVER is ``sglang``, ``vllm`` or ``llamacpp``, with scripted_gpt_oss.py's model (``write_hugging_face`` and
``write_gguf`` there). Each exchange becomes a file that tests/recorded_wires.py reads. The recordings in
tests/data/wires have more than these: what was tried by hand once, such as the routers and what dies.
"""

import json
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.dataset import tokenizer
from tests.recorded_wires import MARK

TEXT = "The quick brown fox jumps over the lazy dog."
IDS = tokenizer.encode(TEXT)
MESSAGES = [{"role": "user", "content": TEXT}]
ID = "q-000017"
SECONDS = 60
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]

Body = Mapping[str, Any]
# Beside the model, the limit and the temperature; all of these are asked for streamed and complete.
OF_ALL: Mapping[str, tuple[str, Body]] = {
    "completions-ids": (COMPLETIONS, {"prompt": IDS}),
    "completions-ids-back": (COMPLETIONS, {"prompt": IDS, "return_token_ids": True}),
    "completions-text": (COMPLETIONS, {"prompt": TEXT, "skip_special_tokens": False}),
    "completions-text-stripped": (COMPLETIONS, {"prompt": TEXT}),
    "chat": (CHAT, {"messages": MESSAGES}),
    "chat-length": (CHAT, {"messages": MESSAGES, "max_tokens": 6}),
    "chat-tools": (CHAT, {"messages": WEATHER, "tools": TOOLS}),
    "chat-ids": (CHAT, {"messages": [], "prompt_token_ids": IDS}),
    "error-bad-field": (CHAT, {"messages": "hello"}),
    "error-unknown-model": (COMPLETIONS, {"prompt": IDS, "model": "other", "max_tokens": 4}),
}
EXACT_TEXT = {"skip_special_tokens": False, "no_stop_trim": True}
OF_ONE: Mapping[str, Mapping[str, tuple[str, Body]]] = {
    "sglang": {
        "native-ids": (
            "/generate",
            {"rid": ID, "input_ids": IDS, "sampling_params": {"temperature": 0.0, "max_new_tokens": 60}},
        ),
        "chat-no-separate-reasoning": (
            CHAT,
            {"messages": MESSAGES, "separate_reasoning": False, **EXACT_TEXT},
        ),
        "chat-messages-input-ids": (CHAT, {"messages": MESSAGES, "input_ids": IDS}),
        "chat-ids-exact-text": (
            CHAT,
            {"messages": MESSAGES, "input_ids": IDS, "separate_reasoning": False, **EXACT_TEXT},
        ),
        "completions-text-no-stop-trim": (COMPLETIONS, {"prompt": TEXT, **EXACT_TEXT}),
    },
    "vllm": {
        "chat-ids-back": (CHAT, {"messages": MESSAGES, "return_token_ids": True}),
        "completions-text-ids-back": (
            COMPLETIONS,
            {"prompt": TEXT, "skip_special_tokens": False, "return_token_ids": True},
        ),
        "completions-text-include-stop": (
            COMPLETIONS,
            {"prompt": TEXT, "skip_special_tokens": False, "include_stop_str_in_output": True},
        ),
        "generate": (
            "/inference/v1/generate",
            {"token_ids": IDS, "sampling_params": {"temperature": 0.0, "max_tokens": 60}},
        ),
    },
    "llamacpp": {
        "chat-verbose": (CHAT, {"messages": MESSAGES, "verbose": True, "return_tokens": True}),
    },
}


def main(server: str, url: str, folder: Path) -> None:
    """Write the server's recordings."""
    folder.mkdir(parents=True, exist_ok=True)
    model = json.loads(_page(url, "/v1/models"))["data"][0]["id"]
    for name, path, body in _requests(server, model):
        sent = _rendered(path, body)
        (folder / f"{name}.txt").write_bytes(sent + MARK + _answer(url, sent))


def _requests(server: str, model: str) -> Iterator[tuple[str, str, Body]]:
    for name, (path, asked) in {**OF_ALL, **OF_ONE[server]}.items():
        common = {"model": model, "temperature": 0.0, "max_tokens": 60} if path.startswith("/v1") else {}
        body = {**common, **asked}
        yield name, path, body
        usage = {} if path == "/generate" else {"stream_options": {"include_usage": True}}
        yield f"{name}-stream", path, {**body, "stream": True, **usage}


def _rendered(path: str, body: Body) -> bytes:
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-Request-Id: {ID}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def _page(url: str, path: str) -> bytes:
    sent = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    return _answer(url, sent).partition(b"\r\n\r\n")[2]


def _answer(url: str, sent: bytes) -> bytes:
    """All bytes until the server closes the connection."""
    address = urlsplit(url)
    received = bytearray()
    with socket.create_connection((address.hostname or "", address.port or 80), SECONDS) as connection:
        connection.sendall(sent)
        while piece := connection.recv(65536):
            received += piece
    return bytes(received)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
