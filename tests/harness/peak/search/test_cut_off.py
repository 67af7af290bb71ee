"""When a run of a search is decided, and the queries over a limit of one that was not ended early."""

import re

import numpy as np
import pytest
from msgspec.structs import replace

from harness.peak.peak_options import SearchOptions
from harness.peak.search.cut_off import CutOff, over_by_loadgen
from harness.peak.search.probe import NO_ROOM
from harness.progress.lost_run import LostRunError
from harness.progress.progress_line import Over, ProgressSnapshot
from harness.record.journal import COMPLETE, FIRST_TOKEN, LOADGEN_CALL_ROW, QUERY_ROW, encode_row

MS = 10**6
BEGAN = 10**9  # in ms, when each query is issued
LIMITS_NS = {"TTFT": 3000 * MS, "TPOT": 80 * MS}


def row(number, ttft_ms, tpot_ms, tokens=101):
    values = dict.fromkeys([name for name in QUERY_ROW.names if name != "crc"], 0)
    values |= {
        "query_id": number,
        "issued_ns": BEGAN * MS,
        "first_token_ns": BEGAN * MS + int(ttft_ms * MS),
        "last_byte_ns": BEGAN * MS + int((ttft_ms + tpot_ms * (tokens - 1)) * MS),
        "osl": tokens,
    }
    return encode_row(*values.values())


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"failed": 2, "failures": {"truncated": 2}}, "2 queries failed (truncated)"),
        (
            {"failed": 2, "failures": {"truncated": 2}, "lost": "worker 0 died"},
            "2 queries failed (truncated)",
        ),
        ({"failed": 0, "lost": "worker 0 died"}, "worker 0 died"),
    ],
)
def test_a_failure_ends_a_run_that_then_shows_nothing(facts, why):
    """It was measured to its end, ten minutes and more, and then measured again."""
    cut = CutOff(SearchOptions())
    seen = [ProgressSnapshot(second, issued=9, completed=7, **facts) for second in (5.0, 6.0, 7.0, 8.0)]
    for one in seen[:3]:
        cut(one)
    with pytest.raises(LostRunError, match=f"^{re.escape(why)} "):
        cut(seen[3])
    no_room = [replace(one, failures={NO_ROOM: 2}) for one in seen]  # INVALID: this client is the limit
    for options, moments in (
        (SearchOptions(), no_room),
        (SearchOptions(), [replace(one, failed=0, failures={}, lost="") for one in seen]),
        (SearchOptions(fail_fast=False), seen),
        (SearchOptions(max_failures=5), seen),
    ):
        cut = CutOff(options)
        for one in moments:
            cut(one)


@pytest.mark.parametrize(("over", "name"), [(Over(2, 3), "TPOT"), (Over(3, 0), "TTFT"), (Over(3, 3), "TTFT")])
def test_it_is_decided_by_one_more_than_may_be(over, name):
    watch, now = CutOff(SearchOptions(), most_over=2), ProgressSnapshot(6.0, 9, 9, 0, over=over)
    watch(replace(now, over=Over(2, 2)))
    assert watch.cut is None
    with pytest.raises(LostRunError, match=f"^3 queries over the {name} limit, at most 2 may be$"):
        watch(now)
    assert watch.cut is now


def test_a_complete_run_is_counted_by_the_times_that_loadgen_saw(tmp_path):
    rows = row(1, 2990, 79.99), row(2, 100, 79.99), row(3, 100, 70)
    rows += row(4, 3001, 0, tokens=1), row(5, 100, 81, tokens=2)
    (tmp_path / "queries-0.bin").write_bytes(b"".join(rows))
    assert over_by_loadgen(tmp_path, LIMITS_NS) == Over(1, 1)  # by the client's own, without LoadGen's
    calls = np.zeros(10, LOADGEN_CALL_ROW)
    calls["query_id"] = [5, 4, 3, 2, 1, 1, 2, 3, 4, 5]
    calls["kind"] = [FIRST_TOKEN] * 5 + [COMPLETE] * 5
    first_ms, done_ms = [100, 3002, 100, 100, 3010], [3010 + 7999, 100 + 8002, 100 + 7000, 3900, 182]
    calls["reported_ns"] = [(BEGAN + at) * MS for at in first_ms + done_ms]
    calls.tofile(tmp_path / "reports.bin")
    assert over_by_loadgen(tmp_path, LIMITS_NS) == Over(2, 2)
