"""Servers that were out of use, in the words of a verdict."""

import pytest

from harness.analysis.outages import (
    outage_reasons,
    rank_warnings,
    silence_warnings,
    what_stood,
)
from harness.record.run_events import EventLog, RunEvent

REFUSED = "not reachable ([Errno 111] Connection refused)"
# By nginx, at its limit of connections.
CLOSED = "not reachable (Server disconnected without sending a response.)"
RESET = "not reachable ([Errno 104] Connection reset by peer)"
EXPIRED = (
    "not reachable ([SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired "
    "(_ssl.c:1006))"
)
UNKNOWN = "not reachable ([Errno -2] Name or service not known)"


def event(kind, at_s, text=REFUSED, server="http://a:1"):
    return RunEvent(at_s=at_s, kind=kind, server=server, text=text)


@pytest.mark.parametrize(
    ("events", "reasons"),
    [
        ([event("server_out", 17.4)], ["replica http://a:1 died at 0:17 (connection refused)"]),
        (
            [event("server_out", 3700, "/health answered 503")],
            ["replica http://a:1 was out of use from 1:01:40 (/health answered 503)"],
        ),
        (
            [event("server_out", 17), event("server_back", 45, "")],
            ["replica http://a:1 died at 0:17 (connection refused), in use again at 0:45"],
        ),
        ([event("server_out", 1, CLOSED)], [f"replica http://a:1 was out of use from 0:01 ({CLOSED})"]),
        ([event("server_out", 1, RESET)], [f"replica http://a:1 was out of use from 0:01 ({RESET})"]),
        ([event("server_out", 1, EXPIRED)], [f"replica http://a:1 was out of use from 0:01 ({EXPIRED})"]),
        ([event("server_out", 1, UNKNOWN)], [f"replica http://a:1 was out of use from 0:01 ({UNKNOWN})"]),
        ([event("lost", 3, "x"), event("rank_stands", 9, "y")], []),
    ],
)
def test_each_outage_has_its_time_and_cause(events, reasons):
    assert list(outage_reasons(events)) == reasons


LOSS = event("lost", 9, "p99 over the limit", "")


@pytest.mark.parametrize(
    ("events", "stood"),
    [
        ([event("server_out", 17)], f"http://a:1: {REFUSED}"),
        ([event("silence", 5, "nothing arrives from http://a:1")], "nothing arrives from http://a:1"),
        ([event("rank_idle", 3, "shows no request"), LOSS], ""),
        ([event("lost", 3, "late"), event("rank_stands", 9, "stands")], "http://a:1: late"),
        ([LOSS, event("rank_stands", 9, "stands")], "http://a:1: stands"),
        ([event("suspended", 3, "for 9 s", ""), LOSS], "for 9 s"),
        ([LOSS, event("suspended", 10, "for 9 s", "")], ""),
        ([event("suspended", 3, "for 9 s", "")], "for 9 s"),
        ([event("clock_set", 3, "by 1 h", ""), LOSS], "by 1 h"),
        ([event("suspended", 3, "for 9 s", ""), event("server_out", 4)], f"http://a:1: {REFUSED}"),
    ],
)
def test_what_stood_first(events, stood):
    assert what_stood(events) == stood


@pytest.mark.parametrize(("count", "more"), [(3, []), (9, ["and 6 more outages of replicas"])])
def test_many_outages_are_summed_up(count, more):
    found = list(outage_reasons([event("server_out", n, server=f"http://n{n}:1") for n in range(count)]))
    assert [line.partition(" (")[0] for line in found[3:]] == more


def rank_event(kind, at_s, rank=1):
    return RunEvent(at_s=at_s, kind=kind, server="http://a:1", rank=rank, text="x")


@pytest.mark.parametrize(
    ("events", "reasons", "warnings"),
    [
        ([rank_event("rank_stands", 38)], (), ["dp_rank 1 of http://a:1 showed no sign of life from 0:38"]),
        (
            [rank_event("rank_stands", 38), rank_event("rank_works", 60, 0), rank_event("rank_works", 80)],
            ("dp_rank 11 of http://a:1 stands",),
            ["dp_rank 1 of http://a:1 showed no sign of life from 0:38 to 1:20"],
        ),
        ([rank_event("rank_stands", 38)], ("ended early: dp_rank 1 of http://a:1 stands since 0:38",), []),
        ([event("server_out", 17)], (), []),
        (
            [rank_event("rank_idle", 9), rank_event("rank_idle", 9, 2), rank_event("rank_idle", 9, 0)],
            (),
            ["dp_rank 1, 2, 0 of http://a:1 shows no request, the others have several each"],
        ),
    ],
)
def test_ranks_that_stood_are_warnings_where_no_reason_names_them(events, reasons, warnings):
    assert list(rank_warnings(events, reasons)) == warnings


@pytest.mark.parametrize(("count", "more"), [(3, []), (5, ["and 2 more ranks without a sign of life"])])
def test_many_ranks_that_stood_are_summed_up(count, more):
    found = list(rank_warnings([rank_event("rank_stands", 38, rank) for rank in range(count)], ()))
    assert [line.partition(" (")[0] for line in found[3:]] == more


def test_a_run_that_was_lost_in_a_silence_has_its_warning():
    """A silence is an event of its own after 30 s; the run may be lost before."""
    (line,) = silence_warnings([event("lost", 9, "late")])
    assert line == "at 0:09 the run was lost while a server was silent: late"
    (line,) = silence_warnings([event("lost", 9, "late"), event("silence", 20, "nothing arrives")])
    assert line.startswith("from 0:20 on nothing arrives: ")


def test_silences_are_warnings_with_their_time():
    text = "nothing arrives from http://a:1 with 16 requests (/health answers 200)"
    times = [(7.0, 28.2), (28.3, 60.0), (90.0, 120.0), (200.0, 220.0), (300.0, None)]
    events = [event("silence", begin, text, "") for begin, _ in times]
    events += [event("silence_ends", end, "", "") for _, end in times if end]
    first, second, *_, more = silence_warnings(events)
    assert first.startswith(f"from 0:07 to 0:28 {text}: a pause") and second.startswith("from 0:28 to 1:00 ")
    assert "2 more" in more
    (last,) = silence_warnings(events[4:5])
    assert last.startswith(f"from 5:00 on {text}")
    assert list(silence_warnings([event("server_out", 17)])) == []


def test_a_silence_ends_where_its_own_server_works_again():
    events = [event("silence", 7, "a"), event("silence", 9, "b", "http://b:1")]
    events += [event("silence", 20, "all", ""), event("silence_ends", 40, "", "")]
    events += [event("silence_ends", 50, "", "http://b:1")]
    starts = ("from 0:07 on a: ", "from 0:09 to 0:50 b: ", "from 0:20 to 0:40 all: ")
    for line, start in zip(silence_warnings(events), starts, strict=True):
        assert line.startswith(start)


def test_events_are_in_order_of_time_and_count_from_the_first_query():
    log = EventLog()
    log.add("lost", "", "later", 12 * 10**9)
    log.add("server_out", "http://a:1", REFUSED, 7 * 10**9)
    log.add("rank_stands", "http://a:1", "before the first query", 10**9)
    found = [one.since(2 * 10**9) for one in log.events]
    assert [(one.kind, one.at_s) for one in found] == [("rank_stands", 0), ("server_out", 5), ("lost", 10)]
    assert log.events[0].since(0).at_s == 0
