"""When the client was the bottleneck: stretches of time, from CPU seconds and from late reports."""

import numpy as np
import pytest

from harness.record.journal import LOADGEN_CALL_ROW
from harness.record.run_record import Bottleneck
from harness.report.client_overhead import client_load, load_warnings

SECOND = 10**9
START = 5_000 * SECOND
MS = 10**6


def cpu(*shares):
    """Rows of a run whose processes used ``shares[i]`` of a core in second i."""
    rows = [[START, *(0 for _ in shares[0])]]
    for share in shares:
        rows.append(
            [
                rows[-1][0] + SECOND,
                *(before + int(s * SECOND) for before, s in zip(rows[-1][1:], share, strict=True)),
            ]
        )
    return np.array(rows, dtype=np.int64)


def reports(*seconds):
    """Ten reports in each second, ``seconds[i]`` ms late in second i; one of the ten is always in time."""
    rows = [
        (0, 1, START + i * SECOND + j * MS - late * MS * (j > 0), START + i * SECOND + j * MS)
        for i, late in enumerate(seconds)
        for j in range(10)
    ]
    return np.array(rows, dtype=LOADGEN_CALL_ROW)


NONE = np.empty(0, LOADGEN_CALL_ROW)


def test_shares_by_process():
    load = client_load(cpu((0.2, 0.5, 0.1), (0.1, 0.75, 0.2)), NONE, START, None)
    assert load.cores == {"LoadGen": 0.2, "worker 0": 0.75, "worker 1": 0.2}
    assert load.bottlenecks == ()


@pytest.mark.parametrize(
    ("shares", "stretches"),
    [
        ([0.5, 1.0, 0.5], []),  # a single second
        ([0.5, 0.99, 0.97, 0.5], [(1, 3)]),
        ([0.99, 0.99, 0.5, 0.99, 0.99, 0.1, 0.1, 0.1, 0.99, 0.99], [(0, 5), (8, 10)]),
    ],
)
def test_a_worker_without_rest(shares, stretches):
    load = client_load(cpu(*((0.1, share) for share in shares)), NONE, START, 3_000 * MS)
    assert [(s.from_s, s.to_s) for s in load.bottlenecks] == stretches
    assert all("worker 0 used" in s.reason for s in load.bottlenecks)


def test_late_reports():
    """One percent of the TTFT limit of 3 s is 30 ms."""
    late = reports(1, 1, 31, 45, 1, 1, 1, 1, 200)
    load = client_load(cpu((0.1, 0.1)), late, START, 3_000 * MS)
    assert [(s.from_s, s.to_s) for s in load.bottlenecks] == [(2, 4), (8, 9)]
    assert "45.00 ms" in load.bottlenecks[0].reason
    assert client_load(cpu((0.1, 0.1)), late, START, None).bottlenecks == ()


def test_one_late_report_is_no_stretch():
    rows = reports(1, 1)
    rows["arrived_ns"][3] -= 500 * MS
    assert client_load(cpu((0.1, 0.1)), rows, START, 3_000 * MS).bottlenecks == ()


def test_nothing_was_seen():
    load = client_load(np.empty((0, 1), dtype=np.int64), NONE, 0, 1)
    assert load.bottlenecks == ()


def test_many_stretches_are_summed_up():
    load = client_load(cpu((0.1, 0.1)), reports(*([99, 1, 1, 1] * 9)), START, 3_000 * MS)
    lines = load_warnings(load)
    assert len(load.bottlenecks) == 9
    assert len(lines) == 5
    assert lines[0].startswith("the client was the bottleneck from 0 s to 1 s: ")
    assert "5 shorter stretches" in lines[-1]
    assert load_warnings(type(load)({}, (Bottleneck(1, 2, "why"),))) == (
        "the client was the bottleneck from 1 s to 2 s: why",
    )
