"""When a lost run or a standing rank ends a run, and what is left of it as an event."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from harness.analysis.rank_watch import RankWatch, StandingRank
from harness.errors import RunError
from harness.files import JOURNAL_DIR
from harness.progress.lost_run import LostRunError, LostWatch, ValidityRules
from harness.progress.progress_line import ProgressSnapshot
from harness.record.run_events import EventLog
from harness.record.settled import RankListener
from sut.servers.rank_listeners import metrics_pages
from sut.supervisor.alarms import Alarms, LossRule
from tests.sut.pages import facts
from tests.sut.supervisor.test_monitor import policy

URL = "http://a:1"
SERVERS = (facts(URL), facts("http://b:1"))


class Ranks:
    """A watch with these standing ranks."""

    def __init__(self, *standing, at_work=False, idle=()):
        self.found, self.works, self.without = standing, at_work, idle

    def idle(self):
        return self.without

    def standing(self, now_s, servers):
        return tuple(rank for rank in self.found if rank.server in servers)

    def at_work(self, now_s, servers):
        return self.works

    def lives(self, rank):
        return True


def rank(number=1, others_live=True):
    return StandingRank(URL, number, 0.0, 3, others_live)


def session(loads=(3, 0)):
    return SimpleNamespace(events=EventLog(), in_flight=lambda: np.array(loads), errors=lambda: ())


def snapshot(silent_s=0.0, failed=0):
    failures = {"truncated": failed} if failed else {}
    return ProgressSnapshot(200.0, 96, 52, failed, silent_s=silent_s, failures=failures)


def ends(alarms, moment):
    alarms.end_run(alarms.look(moment))


@pytest.mark.parametrize(
    ("ranks", "limit_s"),
    [((rank(),), 120), ((rank(others_live=False),), 300), ((rank(), rank(0, False)), 300)],
)
def test_a_standing_rank_ends_a_silent_run(ranks, limit_s):
    alarms = Alarms(session(), SERVERS, Ranks(*ranks), policy(progress_s=600.0))
    ends(alarms, snapshot(limit_s - 1))
    with pytest.raises(RunError, match=rf"ended early: dp_rank 1 of http://a:1 stands since .* {limit_s} s"):
        ends(alarms, snapshot(limit_s))


def test_the_progress_timeout_is_the_longest_silence():
    with pytest.raises(RunError, match="dp_rank 1"):
        ends(Alarms(session(), SERVERS, Ranks(rank()), policy(progress_s=40.0)), snapshot(40.0))


@pytest.mark.parametrize(
    ("ranks", "loads", "changes"),
    [
        (Ranks(rank(), at_work=True), (3, 0), {}),  # others still compute
        (Ranks(rank()), (0, 3), {}),  # no request is there
        (Ranks(), (3, 0), {}),
        (Ranks(rank()), (3, 0), {"give_up": False}),
    ],
)
def test_what_does_not_end_a_run(ranks, loads, changes):
    ends(Alarms(session(loads), SERVERS, ranks, policy(progress_s=600.0, **changes)), snapshot(500.0))


@pytest.mark.parametrize("loads", [(8, 8), (0, 8)])
def test_a_rank_whose_page_is_not_read_ends_a_silent_run(loads):
    """The page of a machine's first rank has all of its ranks."""
    servers = [facts(f"http://a:3000{rank}", listener=RankListener(rank, 2, 2)) for rank in range(2)]
    (read,) = set(metrics_pages(servers))
    watch, now = RankWatch(), time.monotonic()
    page = b"\n".join(b'sglang:num_running_reqs{dp_rank="%d"} 8.0' % rank for rank in range(2))
    for ago_s in range(400, 0, -5):
        watch.page(read, page, now - ago_s)
    alarms = Alarms(session(loads), servers, watch, policy(progress_s=600.0))
    with pytest.raises(RunError, match=rf"dp_rank 0 of {read} stands since .*, and 1 more rank, and nothing"):
        ends(alarms, snapshot(390.0))


def test_each_alarm_is_an_event_once():
    one, ranks = session(), Ranks(rank())
    alarms = Alarms(one, SERVERS, ranks, policy())
    for _ in range(3):
        assert "dp_rank 1 of http://a:1 stands" in alarms.look(snapshot()).standing
    ranks.found = ()
    assert alarms.look(snapshot()).standing == ""
    assert [event.kind for event in one.events.events] == ["rank_stands", "rank_works"]


@pytest.mark.parametrize(
    ("listener", "remedy"),
    [
        (RankListener(0, 3, 3), "; name its port with --server-url"),
        (None, "; the server distributes requests"),
    ],
)
def test_ranks_without_requests_are_told_once(listener, remedy, caplog):
    one, ranks = session(), Ranks(idle=((URL, 1), (URL, 2)))
    alarms = Alarms(one, [facts(URL, listener=listener)], ranks, policy())
    for _ in range(3):
        ends(alarms, snapshot(500.0))
    (line,) = caplog.messages
    assert line.startswith(
        f"dp_rank 1, 2 of http://a:1 shows no request, the others have several each{remedy}"
    )
    assert [(event.kind, event.rank) for event in one.events.events] == [("rank_idle", 1), ("rank_idle", 2)]


@pytest.mark.parametrize("stops", [True, False])
def test_a_lost_run_ends_where_asked(stops, tmp_path):
    (tmp_path / JOURNAL_DIR).mkdir()
    one, rule = session(), LossRule(LostWatch(tmp_path, ValidityRules()), stops)
    alarms = Alarms(one, SERVERS, Ranks(), policy(), rule)
    ends(alarms, snapshot())
    found = alarms.look(snapshot(failed=3))
    assert found.lost == "3 queries failed (truncated)"
    assert [(event.kind, event.text) for event in one.events.events] == [("lost", found.lost)]
    if stops:
        with pytest.raises(LostRunError, match=r"3 queries failed \(truncated\).*--stop-when-lost at 3:20"):
            alarms.end_run(found)
    else:
        alarms.end_run(found)


def test_a_journal_that_cannot_be_read_ends_no_run(tmp_path, caplog):
    class Broken(LostWatch):
        def look(self, moment, faults=()):
            raise OSError(5, "Input/output error")

    rule = LossRule(Broken(tmp_path, ValidityRules()), stops=True)
    alarms = Alarms(session(), SERVERS, Ranks(), policy(), rule)
    for _ in range(3):
        ends(alarms, snapshot(failed=3))
    assert len(caplog.records) == 1
