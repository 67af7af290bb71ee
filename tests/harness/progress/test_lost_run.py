"""When a run can no longer become VALID, and the words for it."""

import numpy as np
import pytest

from harness.analysis.early_stopping import most_over_limit
from harness.files import JOURNAL_DIR
from harness.progress.lost_run import LostWatch, ValidityRules
from harness.progress.progress_line import Over, ProgressSnapshot
from harness.record.journal import encode_row
from tests import records

LIMITS = {"TTFT": 600_000_000, "TPOT": 45_000_000}
QUERIES, SECOND, MS = 900, 10**9, 10**6


@pytest.fixture
def folder(tmp_path):
    (tmp_path / JOURNAL_DIR).mkdir()
    return tmp_path


def snapshot(elapsed_s=10.0, issued=QUERIES, failed=0, first_tokens=QUERIES, **fields):
    return ProgressSnapshot(elapsed_s, issued, 0, failed, first_tokens=first_tokens, **fields)


RULES = ValidityRules(LIMITS, most_over_limit(QUERIES))


def write(folder, rows):
    with (folder / JOURNAL_DIR / "queries-0.bin").open("ab") as file:
        file.write(rows.tobytes())


def test_it_is_lost_with_one_query_more_than_early_stopping_allows(folder):
    rows = records.rows()
    ttft_ns = rows["first_token_ns"] - rows["issued_ns"]
    late, good = rows[ttft_ns > LIMITS["TTFT"]], rows[ttft_ns <= LIMITS["TTFT"]]
    watch, most = LostWatch(folder, RULES), most_over_limit(QUERIES)
    write(folder, good)
    write(folder, late[:most])
    assert watch.look(snapshot()) == ""
    write(folder, late[most : most + 1])
    assert watch.look(snapshot()) == f"{most + 1} queries over the TTFT limit, at most {most} may be"
    write(folder, late[most + 1 :])
    assert watch.look(snapshot()).startswith(f"{len(late)} queries over the TTFT limit")


@pytest.mark.parametrize(("replica", "most", "named"), [(1, 30, True), (0, 30, True), (1, 20, False)])
def test_a_replica_with_most_of_the_queries_over_a_limit_is_named(folder, replica, most, named):
    """Of two; 20 of 35 are as many as chance gives one of them."""
    rows = records.rows(35)
    rows["issued_ns"] = rows["first_token_ns"] - 10 * LIMITS["TTFT"]
    rows["replica"] = [replica] * most + [1 - replica] * (35 - most)
    write(folder, rows)
    text = LostWatch(folder, RULES, urls := ("http://a:1", "http://b:1")).look(snapshot())
    assert text.startswith("35 queries over the TTFT limit")
    assert text.endswith(f", {most} of them at {urls[replica]}") is named


@pytest.mark.parametrize(
    ("replicas", "from_s", "to_s", "lost"),
    [
        ([1], 100.0, 103.0, True),
        ([0, 1], 100.0, 103.0, True),
        ([0], 100.0, 103.0, False),  # those at another server waited, too
        ([1], 90.0, 99.0, False),  # they were issued behind it
        ([1], 105.5, 106.0, False),  # they had their first token
        ([], 0.0, 0.0, False),
    ],
)
def test_a_run_that_is_lost_by_one_pause_of_a_server(folder, replicas, from_s, to_s, lost):
    """Of 35 late queries 34 waited for the second server from 100 s on, to their first token at 105 s."""
    times = {"issued_ns": 100 * SECOND, "sent_ns": 100 * SECOND, "first_token_ns": 105 * SECOND}
    rows = records.rows_with(35, last_byte_ns=120 * SECOND, osl=1000, isl=9, finish=1, **times)
    rows["replica"][:34] = 1
    with (folder / JOURNAL_DIR / "queries-0.bin").open("ab") as file:
        file.writelines(encode_row(*row[:-1]) for row in rows.tolist())
    watch = LostWatch(folder, ValidityRules(LIMITS, 1), ("http://a:1", "http://b:1"))
    assert watch.look(snapshot()).startswith("35 queries over the TTFT limit")
    assert watch.is_lost_by(replicas, from_s, to_s) is lost


