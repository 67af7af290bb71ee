"""What a run hardly recovers from: a loss, servers that send nothing, ranks that stand or get no requests."""

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from harness.analysis.outages import idle_text, what_stood
from harness.analysis.rank_watch import RankWatch, StandingRank, silence_s, standing_text
from harness.config.deadlines import FailurePolicy
from harness.config.server_urls import folded
from harness.errors import RunError, machine_failure
from harness.progress.lost_run import LostRunError, LostWatch
from harness.progress.progress_line import Over, ProgressSnapshot
from harness.record.run_events import EventLog
from harness.record.settled import ServerInfo
from harness.text import counted, moment
from sut.servers.health import AskHealth, HealthRound
from sut.servers.rank_listeners import metrics_pages
from sut.supervisor.session import QuerySession

log = logging.getLogger("mlperf")

_NAME_IT = "name its port with --server-url, unless it is named"
_BALANCED = "the server distributes requests itself: see its log, and the flags by which it balances them"

_STANDS_ALONE = (
    "see its log; the figures include this; if it stays, restart the server and repeat the command"
)
_ALL_STAND = (
    "see the servers' logs; the figures include this; if it stays, restart them and repeat the command"
)

_STOOD = "servers or this client stood before (see the lines above)"
_LOOKS = 3  # at most, until what a failure was is on disk
_PART = 0.5  # of the TTFT limit: a shorter silence makes no query late
_KNOWN_S = 1.0  # after this time what came from a server is known, on a busy machine too

# A silence of all servers is an alarm after 10 s where metrics show that they do not work, and after 30 s
# without such metrics. It also has to last three times as long as the second longest silence of the run; the
# longest may have been a compilation. SGLang renews its metrics every 40 steps only, and with
# --stream-interval 500 its events are 500 steps apart.
_STILL_S, _SILENT_S, _UNUSUAL = 10.0, 30.0, 3.0
_BEGUN_S = 10.0  # work so long after the beginning is that of queries
_ASKED_EVERY_S = 5.0
_FAILS = 3  # answers of one server's /health in a row: a busy one may be late once
_GONE_S = 120.0  # a server that is not healthy and shows no work for this time does not come back
# A silence that lasts this many times as long as any other of the run, and as those of most servers at the
# moment, is no long prompt or answer: all servers get the same.
_STRANGE = 10.0
_MOVED_S = 0.5  # less is the inaccuracy of the kernel's times
_PAUSED_S = 3.0  # between two looks: this process itself was suspended


class LossRule(msgspec.Struct, frozen=True):
    """When a run is lost, and what follows."""

    watch: LostWatch
    stops: bool = False
    """whether it is ended then (`--stop-when-lost`)"""
    advice: Callable[[ProgressSnapshot], str] = lambda snapshot: ""
    """what to do instead"""


