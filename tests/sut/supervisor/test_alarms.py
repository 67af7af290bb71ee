"""When a lost run, a silence or a standing rank ends a run, and what is left of it as an event."""

import itertools
import math
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from harness.analysis.rank_watch import RankWatch, StandingRank
from harness.errors import RunError
from harness.files import JOURNAL_DIR, PROGRESS
from harness.progress.lost_run import LostRunError, LostWatch, ValidityRules
from harness.progress.progress_files import ProgressLog, read_progress
from harness.progress.progress_line import Over, ProgressSnapshot
from harness.record.run_events import EventLog
from harness.record.settled import RankListener
from sut.servers.rank_listeners import metrics_pages
from sut.supervisor.alarms import Alarms, AskedServer, LossRule, Silence, SilentServers, _quiet_text
from tests.kit import wait_until
from tests.sut.pages import facts
from tests.sut.supervisor.test_monitor import policy

URL = "http://a:1"
SERVERS = (facts(URL), facts("http://b:1"))


class Ranks:
    """A watch with these standing ranks."""

    def __init__(self, *standing, at_work=False, idle=(), still=None):
        self.found, self.works, self.without, self.still = standing, at_work, idle, still

    def idle(self):
        return self.without

    def standing(self, now_s, servers):
        return tuple(rank for rank in self.found if rank.server in servers)

    def at_work(self, now_s, servers):
        return self.works

    def still_s(self, now_s, servers):
        return self.still

    def lives(self, rank):
        return True


def rank(number=1, others_live=True):
    return StandingRank(URL, number, 0.0, 3, others_live)


def session(loads=(3, 0)):
    return SimpleNamespace(
        events=EventLog(),
        in_flight=lambda: np.array(loads),
        arrived_s=lambda: [0.0] * len(loads),
        errors=lambda: (),
    )


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


def test_each_alarm_is_an_event_once(caplog):
    since_s = time.monotonic() - 7.0
    one, ranks = session(), Ranks(StandingRank(URL, 1, since_s, 3, True))
    alarms = Alarms(one, SERVERS, ranks, policy())
    for _ in range(3):
        assert "dp_rank 1 of http://a:1 stands" in alarms.look(snapshot()).standing
    ranks.found = ()
    assert alarms.look(snapshot()).standing == ""
    stands, works = one.events.events
    assert (stands.kind, stands.time_ns, works.kind) == ("rank_stands", int(since_s * 1e9), "rank_works")
    assert [line.partition(" of ")[0] for line in caplog.messages] == ["dp_rank 1", "dp_rank 1"]
    assert ["restart the server" in line for line in caplog.messages] == [True, False]


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


def test_a_line_counts_the_queries_that_wait_too_long_as_its_loss_does(tmp_path):
    """A line with "lost: 493 queries over the TTFT limit" had 59 of them: those that had ended."""
    (tmp_path / JOURNAL_DIR).mkdir()
    rules = ValidityRules({"TTFT": 10**9, "TPOT": 10**9})
    alarms = Alarms(session(), SERVERS, Ranks(), policy(), LossRule(LostWatch(tmp_path, rules)))
    progress = ProgressLog(tmp_path, rules, [one.url for one in SERVERS])
    for second in (3.0, 6.0):
        progress(alarms.look(ProgressSnapshot(second, 96, 0, 0)))
    progress.close()
    line = read_progress(tmp_path / PROGRESS)
    assert line.lost == "96 queries over the TTFT limit, none may be"
    assert {name: over.queries for name, over in line.over_limit.items()} == {"TTFT": 96, "TPOT": 0}


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
        ends(alarms, snapshot(failed=4))
        assert len(one.events.events) == 1


