"""The servers during a run: whether they are healthy, whether they work, and whether they are still the same.

Only suspected replicas are polled for their health, those from which nothing arrives, too, so that healthy
ones see no extra traffic.
"""

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from harness.analysis.rank_watch import signs_of_work
from harness.config.run_options import Backend
from harness.config.server_urls import folded
from harness.defects import Defects
from harness.errors import HarnessError, ServerError
from harness.record.journal import read_journal
from harness.record.run_events import EventLog
from harness.record.server_changes import (
    Named,
    ServerChange,
    differing,
    in_doubt,
    keep_change,
    keep_settings,
    no_longer_named,
    setting_pairs,
)
from harness.record.settled import Router, ServerInfo
from sut.client.endpoint import Access, Endpoint, moved
from sut.servers.info_client import (
    LATE,
    OR_ANOTHER,
    Calls,
    InfoClient,
    NotReadyError,
    WaitNotices,
    without_url,
)
from sut.servers.info_pages import ask_health_page, ask_server
from sut.servers.server_checks import failed_behind
from sut.wire.answer_checks import excerpt

_ANSWER_S = 2.0
_MARGIN_S = 1.0  # a thread whose own time is over has this long to end
_SETTINGS = ("dp_size", "max_running_requests", "stream_interval")
# SGLang's metrics of its start, which are other numbers after each, and of its latest update of weights.
_STARTED = re.compile(rb"\nsglang:startup_time_seconds\{[^\n]*")
_UPDATED = re.compile(rb"\nsglang:weight_load_duration_seconds\{[^\n]*")
# The model's name on the pages of SGLang and vLLM, which is the same in all lines of a page.
_SERVED = re.compile(rb'\n(?:sglang|vllm):\w+\{[^\n}]*\bmodel_name="([^"\n]*)"')
_NAMED = 5  # the most replicas that are named as out when a run ends

log = logging.getLogger("mlperf")

AskHealth = Callable[[str], str]  # a replica's URL; "" when it is healthy, else the error


def ask_health(url: str, access: Access, router: Router | None = None) -> str:
    """One request to /health of a server that has answered before. ``router``: what is known to be there."""
    with InfoClient(url, access, _ANSWER_S) as control:
        try:
            status, _ = ask_health_page(control, router)
        except ServerError as error:
            return str(error).partition(OR_ANOTHER)[0]  # its address is right
    return "" if status == 200 else f"{url}: /health answered {status}"


def ask_work(url: str, access: Access) -> bytes | None:
    """The engine's values in /metrics: two different answers mean that it works. None without the page.

    TensorRT-LLM's is a list of the steps since the last request, empty unless counting was switched on.
    """
    with InfoClient(url, access, _ANSWER_S) as control:
        try:
            status, body = control.ask("/metrics")
        except ServerError:
            return None
    if status != 200 or body.strip() == b"[]":
        return None
    return signs_of_work(body) or None


