"""Which API a server is asked by: what it takes, what its answers hold, and how the rest is refused."""

import json
import re
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from harness.config.protocol import Api, Dialect, Protocol, check_api, protocol_text
from harness.config.run_options import Backend
from harness.dataset.prompt_texts import PromptTexts
from harness.errors import ConfigError, ServerError
from sut.client.endpoint import Access, resolve_endpoints
from sut.servers import preflight
from sut.servers.apis import TrialRequests, asked_by
from sut.wire import supported
from tests.kit import PATIENCE_S, VOCABULARY, listening, parameters, read_request, sample_set, wire_of
from tests.stub import StubServer, refused_url
from tests.sut.pages import facts

PROMPT = [976, 4853, 19705, 68347, 65613, 1072, 290, 29082, 6446, 13]
WORDS = " one two three four"
EMPTY_CHAT = 9
HTML = b"<!DOCTYPE html><html><body>Sign in</body></html>"


@pytest.fixture(autouse=True)
def no_linger(monkeypatch):
    """Whether these servers close their connections is of no interest."""
    monkeypatch.setattr(preflight, "_LINGER_S", 0.0)


@dataclass
class Openai:
    """A server of /v1/completions and /v1/chat/completions, which differ as real ones do."""

    gives_ids: bool = True
    """return_token_ids is known"""
    ids: int = 4
    """of the 4 that it counts"""
    takes_ids: bool = True
    """a prompt may be ids in completions"""
    chat: str = "template"
    """what chat does with ids: template (ignored, as vLLM 0.32 and llama.cpp), ids (taken), none (404)"""
    more: int = 0
    """tokens that are put before the prompt, such as BOS"""
    usage: bool = True
    repeats: bool = False
    """a chat repeats the ids of the prompt that it took"""
    refuses: str = ""
    """a field with which a request is refused"""
    status: int = 200
    page: bytes = b""

    def answer(self, path: str, body: dict) -> tuple[int, bytes]:
        if self.page or self.status != 200:
            return self.status, self.page or b'{"error":{"message":"no"}}'
        if self.refuses and self.refuses in body:
            return 400, b'{"error":{"message":"unknown field"}}'
        is_chat = path == "/v1/chat/completions"
        if not (is_chat and self.chat != "none") and path != "/v1/completions":
            return 404, b'{"detail":"Not Found"}'
        prompt = body["messages"] if is_chat else body["prompt"]
        if is_chat and self.chat == "ids":
            prompt = body.get("prompt_token_ids") or prompt
        if not is_chat and isinstance(prompt, list) and not self.takes_ids:
            return 400, b'{"error":{"message":"prompt must be a string"}}'
        is_ignored = is_chat and self.chat == "template"
        counted = EMPTY_CHAT if is_ignored else len(prompt)
        return 200, self._events(body, counted + self.more, is_chat=is_chat)

    def _events(self, body: dict, counted: int, *, is_chat: bool) -> bytes:
        words, count = (WORDS, 4) if body["max_tokens"] == 4 else (WORDS * 4, 16)
        said = {"delta" if body["stream"] else "message": {"role": "assistant", "content": words}}
        choice = {"index": 0, "finish_reason": "length"} | (said if is_chat else {"text": words})
        if self.gives_ids and body.get("return_token_ids"):
            choice["token_ids"] = [1, 2, 3, 4][: self.ids]
        usage = {"prompt_tokens": counted, "completion_tokens": count} if self.usage else None
        named = {"id": "x", "model": "m"}
        if self.repeats and is_chat:
            named["prompt_token_ids"] = [100] * EMPTY_CHAT
        if not body["stream"]:
            return json.dumps({**named, "choices": [choice], "usage": usage}).encode()
        events = [{**named, "choices": [choice], "usage": None}, {**named, "choices": [], "usage": usage}]
        return (
            b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
        )


def served(server: Openai, seen: list | None = None):
    """The URL of a server; ``seen`` gets the path and body of each request."""

    def serve(connection):
        while request := read_request(connection):
            head, body = request
            path = head.split()[1].decode()
            asked = json.loads(body)
            if seen is not None:
                seen.append((path, asked))
            status, answer = server.answer(path, asked)
            connection.sendall(
                b"HTTP/1.1 %d -\r\ncontent-length: %d\r\n\r\n%b" % (status, len(answer), answer)
            )

    return listening(serve)


