"""Ranks without a sign of life: pages recorded of SGLang with --dp 2, whose scheduler DP1 was then killed.

idle: before the first request; busy: both at work; dead: DP0 idle, DP1 killed with four requests running.
Of vLLM 0.32.0 the engines' lines that are ever more than 0; stopped: engine 1 by SIGSTOP with two requests.
"""

import pytest
from msgspec.structs import replace

from harness.analysis.rank_watch import STANDS_S, RankWatch, silence_s, standing_text
from tests.kit import DATA

URL = "http://127.0.0.1:31877"


def recorded(name, engine="sglang"):
    return (DATA / f"metrics/{engine}_dp2_{name}.txt").read_bytes()


def watched(*pages, every_s=5.0, url=URL):
    """A watch that has read these pages, and the time of the last one."""
    watch = RankWatch()
    for number, page in enumerate(pages):
        watch.page(url, page, 1000.0 + number * every_s)
    return watch, 1000.0 + (len(pages) - 1) * every_s


def test_a_killed_scheduler_is_named_within_a_minute():
    watch, now = watched(recorded("busy1"), recorded("busy2"), *[recorded("dead1"), recorded("dead2")] * 4)
    (rank,) = watch.standing(now, [URL])
    assert (rank.server, rank.rank, rank.since_s, rank.requests, rank.others_live) == (
        URL,
        1,
        1010.0,
        4,
        True,
    )
    assert now - rank.since_s <= 45
    assert standing_text((rank,), 972.0) == f"dp_rank 1 of {URL} stands since 0:38"
    assert not watch.at_work(now, [URL])
    assert silence_s((rank,)) == 120
    watch.page(URL, recorded("busy1"), now + 5)
    assert watch.standing(now + 5, [URL]) == ()
    assert watch.lives(rank)
    assert watch.at_work(now + 5, [URL])


def test_on_a_busy_machine_readings_far_apart_name_it_too():
    pages = [recorded("busy1"), recorded("busy2"), *[recorded("dead1"), recorded("dead2")] * 2]
    watch, now = watched(*pages, every_s=25.0)
    (rank,) = watch.standing(now + 20, [URL])
    assert (rank.rank, rank.others_live, now - rank.since_s) == (1, True, 75.0)
    assert watch.standing(now + 76, [URL]) == ()


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_ranks_that_live_do_not_stand(state):
    watch, now = watched(*[recorded(f"{state}1"), recorded(f"{state}2")] * 10)
    assert watch.standing(now, [URL]) == ()
    assert watch.at_work(now, [URL]) is (state == "busy")


def test_a_rank_that_dies_without_work_stands_where_it_reported_its_idle_time():
    """Its page names no request; those that the server sends to it never end."""
    before, last = recorded("idle1"), recorded("idle2")
    watch, now = watched(before, *[last] * 9)
    assert [(rank.rank, rank.requests) for rank in watch.standing(now, [URL])] == [(0, 0), (1, 0)]
    worked = recorded("dead1")  # DP0 has had work since, and none now
    watch, now = watched(before, last, *[worked] * 9)
    assert [(rank.rank, rank.requests) for rank in watch.standing(now, [URL])] == [(0, 0), (1, 4)]
    watch, now = watched(*[last] * 9)  # it may be one that reports nothing without work
    assert watch.standing(now, [URL]) == ()


def test_all_ranks_may_stand():
    watch, now = watched(*[recorded("busy1")] * 10)
    ranks = watch.standing(now, [URL])
    assert [rank.rank for rank in ranks] == [0, 1]
    assert not any(rank.others_live for rank in ranks)
    assert standing_text(ranks, 1000.0) == f"dp_rank 0 of {URL} stands since 0:00, and 1 more rank"
    assert silence_s(ranks) == 300
    assert silence_s((replace(ranks[0], others_live=True), ranks[1])) == 300


@pytest.mark.parametrize(
    ("pages", "asked_later_s", "servers"),
    [
        (int(STANDS_S / 5), 0, [URL]),  # for 25 s: not yet
        (20, 20, [URL]),  # the server's page has not been read lately
        (20, 0, []),  # no request of ours is there
        (20, 0, ["http://other:1"]),
    ],
)
def test_what_is_no_evidence(pages, asked_later_s, servers):
    watch, now = watched(*[recorded("busy1")] * pages)
    assert watch.standing(now + asked_later_s, servers) == ()