class Silence:
    """A time in which nothing arrives from any server, although requests are there, and none shows work."""

    def __init__(self, ask: AskHealth, events: EventLog, *, streams: bool) -> None:
        """``streams``: silence alone is a sign; answers that are not streamed are silent while computed."""
        self._health = HealthRound(ask)
        self._events = events
        self._streams = streams
        self._longest = [0.0, 0.0]  # the two longest that have ended
        self.silent_s = 0.0  # how long it lasts
        self.even_s = -math.inf  # since when this process has looked without a pause
        self._looked_s = self._asked_s = -math.inf
        self._since_s: float | None = None
        self.ended_s = -math.inf  # when one that was told has ended; inf: it lasts
        self._told = set[str]()
        self._urls: tuple[str, ...] = ()
        self._metrics_tell = False
        self._worked_s: float | None = None  # when metrics last showed work, where any have

    @property
    def health(self) -> str:
        """What /health of the servers says."""
        return self._health.text(self._urls)

    def look(
        self, now_s: float, snapshot: ProgressSnapshot, loads: Mapping[str, int], still_s: float | None
    ) -> str:
        """The alarm, "" for none.

        ``loads``: requests in flight, by server; ``still_s``: how long no server has shown work, where the
        metrics tell. A stopped server's cannot be read any more, and its /health does not answer.
        """
        if now_s - self._looked_s > _PAUSED_S:
            self.even_s = now_s
        self._looked_s, self._urls = now_s, tuple(loads)
        if still_s is not None:
            self._worked_s = now_s - still_s
        elif self._worked_s is not None and all(map(self._health.failed, self._urls)):
            still_s = now_s - self._worked_s
        self._metrics_tell = still_s is not None
        silent_s = self._silent_s(now_s, snapshot, still_s) if loads else 0.0
        # Of a stream something has to arrive: our /health is a request to SGLang's ranks, and shows as work.
        arrived_s = now_s - snapshot.silent_s if self._streams else math.inf
        goes_on = loads and self._since_s is not None and arrived_s <= self._since_s + _MOVED_S
        if silent_s < self.silent_s and not goes_on:
            self._end(now_s, works=bool(loads))
        self.silent_s = silent_s
        least_s = max(_SILENT_S if still_s is None else _STILL_S, _UNUSUAL * self._longest[0])
        if silent_s >= least_s / 2 and now_s - self._asked_s >= _ASKED_EVERY_S:
            self._asked_s = now_s
            self._health.ask(self._urls)
        begun = snapshot.first_tokens or snapshot.completed or snapshot.elapsed_s - silent_s > _BEGUN_S
        since_s = self._since_s
        if since_s is None:
            if silent_s < least_s or not (begun or self._health.all_refuse(self._urls)):
                return ""
            since_s = now_s - silent_s
        return self._tell(since_s, now_s - snapshot.elapsed_s, sum(loads.values()))

    def is_final(self, progress_s: float) -> bool:
        """Whether nothing more can come."""
        long_s = min(_GONE_S, progress_s)
        return self._metrics_tell and self.silent_s >= long_s and self._health.all_refuse(self._urls)

    def _silent_s(self, now_s: float, snapshot: ProgressSnapshot, still_s: float | None) -> float:
        if still_s is None and not self._streams:
            return 0.0
        return min(snapshot.silent_s, now_s - self.even_s, math.inf if still_s is None else still_s)

    def _tell(self, since_s: float, began_s: float, requests: int) -> str:
        health = f" ({self.health})" if self.health else ""
        text, remedy = f"nothing arrives since {moment(since_s - began_s)}{health}", ""
        if self._since_s is None:
            remedy = f": {_ALL_STAND}"
            self._since_s, self.ended_s = since_s, math.inf
            what = f"nothing arrives from {folded(self._urls, 3)} with {counted(requests, 'request')}{health}"
            self._events.add("silence", "", what, int(since_s * 1e9))
        if text not in self._told:  # of several ranks one may answer /health and another not
            log.warning("%s%s", text, remedy)
        self._told.add(text)
        return text

    def _end(self, now_s: float, *, works: bool) -> None:
        """``works``: they have sent or worked; else they have no more requests, which may have failed."""
        lasted_s = self.silent_s if self._since_s is None else now_s - self._since_s
        if works:
            self._longest = sorted((*self._longest, lasted_s))[1:]
        self._health.forget()
        if self._since_s is not None:
            text = "the servers work again" if works else "the servers have no more requests"
            self._events.add("silence_ends", "", text, int(now_s * 1e9))
            log.warning("%s after %.0f s", text, lasted_s)
            self.ended_s = now_s
        self._since_s, self._told = None, set()


class AskedServer(msgspec.Struct, frozen=True):
    """A server of the run; times are on the caller's clock."""

    url: str
    page: str
    """the URL of its metrics"""
    requests: int
    """in flight"""
    arrived_s: float
    """when the latest bytes of an answer came from it"""
    still_s: float | None
    """how long its metrics have shown no work; None where they do not tell"""