class ActivityProbe:
    """Whether servers that send nothing are working: answers that are not streamed take many minutes.

    A replica works when its metrics change, or when it has none and is healthy.
    """

    def __init__(self, urls: Sequence[str], ask: AskHealth, work: Callable[[str], bytes | None]) -> None:
        self.seen_s = time.monotonic()  # when work was last observed
        self._urls = urls
        self._ask = ask
        self._work = work
        self._known: dict[str, bytes] = {}
        self._thread: threading.Thread | None = None

    def probe(self) -> None:
        """Query all replicas, in a thread; does nothing while an earlier one runs."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask_all, name="activity", daemon=True)
            self._thread.start()

    def _ask_all(self) -> None:
        """Query one after another until one works: no more is asked."""
        for url in self._urls:
            if self._works(url):
                self.seen_s = time.monotonic()
                return

    def _works(self, url: str) -> bool:
        found = self._work(url)
        if found is None:
            return not self._ask(url)
        before = self._known.get(url)
        self._known[url] = found
        return found != before


class HealthRound:
    """The answers of several servers' /health while nothing arrives from them. Never waits."""

    def __init__(self, ask: AskHealth) -> None:
        self._ask = ask
        self._thread: threading.Thread | None = None
        self._answers: Mapping[str, str] = {}  # of the last round
        self._failed: Mapping[str, int] = {}

    def ask(self, urls: Sequence[str]) -> None:
        """Begin a round; does nothing while an earlier one lasts."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask_all, args=(urls,), name="silence", daemon=True)
            self._thread.start()

    def forget(self) -> None:
        """Forget the answers: something has arrived."""
        self._answers, self._failed = {}, {}

    def text(self, urls: Sequence[str]) -> str:
        """``http://node1:30000: /health answered 503``; "" before the first answers."""
        found = self._answers
        wrong = [url for url in urls if found.get(url)]
        if not wrong:
            return "/health answers 200" if all(url in found for url in urls) else ""
        first = f"{wrong[0]}: {without_url(wrong[0], found[wrong[0]])}"
        return first if len(urls) == 1 else f"{first}, and so {len(wrong)} of {len(urls)} servers"

    def failed(self, url: str) -> int:
        """How many answers of a server in a row, to the last, were errors."""
        return self._failed.get(url, 0)

    def all_refuse(self, urls: Sequence[str]) -> bool:
        """Whether each server has said itself that it is not healthy, or refused the connection.

        One that is late may be busy: SGLang's answer waits for its scheduler.
        """
        found = self._answers
        return all(found.get(url) and LATE not in found[url] for url in urls)

    def _ask_all(self, urls: Sequence[str]) -> None:
        calls = Calls(self._ask, urls)
        for _ in calls.wait(_ANSWER_S + _MARGIN_S):
            pass
        self._answers = dict(calls.results)
        self._failed = {url: self.failed(url) + 1 if wrong else 0 for url, wrong in self._answers.items()}