def test_a_stopped_engine_of_vllm_stands_while_the_other_lives():
    stopped = [recorded(name, "vllm") for name in ("stopped1", "stopped2")]
    watch, now = watched(recorded("busy", "vllm"), *stopped * 4)
    (rank,) = watch.standing(now, [URL])
    assert (rank.rank, rank.since_s, rank.requests, rank.others_live) == (1, 1005.0, 2, True)


def test_a_request_between_two_pages_is_no_report_of_idle_time():
    pages = [(made(2, number) + made(0, min(number, 3), rank=1)).encode() for number in range(12)]
    watch, now = watched(*pages)
    assert watch.standing(now, [URL]) == ()


def made(running, count, rank=0):
    return f'vllm:num_requests_running{{engine="{rank}"}} {running}\nx{{engine="{rank}"}} {count}\n'


@pytest.mark.parametrize(("running", "standing"), [(0, []), (3, [1])])
def test_without_figures_of_idle_time_a_rank_needs_requests(running, standing):
    pages = [(made(2, number) + made(running, 7, rank=1)).encode() for number in range(10)]
    watch, now = watched(*pages)
    assert [rank.rank for rank in watch.standing(now, [URL])] == standing
    assert watch.at_work(now, [URL])


def test_a_server_of_one_rank_is_not_judged():
    watch, now = watched(*[made(3, 7).encode()] * 10)
    assert watch.standing(now, [URL]) == ()
    assert watch.at_work(now, [URL])  # nothing is known against it


@pytest.mark.parametrize("value", ["NaN", "x", "1e300", ""])
def test_odd_numbers_are_no_requests(value):
    page = b"".join(b'sglang:num_running_reqs{dp_rank="%d"} %s\n' % (n, value.encode()) for n in range(2))
    watch, now = watched(*[page] * 10)
    assert watch.standing(now, [URL]) == ()


def with_requests(*running):
    """A metrics page of ranks with these numbers of running requests."""
    line = 'sglang:num_running_reqs{dp_rank="%d",tp_rank="0"} %.1f'
    return "\n".join(line % pair for pair in enumerate(running)).encode()


@pytest.mark.parametrize(
    ("pages", "idle"),
    [
        ([with_requests(8, 0, 8, 0)] * 13, [1, 3]),
        ([with_requests(8, 0, 8, 0)] * 12, []),  # not yet for a minute
        ([with_requests(8, 1, 8, 0), *[with_requests(8, 0, 8, 0)] * 12], [3]),
        ([with_requests(4, 0, 3, 0)] * 99, []),  # too few for all
        ([with_requests(4, 0, 4, 0), *[with_requests(0, 0, 0, 0)] * 12], [1, 3]),
        ([with_requests(8)] * 99, []),
        ([b"sglang:startup_time_seconds 0.06", *[with_requests(1, 0, 0, 0)] * 99], []),  # ranks show later
        ([with_requests(0, 0)] * 99, []),
    ],
)
def test_a_rank_that_gets_no_requests(pages, idle):
    """Others of its server have had two for each rank a minute ago."""
    watch, _ = watched(*pages)
    assert watch.idle() == tuple((URL, rank) for rank in idle)


def still_s(*pages_of, unread=(), ago_s=0.0):
    """After 60 s of readings of a server each; ``pages_of`` makes each page from its second."""
    watch, now = RankWatch(), 1000.0
    urls = [f"{URL}{number}" for number in range(len(pages_of))]
    for second in range(0, 60, 5):
        for url, page in zip(urls, pages_of, strict=True):
            watch.page(url, page(second), now + second)
    return watch.still_s(now + 57 + ago_s, [*urls, *unread])


def test_how_long_no_server_has_worked():
    """Of servers without ranks, too. SGLang with a stopped scheduler counts each /health that is given up."""

    def stopped(second, at=21):
        return (
            b'# TYPE\nsglang:num_running_reqs{model_name="m"} %d\nsglang:num_aborted_requests_total %d\n'
            b"process_cpu_seconds_total %d" % (min(second, at), second, second)
        )

    assert still_s(stopped) == 32
    assert still_s(stopped, lambda second: stopped(second, at=41)) == 12
    assert still_s(stopped, unread=["http://other:1"]) is None
    assert still_s(stopped, ago_s=33.0) is None  # no page any more
    assert RankWatch().still_s(1000.0, []) is None


def test_pages_that_change_only_with_answers_do_not_tell():
    """llama.cpp's counts are those of complete answers: nothing changes in it for a long one."""
    assert still_s(lambda second: b"# TYPE\nllamacpp:requests_processing 4") is None