class LostAt(LostWatch):
    """Lost at the third look, with a TTFT limit of 2 s."""

    def __init__(self, tmp_path):
        (tmp_path / JOURNAL_DIR).mkdir()
        super().__init__(tmp_path, ValidityRules({"TTFT": 2 * 10**9, "TPOT": 10**9}))
        self.looks = 0

    def look(self, moment, faults=()):
        self.looks += 1
        return "9 queries over the TTFT limit, none may be" if self.looks == 3 else ""

    def is_lost_by_silence(self, since_s):
        return False


@pytest.mark.parametrize(
    ("ago_s", "loads", "silent"),
    [
        ((0.1, 0.1), (3, 3), ""),
        ((6.0, 0.1), (3, 3), URL),  # one of two hangs, which metrics show after 10 s and silence after 30 s
        ((5.0, 5.0), (3, 0), URL),
        ((6.0, 0.1), (0, 3), ""),  # it has no requests
        ((2.5, 0.1), (3, 3), ""),  # of one that is read a little later
        ((1.5, 1.5), (3, 3), ""),  # too short to make a first token late
    ],
)
def test_a_hang_in_which_a_run_is_lost_is_told_with_it(tmp_path, monkeypatch, caplog, ago_s, loads, silent):
    """In its place a rate was guessed."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    one = session(loads)
    one.arrived_s = lambda: [now[0] - ago for ago in ago_s]
    rule = LossRule(LostAt(tmp_path), advice=lambda seen: seen.standing or "a guess")
    alarms = Alarms(one, SERVERS, Ranks(), policy(), rule)
    for _ in range(3):
        alarms.look(snapshot(silent_s=min(ago_s) if min(ago_s) > 1 else 0.0))
        now[0] += 3.0
    (event,) = one.events.events
    assert (event.kind, event.server) == ("lost", silent)
    said = f"nothing has arrived from {silent} for 5 s"
    assert event.text.endswith(f"none may be; {said}" if silent else "none may be")
    (line,) = caplog.messages
    assert line.endswith(f"none may be; {said if silent else 'a guess'}")


@pytest.mark.parametrize("by_it", [True, False])
def test_a_silence_as_short_as_that_is_told_where_the_run_is_lost_by_it(tmp_path, monkeypatch, caplog, by_it):
    """First tokens were awaited when it began; a search took its rate for one that does not pass."""
    now, asked = [1000.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    one, watch = session((3, 0)), LostAt(tmp_path)
    one.arrived_s = lambda: [1000.0, 0.0]
    watch.is_lost_by_silence = lambda since_s: bool(asked.append(since_s)) or by_it
    watch.is_lost_by = lambda *pause: pytest.fail("none has ended")
    alarms = Alarms(one, SERVERS, Ranks(), policy(), LossRule(watch))
    for silent_s in (0.0, 1.0, 1.5):
        now[0] = 1000.0 + silent_s
        alarms.look(replace(snapshot(silent_s=silent_s), elapsed_s=100.0 + silent_s))
    assert asked == [100.0]
    (event,) = one.events.events
    assert (event.kind, event.server) == ("lost", URL if by_it else "")
    assert ("nothing has arrived from http://a:1 for 2 s" in event.text) is by_it


@pytest.mark.parametrize(("silent_s", "shown"), [(0.26, "0.3"), (0.5, "0.5"), (1.5, "2"), (14.2, "14")])
def test_a_silence_of_less_than_a_second_is_not_0_s(silent_s, shown):
    assert _quiet_text(100.0 + silent_s, {URL: 100.0}) == f"nothing has arrived from {URL} for {shown} s"


def test_a_run_that_ends_before_its_first_look_has_no_alarm():
    """Its last line is written all the same."""
    last = Alarms(session(), SERVERS, Ranks(), policy()).marked(snapshot())
    assert (last.standing, last.lost, last.over) == ("", "", Over())


@pytest.mark.parametrize(
    ("pause_s", "by_it", "before"),
    [
        (2.0, True, []),
        (2.0, False, []),
        (1.0, True, []),
        (0.9, None, []),
        (2.0, None, ["server_out"]),  # that has stood, and is named
    ],
)
def test_a_pause_that_is_over_when_the_run_is_lost_by_it_is_an_event(
    tmp_path, monkeypatch, caplog, pause_s, by_it, before
):
    """Too short for an alarm; a search took its rate for one that does not pass."""
    now, arrived, asked = [1000.0], [1000.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "monotonic_ns", lambda: int(now[0] * 1e9))
    one, watch = session((3, 0)), LostAt(tmp_path)
    one.arrived_s = lambda: [arrived[0], 0.0]
    watch.is_lost_by = lambda *pause: bool(asked.append(pause)) or by_it
    for kind in before:
        one.events.add(kind, URL, "died", 0)
    alarms = Alarms(one, SERVERS, Ranks(), policy(), LossRule(watch))
    for silent_s in (pause_s, 0.0, 0.0):
        now[0] = arrived[0] + silent_s
        alarms.look(snapshot(silent_s=silent_s))
        arrived[0] = now[0]
    # Less than half of the TTFT limit makes no query late.
    assert asked == ([] if by_it is None else [([0], 1000.0, 1000.0 + pause_s)])
    pause = ["silence", "silence_ends"] if by_it else []
    assert [event.kind for event in one.events.events] == [*before, *pause, "lost"]
    assert not by_it or [event.time_ns for event in one.events.events[:2]] == [
        1000 * 10**9,
        int((1000 + pause_s) * 1e9),
    ]
    said = f"from 3:{20 - pause_s:.0f} to 3:20 nothing arrives from http://a:1"
    assert (said in caplog.messages) is bool(by_it)


def test_a_run_that_is_lost_after_a_hang_names_no_rate(tmp_path, caplog):
    """Its late first tokens came with the end of the hang."""
    ranks, rule = Ranks(rank()), LossRule(LostAt(tmp_path), advice=lambda seen: seen.standing or "a guess")
    alarms = Alarms(session(), SERVERS, ranks, policy(), rule)
    alarms.look(snapshot())
    ranks.found = ()
    for _ in range(2):
        alarms.look(snapshot())
    assert caplog.messages[-1].endswith(
        "none may be; servers or this client stood before (see the lines above)"
    )


def test_an_alarm_comes_with_the_loss(tmp_path, caplog):
    rule = LossRule(LostAt(tmp_path), advice=lambda seen: seen.standing)
    alarms = Alarms(session(), SERVERS, Ranks(rank()), policy(), rule)
    for _ in range(3):
        alarms.look(snapshot())
    assert f"none may be; dp_rank 1 of {URL} stands" in caplog.messages[-1]


@pytest.mark.parametrize("stops", [True, False])
def test_a_changed_server_loses_the_run_and_names_no_rate(tmp_path, caplog, stops):
    (tmp_path / JOURNAL_DIR).mkdir()
    one, words = session(), f"{URL}: model a is now b, and its answers may be of either; start it as it was"
    rule = LossRule(LostWatch(tmp_path, ValidityRules()), stops, advice=lambda seen: "a guess")
    doubts = [words, ""]
    alarms = Alarms(one, SERVERS, Ranks(), policy(), rule, doubt=lambda in_flight: doubts.pop())
    assert alarms.look(snapshot()).lost == ""
    found = alarms.look(snapshot())
    assert found.lost == words
    assert caplog.messages == [f"lost: {words}"]
    with pytest.raises(LostRunError, match="model a is now b") if stops else nullcontext():
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


# What ask_health says of SGLang 0.5.23 after SIGTERM with `--tokenizer-worker-num 2`, of one whose
# scheduler is stopped, and of vLLM 0.33 after POST /pause?mode=keep.
DRAINS = f"{URL}: /health answered 503"
STOPPED = f"{URL}: /health gave no answer within 2 s; see the server's log"
PAUSED = ""


class Silent:
    """A run in which tokens arrive for a time, then none, looked at once a second."""

    def __init__(self, *answers, streams=True, first_tokens=16):
        self.urls = [URL, "http://b:1"][: len(answers)]
        self.events, self.now_s, self.first_tokens = EventLog(), 1000.0, first_tokens
        found = dict(zip(self.urls, answers, strict=True))
        self.silence = Silence(found.__getitem__, self.events, streams=streams)

    def look(self, silent_s, still_s):
        self.now_s += 1
        seen = ProgressSnapshot(
            self.now_s - 1000, 96, 0, 0, first_tokens=self.first_tokens, silent_s=silent_s
        )
        text = self.silence.look(self.now_s, seen, dict.fromkeys(self.urls, 8), still_s)
        if (asking := self.silence._health._thread) is not None:
            asking.join()
        return text

    def silent(self, until_s, works=lambda second: second):
        """The alarm after ``until_s`` seconds; ``works`` says in each how long no metric has changed."""
        text = ""
        for second in range(until_s + 1):
            text = self.look(float(second), works(second))
        return text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (PAUSED, "nothing arrives since 0:01 (/health answers 200)"),
        (DRAINS, "nothing arrives since 0:01 (http://a:1: /health answered 503)"),
        (STOPPED, "nothing arrives since 0:01 (http://a:1: /health gave no answer within 2 s)"),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_a_silence_without_work_is_told_with_what_health_says(answer, text, streams, caplog):
    assert Silent(answer, streams=streams).silent(9) == ""
    run = Silent(answer, streams=streams)
    assert run.silent(10) == run.look(11.0, 11.0) == text
    (line,) = caplog.messages
    assert line.startswith(f"{text}: see the servers' logs; ") and "restart them" in line
    assert run.look(0.0, 0.0) == ""
    assert [event.kind for event in run.events.events] == ["silence", "silence_ends"]
    first = run.events.events[0]
    assert first.text.startswith(f"nothing arrives from {URL} with 8 requests (")
    assert first.time_ns == 1001 * 10**9


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(("answer", "ends"), [(STOPPED, False), (PAUSED, True)])
def test_metrics_that_can_no_longer_be_read_are_no_sign_of_work(answer, ends, streams):
    run = Silent(answer, streams=streams)
    ends = ends and not streams
    assert bool(run.silent(20, works=lambda second: second if second < 12 else None)) != ends
    assert [event.kind for event in run.events.events] == ["silence", *["silence_ends"] * ends]


def test_answers_of_health_that_alternate_are_told_once_each(caplog):
    """As of SGLang's ranks, one after the other."""
    run, answers = Silent(STOPPED), itertools.cycle([STOPPED, PAUSED])
    run.silence._health._ask = lambda url: next(answers)
    run.silent(60)
    assert sorted(message.count("200") for message in caplog.messages) == [0, 1]
    assert ["restart them" in message for message in caplog.messages] == [True, False]


