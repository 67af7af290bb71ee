"""When a run is decided, and what counts: the journal's rows, and queries that still wait."""

import numpy as np
import pytest
from msgspec.structs import replace

from harness.files import JOURNAL_DIR
from harness.peak.peak_options import SearchOptions
from harness.peak.search.cut_off import CutOff, over_by_loadgen
from harness.peak.search.probe import NO_ROOM
from harness.progress.lost_run import LostRunError, Over
from harness.progress.progress_line import ProgressSnapshot
from harness.record.journal import COMPLETE, FIRST_TOKEN, LOADGEN_CALL_ROW, QUERY_ROW, encode_row
from sut.peak.prober import failure_cut

MS = 10**6
BEGAN = 10**9  # in ms, when each query is issued
LIMITS_NS = {"TTFT": 3000 * MS, "TPOT": 80 * MS}


def row(number, ttft_ms, tpot_ms, tokens=101, failure=0):
    values = dict.fromkeys([name for name in QUERY_ROW.names if name != "crc"], 0)
    values |= {
        "query_id": number,
        "issued_ns": BEGAN * MS,
        "first_token_ns": BEGAN * MS + int(ttft_ms * MS),
        "last_byte_ns": BEGAN * MS + int((ttft_ms + tpot_ms * (tokens - 1)) * MS),
        "osl": tokens,
        "failure": failure,
    }
    return encode_row(*values.values())


@pytest.fixture
def journal(tmp_path):
    (tmp_path / JOURNAL_DIR).mkdir()
    return tmp_path / JOURNAL_DIR


def write(journal, *rows):
    with (journal / "queries-0.bin").open("ab") as file:
        file.write(b"".join(rows))


def moment(elapsed_s, issued=0, first_tokens=0, failed=0):
    return ProgressSnapshot(elapsed_s, issued, 0, failed, first_tokens=first_tokens)


@pytest.mark.parametrize(
    ("rows", "over"),
    [
        ([row(1, 100, 70)], (0, 0)),
        ([row(1, 3001, 70), row(2, 3000, 80)], (1, 0)),
        ([row(1, 100, 82), row(2, 100, 81)], (0, 1)),  # 81 ms: within 100 ms that a report may be late
        ([row(1, 100, 200, tokens=2), row(2, 100, 181, tokens=2)], (0, 2)),
        ([row(1, 9000, 900, failure=1)], (0, 0)),
        ([row(1, 100, 0, tokens=1)], (0, 0)),
    ],
)
def test_answers_that_count_while_the_run_lasts(journal, rows, over):
    watch = CutOff(journal.parent, LIMITS_NS, most_over=5)
    write(journal, *rows)
    watch(moment(10.0))
    assert (watch.over.ttft, watch.over.tpot) == over


def test_a_failure_ends_a_run_that_then_shows_nothing():
    """It was measured to its end, ten minutes and more, and then measured again."""
    cut = failure_cut(SearchOptions())
    seen = [replace(moment(float(second)), failures={"truncated": 2}, failed=2) for second in range(5, 9)]
    for one in seen[:3]:
        cut(one)
    with pytest.raises(LostRunError, match=r"^2 queries failed \(truncated\)"):
        cut(seen[3])
    no_room = [replace(one, failures={NO_ROOM: 2}) for one in seen]  # INVALID: this client is the limit
    for options, moments in (
        (SearchOptions(), no_room),
        (SearchOptions(fail_fast=False), seen),
        (SearchOptions(max_failures=5), seen),
    ):
        cut = failure_cut(options)
        for one in moments:
            cut(one)


def test_it_is_decided_by_one_more_than_may_be(journal):
    watch = CutOff(journal.parent, LIMITS_NS, most_over=2)
    write(journal, row(1, 100, 90), row(2, 3500, 90))
    watch(moment(5.0))
    write(journal, row(3, 100, 90))
    with pytest.raises(LostRunError, match="3 queries over the TPOT limit, at most 2 may be"):
        watch(moment(6.0))
    assert watch.decided_s == 6.0


@pytest.mark.parametrize(
    ("moments", "waiting"),
    [
        # none is older than the limit and the second in which a first token may not be counted yet
        ([(1.0, 10, 0), (2.0, 20, 0), (4.9, 30, 0)], 0),
        ([(1.0, 10, 0), (5.0, 40, 0)], 10),
        ([(1.0, 10, 0), (5.0, 40, 8)], 2),
        ([(1.0, 10, 10), (5.0, 40, 30)], 0),
        ([(1.0, 10, 0), (1.5, 15, 0), (5.6, 40, 4)], 11),
    ],
)
def test_queries_without_a_first_token_count_once_they_are_too_old(journal, moments, waiting):
    watch = CutOff(journal.parent, LIMITS_NS, most_over=50)
    for elapsed_s, issued, first_tokens in moments:
        watch(moment(elapsed_s, issued, first_tokens))
    assert watch.over.ttft == waiting


def test_a_complete_run_is_counted_by_the_times_that_loadgen_saw(journal):
    write(journal, row(1, 2990, 79.99), row(2, 100, 79.99), row(3, 100, 70))
    write(journal, row(4, 3001, 0, tokens=1), row(5, 100, 81, tokens=2))
    limits = LIMITS_NS["TTFT"], LIMITS_NS["TPOT"]
    assert over_by_loadgen(journal, *limits) == Over(1, 1)  # by the client's own, without LoadGen's
    calls = np.zeros(10, LOADGEN_CALL_ROW)
    calls["query_id"] = [5, 4, 3, 2, 1, 1, 2, 3, 4, 5]
    calls["kind"] = [FIRST_TOKEN] * 5 + [COMPLETE] * 5
    first_ms, done_ms = [100, 3002, 100, 100, 3010], [3010 + 7999, 100 + 8002, 100 + 7000, 3900, 182]
    calls["reported_ns"] = [(BEGAN + at) * MS for at in first_ms + done_ms]
    calls.tofile(journal / "reports.bin")
    assert over_by_loadgen(journal, *limits) == Over(2, 2)