class HealthMonitor:
    """Replicas that are out of use, since when and why; threads poll them until they recover or ``close``."""

    def __init__(
        self,
        urls: Sequence[str],
        workers: Sequence[Connection],
        ask: AskHealth,
        none_left: Callable[[], str] = lambda: "",
        pause_s: float = 1.0,
        events: EventLog | None = None,
        endpoints: Sequence[Endpoint] = (),
    ) -> None:
        """``none_left``: why no replica can recover, "" while one can. ``events`` gets each outage.

        ``endpoints``: where the workers send the queries of each replica, whose name may get other addresses.
        """
        self._events = EventLog() if events is None else events
        self._pause_s = pause_s  # between two checks of a replica
        self.none_left = none_left
        self._outages: list[str] = []
        self._endpoints = list(endpoints)
        self._urls = urls
        self._workers = workers
        self._ask = ask
        self._lock = threading.Lock()
        self._asking: dict[int, threading.Event] = {}  # set by the first answer
        self._out: dict[int, tuple[float, str]] = {}
        self.closed = threading.Event()

    @property
    def outages(self) -> tuple[str, ...]:
        """Every time that a replica was out; those that still are, a few by name."""
        with self._lock:
            now, out = time.monotonic(), sorted(self._out.items())
            named = [
                f"{self._urls[replica]} has been out of use for {now - since:.0f} s: "
                f"{without_url(self._urls[replica], why)}"
                for replica, (since, why) in out[:_NAMED]
            ]
            more = [f"and {len(out) - _NAMED} more replicas are out of use"] if len(out) > _NAMED else []
            return (*self._outages, *named, *more)

    def suspected(self, replica: int) -> None:
        """A worker has stopped using a replica."""
        with self._lock:
            if replica in self._asking:
                return
            answered = self._asking[replica] = threading.Event()
        asks = threading.Thread(target=self._until_well, args=(replica, answered), name="health", daemon=True)
        asks.start()

    def all_out_for(self) -> tuple[float, str]:
        """Seconds since the last replica went out, and its error; 0 while one is in use."""
        with self._lock:
            if len(self._out) < len(self._urls):
                return 0.0, ""
            since, why = max(self._out.values())
        return time.monotonic() - since, why

    def close(self) -> None:
        """Stop polling, once every suspected replica has been asked.

        One that died in the last second of a run is named by it, too.
        """
        with self._lock:
            asking = tuple(self._asking.values())
        until = time.monotonic() + _ANSWER_S
        for answered in asking:
            answered.wait(max(0.0, until - time.monotonic()))
        self.closed.set()

    def _until_well(self, replica: int, answered: threading.Event) -> None:
        began = time.monotonic()
        while (wrong := self._ask(self._urls[replica])) and not self.closed.is_set():
            self._note_out(replica, began, wrong)
            answered.set()
            self.closed.wait(self._pause_s)
        answered.set()
        place = self._moved(replica)
        with self._lock:
            del self._asking[replica]
            if self.closed.is_set():
                return
            if place is not None:
                self._endpoints[replica] = place
                self._send("moved", (replica, place))
            was_out = self._out.pop(replica, None) is not None
            text = f"{self._urls[replica]} was out of use for {time.monotonic() - began:.0f} s"
            if was_out or place is not None:
                self._outages.append(text)
            self._send("trust", replica)
        now_at = f", at {', '.join(place.places)}" if place is not None else ""
        if was_out or now_at:
            self._events.add("server_back", self._urls[replica], f"in use again{now_at}")
            log.warning("%s and is healthy again%s", text, now_at)

    def _moved(self, replica: int) -> Endpoint | None:
        """Where the name of a replica leads now, if that is elsewhere: a pod that was replaced, for one."""
        return moved(self._endpoints[replica]) if self._endpoints else None

    def _note_out(self, replica: int, began: float, wrong: str) -> None:
        with self._lock:
            before = self._out.get(replica)
            self._out[replica] = (began, wrong)
            if before is None:
                self._send("suspect", replica)
                why = without_url(self._urls[replica], wrong)
                self._events.add("server_out", self._urls[replica], why, int(began * 1e9))
        if before is None or before[1] != wrong:
            log.warning("replica out of use: %s", wrong)

    def _send(self, word: str, value: object) -> None:
        """Under the lock, so that a worker receives a recovery before a later suspicion."""
        for worker in self._workers:
            with suppress(OSError):  # the worker has died
                worker.send((word, value))


