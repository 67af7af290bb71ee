"""What a run hardly recovers from: that it is lost, and ranks of servers that stand or get no requests."""

import logging
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from harness.analysis.outages import idle_text
from harness.analysis.rank_watch import RankWatch, StandingRank, silence_s, standing_text
from harness.config.deadlines import FailurePolicy
from harness.errors import RunError, machine_failure
from harness.progress.lost_run import LostRunError, LostWatch
from harness.progress.progress_line import ProgressSnapshot
from harness.record.settled import ServerInfo
from harness.text import moment
from sut.servers.rank_listeners import metrics_pages
from sut.supervisor.session import QuerySession

log = logging.getLogger("mlperf")

_NAME_IT = "name its port with --server-url, unless it is named"
_BALANCED = "the server distributes requests itself: see its log, and the flags by which it balances them"

_LOOKS = 3  # at most, until what a failure was is on disk


class LossRule(msgspec.Struct, frozen=True):
    """When a run is lost, and what follows."""

    watch: LostWatch
    stops: bool = False
    """whether it is ended then (`--stop-when-lost`)"""
    advice: Callable[[ProgressSnapshot], str] = lambda snapshot: ""
    """what to do instead"""


class Alarms:
    """Looks once a second. Each alarm is an event of the run and a warning in the log."""

    def __init__(
        self,
        session: QuerySession,
        servers: Sequence[ServerInfo],
        ranks: RankWatch,
        policy: FailurePolicy,
        lost: LossRule | None = None,
    ) -> None:
        """``servers`` are the session's replicas, in its order."""
        self._session = session
        self._pages = metrics_pages(servers)
        self._listeners = {one.url for one in servers if one.listener is not None}
        self._ranks = ranks
        self._policy = policy
        self._rule = lost
        self._lost = ""
        self._untold = 0  # looks for which its advice is waited for
        self._standing: dict[str, StandingRank] = {}
        self._at_work = True
        self._idle: set[tuple[str, int]] = set()

    def look(self, snapshot: ProgressSnapshot) -> ProgressSnapshot:
        """The snapshot with the alarms."""
        now = time.monotonic()
        loads = self._session.in_flight().tolist()
        in_use = list(dict.fromkeys(url for url, count in zip(self._pages, loads, strict=False) if count > 0))
        began = now - snapshot.elapsed_s
        self._note_ranks(self._ranks.standing(now, in_use), began)
        self._note_idle()
        self._at_work = self._ranks.at_work(now, in_use)
        self._note_lost(snapshot)
        standing = standing_text(tuple(self._standing.values()), began)
        return replace(snapshot, lost=self._lost, standing=standing)

    def end_run(self, snapshot: ProgressSnapshot) -> None:
        """Raise LostRunError or RunError where the run is to end."""
        if self._lost and self._rule is not None and self._rule.stops:
            raise LostRunError(f"{self._lost} (ended by --stop-when-lost at {moment(snapshot.elapsed_s)})")
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
                log.warning("%s", standing_text((rank,), began))
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

    def _note_lost(self, snapshot: ProgressSnapshot) -> None:
        if self._rule is None:
            return
        try:
            reason = self._rule.watch.look(snapshot, self._session.errors())
        except OSError as error:  # a journal that cannot be read is no reason to end a run
            log.warning("not watched for limits any more: %s", machine_failure(error))
            self._rule = None
            return
        if reason and not self._lost:
            self._session.events.add("lost", "", reason)
            self._untold = _LOOKS
        self._lost = reason or self._lost
        self._tell_lost(self._rule, snapshot)

    def _tell_lost(self, rule: LossRule, snapshot: ProgressSnapshot) -> None:
        """Say it once, a little later where the advice is not on disk yet."""
        if not self._untold:
            return
        advice = rule.advice(snapshot)
        self._untold = 0 if advice or rule.stops else self._untold - 1
        if not self._untold:
            log.warning("lost: %s%s", self._lost, f"; {advice}" if advice else "")
