"""Information about every replica, queried in parallel and within a deadline, also while servers start."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
from msgspec.structs import replace

from harness.config.deadlines import PreflightLimits
from harness.config.run_options import Backend
from harness.config.server_urls import DNS, folded
from harness.errors import HarnessError, ServerError, explained
from harness.grouping import by_key
from harness.record.settled import ServerInfo
from harness.text import aligned, counted, duration, printable, utc
from sut.client.endpoint import Access
from sut.servers.info_client import Calls, InfoClient, NotReadyError, WaitNotices, without_url
from sut.servers.info_pages import SettingValues, ask_server
from sut.servers.naming import DuplicateError, Replicas, check_enough, replicas_of
from sut.servers.rank_listeners import is_rank_beside, missing_rank_warnings, unnamed_ranks
from sut.servers.server_checks import check_alike, with_differences

# A thread has this long after its own deadline to give its error, which says more than that the time is over.
# Only one that hangs takes all of it.
_MARGIN_S = 5.0
_TIMEOUT_REMEDY = "a busy server may need a larger --preflight-timeout"
_PAUSE_S = 1.0  # between two queries to a server that is starting
_STARTING_PER_S = 100  # questions to all servers that are starting
_ROWS = 20  # the most rows of the table of servers that cannot be used
_REASON = 160  # characters
_SOON = timedelta(days=1)

_Answer = tuple[ServerInfo, SettingValues]

log = logging.getLogger("mlperf")


class Servers(msgspec.Struct, frozen=True):
    """The replicas of a run."""

    found: tuple[ServerInfo, ...]
    """Those that can be used, at least one."""
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The reasons why others are left out (--min-replicas), by URL."""
    warnings: tuple[str, ...] = ()


def discover(
    urls: Sequence[str], backend: Backend, access: Access, within_s: float
) -> tuple[ServerInfo, ...]:
    """Query every replica once. Raises HarnessError unless all can be used."""
    limits = PreflightLimits(questions_s=within_s, trial_s=1)
    return find_servers(urls, backend, access, limits).found


def find_servers(
    urls: Sequence[str], backend: Backend, access: Access, limits: PreflightLimits, model: str = ""
) -> Servers:
    """Ask every replica, waiting for those that start as long as ``limits`` allow.

    Of a server that lists several models the one is asked for that has the name ``model``.

    Servers that cannot be used are a table among the messages. Raises ServerError for them unless
    ``limits.min_replicas`` others can be used, and ConfigError for a server that is named twice.
    """
    until = time.monotonic() + limits.wait_s
    asked = partial(ask_server, backend=backend, model=model)
    ask = partial(_Asking, asked=asked, access=access, limits=limits, until=until)
    while True:
        replicas = _named(urls, until)
        check_enough(limits.min_replicas, (*replicas.urls, *(url for url, _ in replicas.faults)))
        asking = ask(replicas.urls)
        faults = [*replicas.faults, *asking.faults()]
        grown = _is_dynamic(urls) and limits.wait_s and len(replicas_of(urls).urls) > len(replicas.urls)
        if faults or not grown:
            break
    total = len(replicas.urls) + len(replicas.faults)
    left_out = require(faults, total, limits.min_replicas)
    answers = [asking.calls.results[url] for url in replicas.urls if url not in left_out]
    named = [fact for fact, _ in answers]
    absent: tuple[str, ...] = ()
    if further := unnamed_ranks(named):
        # A port where none listens may never open, and is no reason to leave the others out.
        wait_s = min(limits.wait_s, limits.questions_s)
        once = replace(limits, wait_s=wait_s, min_replicas=1)
        answers, absent = _with_ranks(
            answers, further, partial(ask, limits=once, until=min(until, time.monotonic() + wait_s))
        )
    found = with_differences(answers)
    check_alike(found)
    ranks = (*absent, *missing_rank_warnings(named))
    ends = certificate_warnings(asking.certificates_until(), datetime.now(UTC))
    warnings = (*left_out_warning(left_out, total), *replicas.warnings, *ranks, *ends)
    return Servers(found, left_out, warnings)