class Recheck:
    """The servers of a run, compared with what they named at its start. Thread-safe.

    A server that names something else is not used any more: ``changes`` has it, and the journal.
    """

    def __init__(
        self, servers: Sequence[ServerInfo], backend: Backend, access: Access, within_s: float, journal: Path
    ) -> None:
        self.urls = [server.url for server in servers]
        self.on_change: Callable[[int], None] = lambda index: None
        """gets the index of a server that has changed"""
        self._servers = {server.url: (index, server) for index, server in enumerate(servers)}
        self._backend = backend
        self._access = access
        self._within_s = within_s
        self._journal = journal
        self._lock = threading.Lock()
        self._right_ns: dict[str, int] = {}
        self._updates: dict[tuple[str, bytes], tuple[bytes, int]] = {}
        self._served: dict[str, tuple[bytes, int]] = {}  # the name on the first page, and its last time
        self._changes: dict[str, ServerChange] = {}
        self._doubted: dict[str, bool] = {}  # changed servers, and whether answers of theirs are in doubt
        self._warnings: dict[str, None] = {}
        self._settings: list[tuple[str, object]] = []  # that the journal has, by URL
        self._defects = Defects()

    @property
    def changes(self) -> tuple[ServerChange, ...]:
        """The servers that have changed."""
        with self._lock:
            return tuple(self._changes.values())

    def health(self, url: str) -> str:
        """The error of a server's /health, "" for none."""
        return ask_health(url, self._access, self._servers[url][1].router)

    def work(self, url: str) -> bytes | None:
        """A server's signs of work."""
        return ask_work(url, self._access)

    def recovered(self, url: str) -> str:
        """Why a replica cannot be used, "" when it is healthy and the server that it was at the start."""
        if url in self._changes:
            return _refusal(self._changes[url])
        if wrong := self.health(url):
            return wrong
        change = None
        try:
            with self._defects.cost(f"comparison of {url} with what it was"):
                change = self._ask(url, self._within_s)
        except (HarnessError, OSError) as error:
            return str(error)
        return "" if change is None else _refusal(change)

    def watch(self, ended: threading.Event, round_s: float = 60.0) -> None:
        """Ask one server after another until ``ended``, all in ``round_s``.

        For runs whose times do not matter: it bounds the answers that a change puts in doubt.
        """
        for url in itertools.cycle(self.urls):
            if ended.wait(round_s / len(self.urls)):
                return
            with suppress(HarnessError, OSError):  # workers notice a server that fails
                if url in self._changes or self._ask(url, self._within_s):
                    self.on_change(self._servers[url][0])

    def page(self, url: str, page: bytes, now_s: float) -> None:
        """Take a page of metrics, read at ``now_s`` (monotonic).

        It shows a model of another name, also of a second server behind the same address; SGLang's an update
        of the weights, too.
        """
        if url not in self._servers:
            return
        now_ns = int(now_s * 1e9)
        with self._lock:
            change = None
            if url not in self._changes:
                change = self._other_name(url, page, now_ns) or self._update(url, page, now_ns)
        if change is not None:
            self.on_change(change.replica)

    def _other_name(self, url: str, page: bytes, now_ns: int) -> ServerChange | None:
        """The change to a model of another name; under the lock."""
        if (found := _SERVED.search(page)) is None:
            return None
        first, right_ns = self._served.get(url, (found[1], now_ns))
        if found[1] == first:
            self._served[url] = first, now_ns
            return None
        return self._keep(url, {"model": excerpt(first)}, {"model": excerpt(found[1])}, right_ns)

    def _update(self, url: str, page: bytes, now_ns: int) -> ServerChange | None:
        """The change by an update of SGLang's weights; under the lock.

        After one with the same name and version of weights nothing else does. One that SGLang refused
        looks alike, and may have changed them: it then rolls back to the new path, and it also refuses where
        one rank of several failed, or only the cache was not flushed. Pages of several servers behind one
        address are told apart by their starts.
        """
        if not (started := b"".join(sorted(_STARTED.findall(page)))):
            return None
        updates = b"".join(sorted(_UPDATED.findall(page)))
        before, right_ns = self._updates.get((url, started), (updates, 0))
        if updates == before:
            self._updates[url, started] = updates, now_ns
            return None
        name = "weight updates tried in the run"
        return self._keep(url, {name: 0}, {name: 1}, right_ns)

    def doubt(self, in_flight: Sequence[int]) -> str:
        """Why a measurement is lost to a changed server; "" where none has answers, or requests, in doubt.

        ``in_flight``: requests on each server. Raises OSError.
        """
        for change in self.changes:
            if change.url not in self._doubted:
                self._doubted[change.url] = bool(in_doubt(read_journal(self._journal).rows, [change]).any())
            if self._doubted[change.url] or in_flight[change.replica] > 0:
                self._doubted[change.url] = True
                return f"{change.reason}, and its answers may be of either; start it as it was"
        return ""

    def none_left(self) -> str:
        """Why no query can be answered any more; "" while a replica may recover."""
        changes = self.changes
        if len(changes) < len(self.urls):
            return ""
        first = _refusal(changes[0])
        return first if len(changes) == 1 else f"all {len(changes)} servers have changed; the first: {first}"

    def ask_all(self, within_s: float) -> tuple[str, ...]:
        """Ask all servers once more; returns warnings, also about those that gave no answer."""
        left = [url for url in self.urls if url not in self._changes]
        calls = Calls(lambda url: self._ask(url, within_s), left)
        with WaitNotices() as notices:
            for _ in calls.wait(within_s + _MARGIN_S):
                notices.tick(
                    f"the answers of {folded(calls.running(), 3)}, asked again at the end of the run"
                )
        return (*self._warnings, *self._defects.found, *_unasked(calls))

    def _ask(self, url: str, within_s: float) -> ServerChange | None:
        """The change of a server, None for none. Raises HarnessError if its answers do not show it."""
        asked_ns, (_, before) = time.monotonic_ns(), self._servers[url]
        with InfoClient(url, self._access, within_s) as client:
            now, _ = ask_server(client, self._backend, before.served_name)
        was, is_now = differing(before, now)
        missing = no_longer_named(before, now)
        if missing and "model_path" not in was:
            # A server that is starting may lack a page. It is then named by its path, not by its served name.
            raise NotReadyError(f"{url}: does not name its {missing[0].replace('_', ' ')} any more")
        with self._lock:
            self._warnings |= dict.fromkeys(_other_settings(before, now, was))
            if now.router != before.router:
                self._warnings |= dict.fromkeys(failed_behind(now))
            if not was:
                self._right_ns[url] = asked_ns
                self._keep_settings(before, now)
                return None
            return self._keep(url, was, is_now, self._right_ns.get(url, 0))

    def _keep_settings(self, before: ServerInfo, now: ServerInfo) -> None:
        """Keep other start options, each once; under the lock."""
        if now.settings == before.settings or (before.url, now.settings) in self._settings:
            return
        self._settings.append((before.url, now.settings))
        with suppress(OSError):  # a full disk ends the run anyway
            keep_settings(self._journal, now)

    def _keep(self, url: str, was: Named, now: Named, right_ns: int) -> ServerChange:
        """Keep a change; under the lock."""
        change = ServerChange(
            url=url, replica=self._servers[url][0], was=was, now=now, right_until_ns=right_ns
        )
        self._changes[url] = change
        with suppress(OSError):  # a full disk ends the run anyway
            keep_change(self._journal, change)
        return change


