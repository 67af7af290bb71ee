"""The servers asked again: before a replica is used again, at the end, in accuracy runs also in between."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from harness.config.run_options import Backend
from harness.config.server_urls import folded
from harness.errors import HarnessError, ServerError
from harness.record.resolved_plan import ServerInfo
from harness.record.server_changes import ServerChange, differing, keep_change, no_longer_named
from sut.servers.health import ask_health, ask_work
from sut.servers.info_client import InfoClient, NotReadyError, WaitNotices
from sut.servers.naming import Calls
from sut.servers.pages import ask_server

_SETTINGS = ("dp_size", "max_running_requests", "stream_interval")
_ROUND_S = 60.0
_MARGIN_S = 1.0  # for a thread whose own time is over


class Recheck:
    """The servers of a run, compared with what they named at its start. Thread-safe.

    A server that names something else is not used any more: ``changes`` has it, and the journal.
    """

    def __init__(
        self,
        servers: Sequence[ServerInfo],
        backend: Backend,
        api_key: str | None,
        ca_file: Path | None,
        within_s: float,
        journal: Path,
    ) -> None:
        self.urls = [server.url for server in servers]
        self._servers = {server.url: (index, server) for index, server in enumerate(servers)}
        self._backend = backend
        self._api_key = api_key
        self._ca_file = ca_file
        self._within_s = within_s
        self._journal = journal
        self._lock = threading.Lock()
        self._right_ns: dict[str, int] = {}
        self._changes: dict[str, ServerChange] = {}
        self._warnings: dict[str, None] = {}

    @property
    def changes(self) -> tuple[ServerChange, ...]:
        """The servers that have changed."""
        with self._lock:
            return tuple(self._changes.values())

    def health(self, url: str) -> str:
        """The error of a server's /health, "" for none."""
        return ask_health(url, self._api_key, self._ca_file)

    def work(self, url: str) -> bytes | None:
        """A server's signs of work."""
        return ask_work(url, self._api_key, self._ca_file)

    def recovered(self, url: str) -> str:
        """Why a replica cannot be used, "" when it is healthy and the server that it was at the start."""
        if url in self._changes:
            return _refusal(self._changes[url])
        if wrong := self.health(url):
            return wrong
        try:
            change = self._ask(url, self._within_s)
        except (HarnessError, OSError) as error:
            return str(error)
        return "" if change is None else _refusal(change)

    def watch(self, on_change: Callable[[int], None], ended: threading.Event) -> None:
        """Ask one server after another, each once a minute, until ``ended``; ``on_change`` gets its index.

        For runs whose times do not matter: it bounds the answers that a change puts in doubt.
        """
        for url in itertools.cycle(self.urls):
            if ended.wait(_ROUND_S / len(self.urls)):
                return
            with suppress(HarnessError, OSError):  # workers notice a server that fails
                if url not in self._changes and self._ask(url, self._within_s):
                    on_change(self._servers[url][0])

    def none_left(self) -> str:
        """Why no query can be answered any more; "" while a replica may recover."""
        changes = self.changes
        if len(changes) < len(self.urls):
            return ""
        return _refusal(changes[-1]) if len(changes) == 1 else _refusals(changes)

    def ask_all(self, within_s: float) -> tuple[str, ...]:
        """Ask all servers once more; returns warnings, also about those that gave no answer."""
        left = [url for url in self.urls if url not in self._changes]
        calls = Calls(lambda url: self._ask(url, within_s), left)
        with WaitNotices() as notices:
            for _ in calls.wait(within_s + _MARGIN_S):
                notices.tick(
                    f"the answers of {folded(calls.running(), 3)}, asked again at the end of the run"
                )
        return (*self._warnings, *_unasked(calls))

    def _ask(self, url: str, within_s: float) -> ServerChange | None:
        """The change of a server, None for none. Raises HarnessError where its answers do not show it."""
        asked_ns, (replica, before) = time.monotonic_ns(), self._servers[url]
        with InfoClient(url, self._api_key, within_s, self._ca_file) as client:
            now, _ = ask_server(client, self._backend)
        was, is_now = differing(before, now)
        missing = no_longer_named(before, now)
        if missing and "model_path" not in was:
            # A server that starts may lack a page, and is then named by its path instead of its served name.
            raise NotReadyError(f"{url}: does not name its {missing[0].replace('_', ' ')} any more")
        with self._lock:
            self._warnings |= dict.fromkeys(_other_settings(before, now))
            if not was:
                self._right_ns[url] = asked_ns
                return None
            change = ServerChange(
                url=url, replica=replica, was=was, now=is_now, right_until_ns=self._right_ns.get(url, 0)
            )
            self._changes[url] = change
            with suppress(OSError):  # a full disk ends the run anyway
                keep_change(self._journal, change)
        return change


def check_same_servers(before: Sequence[ServerInfo], now: Sequence[ServerInfo]) -> None:
    """Raise ServerError where the servers of a later run are others than those of an earlier one."""
    for one, other in zip(before, now, strict=False):
        was, is_now = differing(one, other)
        if was:
            change = ServerChange(url=other.url, replica=0, was=was, now=is_now, right_until_ns=0)
            raise ServerError(f"{change.reason}; start it as it was, then --resume measures the rest")


def _refusal(change: ServerChange) -> str:
    return f"{change.reason}; it gets no more queries: start it as it was when the run began"


def _refusals(changes: Sequence[ServerChange]) -> str:
    return f"all {len(changes)} servers have changed; the first: {_refusal(changes[0])}"


def _other_settings(before: ServerInfo, now: ServerInfo) -> Iterator[str]:
    """Differences that are none of the model or version."""
    pairs = {name: (getattr(before, name), getattr(now, name)) for name in _SETTINGS}
    pairs |= {name: (one, now.settings.get(name)) for name, one in before.settings.items()}
    for name, (one, other) in pairs.items():
        if None not in (one, other) and one != other:
            yield f"{now.url}: {name.replace('_', ' ')} {one} is now {other}, as after another start"


def _unasked(calls: Calls[str, ServerChange | None]) -> Iterator[str]:
    """A warning about the servers whose answers do not show what they are now."""
    without = [url for url in calls.items if url not in calls.results]
    if not without:
        return
    error = calls.errors.get(without[0], "no answer in time")  # whatever it is, the run has its result
    why = str(error).removeprefix(f"{without[0]}: ").partition(";")[0]
    yield (
        f"not asked again at the end: {folded(without)} ({why}), so it is not known whether "
        "the model was the same until then"
    )
