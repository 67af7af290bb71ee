"""Health checks of suspected replicas during a run, whose results are sent to the workers.

Only suspected replicas are polled, or all when nothing arrives from any, so healthy ones see no extra
traffic.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from harness.errors import ServerError
from sut.servers.info_client import InfoClient

_ANSWER_S = 2.0
_PAUSE_S = 1.0
_NAMED = 5  # replicas that are out when a run ends

# Names of a Prometheus page that change without work, or by being asked for: of a process
# (also SGLang's sglang:process_cpu_seconds_total), of the time without work, of the rounds of SGLang's
# scheduler, which has them without a request too, of HTTP.
_NOT_WORK = (b"process_", b"python_", b"idle_seconds", b"stage_seconds", b"http")

log = logging.getLogger("mlperf")

Ask = Callable[[str], str]  # a replica's URL; "" when it is healthy, else the error


def ask_health(url: str, api_key: str | None, ca_file: Path | None = None) -> str:
    """One request to /health."""
    with InfoClient(url, api_key, _ANSWER_S, ca_file) as control:
        try:
            status, _ = control.ask("/health")
        except ServerError as error:
            return str(error)
    return "" if status == 200 else f"{url}: /health answered {status}"


def ask_work(url: str, api_key: str | None, ca_file: Path | None = None) -> bytes | None:
    """The engine's values in /metrics: two different answers mean that it works. None without the page.

    TensorRT-LLM's is a list of the steps since the last request, empty unless counting was switched on.
    """
    with InfoClient(url, api_key, _ANSWER_S, ca_file) as control:
        try:
            status, body = control.ask("/metrics")
        except ServerError:
            return None
    if status != 200 or body.strip() == b"[]":
        return None
    return b"\n".join(line for line in body.splitlines() if _tells_of_work(line)) or None


def _tells_of_work(line: bytes) -> bool:
    name = line.partition(b"{")[0]
    return not (name.startswith(b"#") or any(word in name for word in _NOT_WORK))


class ActivityProbe:
    """Whether servers that send nothing are working: answers that are not streamed take many minutes.

    A replica works when its metrics change, or when it has none and is healthy.
    """

    def __init__(self, urls: Sequence[str], ask: Ask, work: Callable[[str], bytes | None]) -> None:
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
        """Query one after another until one works, which is enough."""
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


class HealthMonitor:
    """Replicas that are out of use, since when and why; threads poll them until they recover or ``close``."""

    def __init__(
        self,
        urls: Sequence[str],
        workers: Sequence[Connection],
        ask: Ask,
        none_left: Callable[[], str] = lambda: "",
    ) -> None:
        """``none_left``: why no replica can recover any more, "" while one can."""
        self.none_left = none_left
        self._outages: list[str] = []
        self._urls = urls
        self._workers = workers
        self._ask = ask
        self._lock = threading.Lock()
        self._asking: set[int] = set()
        self._out: dict[int, tuple[float, str]] = {}
        self.closed = threading.Event()

    @property
    def outages(self) -> tuple[str, ...]:
        """Every time that a replica was out; those that still are, a few by name."""
        with self._lock:
            now, out = time.monotonic(), sorted(self._out.items())
            named = [
                f"{self._urls[replica]} has been out of use for {now - since:.0f} s: {why}"
                for replica, (since, why) in out[:_NAMED]
            ]
            more = [f"and {len(out) - _NAMED} more replicas are out of use"] if len(out) > _NAMED else []
            return (*self._outages, *named, *more)

    def suspected(self, replica: int) -> None:
        """A worker has stopped using a replica."""
        with self._lock:
            if replica in self._asking:
                return
            self._asking.add(replica)
        threading.Thread(target=self._until_well, args=(replica,), name="health", daemon=True).start()

    def all_out_for(self) -> tuple[float, str]:
        """Seconds since the last replica went out, and its error; 0 while one is in use."""
        with self._lock:
            if len(self._out) < len(self._urls):
                return 0.0, ""
            since, why = max(self._out.values())
        return time.monotonic() - since, why

    def close(self) -> None:
        """Stop polling."""
        self.closed.set()

    def _until_well(self, replica: int) -> None:
        began = time.monotonic()
        while (wrong := self._ask(self._urls[replica])) and not self.closed.is_set():
            self._note_out(replica, began, wrong)
            self.closed.wait(_PAUSE_S)
        with self._lock:
            self._asking.discard(replica)
            if self.closed.is_set():
                return
            was_out = self._out.pop(replica, None) is not None
            text = f"{self._urls[replica]} was out of use for {time.monotonic() - began:.0f} s"
            if was_out:
                self._outages.append(text)
            self._tell("trust", replica)
        if was_out:
            log.warning("%s and is healthy again", text)

    def _note_out(self, replica: int, began: float, wrong: str) -> None:
        with self._lock:
            before = self._out.get(replica)
            self._out[replica] = (began, wrong)
            if before is None:
                self._tell("suspect", replica)
        if before is None or before[1] != wrong:
            log.warning("replica out of use: %s", wrong)

    def _tell(self, word: str, replica: int) -> None:
        """Under the lock: a later suspicion must not be told before an earlier recovery."""
        for worker in self._workers:
            with suppress(OSError):  # a worker that has died
                worker.send((word, replica))