def tried(*urls, api=None, wire="openai", stream=True, prompt=PROMPT, to_the_end=False, fields=None):
    """The settled trial requests of these servers; ``fields`` are those that messages need."""
    samples = sample_set(Path("x.parquet"), [prompt])
    if fields:
        samples = replace(
            samples, texts=[b"[]"], as_text=PromptTexts(prompts=1, messages=True, fields=fields)
        )
    servers = asked_by([facts(url, wire, served_name="m") for url in urls], api)
    return TrialRequests(
        servers,
        parameters(max_new_tokens=10240, stream=stream, extra=fields or {}),
        VOCABULARY,
        samples,
        within_s=60,
        to_the_end=to_the_end,
        endpoints_of=lambda urls, path: resolve_endpoints(urls, path, Access()),
    ).settled()


def refusal(server: Openai, **asked) -> str:
    """The one line with which a server is refused."""
    with served(server) as url:
        (trial,) = tried(url, **asked).trials
        assert isinstance(trial.error, ServerError)
    text = str(trial.error)
    assert text.startswith(f"{url}: ") and "\n" not in text and len(text) < 600
    return text.removeprefix(f"{url}: ")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", [None, "completions", "chat-ids"])
@pytest.mark.parametrize("gives_ids", [True, False])
def test_what_the_answers_hold_is_what_came(api, gives_ids, stream):
    with served(Openai(gives_ids=gives_ids, chat="ids")) as url:
        found = tried(url, api=api, stream=stream)
    assert found.protocol == Protocol("openai", api or "completions", "ids" if gives_ids else "text")
    assert [one.error for one in found.trials] == [None]


@pytest.mark.parametrize(("prompt", "lengths"), [(PROMPT, [10, 5]), (PROMPT[:1], [1, 2])])
def test_a_chat_with_ids_is_tried_with_two_lengths(prompt, lengths):
    """An ignored prompt may have the length of the first one by chance, not of both."""
    seen = []
    with served(Openai(chat="ids"), seen) as url:
        tried(url, api="chat-ids", prompt=prompt)
    assert [len(body["prompt_token_ids"]) for _, body in seen] == lengths


def test_a_replica_that_ignores_ids_is_one_whatever_the_others_do():
    """Its count of an empty chat is that of the second prompt, which is not sent any more."""
    with served(Openai(chat="ids")) as good, served(Openai()) as bad:
        found = tried(good, bad, api="chat-ids", prompt=[7] * 2 * EMPTY_CHAT, to_the_end=True)
    assert [one.error is None for one in found.trials] == [True, False]


@pytest.mark.parametrize("length", [1, 9, 10])
@pytest.mark.parametrize("repeats", [False, True])
def test_ids_that_chat_ignores(length, repeats):
    """As llama.cpp does, and vLLM 0.32, which repeats the 9 ids of an empty chat, with status 200."""
    text = refusal(Openai(repeats=repeats), api="chat-ids", prompt=list(range(1, length + 1)))
    is_known = r" is to another prompt: \[100,.*ignores" if repeats else r" counted as 9: .*ignores"
    assert re.search(is_known, text)
    assert text.endswith("; use --api completions (ids in, ids out)")


@pytest.mark.parametrize(
    ("server", "api", "spelling"),
    [
        (Openai(gives_ids=False), "chat-ids", "--api completions (ids in, text out)"),
        (Openai(takes_ids=False, chat="ids"), None, "--api chat-ids (ids in, ids out)"),
        (Openai(takes_ids=False, chat="ids", gives_ids=False), None, "--api chat-ids (ids in, text out)"),
        (Openai(chat="none"), "chat", "--api completions (ids in, ids out)"),
        (Openai(takes_ids=False, chat="none"), None, "--api completions-text (text in, ids out)"),
        (
            Openai(takes_ids=False, gives_ids=False),
            None,
            "--api completions-text (text in, text out), or --api chat (text in, text out)",
        ),
    ],
)
def test_the_remedy_names_what_the_server_takes(server, api, spelling):
    assert refusal(server, api=api).endswith(f"; use {spelling}")