def check_same_servers(before: Sequence[ServerInfo], now: Sequence[ServerInfo]) -> None:
    """Raise ServerError if the servers of a later run are not those of an earlier one."""
    for one, other in zip(before, now, strict=False):
        was, is_now = differing(one, other)
        if was:
            change = ServerChange(url=other.url, replica=0, was=was, now=is_now, right_until_ns=0)
            raise ServerError(
                f"{change.reason}; start it as it was and repeat the command, which measures the rest"
            )


def _refusal(change: ServerChange) -> str:
    return f"{change.reason}; it gets no more queries: start it as it was when the run began"


def _other_settings(before: ServerInfo, now: ServerInfo, told: Container[str]) -> Iterator[str]:
    """Differences in settings that are none in what identifies the server, which is ``told``."""
    was, is_now = differing(before, now, _SETTINGS)
    pairs: dict[str, tuple[object, object]] = {name: (was[name], is_now[name]) for name in was}
    if None not in (before.version, now.version) and before.version != now.version:
        pairs["version"] = before.version, now.version
    for name, (one, other) in (pairs | setting_pairs(before, now)).items():
        if name not in told:
            yield f"{now.url}: {name.replace('_', ' ')} {one} is now {other}, as after another start"


def _unasked(calls: Calls[str, ServerChange | None]) -> Iterator[str]:
    """A warning about servers that gave no usable answer at the end."""
    without = [url for url in calls.items if url not in calls.results]
    if not without:
        return
    error = calls.errors.get(without[0], "no answer in time")  # whatever its kind: the run has its result
    why = without_url(without[0], error)
    yield (
        f"not asked again at the end: {folded(without)} ({why}), so it is not known whether "
        "the model was the same until then"
    )
