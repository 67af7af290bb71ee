"""The figures of a pass."""

import numpy as np

from harness.endpoints.samples import SAMPLE
from harness.endpoints.steady.super_passes import super_passes

MS = 10**6


def test_percentiles_are_elements_of_the_sorted_values():
    """The TTFT of request n is n ms, its TPOT 2 n ms, the latency of its 11 tokens 21 n ms."""
    rows, number = np.zeros(1001, SAMPLE), np.arange(1001)[::-1] + 1
    rows["issued_ns"] = MS
    rows["first_ns"] = rows["issued_ns"] + number * MS
    rows["complete_ns"] = rows["first_ns"] + 20 * number * MS
    rows["output_tokens"], rows["suffix_tokens"] = 11, 10
    (found,) = super_passes(rows, 1001)
    assert (found.ttft_p50, found.ttft_p90) == (501 * MS, 901 * MS)
    assert (found.tpot_p50, found.tpot_p90, found.tpot_mean) == (1002 * MS, 1802 * MS, 1002 * MS)
    assert (found.latency_p90, found.issued, found.output_tokens) == (901 * 21 * MS, 1001, 11011)