def test_a_chat_that_counts_the_first_prompt_by_chance_is_no_remedy():
    text = refusal(Openai(takes_ids=False), prompt=[7] * EMPTY_CHAT)
    remedy = "--api completions-text (text in, ids out), or --api chat (text in, ids out)"
    assert text.endswith(f"; use {remedy}")


def test_the_remedy_names_the_backend_whose_options_the_server_takes():
    """As of a gateway that does not name its engine, asked as Dynamo."""
    server = Openai(refuses="nvext", takes_ids=False, chat="ids")
    assert refusal(server, wire="dynamo").endswith("; use --backend vllm --api chat-ids (ids in, ids out)")


def test_the_first_of_the_replicas_that_are_refused_has_the_remedy():
    with served(Openai(takes_ids=False)) as a, served(Openai(takes_ids=False)) as b:
        errors = [str(one.error) for one in tried(a, b, to_the_end=True).trials]
    assert ["; use --api " in one for one in errors] == [True, False]


def test_the_remedy_of_ids_is_tried_as_a_chat_with_the_fields_of_its_messages():
    seen = []
    with served(Openai(takes_ids=False), seen) as url:
        (trial,) = tried(url, fields={"reasoning_effort": "low"}).trials
    assert "or --api chat (text in, ids out)" in str(trial.error)
    text = "The quick brown fox jumps over the lazy dog."
    asked = [
        (body.get("messages") or body["prompt"], "reasoning_effort" in body)
        for _, body in seen
        if body.get("messages") or isinstance(body.get("prompt"), str)
    ]
    assert (text, False) in asked and ([{"role": "user", "content": text}], True) in asked


def test_the_remedy_of_a_chat_is_tried_without_the_fields_of_its_messages():
    """SGLang 0.5.23 refuses `reasoning_effort` in the sampling parameters of /generate, with 400."""
    seen = []
    with served(Openai(chat="none"), seen) as url:
        (trial,) = tried(url, api="chat", fields={"reasoning_effort": "low"}).trials
    assert "use --api completions (ids in, ids out)" in str(trial.error)
    assert "reasoning_effort" in seen[0][1]
    assert not any("reasoning_effort" in body for path, body in seen if path == "/v1/completions")


@pytest.mark.parametrize(
    ("server", "api", "words"),
    [
        (Openai(chat="ids", usage=False), "chat-ids", ["usage"]),
        (Openai(gives_ids=False, usage=False), None, ["usage"]),
        (Openai(more=1), None, ["10", "11", "BOS"]),
        (Openai(chat="ids", more=1), "chat-ids", ["10", "11", "BOS"]),
        (Openai(ids=3), None, ["token_count", "3", "4"]),
        (Openai(page=HTML), None, ["malformed", "name the server itself"]),
        (Openai(status=404, page=HTML), "chat", ["HTTP 404", "name the server itself"]),
    ],
)
def test_no_api_helps(server, api, words):
    text = refusal(server, api=api)
    assert all(word in text for word in words) and " use --" not in text, text


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "OPENAI_API_KEY"),
        (403, "OPENAI_API_KEY"),
        (408, "--max-concurrent-requests"),
        (308, "redirects, which is not followed"),
        (413, "client_max_body_size"),
        (429, "rate"),
        (503, ""),
    ],
)
def test_statuses_that_say_nothing_about_the_api(status, remedy):
    """No other is tried: each would be refused like it."""
    seen = []
    with served(Openai(status=status), seen) as url:
        (trial,) = tried(url, api="completions").trials
    assert f"HTTP {status}" in str(trial.error) and remedy in str(trial.error)
    assert len(seen) == 1