def _with_ranks(
    answers: Sequence[_Answer],
    ranks: Mapping[str, Sequence[str]],
    ask: Callable[[Sequence[str]], "_Asking"],
) -> tuple[list[_Answer], tuple[str, ...]]:
    """The answers, those of first ranks followed by those of the others on their machine (``ranks``).

    With a warning for each reason why some of these cannot be used.
    """
    named = [fact.url for fact, _ in answers]
    urls = [url for others in ranks.values() for url in others]
    asking = ask([url for url in replicas_of([*named, *urls]).urls if url not in named])
    faults = dict(asking.faults())
    found: list[_Answer] = []
    for fact, values in answers:
        beside = [asking.calls.results.get(url) for url in ranks.get(fact.url, ())]
        others = [one for one in beside if one is not None and is_rank_beside(one[0], fact)]
        found += [(fact, values), *others]
    used = {fact.url for fact, _ in found}
    if more := [url for url in urls if url in used]:
        log.info(
            "data-parallel ranks listen at a port each: beside %s, the first of its machine, also %s",
            folded(ranks),
            folded(more),
        )
    absent = by_key(
        (_reason(url, faults[url]) if url in faults else "another server answers", url)
        for url in asking.calls.items
        if url not in used
    )
    return found, tuple(_absent_ranks(*row) for row in absent.items())


def _absent_ranks(reason: str, urls: Sequence[str]) -> str:
    return (
        f"{folded(urls)}: {counted(len(urls), 'further data-parallel rank')} expected here, {reason}: unless "
        "the server hands requests on, they stand idle; publish these ports, or name with --server-url where "
        "they listen"
    )


def _is_dynamic(urls: Sequence[str]) -> bool:
    return any(url.startswith(DNS) for url in urls)


def _named(urls: Sequence[str], until: float) -> Replicas:
    """The replicas, once all names of ``dns+`` URLs are known."""
    with WaitNotices() as notices:
        while True:
            replicas = replicas_of(urls)
            unknown = [url for url, error in replicas.faults if isinstance(error, NotReadyError)]
            if not unknown or (left := until - time.monotonic()) <= 0:
                return replicas
            notices.tick(f"the addresses of {folded(unknown)} (--wait-for-servers)")
            time.sleep(min(_PAUSE_S, left))


class _Asking:
    """Questions to all replicas at once, repeated for those that are starting until ``until``."""

    def __init__(
        self,
        urls: Sequence[str],
        asked: Callable[[InfoClient], _Answer],
        access: Access,
        limits: PreflightLimits,
        until: float,
    ) -> None:
        self._asked = asked
        self._access = access
        self._limits = limits
        self._until = until
        self._pause_s = max(_PAUSE_S, len(urls) / _STARTING_PER_S)
        self._ended = threading.Event()
        self._hopeless = False
        self._clients: dict[str, InfoClient] = {}
        self._starting: dict[str, NotReadyError] = {}
        self.calls: Calls[str, _Answer] = Calls(self._ask, urls)

    def faults(self) -> list[tuple[str, HarnessError]]:
        """The servers that cannot be used, once all have answered or the time is over.

        If waiting cannot help, only those that have answered by then: nothing is known of the others.
        """
        left_s = max(self._until - time.monotonic(), 0) + self._limits.questions_s + _MARGIN_S
        with WaitNotices() as notices:
            for _ in self.calls.wait(left_s):
                running = self.calls.running()
                notices.tick(self._waiting(running))
                self._hopeless = self._is_hopeless()
                if self._hopeless:
                    break
        self._ended.set()
        found = ((url, self._fault(url)) for url in self.calls.items)
        return [(url, fault) for url, fault in found if fault is not None]

    def certificates_until(self) -> Mapping[str, datetime]:
        """Until when the TLS certificate of each server is valid, by URL."""
        ends = ((url, client.certificate_until) for url, client in self._clients.items())
        return {url: until for url, until in ends if until is not None}

    def _is_hopeless(self) -> bool:
        """Whether waiting cannot help: a server that is needed cannot be used, and does not just start."""
        errors = list(self.calls.errors.values())
        waits = self._limits.min_replicas is None and self._until > time.monotonic()
        return waits and any(not isinstance(error, NotReadyError) for error in errors)

    def _ask(self, url: str) -> _Answer:
        while True:
            client = InfoClient(url, self._access, self._limits.questions_s, _TIMEOUT_REMEDY)
            self._clients[url] = client
            try:
                with client:
                    return self._asked(client)
            except NotReadyError as error:
                self._starting[url] = error
                if time.monotonic() + self._pause_s > self._until or self._ended.wait(self._pause_s):
                    raise

    def _fault(self, url: str) -> HarnessError | None:
        if url in self.calls.results:
            return None
        error = self.calls.errors.get(url) or self._starting.get(url)
        if error is None and self._hopeless:
            return None
        within_s = self._limits.questions_s
        late = ServerError(f"{url}: its answers did not end within {within_s:g} s; {_TIMEOUT_REMEDY}")
        error = error or late
        if (known := explained(error)) is None:
            raise error
        return known

    def _waiting(self, running: Sequence[str]) -> str:
        """``3 of 512 servers: 2 not reachable, 1 /health answered 503: http://...``."""
        total, seconds = len(self.calls.items), self._limits.questions_s
        if self._until > time.monotonic():
            return self._starting_line(running, total)
        if total == 1:
            url = running[0] if running else self.calls.items[0]
            client = self._clients.get(url)
            asking = client.asking if client else ""
            tls = ", which does not answer the TLS handshake" if client and client.shaking_hands else ""
            return f"{url}{asking}{tls}, at most {seconds:g} s (--preflight-timeout)"
        return (
            f"the answers of {len(running)} of {total} servers, at most {seconds:g} s (--preflight-timeout): "
            f"{folded(running, 3)}"
        )

    def _starting_line(self, running: Sequence[str], total: int) -> str:
        kinds = Counter(
            _reason(url, self._starting[url]).partition(" (")[0].partition(",")[0]
            if url in self._starting
            else "no answer yet"
            for url in running
        )
        states = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(3))
        within = duration(self._limits.wait_s)
        return (
            f"{len(running)} of {total} servers: {states}: {folded(running, 3)}; "
            f"at most {within} (--wait-for-servers)"
        )


