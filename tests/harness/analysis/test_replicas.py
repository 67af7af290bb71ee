"""Replicas beside each other: journals with known replicas, an hour of noise among them."""

import numpy as np
import pytest

from harness.analysis.replicas import (
    ReplicaWatch,
    end_warnings,
    replica_balance,
    straggler_warnings,
    stragglers_text,
    straggling_text,
)
from harness.record.journal import QUERY_ROW
from harness.record.outcome import FailureKind

TPOT_NS = 35e6
URLS = [f"http://replica{number}:30000" for number in range(64)]


def journal(seconds, replicas, slow=1.0, since=0.0, until=np.inf, per_s=1.0, noise=0.2):
    """Rows and the seconds of their ends; replica 1 is slower between two times. ``noise``: of one answer."""
    random = np.random.default_rng(1)
    count = int(replicas * per_s * seconds)
    ended = np.sort(random.random(count) * seconds)
    rows = np.zeros(count, QUERY_ROW)
    rows["replica"], rows["osl"] = random.integers(0, replicas, count), 1001
    slower = (rows["replica"] == 1) & (ended >= since) & (ended < until)
    tpot = TPOT_NS * np.where(slower, slow, 1.0) * random.lognormal(0, noise, count)
    rows["last_byte_ns"] = 10**12 + (ended * 1e9).astype(np.int64)
    rows["first_token_ns"] = rows["last_byte_ns"] - (1000 * tpot).astype(np.int64)
    rows["issued_ns"] = rows["sent_ns"] = rows["first_token_ns"] - 10**9
    return rows, ended


def followed(rows, ended, replicas):
    """The watch after a run, and which replicas each look found."""
    watch, found = ReplicaWatch(URLS[:replicas]), []
    for now in np.arange(5.0, ended[-1] + 5.0, 5.0):
        begin, end = np.searchsorted(ended, [now - 60, now])
        found += [(float(now), one.url) for one in watch.look(float(now), rows[begin:end])]
    return watch, found


def test_equal_replicas_with_noise_raise_no_alarm_in_an_hour():
    watch, found = followed(*journal(3600, 64, noise=0.5, per_s=0.5), 64)
    assert (found, watch.stragglers) == ([], ())


@pytest.mark.parametrize(
    ("made", "named", "to_s"),
    [
        ({"slow": 1.3}, True, 300),
        ({"slow": 1.3, "replicas": 2}, True, 300),
        ({"slow": 1.2, "replicas": 3}, True, 300),
        ({"slow": 1.05}, False, 0),
        ({"slow": 1.3, "since": 100, "until": 140}, False, 0),  # over 1.1 for less than a minute
        ({"slow": 1.5, "since": 60, "until": 180}, True, 220),
        ({"slow": 1.3, "per_s": 0.1}, False, 0),  # too few answers to say anything
    ],
)
def test_a_straggler_is_one_for_a_minute(made, named, to_s):
    replicas = made.get("replicas", 8)
    watch, found = followed(*journal(300, noise=0.1, **{"replicas": replicas} | made), replicas)
    assert [url for _, url in found] == [URLS[1]] * named
    assert all(now >= made.get("since", 0) + 60 for now, _ in found)
    for one in watch.stragglers or ():
        assert one.ratio == pytest.approx(made["slow"], rel=0.1)
        assert one.to_s == pytest.approx(to_s, abs=20)
    assert len(list(straggler_warnings(watch.stragglers or (), 8))) == named


def test_a_straggler_that_gets_less_to_do_is_still_one():
    """Above the limit at first, then at 1.08 by its smaller load."""
    rows, ended = journal(300, 8, slow=1.3, noise=0.02)
    eased = (rows["replica"] == 1) & (ended > 60)
    tpot = (rows["last_byte_ns"] - rows["first_token_ns"])[eased] * 1.08 / 1.3
    rows["first_token_ns"][eased] = rows["last_byte_ns"][eased] - tpot.astype(np.int64)
    rows["sent_ns"] = rows["first_token_ns"] - 10**9
    watch, _ = followed(rows, ended, 8)
    assert [one.url for one in watch.stragglers_now] == [URLS[1]]


def test_a_replica_that_is_slow_to_its_first_tokens_is_one_too():
    """Ten times the TTFT, the same TPOT; twice as much, but by 20 ms, is none."""
    for times, sent_before_ns, named in ((10, 300_000_000, True), (2.2, 16_000_000, False)):
        rows, ended = journal(200, 4, noise=0.1)
        spread = np.random.default_rng(2).lognormal(0, 0.3, len(rows))
        waited = sent_before_ns * spread * np.where(rows["replica"] == 1, times, 1.0)
        rows["sent_ns"] = rows["first_token_ns"] - waited.astype(np.int64)
        watch, found = followed(rows, ended, 4)
        assert [url for _, url in found] == [URLS[1]] * named
        assert [(one.time, one.ratio) for one in watch.stragglers] == (
            [("TTFT", pytest.approx(times, rel=0.2))] if named else []
        )
        warnings = list(straggler_warnings(watch.stragglers, 4))
        assert [line.startswith("1 of 4 replicas had a median TTFT above 2 x") for line in warnings] == [
            True
        ] * named