@pytest.mark.parametrize("streams", [True, False])
def test_a_rank_that_answers_health_ends_no_silence_of_streams(streams, caplog):
    """SGLang 0.5.23 with --dp 2: one rank hangs with all requests, the other prefills our /health's."""
    run = Silent(STOPPED, streams=streams)
    run.silent(20, works=lambda second: second % 15)
    assert [event.kind for event in run.events.events] == ["silence", *["silence_ends"] * (not streams)]
    run.look(0.0, 0.0)
    assert caplog.messages[-1] == f"the servers work again after {21 if streams else 15} s"


@pytest.mark.parametrize("streams", [True, False])
def test_servers_that_stop_before_their_first_answer(streams):
    """Before their tenth second of work it may be their start."""
    for worked_s, told in ((5, False), (30, True)):
        run = Silent(STOPPED, streams=streams, first_tokens=0)
        for _ in range(worked_s):
            assert run.look(60.0, 0.0) == ""
        assert bool(run.silent(10)) is told


def test_without_metrics_streams_alone_tell():
    assert Silent(PAUSED).silent(29, works=lambda second: None) == ""
    assert Silent(PAUSED).silent(30, works=lambda second: None).startswith("nothing arrives since 0:01")
    assert Silent(DRAINS, streams=False).silent(300, works=lambda second: None) == ""


