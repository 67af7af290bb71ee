"""Data-parallel ranks without a sign of life, or without work, by their servers' metrics while a run lasts.

A living scheduler of SGLang changes several of its metrics at each reading: at work its tokens and passes,
without work its idle time (of 112 series 15 to 30 at work, 8 without, in SGLang 0.5). After ``kill -9`` the
HTTP process still serves the last values, all the same to the last digit. A scheduler that hangs in a
collective operation, or is in one forward pass for long, compiling included, looks the same. So the
time since the last sign of life of a rank decides, and whether others show one.
"""

import math
import re
import threading
from collections.abc import Sequence

import msgspec

from harness.grouping import by_key
from harness.record.server_metrics import QUANTITIES, RANK_LABEL_BYTES
from harness.text import counted, moment

STANDS_S = 30.0
"""without a sign of life for this time a rank stands; without work a living one reports this often"""
# A rank that never had a request, so long after its server had two for each rank, gets none. SGLang renews
# its levels each 40 steps of decoding.
_IDLE_S, _BUSY = 60.0, 2
# A run ends after this silence: where other ranks of the server live, and where none does, which may be a
# compilation on all of them. SGLang's own watchdog ends a hanging scheduler after 300 s.
_SILENCE_S, _SILENCE_OF_ALL_S = 120.0, 300.0
# A page, or a sign of life, of three readings ago is recent; on a busy machine readings are further apart.
_RECENT_READINGS, _RECENT_S = 3, 15.0
_AT_WORK = tuple(name.encode() for key in ("running", "queued") for name in QUANTITIES[key].names)

# Comments, and metrics that change without work or by being asked for: those of processes
# (sglang:process_cpu_seconds_total too), of the time without work, of the rounds of SGLang's scheduler, which
# also go round without a request, of HTTP, and of aborts: SGLang counts a /health that was not waited for.
_NO_WORK = re.compile(
    rb"^(?:#|[^{ \n]*(?:process_|python_|idle_seconds|stage_seconds|http|aborted)).*\n?", re.MULTILINE
)
# Pages with these are renewed every step or every 40; those of llama.cpp and of routers when answers end.
_RENEWED = (b"\nsglang:num_running_reqs{", b"\nvllm:num_requests_running{")
_OF_SCHEDULER = re.compile(rb"^[\w:]*(?:idle|stage|cpu)_seconds.*$", re.MULTILINE)


class StandingRank(msgspec.Struct, frozen=True):
    """A rank without a sign of life."""

    server: str
    rank: int
    since_s: float
    """time of its last sign of life, on the caller's clock"""
    requests: int
    """running or queued, as it reported last"""
    others_live: bool
    """whether other ranks of the server show one"""

    @property
    def name(self) -> str:
        """``dp_rank 1 of http://node1:30000``."""
        return f"dp_rank {self.rank} of {self.server}"


class _Rank(msgspec.Struct):
    text: bytes
    changed_s: float
    requests: int
    beats: bool
    """whether it has been seen to report idle time and nothing else: it does so without work, too"""


class _Server(msgspec.Struct):
    ranks: dict[int, _Rank]
    used: set[int] = msgspec.field(default_factory=set)
    """ranks that have had requests"""
    busy_s: float = math.inf
    """when it first had several for each rank"""
    read_s: float = -math.inf
    recent_s: float = _RECENT_S
    """how long ago something may be and still be recent"""
    work: int = 0
    """a hash of the signs of work, where the page tells: it has up to half a megabyte"""
    tells: bool = False
    """whether its signs of work change in the middle of answers"""
    worked_s: float = -math.inf
    """when its signs of work changed last"""

    def read(self, now_s: float) -> None:
        """Note a reading."""
        if self.read_s > -math.inf:
            self.recent_s = recent_s(now_s - self.read_s)
        self.read_s = now_s


_NEVER_READ = _Server({})


def recent_s(between_s: float) -> float:
    """How long a page is of now, by the time between the two latest readings."""
    return max(_RECENT_S, _RECENT_READINGS * between_s)


