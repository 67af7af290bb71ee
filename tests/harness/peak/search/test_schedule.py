"""Runs of each rate, compared with LoadGen 6.0.17 itself; the fewest complete datasets for Offline."""

import numpy as np
import pytest

from harness.peak.search.offline_rate import full_rate, offline_rate
from harness.peak.search.schedule import Schedule, bisected
from harness.record.journal import QUERY_ROW
from tests.harness.config.loadgen import loadgen_issues

ROWS, DURATION_S = 40, 60
LEAST_S = 0.3
CONF = "*.Server.min_duration = 300\n*.Server.min_query_count = 50\n*.Server.target_qps = {}\n"
OFFLINE_CONF = (
    "*.Offline.target_qps = {}\n"
    f"*.Offline.min_duration = {DURATION_S * 1000}\n*.Offline.min_query_count = {ROWS}\n"
)
FEWEST, MOST = 2, 4  # datasets: 50 queries are two


@pytest.fixture(scope="module")
def both_settings(tmp_path_factory):
    cases = [("Server", ROWS, CONF.format(900), False), ("Offline", ROWS, OFFLINE_CONF.format(1), False)]
    return [settings for _, settings in loadgen_issues(tmp_path_factory.mktemp("one"), cases)]


@pytest.fixture(scope="module")
def settings(both_settings):
    return both_settings[0]


@pytest.fixture(scope="module")
def edges(settings):
    """By number of datasets, the rate at which their last query comes when the run may end."""
    schedule = Schedule(settings, ROWS)
    return {k: float(schedule.arrivals_s(1.0, k * ROWS)[-1]) / LEAST_S for k in range(FEWEST, MOST + 1)}


@pytest.mark.engine
def test_loadgen_needs_another_dataset_just_above_an_edge(tmp_path, settings, edges):
    rates = [rate * step for rate in edges.values() for step in (0.99998, 1.00002)]
    issued = loadgen_issues(tmp_path, [("Server", ROWS, CONF.format(f"{rate:.9g}"), False) for rate in rates])
    counts = [count // ROWS for count, _ in issued]
    assert counts == [k for datasets in edges for k in (datasets, datasets + 1)]
    schedule = Schedule(settings, ROWS)
    assert [schedule.run(rate).datasets for rate in rates] == counts


def test_the_run_below_an_edge_is_no_longer_than_it_must_be(settings, edges):
    schedule = Schedule(settings, ROWS)
    for datasets, edge in edges.items():
        rate = 0.99998 * edge
        run = schedule.run(rate)
        assert (run.datasets, run.queries) == (datasets, datasets * ROWS)
        assert LEAST_S <= run.seconds < LEAST_S + 0.0001
        assert schedule.arrivals_s(rate, run.queries)[-1] == pytest.approx(run.seconds, abs=1e-6)


def test_a_run_has_no_fewer_datasets_than_the_minimum(settings):
    assert Schedule(settings, ROWS).fewest.datasets == FEWEST


def test_as_many_queries_may_be_over_a_limit_as_loadgens_percentile_lets(settings):
    assert Schedule(settings, ROWS).fewest.most_over == -1  # 80 queries cannot show a 99th percentile
    assert Schedule({**settings, "server_target_latency_percentile": 0.5}, ROWS).fewest.most_over == 29


def test_settings_that_do_not_fill_up_have_no_datasets(settings):
    schedule = Schedule({**settings, "sample_concatenate_permutation": 0}, ROWS)
    assert schedule.run(900.0).datasets == 0


@pytest.mark.parametrize("edge", [1.0001, 2.5, 7.9999])
def test_bisection_ends_around_the_edge(edge):
    low, high = bisected(1.0, 8.0, lambda value: value < edge, 1e-6)
    assert low < edge <= high <= low * (1 + 1e-6)


MEASURED = [0.3, 1.0, 1.03, 1.07, 5.0, 5.3, 40.0, 43.7]


def test_loadgen_issues_the_fewest_offline_datasets_that_last(tmp_path, both_settings):
    found = [offline_rate(both_settings[1], ROWS, measured, 0.9 * measured, 500) for measured in MEASURED]
    rates = [("Offline", ROWS, OFFLINE_CONF.format(f"{one.rate:g}"), False) for one in found]
    issued = [count for count, _ in loadgen_issues(tmp_path, rates)]
    assert issued == [one.samples for one in found]
    for measured, count, one in zip(MEASURED, issued, found, strict=True):
        assert one.seconds == count / measured >= 1.03 * DURATION_S
        assert count == ROWS or (count - ROWS) / measured < 1.03 * DURATION_S
    assert [one.seconds for one in found] == [
        count / rate for count, rate in zip(issued, MEASURED, strict=True)
    ]


def test_the_rate_of_a_full_server_leaves_the_ends_out():
    rows = np.zeros(101, QUERY_ROW)
    seconds = np.concatenate([np.linspace(0, 10, 25), 10 + 0.1 * np.arange(1, 52), 15.1 + np.arange(1, 26)])
    rows["last_byte_ns"] = (seconds * 1e9).astype(np.int64)
    assert full_rate(rows) == pytest.approx(10, rel=1e-6)
