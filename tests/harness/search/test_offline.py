"""The rate for Offline: the fewest complete datasets that last, compared with what LoadGen itself issues."""

import numpy as np
import pytest

from harness.record.journal import QUERY_ROW
from harness.search.offline import SLACK, full_rate, offline_rate
from tests.harness.config.loadgen import loadgen_issues

ROWS, DURATION_S = 64, 60
CONF = (
    "*.Offline.target_qps = {}\n"
    f"*.Offline.min_duration = {DURATION_S * 1000}\n*.Offline.min_query_count = {ROWS}\n"
)
MEASURED = [0.3, 1.0, 1.03, 1.07, 5.0, 5.3, 40.0, 43.7]


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    case = ("Offline", ROWS, CONF.format(1), False)
    return loadgen_issues(tmp_path_factory.mktemp("one"), [case])[0][1]


def test_loadgen_issues_the_fewest_datasets_that_last(tmp_path, settings):
    found = [offline_rate(settings, ROWS, measured, 0.9 * measured, 500) for measured in MEASURED]
    rates = [("Offline", ROWS, CONF.format(f"{one.rate:g}"), False) for one in found]
    issued = [count for count, _ in loadgen_issues(tmp_path, rates)]
    assert issued == [one.samples for one in found]
    for measured, count in zip(MEASURED, issued, strict=True):
        assert count / measured >= SLACK * DURATION_S
        assert count == ROWS or (count - ROWS) / measured < SLACK * DURATION_S


def test_the_rate_of_a_full_server_leaves_the_ends_out():
    rows = np.zeros(101, QUERY_ROW)
    seconds = np.concatenate([np.linspace(0, 10, 25), 10 + 0.1 * np.arange(1, 52), 15.1 + np.arange(1, 26)])
    rows["last_byte_ns"] = (seconds * 1e9).astype(np.int64)
    assert full_rate(rows) == pytest.approx(10, rel=0.03)