@pytest.mark.parametrize(
    ("answers", "works", "final"),
    [
        ((DRAINS,), lambda second: second, True),
        ((DRAINS, DRAINS), lambda second: second, True),
        ((DRAINS, PAUSED), lambda second: second, False),  # the other may send
        ((PAUSED,), lambda second: second, False),  # may be resumed
        ((STOPPED,), lambda second: second, False),  # SGLang's answer waits for its scheduler
        # SGLang drains all of a run's queries with 503: 87 s between events with --stream-interval 500.
        ((DRAINS,), lambda second: second % 12, False),
        ((DRAINS,), lambda second: None, False),
    ],
)
def test_only_servers_that_say_so_and_show_no_work_are_given_up(answers, works, final):
    run = Silent(*answers)
    run.silent(119, works)
    assert not run.silence.is_final(600.0)
    run.look(120.0, works(120))
    assert run.silence.is_final(600.0) == final


def test_what_is_no_silence_of_servers():
    assert Silent(PAUSED, first_tokens=0).silent(60) == ""  # the first batch is compiled
    run = Silent(PAUSED)
    run.look(0.0, 0.0)
    run.now_s += 60  # this process was suspended
    assert run.look(61.0, 61.0) == ""
    run.urls = []  # all queries wait for their next attempt
    assert run.silent(60) == ""