class SilentServers:
    """Servers from which nothing arrives for long, although requests are there and others work.

    Metrics without work are evidence, and so is a /health that fails each time. Without both a server may be
    in a long prompt and, where answers are not streamed, in a long answer: what is usual in the run decides.
    """

    def __init__(self, ask: AskHealth, events: EventLog, *, streams: bool) -> None:
        self._health = HealthRound(ask)
        self._events = events
        self._streams = streams
        self._since: dict[str, float] = {}  # when each that has requests has last sent or worked
        self._told: dict[str, int] = {}  # those in the alarm, with their requests when it began
        self._longest = [0.0, 0.0]  # the two longest silences of any server that have ended
        self._most: dict[str, int] = {}  # the most requests that each has had
        self._asked_s = -math.inf

    def look(
        self,
        now_s: float,
        began_s: float,
        servers: Sequence[AskedServer],
        silence: Silence,
        named: Collection[str] = (),
    ) -> str:
        """The alarm, "" for none. ``silence`` is that of all servers; ``named`` have alarms of their own."""
        arrived = {one.url: one.arrived_s for one in servers}
        servers = [one for one in servers if one.requests > 0]
        before, even_s = self._since, silence.even_s
        self._since = {
            one.url: self._since_of(one, now_s, -math.inf if one.url in self._told else even_s)
            for one in servers
        }
        self._most |= {one.url: max(self._most.get(one.url, 0), one.requests) for one in servers}
        for url, since_s in before.items():
            paused = even_s >= now_s and url not in self._told
            if self._since.get(url, now_s) > since_s + _MOVED_S and not paused:
                works = url in self._since or arrived.get(url, since_s) > since_s + _MOVED_S
                self._end(url, since_s, now_s, works=works)
        least_s = max(_SILENT_S, _UNUSUAL * self._longest[0])
        suspects = [one for one in servers if now_s - self._since[one.url] >= least_s / 2]
        if not suspects and not self._told:
            self._health.forget()
        elif suspects and silence.silent_s < _STILL_S / 2 and now_s - silence.ended_s > 2 * _KNOWN_S:
            self._ask(now_s, [one.url for one in suspects])
            usual_s = self._usual_s(now_s)
            for one in suspects:
                if not {one.url, one.page} & {*self._told, *named} and self._stands(
                    one, now_s, began_s, least_s, usual_s
                ):
                    self._tell(one, began_s)
        shown = [one for one in servers if one.url in self._told and not {one.url, one.page} & set(named)]
        return self._text(began_s, sorted(shown, key=lambda one: self._since[one.url]))

    def _since_of(self, one: AskedServer, now_s: float, even_s: float) -> float:
        """When a server with requests has last sent or worked; at the earliest when it got the first of them.

        One that was told has to send: /health is a request to SGLang's ranks, which shows as work.
        """
        told = self._streams and one.url in self._told
        worked_s = -math.inf if told or one.still_s is None else now_s - one.still_s
        return max(self._since.get(one.url, now_s), one.arrived_s, worked_s, even_s)

    def _stands(self, one: AskedServer, now_s: float, began_s: float, least_s: float, usual_s: float) -> bool:
        silent_s = now_s - self._since[one.url]
        wrong = self._health.failed(one.url) >= _FAILS
        if silent_s < least_s:
            return False
        works = one.still_s is not None and now_s - one.still_s > began_s + _BEGUN_S
        begun, tells = works or one.arrived_s > began_s, one.still_s is not None
        if self._health.all_refuse((one.url,)) or (begun and (tells or wrong)):
            return True
        if silent_s >= _GONE_S and bool(tells or wrong or self._streams):
            return True
        least_s = _SILENT_S if self._streams and begun and now_s - began_s >= _GONE_S else _GONE_S
        return silent_s >= max(least_s, _STRANGE * usual_s) and self._is_full(one)

    def _usual_s(self, now_s: float) -> float:
        """The longest silence that the run knows: of before, and of half of the servers at the moment."""
        silences = sorted(now_s - since_s for since_s in self._since.values())
        return max(*self._longest, silences[(len(silences) - 1) // 2])

    def _is_full(self, one: AskedServer) -> bool:
        """Whether it has at least half of the requests that it had: the last few of a run end more rarely."""
        return 2 * one.requests >= self._most[one.url]

    def _ask(self, now_s: float, urls: Sequence[str]) -> None:
        """The longer the silence, the rarer: of answers that are not streamed it is the rule."""
        silent_s = min(now_s - self._since[url] for url in urls)
        if now_s - self._asked_s >= max(_ASKED_EVERY_S, silent_s / _UNUSUAL / 2):
            self._asked_s = now_s
            self._health.ask(urls)

    def _tell(self, one: AskedServer, began_s: float) -> None:
        since_s, self._told[one.url] = self._since[one.url], one.requests
        what = f"nothing arrives from {one.url} with {self._state(one)}"
        self._events.add("silence", one.url, what, int(since_s * 1e9))
        log.warning("since %s %s: %s", moment(since_s - began_s), what, _STANDS_ALONE)

    def _end(self, url: str, since_s: float, now_s: float, *, works: bool) -> None:
        """``works``: it has sent or worked; else it has no more requests, which may have failed."""
        silent_s = now_s - since_s
        if works:
            self._longest = sorted((*self._longest, silent_s))[1:]
        if self._told.pop(url, None) is not None:
            text = "works again" if works else "has no more requests"
            self._events.add("silence_ends", url, text, int(now_s * 1e9))
            log.warning("%s %s after %.0f s", url, text, silent_s)

    def _text(self, began_s: float, servers: Sequence[AskedServer]) -> str:
        if not servers:
            return ""
        first, *others = servers
        since = moment(self._since[first.url] - began_s)
        text = f"nothing arrives from {first.url} since {since} with {self._state(first)}"
        return f"{text}, and {counted(len(others), 'more server')}" if others else text

    def _state(self, one: AskedServer) -> str:
        health = self._health.text((one.url,)).removeprefix(f"{one.url}: ")
        # As it was: a line of a log file follows each change.
        return counted(self._told[one.url], "request") + (f" ({health})" if health else "")


class Pause(msgspec.Struct, frozen=True):
    """A time in which nothing came from servers; it has ended."""

    urls: tuple[str, ...]
    from_s: float
    to_s: float


class Alarms:
    """Looks once a second. Each alarm is an event of the run and a warning in the log."""

    def __init__(
        self,
        session: QuerySession,
        servers: Sequence[ServerInfo],
        ranks: RankWatch,
        policy: FailurePolicy,
        lost: LossRule | None = None,
        ask: AskHealth = lambda url: "",
        doubt: Callable[[Sequence[int]], str] = lambda in_flight: "",
    ) -> None:
        """``servers`` are the session's replicas, in its order, whose health is asked for by ``ask``.

        ``doubt``: why a measurement is lost to one that has changed, by the requests on each.
        """
        self._session = session
        self._pages = metrics_pages(servers)
        self._listeners = {one.url for one in servers if one.listener is not None}
        self._ranks = ranks
        self._urls = [server.url for server in servers]
        streams = not policy.ask_in_silence
        self._silence = Silence(ask, session.events, streams=streams)
        self._silent = SilentServers(ask, session.events, streams=streams)
        self._policy = policy
        self._rule = lost
        self._doubt = doubt
        self._fault = False  # the run is lost by an error or a changed server: no rate follows
        self._lost = ""
        self._untold = 0  # looks for which its advice is waited for
        self._quiet: dict[str, float] = {}  # servers that were silent when it was, and since when
        self._pausing: dict[str, float] = {}  # servers that are silent, and since when
        self._pause = Pause((), 0.0, 0.0)  # the longest that has ended
        self._busy: dict[str, float] = {}  # since when each server with requests has had them
        self._standing: dict[str, StandingRank] = {}
        self._at_work = True
        self._stands = ""  # servers and ranks, at the last look
        self._idle: set[tuple[str, int]] = set()

    def look(self, snapshot: ProgressSnapshot) -> ProgressSnapshot:
        """The snapshot with the alarms."""
        now = time.monotonic()
        loads = self._session.in_flight().tolist()
        busy: dict[str, int] = {}
        for url, count in zip(self._pages, loads, strict=False):
            if count > 0:
                busy[url] = busy.get(url, 0) + count
        in_use = list(busy)
        began = now - snapshot.elapsed_s
        self._note_ranks(self._ranks.standing(now, in_use), began)
        self._note_idle()
        self._at_work = self._ranks.at_work(now, in_use)
        silence = self._silence.look(now, snapshot, busy, self._ranks.still_s(now, in_use))
        named = {rank.server for rank in self._standing.values()}
        asked = self._asked(now, loads)
        silent = self._silent.look(now, began, asked, self._silence, named)
        standing = standing_text(tuple(self._standing.values()), began)
        alarms = (standing or silence, "" if silence else silent)
        self._stands = ", ".join(text for text in alarms if text)
        self._note_lost(replace(snapshot, standing=self._stands), now, asked)
        return self.marked(snapshot)

    def marked(self, snapshot: ProgressSnapshot) -> ProgressSnapshot:
        """The snapshot with the alarms of the last look."""
        over = Over() if self._rule is None else self._rule.watch.over
        return replace(snapshot, standing=self._stands, lost=self._lost, over=over)

    def _asked(self, now: float, loads: Sequence[int]) -> list[AskedServer]:
        arrived = self._session.arrived_s()
        return [
            AskedServer(url, page, count, arrived_s, self._ranks.still_s(now, (page,)))
            for url, page, count, arrived_s in zip(self._urls, self._pages, loads, arrived, strict=False)
        ]

    def end_run(self, snapshot: ProgressSnapshot) -> None:
        """Raise LostRunError or RunError where the run is to end."""
        if self._lost and self._rule is not None and self._rule.stops:
            raise LostRunError(f"{self._lost} (ended by --stop-when-lost at {moment(snapshot.elapsed_s)})")
        if self._policy.give_up and self._silence.is_final(self._policy.progress_s):
            raise RunError(
                f"ended early: nothing has arrived for {snapshot.silent_s:.0f} s, no server shows work, and "
                f"{self._silence.health}; restart the servers and repeat the command"
            )
        ranks = tuple(self._standing.values())
        if not ranks or not self._policy.give_up or self._at_work:
            return
        if snapshot.silent_s >= min(silence_s(ranks), self._policy.progress_s):
            raise RunError(
                f"ended early: {snapshot.standing}, and nothing has arrived for {snapshot.silent_s:.0f} s"
            )

    def _note_ranks(self, ranks: Sequence[StandingRank], began: float) -> None:
        before, self._standing = self._standing, {rank.name: rank for rank in ranks}
        for rank in ranks:
            if rank.name not in before:
                since_ns, text = int(rank.since_s * 1e9), f"dp_rank {rank.rank} shows no sign of life"
                self._session.events.add("rank_stands", rank.server, text, since_ns, rank.rank)
                log.warning("%s: %s", standing_text((rank,), began), _STANDS_ALONE)
        for rank in before.values():
            if rank.name not in self._standing and self._ranks.lives(rank):
                text = f"dp_rank {rank.rank} works again"
                self._session.events.add("rank_works", rank.server, text, rank=rank.rank)
                log.warning("%s works again", rank.name)

    def _note_idle(self) -> None:
        new = [place for place in self._ranks.idle() if place not in self._idle]
        self._idle.update(new)
        for url, rank in new:
            self._session.events.add("rank_idle", url, f"dp_rank {rank} shows no request", rank=rank)
        for url in dict.fromkeys(url for url, _ in new):
            for line in idle_text(place for place in new if place[0] == url):
                log.warning("%s; %s", line, _NAME_IT if url in self._listeners else _BALANCED)

    def _note_lost(self, snapshot: ProgressSnapshot, now: float, servers: Sequence[AskedServer]) -> None:
        self._busy = {one.url: self._busy.get(one.url, now) for one in servers if one.requests > 0}
        if self._rule is None:
            return
        try:
            doubt = self._doubt([one.requests for one in servers])
            faults = (*self._session.errors(), *((doubt,) if doubt else ()))
            reason = self._rule.watch.look(snapshot, faults)
        except OSError as error:  # a journal that cannot be read is no reason to end a run
            log.warning("not watched for limits any more: %s", machine_failure(error))
            self._rule = None
            return
        late_s = self._rule.watch.late_s
        pausing = self._quiet_since(snapshot, now, servers, _PART * late_s)
        self._follow_pauses(pausing, now)
        if reason and not self._lost:
            self._quiet = self._quiet_since(snapshot, now, servers, late_s)
            if not (self._quiet or faults or snapshot.failed):
                self._lay_to_pause(self._rule.watch, now - snapshot.elapsed_s, pausing)
            text = f"{reason}; {_quiet_text(now, self._quiet)}" if self._quiet else reason
            self._session.events.add("lost", next(iter(self._quiet), ""), text)
            self._untold, self._fault = _LOOKS, bool(faults)
        self._lost = reason or self._lost
        if self._untold:
            standing = snapshot.standing or _quiet_text(now, self._quiet)
            if not standing and what_stood(self._session.events.events):
                standing = _STOOD
            self._tell_lost(self._rule, replace(snapshot, standing=standing))

    def _follow_pauses(self, quiet: Mapping[str, float], now: float) -> None:
        if quiet:
            self._pausing = {**quiet, **self._pausing}
        elif self._pausing:
            pause = Pause(tuple(self._pausing), min(self._pausing.values()), now)
            self._pause = max(pause, self._pause, key=lambda one: one.to_s - one.from_s)
            self._pausing = {}

    def _lay_to_pause(self, watch: LostWatch, began: float, pausing: dict[str, float]) -> None:
        """Where the run is lost by servers that are silent, or were, for too short a time for an alarm."""
        if pausing and watch.is_lost_by_silence(min(pausing.values()) - began):
            self._quiet = pausing
        else:
            self._note_pause(watch, began)

    def _note_pause(self, watch: LostWatch, began: float) -> None:
        """Note the longest pause that has ended, where the run is lost by it alone."""
        pause, events = self._pause, self._session.events
        replicas = [self._urls.index(url) for url in pause.urls]
        if not replicas or what_stood(events.events):
            return
        try:
            if not watch.is_lost_by(replicas, pause.from_s, pause.to_s):
                return
        except OSError:  # it is not known
            return
        what = f"nothing arrives from {folded(pause.urls, 3)}"
        events.add("silence", "", what, int(pause.from_s * 1e9))
        events.add("silence_ends", "", "the servers work again", int(pause.to_s * 1e9))
        log.warning("from %s to %s %s", moment(pause.from_s - began), moment(pause.to_s - began), what)

    def _quiet_since(
        self, snapshot: ProgressSnapshot, now: float, servers: Sequence[AskedServer], late_s: float
    ) -> dict[str, float]:
        """Since when servers that have sent before are silent for long enough to make queries late."""
        busy = [one for one in servers if one.url in self._busy and one.arrived_s > 0]
        if snapshot.silent_s >= late_s:
            return {one.url: now - snapshot.silent_s for one in busy}
        since = {one.url: max(one.arrived_s, self._busy[one.url]) + _KNOWN_S for one in busy}
        return {url: since_s for url, since_s in since.items() if now - since_s >= late_s}

    def _tell_lost(self, rule: LossRule, snapshot: ProgressSnapshot) -> None:
        """Say it once, a little later where the advice is not on disk yet."""
        tells = not self._fault or snapshot.failed
        advice = rule.advice(snapshot) if tells else ""
        self._untold = 0 if advice or rule.stops or not tells else self._untold - 1
        if not self._untold:
            log.warning("lost: %s%s", self._lost, f"; {advice}" if advice else "")


def _quiet_text(now: float, since: Mapping[str, float]) -> str:
    """``nothing has arrived from http://a:1 for 5 s``; "" for none."""
    if not since:
        return ""
    silent_s = now - max(since.values())
    shown = f"{silent_s:.0f}" if silent_s >= 1 else f"{silent_s:.1g}"  # limits of TTFT are 0.5 s and longer
    return f"nothing has arrived from {folded(tuple(since), 3)} for {shown} s"
