"""The HTTP side: SGLang's ``/generate`` with token ids, and the pages that a client asks before a run."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from reference_server.engine import Engine, Finish, Generation, Token
from reference_server.sampling import SamplingParameters

_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """The content of ``/model_info`` and ``/server_info``, in SGLang's names where it has them."""

    model_path: str
    served_model_name: str
    revision: str | None
    version: str
    context_length: int
    vocab_size: int
    tp_size: int
    dtype: str
    max_running_requests: int
    load_format: str
    engine: str = "PyTorch"
    dp_size: int = 1


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    input_ids: list[int]
    sampling_params: SamplingParameters = SamplingParameters()
    stream: bool = False
    rid: str = ""


class ReferenceServer:
    """The application of one engine."""

    def __init__(self, engine: Engine, facts: Facts) -> None:
        self._engine = engine
        self._facts = facts
        self._numbers = itertools.count()
        self.failure = ""  # why the engine has ended

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=_MOST_BYTES)
        app.on_shutdown.append(self._stop)
        app.add_routes(
            [
                web.post("/generate", self._generate),
                web.get("/health", self._health),
                web.get("/model_info", self._info),
                web.get("/server_info", self._info),
                web.get("/v1/models", self._models),
                web.get("/metrics", self._metrics),
                web.post("/flush_cache", self._flush_cache),
            ]
        )
        return app

    async def _stop(self, _: web.Application) -> None:
        self._engine.stop(self.failure or "the server is ending")

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        try:
            request = msgspec.json.decode(await http.read(), type=_Request)
            self._check(request)
        except (msgspec.DecodeError, ValueError) as error:
            return _error(400, str(error))
        answer = _Answer(request.rid or f"{next(self._numbers):08x}", len(request.input_ids))
        if request.stream:
            return await self._stream(http, request, answer)
        tokens = [token async for token in self._tokens(request)]
        finish = tokens[-1].finish
        if finish is not None and finish.reason == "abort":
            return _error(500, finish.message)
        ids = [token.id for token in tokens if token.id is not None]
        return _json(answer.document(ids, len(ids), finish))

    async def _stream(self, http: web.Request, request: _Request, answer: "_Answer") -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        count = 0
        async with aclosing(self._tokens(request)) as tokens:
            async for token in tokens:
                new = [] if token.id is None else [token.id]
                count += len(new)
                await response.write(b"data: %b\n\n" % answer.document(new, count, token.finish))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _tokens(self, request: _Request) -> AsyncGenerator[Token]:
        """The tokens as they are made. When the client hangs up, aiohttp cancels this."""
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[Token]()

        def deliver(token: Token) -> None:
            with suppress(RuntimeError):  # the server is ending, and the loop with it
                loop.call_soon_threadsafe(tokens.put_nowait, token)

        generation = Generation(request.input_ids, request.sampling_params, deliver)
        self._engine.submit(generation)
        try:
            while True:
                token = await tokens.get()
                yield token
                if token.finish is not None:
                    return
        finally:
            self._engine.cancel(generation)

    def _check(self, request: _Request) -> None:
        """Raise ValueError for what the model cannot take."""
        ids, most = request.input_ids, request.sampling_params.max_new_tokens
        vocabulary, context = self._facts.vocab_size, self._facts.context_length
        if not ids:
            raise ValueError("input_ids is empty, expected at least 1 token id")
        for token in (min(ids), max(ids), *request.sampling_params.stop_token_ids):
            if not 0 <= token < vocabulary:
                raise ValueError(f"token id {token} is outside the vocabulary of {vocabulary}")
        if len(ids) + most > context:
            raise ValueError(
                f"a prompt of {len(ids)} tokens and max_new_tokens {most} exceed the context of {context}"
            )

    async def _health(self, _: web.Request) -> web.Response:
        return _error(503, self.failure) if self.failure else web.Response()

    async def _info(self, _: web.Request) -> web.Response:
        return _json(msgspec.json.encode(self._facts))

    async def _models(self, _: web.Request) -> web.Response:
        facts = self._facts
        model = {
            "id": facts.served_model_name,
            "object": "model",
            "owned_by": facts.engine,
            "root": facts.model_path,
            "max_model_len": facts.context_length,
        }
        return _json(msgspec.json.encode({"object": "list", "data": [model]}))

    async def _metrics(self, _: web.Request) -> web.Response:
        load = self._engine.load
        lines = (
            f"pytorch:num_running_reqs {load.running}",
            f"pytorch:num_queue_reqs {load.waiting}",
            f"pytorch:prompt_tokens_total {load.prompt_tokens}",
            f"pytorch:generation_tokens_total {load.generated_tokens}",
        )
        return web.Response(text="\n".join(lines) + "\n")

    async def _flush_cache(self, _: web.Request) -> web.Response:
        """Nothing is kept between two requests."""
        return web.Response(text="no prefix cache\n")


class _Answer:
    """The JSON documents of one answer; a stream's hold what is new."""

    def __init__(self, name: str, prompt_tokens: int) -> None:
        self._name = name
        self._prompt_tokens = prompt_tokens

    def document(self, ids: list[int], count: int, finish: Finish | None) -> bytes:
        meta = {
            "id": self._name,
            "finish_reason": _finish_reason(finish, count),
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": count,
            "cached_tokens": 0,
        }
        return msgspec.json.encode({"output_ids": ids, "meta_info": meta})


def _finish_reason(finish: Finish | None, count: int) -> dict[str, Any] | None:
    match finish:
        case None:
            return None
        case Finish(reason="stop", matched=matched):
            return {"type": "stop", "matched": matched}
        case Finish(reason="length"):
            return {"type": "length", "length": count}
    return {"type": "abort", "message": finish.message, "status_code": 500}


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    return _json(msgspec.json.encode({"error": {"message": message, "code": status}}), status)