def test_servers_whose_requests_have_failed_do_not_work_again():
    run = Silent(PAUSED)
    run.silent(20)
    run.urls = []
    run.look(21.0, 21.0)
    assert [event.text for event in run.events.events][1:] == ["the servers have no more requests"]


def test_slow_servers_are_told_of_at_most_twice():
    run = Silent(PAUSED)
    assert [bool(run.silent(20)) for _ in range(5)] == [True, True, False, False, False]


@pytest.mark.parametrize("give_up", [True, False])
def test_a_silent_run_of_servers_that_end_is_ended(give_up):
    asked_for = policy(progress_s=600.0, give_up=give_up)
    alarms = Alarms(session(), SERVERS[:1], Ranks(still=130.0), asked_for, ask=lambda url: DRAINS)
    alarms._silence._looked_s, alarms._silence.even_s = time.monotonic(), -math.inf
    alarms.look(snapshot(110.0))
    wait_until(lambda: alarms._silence.health)
    ends(alarms, snapshot(119.0))
    said = r"for 120 s, no server shows work, and http://a:1: /health answered 503"
    with pytest.raises(RunError, match=said) if give_up else nullcontext():
        ends(alarms, snapshot(120.0))


OTHER = "http://b:1"
ON_ITS_OWN = f"nothing arrives from {URL} since 0:20 with 8 requests"


class OneSilent:
    """Two servers send for 20 s, then one does not, or has never; looked at once a second."""

    def __init__(self, answer, *, streams=True, begun=True):
        self.events, self.now_s, self.other_s, self.begun = EventLog(), 1000.0, 0.0, begun
        self.all = Silence(lambda url: "", self.events, streams=streams)
        self.silent = SilentServers({URL: answer, OTHER: ""}.__getitem__, self.events, streams=streams)

    def look(self, arrived_s, still_s=None, requests=8, others_s=0):
        """``others_s``: so often the other server sends."""
        now = self.now_s = self.now_s + 1
        if now >= self.other_s + others_s:
            self.other_s = now
        urls, times = (URL, OTHER), (arrived_s, self.other_s)
        both = [
            AskedServer(*one) for one in zip(urls, urls, (requests, 8), times, (still_s, None), strict=True)
        ]
        self.all.look(now, ProgressSnapshot(now - 1000, 96, 9, 0), {URL: 8, OTHER: 8}, None)
        text = self.silent.look(now, 1000.0, both, self.all)
        if (asking := self.silent._health._thread) is not None:
            asking.join()
        return text

    def silent_for(self, seconds, works=lambda second: None):
        """The alarm then; ``works`` gives in each second how long its metrics have shown no work."""
        text = ""
        for second in range(-19, seconds + 1):
            sends = second <= 0 and self.begun
            text = self.look(
                self.now_s + 1 if sends else 1020.0 if self.begun else 0.0, works(max(second, 0))
            )
        return text