@pytest.mark.parametrize("first", [True, False])
def test_replicas_that_differ_in_what_comes_back(first):
    """Text from all of them would prove less than ids, so the one that gives none is named."""
    with served(Openai(gives_ids=first)) as a, served(Openai(gives_ids=not first)) as b:
        found = tried(a, b)
    assert found.protocol.answers == "ids"
    assert [one.error is None for one in found.trials] == [first, not first]
    (error,) = [one.error for one in found.trials if one.error]
    assert "other replicas" in str(error)


def test_a_replica_that_gives_broken_ids_is_not_asked_for_text():
    """Which it would give beside one that gives no ids; a server that gives ids has to give right ones."""
    with served(Openai(gives_ids=False)) as a, served(Openai(ids=3)) as b:
        found = tried(a, b, to_the_end=True)
    assert found.protocol.answers == "ids"
    assert all(one.error for one in found.trials)


def test_replicas_without_ids_beside_one_that_is_dead():
    with served(Openai(gives_ids=False)) as a, refused_url() as b, served(Openai(gives_ids=False)) as c:
        found = tried(a, b, c, to_the_end=True)
    assert found.protocol.answers == "text"
    assert [one.error is None for one in found.trials] == [True, False, True]


@pytest.mark.parametrize(("wire", "api"), [("llamacpp", "chat-ids"), ("trtllm", "generate")])
def test_an_api_that_a_server_is_not_asked_by(wire, api):
    with pytest.raises(ServerError, match=r"expected one of .*completions"):
        asked_by([facts("http://a:1", wire)], api)


def test_the_name_that_requests_by_another_api_carry():
    (server,) = asked_by([facts("http://a:1", model="gpt-oss-120b")], "completions")
    assert server.served_name == "gpt-oss-120b" and server.protocol == Protocol("sglang", "completions")


def test_what_only_answers_in_text():
    (server,) = asked_by([facts("http://a:1", "llamacpp")], "chat")
    assert server.answers == "text"


PROTOCOLS = [one for dialect in get_args(Dialect) for one in supported(dialect)]
DIALECTS = {"embedded": "llamacpp", "vllm": "openai"}  # of backends with another name


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_the_plan_names_what_is_sent(protocol):
    wire, text = wire_of(protocol), protocol_text(protocol)
    assert text.startswith(f"POST {wire.path}, ")
    assert next(iter(json.loads(wire.render(b"[1]")))) in text
    assert text.endswith("ids out") is (protocol.answers == "ids")


@pytest.mark.parametrize("backend", [name for name in get_args(Backend) if name != "pytorch"])
def test_a_backend_has_the_apis_of_its_dialect(backend):
    known = {one.api for one in supported(DIALECTS.get(backend, backend))}
    for api in get_args(Api):
        with nullcontext() if api in known else pytest.raises(ConfigError, match=f"--backend {backend}"):
            check_api(backend, api)


def test_the_native_api_is_tried_as_ever():
    with StubServer() as stub:
        found = tried(stub.url, wire="sglang")
        assert [request.path for request in stub.requests] == ["/generate"]
    assert found.protocol == Protocol("sglang", "generate") and found.trials[0].error is None


def test_a_replica_that_has_not_ended_its_second_trial_did_not_take_it():
    """The second prompt is the one that shows whether a server ignores the ids."""
    refused = threading.Event()

    class Half(Openai):
        """Takes the ids of the first prompt alone."""

        def answer(self, path: str, body: dict) -> tuple[int, bytes]:
            if len(body.get("prompt_token_ids", PROMPT)) == len(PROMPT):
                return super().answer(path, body)
            return 400, b'{"error":{"message":"no"}}'

    class Late(Openai):
        """Answers the second prompt when the trial is over."""

        def answer(self, path: str, body: dict) -> tuple[int, bytes]:
            if len(body.get("prompt_token_ids", PROMPT)) != len(PROMPT):
                assert refused.wait(PATIENCE_S)
            return super().answer(path, body)

    half, late = (served(kind(chat="ids", gives_ids=False)) for kind in (Half, Late))
    with half as wrong_url, late as waiting_url:
        wrong, waiting = tried(wrong_url, waiting_url, api="chat-ids").trials
        refused.set()
    assert "other replicas take it" not in str(wrong.error)
    assert (waiting.error, waiting.seconds) == (None, None)
