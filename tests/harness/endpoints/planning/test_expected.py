"""Expected times, and the plan on the terminal."""

from datetime import date
from types import SimpleNamespace

import pytest

from harness.endpoints.planning import shortfalls
from harness.endpoints.planning.expected import expected_times, rate_at, total
from harness.endpoints.planning.plan_console import plan_lines
from harness.endpoints.planning.shortfalls import plan_shortfalls
from tests.harness.endpoints.planning.test_curve_plan import curve


@pytest.fixture(autouse=True)
def today(monkeypatch):
    """Set A can be taken; returns how to make it another day."""

    def is_now(*day):
        monkeypatch.setattr(shortfalls, "date", SimpleNamespace(today=lambda: date(*day)))

    is_now(2026, 12, 1)
    return is_now


def test_of_unknown_servers_only_the_rules_are_known():
    times = expected_times(curve(c_min=1), {})
    assert {name: one.seconds for name, one in times.items()} == {
        **dict.fromkeys(("r1024", "r323", "r103", "r33"), 1320),
        "offline": 1200,
        **dict.fromkeys(("r11", "r4", "r1"), 660),
    }
    assert total(times) == (4 * 1320 + 1200 + 3 * 660, True)


def test_measured_rates_give_the_passes_that_time_or_number_asks_for():
    """At 64 requests/s a pass takes 100 s: 14 of them in 1320 s; at 2 requests/s five take 16 000 s."""
    times = expected_times(curve(samples=6400, offline="elected", c_min=1), {1: 2.0, 1024: 64.0})
    assert times["r1024"].seconds == pytest.approx(1400 + 4395 / 64)
    assert times["r1"].seconds == pytest.approx(16000 + 4395 / 2)
    assert {name for name, one in times.items() if one.at_least} == {"r1024", "r103", "r11", "r1"}
    assert total(times).at_least


@pytest.mark.parametrize(
    ("concurrency", "rate"), [(1, 0.5), (8, 4.0), (16, 8.0), (32, 16.0), (64, 16.0), (256, 16.0)]
)
def test_a_rate_between_and_beyond_the_measured_ones(concurrency, rate):
    assert rate_at(concurrency, {8: 4.0, 32: 16.0, 64: 16.0}) == pytest.approx(rate)


def test_a_step_without_an_answer_is_no_measurement():
    assert rate_at(8, {}) is None
    assert rate_at(8, {4: 0.0}) is None
    assert rate_at(8, {4: 0.0, 16: 4.0}) == 2.0


@pytest.mark.parametrize("offline", ["dedicated", "elected"])
@pytest.mark.parametrize("rates", [{}, {16: 1.5, 1024: 40.0}])
@pytest.mark.parametrize("short", [False, True])
def test_the_plan_is_one_screen(offline, rates, short):
    found = curve(offline=offline, short=short, c_max=40 if short else 1024)
    lines = list(plan_lines(found, expected_times(found, rates), "found by a ladder"))
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert all(f"\n{point.name} " in text for point in found.points)
    assert "10487924139932647040, 586478644936801402, 9315206023656308754" in text  # as published
    assert "not an MLPerf result" in lines[0]
    assert "found by a ladder" in lines[1]
    rows = {line.partition(" ")[0]: line for line in lines}
    scored, unscored = (
        next(rows[one.name] for one in found.points if one.accuracy == accuracy) for accuracy in (True, False)
    )
    if rates:  # answers to the accuracy dataset may be longer
        assert ("at least" in scored, "at least" in unscored) == (True, False)
    else:  # of a point without a least time nothing is known
        assert ("unknown" in scored, "at least" in scored) == (short, not short)


def test_what_is_missing_from_a_submission():
    client = "MLCommons's own"
    assert [client in one for one in plan_shortfalls(curve())] == [True]
    short, last = plan_shortfalls(curve(short=True, c_max=40))
    assert "--short" in short and client in last
    performance, accuracy, _ = plan_shortfalls(curve(samples=5000, accuracy_samples=7))
    assert "5000 samples, expected 6396" in performance
    assert "7 samples, expected 4395" in accuracy
    assert any("--accuracy-file" in one for one in plan_shortfalls(curve(accuracy_samples=0)))


def test_seeds_that_no_new_submission_can_take_are_missing_from_the_start(today):
    """The rules' own example of dates: 2026-12-C0 appears on 2 December (submission rules, section 4.5)."""
    today(2026, 12, 2)
    named = curve("--target-cohort", "2026-12-C0")  # the seeds of an earlier submission stay its own
    seeds, _ = plan_shortfalls(curve())
    assert "set A is for new submissions up to 2026-12-C0: set --seed-sets" in seeds
    assert len(list(plan_shortfalls(named))) == 1