def never(second):
    return None


@pytest.mark.parametrize(
    ("answer", "streams", "works", "after_s", "health"),
    [
        (
            STOPPED,
            True,
            never,
            30,
            "/health gave no answer within 2 s",
        ),  # SIGSTOP: its metrics cannot be read
        (STOPPED, False, never, 30, "/health gave no answer within 2 s"),
        (DRAINS, False, never, 30, "/health answered 503"),
        (PAUSED, True, lambda second: second, 30, "/health answers 200"),
        (PAUSED, False, lambda second: second, 30, "/health answers 200"),
        (PAUSED, True, never, 100, "/health answers 200"),  # the run is two minutes old
        (PAUSED, False, never, 120, "/health answers 200"),
    ],
)
def test_one_silent_server_of_several_is_named(answer, streams, works, after_s, health, caplog):
    assert OneSilent(answer, streams=streams).silent_for(after_s - 1, works) == ""
    run = OneSilent(answer, streams=streams)
    assert run.silent_for(after_s, works) == f"{ON_ITS_OWN} ({health})"
    # A log file gets a line for each new text, so that more requests there are no new one.
    assert run.look(1020.0, works(after_s + 1), requests=9) == f"{ON_ITS_OWN} ({health})"
    assert run.look(run.now_s, 0.0) == ""
    first, second = run.events.events
    assert (first.kind, first.server, second.kind, second.server) == ("silence", URL, "silence_ends", URL)
    assert first.text == f"nothing arrives from {URL} with 8 requests ({health})"
    assert second.text == "works again"
    assert first.time_ns == 1020 * 10**9
    said, ended = caplog.messages[-2:]
    assert said.startswith(f"since 0:20 {first.text}: see its log; ")
    assert ended == f"{URL} works again after {after_s + 2} s"


@pytest.mark.parametrize(
    ("answer", "streams", "works", "begun"),
    [
        (PAUSED, False, never, True),  # a long answer that is not streamed, or prompt
        (PAUSED, True, never, True),
        (PAUSED, True, lambda second: second % 12, True),  # in a long prompt, as its metrics show
        (STOPPED, True, never, False),  # it may compile, and SGLang's /health waits for that
        (STOPPED, True, lambda second: second + 15, False),  # its metrics changed at its start alone
    ],
)
def test_a_server_that_may_work_is_not_named(answer, streams, works, begun):
    assert OneSilent(answer, streams=streams, begun=begun).silent_for(99, works) == ""


@pytest.mark.parametrize("left", [8, 3])
@pytest.mark.parametrize("streams", [True, False])
def test_a_server_that_may_compile_is_named_after_two_minutes(streams, left):
    """Also where most of its requests have met their deadlines."""
    run = OneSilent(STOPPED, streams=streams, begun=False)
    assert run.silent_for(100) == ""
    said = run.look(0.0, requests=left)
    assert said.startswith(f"nothing arrives from {URL} since 0:01 with {left} requests (")


def test_a_server_that_is_late_now_and_then_is_not_named():
    """SGLang at work: its /health waits for the next output of its scheduler."""
    run = OneSilent(PAUSED, streams=False)
    answers = itertools.cycle([STOPPED, STOPPED, PAUSED])
    run.silent._health._ask = lambda url: next(answers)
    assert run.silent_for(60) == ""
    run.silent._health._ask = lambda url: STOPPED
    assert any(run.look(1020.0) for _ in range(59))


