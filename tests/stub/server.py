"""The stub's listening side: a thread with an event loop, a coroutine per connection."""

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from .apis import APIS
from .content import CONTENT, PROMPTS, token_count
from .exchange import Exchange
from .faults import Fault, Schedule, as_schedule
from .protocol import Options, Request, compact, honest_steps, information
from .transport import TRANSPORT

MAX_REQUEST_BYTES = 64 << 20
# As many connections as a client opens at once, and more: where the queue is full, some are reset.
_BACKLOG = 4096


class StubServer:
    """A server on a loopback address for the length of a ``with`` block.

    ``requests`` holds every generation request in order of arrival. ``knobs`` are the fields of Options.
    Start another one with the same ``port`` to play a restart.
    """

    def __init__(
        self,
        *,
        faults: Schedule | Fault | Sequence[Fault | None] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        **knobs: Any,
    ) -> None:
        self.options = Options(**knobs)
        self.requests: list[Request] = []
        self.connections = 0
        self._fault_of, self._tls = as_schedule(faults), tls
        self._protocols = {path: api(self.options) for path, api in APIS.items()}
        self._writers: set[asyncio.StreamWriter] = set()
        self._waiting = 0  # requests at their gate
        self.host = f"[{host}]" if ":" in host else host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="stub-server", daemon=True)

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://{self.host}:{self.port}"

    def __enter__(self) -> "StubServer":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Drop every connection and stop listening, as a killed server does."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._connection, sock=self._socket, ssl=self._tls, limit=MAX_REQUEST_BYTES, backlog=_BACKLOG
        )
        await self._stopping.wait()
        server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        # asyncio sets it only on sockets that name their protocol; without it events wait 40 ms for an ACK.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._writers.add(writer)
        # The client went away, or the stub is being stopped: nothing more is owed.
        with suppress(ConnectionError, asyncio.CancelledError):
            while await self._one_exchange(reader, writer):
                continue
        self._writers.discard(writer)
        writer.close()

    async def _one_exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read a request and answer it; False when the connection is to be closed."""
        request = await _read_request(reader)
        if request is None:
            return False
        exchange = Exchange(request, reader, writer, self.options)
        await self._answer(exchange)
        request.answered = exchange.open
        return exchange.open and not (
            self.options.close_after_response or request.headers.get("connection") == "close"
        )

    async def _answer(self, x: Exchange) -> None:
        request = x.request
        key = self.options.api_key
        if key and request.headers.get("authorization") != f"Bearer {key}":
            await x.send_whole(401, "application/json", b'{"error":"Unauthorized"}')
        elif request.path in ("/health", "/health_generate"):
            await x.send_whole(200 if self.options.healthy else 503, "text/plain", b"")
        elif unknown := [name for name in request.body if name in self.options.refuses]:
            said = {"message": f"Unsupported parameter(s): {', '.join(unknown)}", "code": 400}
            await x.send_whole(400, "application/json", compact(said | {"type": "Bad Request"}))
        elif request.method == "POST" and request.path in self._protocols:
            await self._generate(x)
        elif request.path == "/metrics" and self.options.metrics is not None:
            await x.send_whole(200, "text/plain; version=0.0.4", self.options.metrics())
        elif request.path == "/flush_cache":
            await x.send_whole(200, "text/plain", b"")
        elif (facts := information(request.path, self.options)) is not None:
            await x.send_whole(200, "application/json", compact(facts))
        else:
            await x.send_whole(404, "application/json", b'{"detail":"Not Found"}')

    def _take(self, request: Request) -> None:
        """Read the prompt, and count the request."""
        api = self._protocols[request.path]
        request.prompt_ids = api.prompt_of(request)
        request.taken_ids = api.taken_of(request)
        request.gets_ids = api.gives_ids(request)
        request.index = len(self.requests)
        self.requests.append(request)

    async def _pass_gate(self, request: Request) -> None:
        """Wait at the gate; where many wait, each looks less often: hundreds would take a whole core."""
        self._waiting += 1
        try:
            while not self.options.gate(request):
                await asyncio.sleep(0.01 * max(1, self._waiting / 16))
        finally:
            self._waiting -= 1

    async def _generate(self, x: Exchange) -> None:
        request, protocol = x.request, self._protocols[x.request.path]
        self._take(request)
        await self._pass_gate(request)
        fault = self._fault_of(request)
        if fault in PROMPTS:
            request.taken_ids = PROMPTS[fault](request.taken_ids)
        wanted = self.options.tokens or request.asked_tokens
        wanted = wanted(request.prompt_ids) if callable(wanted) else wanted
        n = token_count(fault, wanted, request.asked_tokens)
        steps = honest_steps(request, self.options, n, protocol.cumulative, protocol.rule(request))
        if fault in CONTENT:
            steps = CONTENT[fault](steps)
        x.blocks = protocol.render(request, steps)
        if not request.streams:
            x.silent_s = self.options.event_delay_s * (n - 1)
        await (TRANSPORT[fault](x) if fault in TRANSPORT else x.send_answer())


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """Read one HTTP/1.1 request with a content-length body; None when the client has gone."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        headers = {
            k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)
        }
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    method, path, _ = lines[0].split(" ", 2)
    request = Request(method, path.partition("?")[0], headers, time.monotonic_ns())
    request.body = json.loads(raw or b"{}")
    return request


@contextmanager
def refused_url() -> Iterator[str]:
    """A URL whose port is taken but not listening: every connection is refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