def test_answers_that_were_not_streamed_are_judged_by_their_time_per_token():
    rows, ended = journal(200, 4, slow=1.9, noise=0.1)
    rows["sent_ns"], rows["first_token_ns"] = rows["first_token_ns"], 0
    watch, found = followed(rows, ended, 4)
    assert [url for _, url in found] == [URLS[1]]
    assert [one.time for one in watch.stragglers_now] == ["time per token"]
    assert straggling_text(watch.stragglers_now).startswith(f"STRAGGLER {URLS[1]} (time per token 1.")
    (warning,) = straggler_warnings(watch.stragglers, 4)
    assert "had a median time per token above 1.1 x" in warning
    assert stragglers_text(replica_balance(rows, URLS[:4], watch.stragglers), 200.0) == "1 straggler"


def test_a_replica_that_is_slow_in_two_ways_is_one_straggler():
    rows, ended = journal(100, 4, slow=3.0, noise=0.1)
    slower = np.where(rows["replica"] == 1, 9 * 10**9, 10**9)
    rows["sent_ns"] = rows["first_token_ns"] - slower
    watch, _ = followed(rows, ended, 4)
    assert [one.time for one in watch.stragglers] == ["TTFT", "TPOT"]  # the slowest first
    assert straggling_text(watch.stragglers_now).startswith(f"STRAGGLER {URLS[1]} (")
    assert stragglers_text(replica_balance(rows, URLS[:4], watch.stragglers), 100.0) == "1 straggler"
    assert len(list(straggler_warnings(watch.stragglers, 4))) == 2


def at_once(ends_s):
    """Rows of queries that were issued together: the seconds of their ends, by replica."""
    rows = np.zeros(sum(map(len, ends_s)), QUERY_ROW)
    rows["replica"] = [index for index, ends in enumerate(ends_s) for _ in ends]
    rows["issued_ns"] = rows["sent_ns"] = 10**12
    rows["last_byte_ns"] = [10**12 + int(end * 1e9) for ends in ends_s for end in ends]
    return rows


IDLE_40_S = "for the last 40 s, 40% of the run, half of the replicas had nothing to do"


@pytest.mark.parametrize(
    ("ends_s", "words"),
    [
        ([(10, 60), (20, 70, 90, 100)], f"{IDLE_40_S}: 3 queries were left at others, the last at {URLS[1]}"),
        ([(97,), (96,), (98,), (100,)], ""),  # as long as answers are
        ([(50,), (50,), (50, 100), ()], URLS[2]),
        ([(), ()], ""),
        ([(3,), (6,)], ""),  # a short run
    ],
)
def test_replicas_that_wait_for_another_at_the_end(ends_s, words):
    found = list(end_warnings(at_once(ends_s), URLS[: len(ends_s)]))
    assert len(found) == bool(words)
    assert all(words in line for line in found)


def test_the_figures_of_each_replica():
    """Replica 2 was lost after two of its queries; replica 3 got none."""
    rows = np.zeros(12, QUERY_ROW)
    rows["replica"], rows["osl"] = np.arange(12) % 3, 11
    rows["issued_ns"] = rows["sent_ns"] = 1_000_000_000
    rows["first_token_ns"], rows["last_byte_ns"] = 2_000_000_000, 4_000_000_000
    lost = np.flatnonzero(rows["replica"] == 2)[2:]
    rows["failure"][lost] = FailureKind.CONNECT
    rows["last_byte_ns"][lost] = rows["first_token_ns"][lost] = 0
    found = replica_balance(rows, URLS[:4], None)
    figures = [(one.queries, one.failed, one.output_tokens, one.in_flight) for one in found.replicas.values()]
    assert figures == [(4, 0, 44, 4), (4, 0, 44, 4), (4, 2, 22, 2), (0, 0, 0, 0)]
    assert found.imbalance == pytest.approx(1.6)
    assert {one.tpot_p50 for one in found.replicas.values()} == {200_000_000, None}
    assert replica_balance(rows, URLS[:1], None) is None
    late = rows[rows["replica"] == 0]
    late["sent_ns"] = late["last_byte_ns"] + 10**10
    found = replica_balance(np.concatenate([late, rows[rows["replica"] == 1]]), URLS[:2], None)
    assert min(one.in_flight for one in found.replicas.values()) == 0


def test_the_percentiles_of_a_replica_are_of_its_own_answers():
    rows, _ = journal(100, 2, slow=1.5)
    for number, found in enumerate(replica_balance(rows, URLS[:2], None).replicas.values()):
        own = rows[rows["replica"] == number]
        tpot = np.sort((own["last_byte_ns"] - own["first_token_ns"]) // 1000)
        assert (found.tpot_p50, found.tpot_p99) == (tpot[len(own) // 2], tpot[int(0.99 * len(own))])
        assert found.ttft_p99 == 10**9


@pytest.mark.parametrize(
    ("seconds", "slow", "words"),
    [
        (45, 1.4, "stragglers not judged (45 s, 60 s needed)"),
        (100, 1.4, "1 straggler"),
        (100, 1.0, "no stragglers"),
    ],
)
def test_a_short_run_judges_no_straggler(seconds, slow, words):
    rows, ended = journal(seconds, 4, slow=slow, noise=0.1)
    watch, _ = followed(rows, ended, 4)
    balance = replica_balance(rows, URLS[:4], watch.stragglers)
    assert stragglers_text(balance, seconds) == words


def test_a_long_run_with_few_answers_judges_none():
    rows, ended = journal(100, 4, per_s=0.05)
    watch, _ = followed(rows, ended, 4)
    assert "too few answers" in stragglers_text(replica_balance(rows, URLS[:4], watch.stragglers), 100)