@pytest.mark.parametrize(
    ("every_s", "others_s", "requests", "after_s"),
    [
        (1, 0, 8, 120),
        (1, 0, 4, 120),
        (1, 0, 3, None),  # of the last few requests those with long answers are left
        (15, 0, 8, 150),  # answers came all 15 s
        (1, 30, 8, 300),  # longer answers at the moment: accuracy runs keep the order of the dataset
        (1, 300, 8, None),
    ],
)
def test_answers_that_are_not_streamed_are_missed_by_what_is_usual(every_s, others_s, requests, after_s):
    """A server without metrics whose /health answers 200 was named never, and its run went on for an hour."""
    run, sent_s = OneSilent(PAUSED, streams=False), 1000.0
    for second in range(200):
        sent_s = run.now_s + 1 if second % every_s == 0 else sent_s
        assert run.look(sent_s) == ""
    silent = itertools.takewhile(
        lambda text: not text, (run.look(sent_s, None, requests, others_s) for _ in range(1000))
    )
    named_s = sum(1 for _ in silent) + 200 - (sent_s - 1000) + 1
    assert (named_s if named_s < 1000 else None) == after_s


@pytest.mark.parametrize(
    ("silences_s", "named"),
    [
        ((40, 40, 40, 40), [True, True, False, False]),
        ((19, 19, 59, 61), [False, False, False, True]),  # an end without an alarm counts, too
    ],
)
def test_a_server_is_not_named_for_usual_silences(silences_s, named):
    run, found = OneSilent(STOPPED), []
    for seconds in silences_s:
        run.look(run.now_s + 1)
        sent_s = run.now_s
        found.append(any(run.look(sent_s) for _ in range(seconds)))
    assert found == named


@pytest.mark.parametrize("streams", [True, False])
def test_work_alone_ends_no_silence_of_a_server_that_streams(streams):
    text = OneSilent(PAUSED, streams=streams).silent_for(31, lambda second: second if second < 31 else 0)
    assert bool(text) == streams


def test_a_server_without_requests_is_not_named():
    run = OneSilent(STOPPED)
    assert run.silent_for(29) == run.look(1020.0, requests=0) == ""
    assert [run.look(1020.0) for _ in range(30)] == [""] * 30  # a new request has its own silence
    assert run.look(1020.0).startswith("nothing arrives from ")
    assert run.look(1020.0, requests=0) == ""
    assert [event.text for event in run.events.events][1:] == ["has no more requests"]


def test_a_server_that_answers_all_its_requests_at_once_works_again():
    """As a process after SIGCONT whose few short answers come between two looks."""
    run = OneSilent(STOPPED)
    assert run.silent_for(30)
    assert run.look(run.now_s + 0.5, requests=0) == ""
    assert [event.text for event in run.events.events][1:] == ["works again"]


def test_a_pause_of_this_process_is_no_silence_of_a_server():
    run = OneSilent(STOPPED)
    run.silent_for(5)
    run.now_s += 60
    assert run.look(1020.0) == ""
    assert [run.look(1020.0) for _ in range(29)] == [""] * 29  # nor the measure of the next ones
    assert run.look(1020.0).startswith(f"nothing arrives from {URL} since 1:")


def test_a_silence_of_all_servers_is_named_as_one():
    """Also at its end: from which server something came is known up to a second later."""
    events = EventLog()
    silence = Silence(lambda url: STOPPED, events, streams=True)
    one = SilentServers(lambda url: STOPPED, events, streams=True)
    for second in range(1, 56):
        now = 1000.0 + second
        arrived = now if second <= 20 or second > 53 else 1020.0
        came = 0.0 if second > 52 else now - arrived
        silence.look(now, ProgressSnapshot(float(second), 96, 52, 0, silent_s=came), {URL: 8}, now - arrived)
        one.look(now, 1000.0, [AskedServer(URL, URL, 8, arrived, now - arrived)], silence)
    assert [(event.kind, event.server) for event in events.events] == [("silence", ""), ("silence_ends", "")]