def require(faults: Sequence[tuple[str, HarnessError]], total: int, enough: int | None) -> dict[str, str]:
    """The servers to leave out, and why. Raises HarnessError if they cannot be left out."""
    if not faults:
        return {}
    for _, error in faults:
        if not isinstance(error, ServerError | DuplicateError):
            raise error  # it concerns this machine or the flags, not one server
    twice = [error for _, error in faults if isinstance(error, DuplicateError)]
    usable = total - len(faults)
    if len(faults) > 1:
        for line in fault_table(faults, total):
            log.warning(line)
    if enough is not None and not twice and usable >= enough:
        return {url: _reason(url, error) for url, error in faults}
    if len(faults) == 1 and enough is None:
        raise faults[0][1]
    if len(twice) == len(faults):
        raise DuplicateError(f"{counted(len(twice), 'server')} of {total} named twice; the first: {twice[0]}")
    least = "" if enough is None else f", --min-replicas {enough} asks for {enough} others"
    same = f" and {len(twice)} named twice" if twice else ""
    first = next(error for _, error in faults if isinstance(error, ServerError))
    raise ServerError(
        f"{len(faults) - len(twice)} of {total} servers cannot be used{same}{least}; the first: {first}"
    )


def certificate_warnings(until: Mapping[str, datetime], now: datetime) -> Iterator[str]:
    """A warning about TLS certificates that end within a day: a run and its repetition may last as long.

    One for all servers: each may have a certificate of its own.
    """
    soon = {url: end for url, end in until.items() if end - now < _SOON}
    if soon:
        end = min(soon.values())
        what = "TLS certificate" if len({*soon.values()}) == 1 else "first of the TLS certificates"
        yield (
            f"{folded(soon)}: the {what} ends in {duration((end - now).total_seconds())} ({utc(end)}): "
            "connections that are opened later fail, unless the server has a new one by then"
        )


def left_out_warning(left_out: Mapping[str, str], total: int) -> tuple[str, ...]:
    """The warning about servers that the run leaves out; none if it uses all."""
    if not left_out:
        return ()
    return (f"{len(left_out)} of {total} servers are left out (--min-replicas): {folded(left_out)}",)


def fault_table(faults: Sequence[tuple[str, HarnessError]], total: int) -> list[str]:
    """A line for each reason with its servers, the most frequent first; at most 20."""
    by_reason = by_key((_reason(url, error), url) for url, error in faults)
    rows = sorted(by_reason.items(), key=lambda row: -len(row[1]))
    cells = [(str(len(urls)), printable(folded(urls, 3)), reason) for reason, urls in rows[:_ROWS]]
    lines = [f"{len(faults)} of {total} servers cannot be used:", *(f"  {line}" for line in aligned(cells))]
    hidden = sum(len(urls) for _, urls in rows[_ROWS:])
    return [*lines, f"  and {hidden} more"] if hidden else lines


def _reason(url: str, error: HarnessError) -> str:
    """The error without its server, up to its remedy."""
    return printable(without_url(url, error), _REASON)
