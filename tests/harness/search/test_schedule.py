"""Runs of each rate, compared with LoadGen 6.0.17 itself."""

import pytest

from harness.search.schedule import Schedule
from tests.harness.config.loadgen import loadgen_issues

ROWS = 40
CONF = "*.Server.min_duration = 300\n*.Server.min_query_count = 50\n*.Server.target_qps = {}\n"
FEWEST, MOST = 2, 6  # datasets: 50 queries are two


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    case = ("Server", ROWS, CONF.format(900), False)
    return loadgen_issues(tmp_path_factory.mktemp("one"), [case])[0][1]


@pytest.fixture(scope="module")
def best(settings):
    schedule = Schedule(settings, ROWS)
    return {datasets: schedule.best_rate(datasets) for datasets in range(FEWEST, MOST + 1)}


def test_loadgen_needs_another_dataset_just_above_the_best_rate(tmp_path, best):
    rates = [rate * step for rate in best.values() for step in (1, 1.00002)]
    issued = loadgen_issues(tmp_path, [("Server", ROWS, CONF.format(f"{rate:.9g}"), False) for rate in rates])
    counts = [count // ROWS for count, _ in issued]
    assert counts == [k for datasets in best for k in (datasets, datasets + 1)]


def test_the_run_of_a_best_rate_is_the_shortest(settings, best):
    schedule = Schedule(settings, ROWS)
    for datasets, rate in best.items():
        run = schedule.run(rate)
        assert (run.datasets, run.queries) == (datasets, datasets * ROWS)
        assert 0.3 <= run.seconds < 0.3001
        assert schedule.arrivals_s(rate, run.queries)[-1] == pytest.approx(run.seconds, abs=1e-6)


def test_no_rate_is_the_best_of_fewer_datasets_than_the_minimum(settings):
    with pytest.raises(ValueError, match="1 datasets"):
        Schedule(settings, ROWS).best_rate(FEWEST - 1)


@pytest.mark.parametrize(
    ("factor", "snaps"), [(1.0, True), (0.995, True), (1.005, True), (0.97, False), (1.03, False)]
)
def test_rates_near_a_best_one_snap_to_it(settings, best, factor, snaps):
    rate = best[4] * factor
    found = Schedule(settings, ROWS).snapped(rate, 0.01)
    assert found == (best[4] if snaps else pytest.approx(rate, rel=1e-5))


def test_settings_that_do_not_fill_up_know_no_steps(settings):
    schedule = Schedule({**settings, "sample_concatenate_permutation": 0}, ROWS)
    assert schedule.snapped(900.0, 0.5) == 900.0
    assert schedule.run(900.0).datasets == 0