class RankWatch:
    """Takes the pages as they are read, in another thread than it is asked.

    ``servers`` are those with requests in flight; times are in seconds, on one clock. A server of one rank is
    not judged.
    """

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}
        self._lock = threading.Lock()

    def page(self, server: str, page: bytes, now_s: float) -> None:
        """A page of metrics of a server."""
        texts, tells = _texts_of_ranks(page), any(name in page for name in _RENEWED)
        work = hash(signs_of_work(page)) if tells else 0
        with self._lock:
            found = self._servers.setdefault(server, _Server({}))
            found.read(now_s)
            found.tells = tells
            if work != found.work:
                found.work, found.worked_s = work, now_s
            ranks = found.ranks
            for rank, text in texts.items():
                before = ranks.get(rank)
                if before is None or before.text != text:
                    ranks[rank] = _Rank(text, now_s, _requests(text), _beats(before, text))
            found.used.update(rank for rank in texts if ranks[rank].requests)
            if texts and sum(ranks[rank].requests for rank in texts) >= _BUSY * len(texts):
                found.busy_s = min(found.busy_s, now_s)

    def standing(self, now_s: float, servers: Sequence[str]) -> tuple[StandingRank, ...]:
        """The standing ranks, the longest standing first.

        A rank that reports nothing while it has no work stands only with requests.
        """
        found: list[StandingRank] = []
        with self._lock:
            for url, server in self._known(servers):
                if len(server.ranks) < 2 or now_s - server.read_s > server.recent_s:
                    continue
                others_live = any(now_s - one.changed_s <= server.recent_s for one in server.ranks.values())
                found += [
                    StandingRank(url, rank, one.changed_s, one.requests, others_live)
                    for rank, one in server.ranks.items()
                    if server.read_s - one.changed_s >= STANDS_S and (one.requests or one.beats)
                ]
        return tuple(sorted(found, key=lambda one: one.since_s))

    def idle(self) -> tuple[tuple[str, int], ...]:
        """The ranks that get no requests, as (server, rank): the others of their server have many."""
        with self._lock:
            return tuple(
                (url, rank)
                for url, server in self._servers.items()
                if server.read_s - server.busy_s >= _IDLE_S
                for rank in sorted(server.ranks.keys() - server.used)
            )

    def lives(self, rank: StandingRank) -> bool:
        """Whether it has shown a sign of life since."""
        with self._lock:
            return self._servers[rank.server].ranks[rank.rank].changed_s > rank.since_s

    def at_work(self, now_s: float, servers: Sequence[str]) -> bool:
        """Whether answers may still come: a rank with requests lives, or a server's ranks are not known."""
        with self._lock:
            return any(
                len(server.ranks) < 2
                or any(one.requests and now_s - one.changed_s <= STANDS_S for one in server.ranks.values())
                for _, server in self._known(servers)
            )

    def still_s(self, now_s: float, servers: Sequence[str]) -> float | None:
        """How long none of these servers has shown work; None where the pages of one do not tell."""
        with self._lock:
            known = [server for _, server in self._known(servers)]
            if not known or any(not one.tells or now_s - one.read_s > one.recent_s for one in known):
                return None
            return now_s - max(one.worked_s for one in known)

    def _known(self, urls: Sequence[str]) -> list[tuple[str, _Server]]:
        return [(url, self._servers.get(url, _NEVER_READ)) for url in urls]


def standing_text(ranks: Sequence[StandingRank], began_s: float) -> str:
    """``dp_rank 1 of http://node1:30000 stands since 0:38``; "" for none. ``began_s``: when the run began."""
    if not ranks:
        return ""
    first = f"{ranks[0].name} stands since {moment(ranks[0].since_s - began_s)}"
    others = len(ranks) - 1
    return f"{first}, and {counted(others, 'more rank')}" if others else first


def silence_s(ranks: Sequence[StandingRank]) -> float:
    """The silence of all servers that ends a run with these standing ranks."""
    return _SILENCE_S if all(rank.others_live for rank in ranks) else _SILENCE_OF_ALL_S


def signs_of_work(page: bytes) -> bytes:
    """The lines of a page that change only by work; b"" without any."""
    return _NO_WORK.sub(b"", page)


def _texts_of_ranks(page: bytes) -> dict[int, bytes]:
    """The lines of each rank."""
    found = by_key(
        (int(rank[1]), line) for line in page.splitlines() if (rank := RANK_LABEL_BYTES.search(line))
    )
    return {rank: b"\n".join(lines) for rank, lines in found.items()}


def _beats(before: _Rank | None, text: bytes) -> bool:
    """Whether the rank has ever changed by nothing but the times of its scheduler."""
    if before is None:
        return False
    return before.beats or _OF_SCHEDULER.sub(b"", before.text) == _OF_SCHEDULER.sub(b"", text)


def _requests(text: bytes) -> int:
    """Running and queued, as far as the page has numbers for them."""
    total = 0.0
    for line in text.split(b"\n"):
        name, _, rest = line.partition(b"{")
        if name in _AT_WORK:
            try:
                total += float(rest.rpartition(b"} ")[2].split()[0])
            except (ValueError, IndexError):
                continue
    return int(total) if abs(total) < 1e12 else 0