@pytest.mark.parametrize(
    ("answers", "over"),  # TTFT and TPOT in ms, tokens
    [
        ([(100, 40, 101)], Over()),
        ([(601, 40, 101), (600, 45, 101)], Over(ttft=1)),
        ([(100, 47, 101), (100, 46, 101)], Over(tpot=1)),  # 46 ms: within 100 ms that a report may be late
        ([(100, 200, 2), (100, 146, 2)], Over(tpot=2)),
        ([(100, 0, 1)], Over()),
    ],
)
def test_answers_over_a_limit(folder, answers, over):
    ttft_ms, tpot_ms, tokens = np.array(answers).T
    issued_ns = np.full(len(answers), 100 * SECOND)
    first_ns = issued_ns + ttft_ms * MS
    last_ns = first_ns + tpot_ms * (tokens - 1) * MS
    rows = records.rows_with(
        len(answers), issued_ns=issued_ns, first_token_ns=first_ns, last_byte_ns=last_ns, osl=tokens
    )
    watch = LostWatch(folder, RULES)
    write(folder, rows)
    write(folder, records.rows_with(9, first_token_ns=first_ns[0], osl=tokens[0], failure=1))
    watch.look(snapshot())
    assert watch.over == over


@pytest.mark.parametrize(
    ("moments", "waiting"),
    [
        # none is older than the limit and the second in which a first token may not be counted yet
        ([(1.0, 10, 0), (2.0, 20, 0), (2.5, 30, 0)], 0),
        ([(1.0, 10, 0), (3.0, 40, 0)], 10),
        ([(1.0, 10, 0), (3.0, 40, 8)], 2),
        ([(1.0, 10, 10), (3.0, 40, 30)], 0),
        ([(1.0, 10, 0), (1.5, 15, 0), (3.2, 40, 4)], 11),
    ],
)
def test_queries_without_a_first_token_count_once_they_are_too_old(folder, moments, waiting):
    watch = LostWatch(folder, RULES)
    for elapsed_s, issued, first_tokens in moments:
        watch.look(snapshot(elapsed_s, issued, first_tokens=first_tokens))
    assert watch.over == Over(ttft=waiting)


@pytest.mark.parametrize(
    ("waiting_since_s", "ended", "by_it"),
    [
        (10, 0, True),
        (9, 0, False),  # late without it, too
        (10, 2, False),  # others ended late
        (10, 1, True),
    ],
)
def test_a_run_that_is_lost_by_a_silence_that_lasts(folder, waiting_since_s, ended, by_it):
    """It begins at 10 s; 30 queries wait for their first token, and had been issued at this second."""
    rows = records.rows(ended)
    rows["issued_ns"] = rows["first_token_ns"] - 10 * LIMITS["TTFT"]
    write(folder, rows)
    watch = LostWatch(folder, ValidityRules(LIMITS, 1))
    for second in range(7, 13):
        issued = 130 if second >= waiting_since_s else 100
        lost = watch.look(snapshot(float(second), issued=issued, first_tokens=100))
    assert lost.startswith(f"{30 + ended} queries over the TTFT limit")
    assert watch.is_lost_by_silence(10.0) is by_it


def test_a_query_over_the_limit_counts_once_and_for_ever(folder):
    """Its row is read after the counters, and those in which it has its first token are before its end."""
    rows = records.rows(2)
    rows["issued_ns"] = rows["first_token_ns"] - 10 * LIMITS["TTFT"]
    watch = LostWatch(folder, ValidityRules(LIMITS, 1))
    assert watch.look(snapshot(1.0, issued=1, first_tokens=0)) == ""
    write(folder, rows[:1])
    assert watch.look(snapshot(3.0, issued=2, first_tokens=0)) == ""
    lost = watch.look(snapshot(5.0, issued=2, first_tokens=1))
    assert lost.startswith("2 queries over the TTFT limit")
    assert watch.look(snapshot(6.0, issued=2, first_tokens=2)) == lost


@pytest.mark.parametrize(
    ("failures", "words"),
    [
        ({"truncated": 3}, "3 queries failed (truncated)"),
        ({"truncated": 1}, "1 query failed (truncated)"),
        ({"truncated": 1, "timeout": 2}, "3 queries failed (timeout 2, truncated 1)"),
    ],
)
def test_a_failed_query_loses_the_run(folder, failures, words):
    watch = LostWatch(folder, ValidityRules())
    assert watch.look(snapshot()) == ""
    assert watch.look(snapshot(failed=sum(failures.values()), failures=failures)) == words


def test_a_fault_of_the_run_is_the_first_reason(folder):
    assert LostWatch(folder, ValidityRules()).look(snapshot(failed=1), ["worker 1 died"]) == "worker 1 died"
