"""The servers' /metrics pages, read every 5 s during a run and kept as server_metrics.parquet.

A thread of the supervisor reads them at a low priority; neither LoadGen's process nor a worker takes part.
"""

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from harness.api_key import masked_text
from harness.defects import Defects
from harness.errors import ServerError, in_words, unwritten
from harness.files import SERVER_METRICS, atomic_write
from harness.record.server_metrics import MOST_PAGE_BYTES, MetricsWriter, has_values
from harness.record.settled import ServerInfo
from harness.text import first_few, printable
from sut.client.endpoint import Access
from sut.servers.gpus import LocalGpus
from sut.servers.info_client import Place, place_of, without_url
from sut.servers.rank_listeners import metrics_pages

EVERY_S = 5.0
_ANSWER_S = 2.0
_PARTS = 20  # of that time; see _within
_AT_ONCE = 32
_LARGEST_PART = 0.2  # part of a core that rounds may take; after a costlier one the next comes later
_LEAST_PAUSE_S = 1.0  # where servers, or a busy machine, make a round long
_TRIES = 3  # failures in a row, after which a server that never answered is queried in every tenth round only
_SELDOM = 10
_STOPPED = 12  # failures in a row, a minute at least: a busy server's page may come late for some rounds
_NICE = 10
_LAST_S = 10.0  # after a run no page is asked for later: of hundreds of servers that hang no round ends
_END_S = 30.0  # the thread has a low priority, and the machine may be busy
_SHOWN = 3
GPUS_HERE = "GPUs of this machine"

log = logging.getLogger("mlperf")

OnPage = Callable[[str, bytes, float], None]  # the server's URL, its page, and time.monotonic()


class NoMetricsError(Exception):
    """The reason why a server has no page of metrics now."""


class _Server(msgspec.Struct):
    """A server whose page is read."""

    number: int
    url: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    lookup: "asyncio.Future[Place | NoMetricsError] | None" = None
    """of where it is, until it does not answer there"""
    failures: int = 0
    """in a row"""
    ever: bool = False
    """whether a page was read"""
    wrong: str = "not asked before the end of the run"
    """why there is no page, as far as is known"""

    def is_due(self, number: int) -> bool:
        """Whether this round reads its page: a busy server's may come late for many rounds."""
        return self.ever or self.failures < _TRIES or number % _SELDOM == 0


class Scraped(msgspec.Struct):
    """The result of a run's reading."""

    without: dict[str, str] = msgspec.field(default_factory=dict)
    """servers that never had metrics, and why"""
    warnings: tuple[str, ...] = ()


class MetricsScraper:
    """Reads the pages from ``start`` to ``stop``. No failure here ends a run."""

    def __init__(
        self,
        servers: Sequence[ServerInfo],
        folder: Path,
        access: Access,
        *,
        dcgm_urls: Sequence[str] = (),
        gpus: LocalGpus | None = None,
    ) -> None:
        """``dcgm_urls``: exporters of GPUs, which get no key; ``gpus``: those of this machine."""
        self._on_page: tuple[OnPage, ...] = ()
        self._defects = Defects()
        # TensorRT-LLM's statistics are removed by reading them, and sut.servers.health needs them.
        read = set(metrics_pages(servers))
        self._servers = [
            _Server(n, one.url, access.headers)
            for n, one in enumerate(servers)
            if one.wire != "trtllm" and one.url in read
        ]
        self._servers += [_Server(n, url) for n, url in enumerate(dcgm_urls, len(servers))]
        self._urls = [*(server.url for server in servers), *dcgm_urls]
        self._gpus = gpus
        self._path = folder / SERVER_METRICS
        tls = any(urlsplit(url).scheme != "http" for url in self._urls)
        self._verify = access.tls_context() if tls else False
        self._begun, self._ended = threading.Event(), threading.Event()
        self._until_s = math.inf
        self._stopped: list[_Server] = []  # that have just had no page for a minute
        self._result = Scraped({one.url: "not asked" for one in servers if one.wire == "trtllm"})
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self, *on_page: OnPage) -> None:
        """Read the pages, once before this returns or 2 s are over; ``on_page`` get each in that thread."""
        self._on_page = on_page
        if self._servers or self._gpus is not None:
            self._thread.start()
            self._begun.wait(_ANSWER_S)

    def stop(self) -> Scraped:
        """Read the pages once more and close the file."""
        self._until_s = time.monotonic() + _LAST_S
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(_END_S)
        if self._thread.is_alive():
            return Scraped(warnings=(f"{SERVER_METRICS} was not complete {_END_S:g} s after the run",))
        return self._result

    def _run(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            with self._defects.cost(SERVER_METRICS), atomic_write(self._path) as file:
                writer = MetricsWriter(file, [*self._urls, GPUS_HERE])
                asyncio.run(self._rounds(writer))
                writer.close()
                if writer.full:
                    text = f"{SERVER_METRICS} reached its largest size and is not complete"
                    self._result.warnings += (text,)
        except (OSError, RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError):
                reason = f"no {SERVER_METRICS}: {in_words(error)}"
            else:
                reason = unwritten(self._path, error)
            self._result = Scraped(self._result.without, (*self._result.warnings, reason))
            return
        finally:
            self._begun.set()
        if self._gpus is None and not any(server.ever for server in self._servers):
            self._path.unlink(missing_ok=True)
        self._result.without |= {server.url: server.wrong for server in self._servers if not server.ever}
        self._result.warnings += self._defects.found

    async def _rounds(self, writer: MetricsWriter) -> None:
        limits = httpx.Limits(max_connections=_AT_ONCE, max_keepalive_connections=0)
        async with httpx.AsyncClient(
            headers={"Accept-Encoding": "identity"},
            trust_env=False,
            verify=self._verify,
            limits=limits,
            timeout=None,  # _within has the time limit
        ) as client:
            gate, number, last = asyncio.Semaphore(_AT_ONCE), 0, False
            while True:
                began, began_cpu = time.monotonic(), time.thread_time()
                asked = [one for one in self._servers if one.is_due(number)]
                if last:
                    asked = [one for one in asked if not one.failures]
                time_ns = time.monotonic_ns()
                if self._gpus is not None:
                    writer.add(time_ns, len(self._urls), self._gpus.page())
                asking = (self._ask(client, gate, one, writer, time_ns, last=last) for one in asked)
                await asyncio.gather(*asking)
                if number == 0:
                    self._begun.set()
                    self._say_who_has_none()
                self._say_who_has_no_more()
                if last:
                    return
                number += 1
                rest_s = max(EVERY_S, (time.thread_time() - began_cpu) / _LARGEST_PART)
                last = await self._pause(max(rest_s - (time.monotonic() - began), _LEAST_PAUSE_S))

    async def _pause(self, seconds: float) -> bool:
        """Wait; returns whether the run has ended in the meantime."""
        return await asyncio.to_thread(self._ended.wait, seconds)

    async def _ask(
        self,
        client: httpx.AsyncClient,
        gate: asyncio.Semaphore,
        server: _Server,
        writer: MetricsWriter,
        time_ns: int,
        *,
        last: bool,
    ) -> None:
        async with gate:
            if time.monotonic() > self._until_s or (self._ended.is_set() and not last):
                return  # the last round asks it
            try:
                page = await _page(client, server)
            except NoMetricsError as error:
                if server.lookup is not None and server.lookup.done():
                    server.lookup = None  # its name may have another address now
                server.failures, server.wrong = server.failures + 1, printable(masked_text(str(error)))
                if server.ever and server.failures == _STOPPED:
                    self._stopped.append(server)
                return
        server.failures, server.ever = 0, True
        with self._defects.cost(f"complete {SERVER_METRICS}"):
            writer.add(time_ns, server.number, page)
        now_s = time.monotonic()
        for take in self._on_page:
            with self._defects.cost("alarm by some of the servers' metrics"):
                take(server.url, page, now_s)

    def _say_who_has_none(self) -> None:
        without = [server for server in self._servers if not server.ever]
        if not without:
            return
        shown = first_few((f"{one.url}: {one.wrong}" for one in without), _SHOWN)
        log.info("no metrics of %d of %d servers: %s", len(without), len(self._servers), shown)

    def _say_who_has_no_more(self) -> None:
        """Alarms and figures by metrics are missing then, without a sign of it."""
        stopped, self._stopped = self._stopped, []
        if not stopped:
            return
        shown = first_few((f"{one.url}: {one.wrong}" for one in stopped), _SHOWN)
        text = (
            f"no metrics for a minute of {len(stopped)} of {len(self._servers)} servers that had them "
            f"({shown}): alarms do not see these servers' ranks and queues, and the figures of server "
            "metrics have a gap; the measurement itself goes on"
        )
        log.warning("warning: %s", text)
        if text not in self._result.warnings:
            self._result.warnings += (text,)


async def _page(client: httpx.AsyncClient, server: _Server) -> bytes:
    """The page, within the limits of time and size, once its name is known. Raises NoMetricsError.

    A lookup that takes longer goes on, and a later round has its result: no other page waits for it.
    """
    if server.lookup is None:
        server.lookup = _look_up(server.url)
    await asyncio.wait({server.lookup}, timeout=_ANSWER_S)
    if not server.lookup.done():
        raise NoMetricsError(f"the resolver gave no answer within {_ANSWER_S:g} s")
    if isinstance(place := server.lookup.result(), NoMetricsError):
        raise place
    try:
        page = await _within(_ANSWER_S, _body(client, server.headers, *place))
    except TimeoutError:
        raise NoMetricsError(f"/metrics gave no answer within {_ANSWER_S:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoMetricsError(f"/metrics: {error or type(error).__name__}") from None
    if not has_values(page):
        raise NoMetricsError("/metrics shows no numbers in the format of Prometheus")
    return page


def _look_up(url: str) -> "asyncio.Future[Place | NoMetricsError]":
    """A lookup in a thread of its own: the end of the rounds, and of the program, waits for none."""
    loop = asyncio.get_running_loop()
    place: asyncio.Future[Place | NoMetricsError] = loop.create_future()

    def look_up() -> None:
        found = _looked_up(url)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(place.set_result, found)

    threading.Thread(target=look_up, name="lookup", daemon=True).start()
    return place


def _looked_up(url: str) -> "Place | NoMetricsError":
    """Where a server is, or why that is not known: returned, since it may come after the last round."""
    try:
        return place_of(url)
    except ServerError as error:
        return NoMetricsError(without_url(url, error))


async def _body(
    client: httpx.AsyncClient,
    headers: Mapping[str, str],
    place: str,
    host: Mapping[str, str],
    extensions: Mapping[str, str],
) -> bytes:
    body = bytearray()
    asked = client.stream("GET", f"{place}/metrics", headers={**headers, **host}, extensions=dict(extensions))
    async with asked as answer:
        if answer.status_code != httpx.codes.OK:
            raise NoMetricsError(f"/metrics answered {answer.status_code}")
        async for data in answer.aiter_raw():
            body += data
            if len(body) > MOST_PAGE_BYTES:
                raise NoMetricsError(f"/metrics has more than {MOST_PAGE_BYTES >> 20} MiB")
    return bytes(body)


async def _within(seconds: float, work: Coroutine[Any, Any, bytes]) -> bytes:
    """The result of ``work``. Raises TimeoutError. A pause of this low-priority thread counts as one part."""
    task = asyncio.ensure_future(work)
    for _ in range(_PARTS):
        if (await asyncio.wait((task,), timeout=seconds / _PARTS))[0]:
            return await task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    raise TimeoutError
