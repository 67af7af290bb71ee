"""Runs beside each other: comparable or not, differences with intervals, changed samples, plans."""

import itertools
import json
from contextlib import nullcontext

import numpy as np
import pytest
from msgspec.structs import replace

from harness.pages.cli import main
from harness.pages.compare_page import compare_page
from harness.pages.figures.bootstrap import estimates
from harness.pages.figures.compare import changed_samples, differences, incomparable, plan_differences
from harness.pages.figures.run_files import read_run
from harness.pages.page import render
from tests.harness.pages import made
from tests.records import ENDED, with_plan


def run_of(path, record=ENDED, **rows):
    return read_run(made.folder(path, made.rows(**rows), record))


def by_name(found):
    return {one.name: one for one in found}


def test_equal_runs_show_no_difference(tmp_path):
    base, other = (run_of(tmp_path / name, count=3000, seed=n) for n, name in enumerate("ab"))
    found = by_name(differences(base, other))
    assert found["TTFT p50, ms"].verdict == "no difference shown"
    assert found["TPOT p50, ms"].verdict == "no difference shown"
    assert abs(found["TTFT mean, ms"].change) < 0.1


def test_a_slower_run_differs_in_what_is_slower(tmp_path):
    base = run_of(tmp_path / "a", count=3000)
    slow = made.rows(count=3000, seed=2)
    slow["last_byte_ns"] += ((slow["osl"].astype(np.int64) - 1) * 4_000_000).astype(np.int64)  # 10 % of TPOT
    other = read_run(made.folder(tmp_path / "b", slow))
    found = by_name(differences(base, other))
    tpot = found["TPOT mean, ms"]
    assert tpot.verdict == "differs"
    assert (tpot.low, tpot.change, tpot.high) == pytest.approx((0.10, 0.10, 0.10), abs=0.002)
    assert found["TTFT p50, ms"].verdict == "no difference shown"


def test_figures_are_those_of_all_queries(tmp_path):
    run = run_of(tmp_path, count=3000)
    found = estimates(run.queries, seed=1)
    assert found["TTFT mean, ms"].value == pytest.approx(run.queries.ttft.mean() * 1e3, rel=1e-5)
    ordered = np.sort(run.queries.ttft)
    assert found["TTFT p99, ms"].value == pytest.approx(ordered[int(0.99 * len(ordered))] * 1e3)
    assert found["TTFT p99, ms"].resampled.min() <= found["TTFT p99, ms"].value
    tokens = run.queries.osl.sum() / run.queries.span
    assert found["tokens/s"].value == pytest.approx(tokens)


def test_a_short_run_has_no_interval(tmp_path):
    base, other = run_of(tmp_path / "a", count=30), run_of(tmp_path / "b", count=30)
    assert {one.verdict for one in differences(base, other)} == {"too short to tell"}


def test_the_interval_holds_the_truth_as_often_as_it_says(tmp_path):
    """Equal systems in pairs: 5 % of the intervals leave out 0; 7 of 20 or more: a chance of 10^-4."""
    runs = [estimates(run_of(tmp_path / str(n), seed=n, count=1500).queries, seed=n) for n in range(21)]
    wrong = 0
    for one, two in itertools.pairwise(runs):
        changes = two["TTFT mean, ms"].resampled / one["TTFT mean, ms"].resampled - 1
        low, high = np.percentile(changes, (2.5, 97.5))
        wrong += not low <= 0 <= high
    assert wrong < 7


OTHER_SETTINGS = ENDED.plan.loadgen_settings | {"min_duration_ms": 1}
OTHER_RATE = ENDED.plan.loadgen_settings | {"server_target_qps": 99.0}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, ()),
        ({"loadgen_settings": OTHER_RATE}, ()),
        ({"dataset_sha256": "f" * 64}, ("dataset",)),
        ({"scenario": "interactive"}, ("scenario",)),
        ({"samples": 5}, ("samples",)),
        ({"loadgen_settings": OTHER_SETTINGS}, ("LoadGen's min_duration_ms",)),
        ({"parameters": replace(ENDED.plan.parameters, max_new_tokens=7)}, ("max_new_tokens",)),
    ],
)
def test_what_makes_runs_incomparable(tmp_path, changes, named):
    base, other = run_of(tmp_path / "a"), run_of(tmp_path / "b", with_plan(ENDED, **changes))
    reasons = incomparable(base, other)
    assert len(reasons) == len(named)
    assert all(reason.startswith(name) for reason, name in zip(reasons, named, strict=True))


def test_plans_are_compared_leaf_by_leaf(tmp_path):
    other = with_plan(ENDED, loadgen_settings=OTHER_RATE, concurrency=77)
    rows = plan_differences(run_of(tmp_path / "a"), run_of(tmp_path / "b", other))
    rate = ENDED.plan.loadgen_settings["server_target_qps"]
    assert ("plan.loadgen_settings.server_target_qps", json.dumps(rate), "99.0") in rows
    assert [name for name, *_ in rows] == ["plan.concurrency", "plan.loadgen_settings.server_target_qps"]


def test_servers_are_compared_by_what_they_serve(tmp_path):
    def run_with(name, count, port, **odd):
        one = replace(ENDED.servers[0], trial_s=None)
        servers = [replace(one, url=f"http://n{n}:{port}", trial_s=n / port) for n in range(count)]
        servers[-1] = replace(servers[-1], **odd)
        urls = tuple(server.url for server in servers)
        plan = replace(ENDED.plan, server_urls=urls)
        return run_of(tmp_path / name, replace(ENDED, plan=plan, servers=tuple(servers)))

    base = run_with("a", 512, 1)
    assert plan_differences(base, run_with("b", 512, 1)) == []
    rows = plan_differences(base, run_with("c", 512, 2, context_length=77))
    assert [name for name, *_ in rows] == ["plan.server_urls", "servers[511].context_length"]
    assert rows[0][1:] == ("http://n[0-511]:1", "http://n[0-511]:2")


# p of the exact McNemar test, from scipy.stats.binomtest(min, n, 0.5).pvalue.
@pytest.mark.parametrize(
    ("first", "second", "to_wrong", "to_right", "chance"),
    [
        ("1111", "1111", (), (), 1.0),
        ("1" * 12, "0" * 10 + "11", tuple(range(10)), (), 0.001953125),
        ("1" * 10 + "00", "0" * 10 + "11", tuple(range(10)), (10, 11), 0.03857421875),
        (
            "1" * 3000 + "0" * 3100,
            "0" * 3000 + "1" * 3100,
            tuple(range(3000)),
            tuple(range(3000, 6100)),
            0.2050,
        ),
    ],
)
def test_changed_samples(tmp_path, first, second, to_wrong, to_right, chance):
    runs = [run_of(tmp_path / name) for name in "ab"]
    for run, right in zip(runs, (first, second), strict=True):
        made.score(run.folder, right={"official": right})
    changed = changed_samples(*runs)
    assert (changed.to_wrong, changed.to_right) == (to_wrong, to_right)
    assert changed.chance == pytest.approx(chance, rel=1e-3)


def test_the_first_line_says_whether_runs_are_comparable(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made.folder(tmp_path / "a", made.rows())
    made.folder(tmp_path / "b", made.rows(seed=2))
    made.folder(tmp_path / "c", made.rows(), with_plan(ENDED, samples=5))
    assert main(["compare", "a", "b"]) == 0
    assert capsys.readouterr().out.startswith("comparable: ")
    assert main(["compare", "a", "c", "--output", "other.html"]) == 0
    assert capsys.readouterr().out.startswith("NOT COMPARABLE: ")
    assert "NOT COMPARABLE" in (tmp_path / "other.html").read_text()
    assert (tmp_path / "compare.html").stat().st_size < 500_000


def test_the_page_has_a_series_for_each_run(tmp_path):
    runs = [run_of(tmp_path / name, seed=number) for number, name in enumerate("abc")]
    html = render(compare_page(runs))
    assert html.count('"label":"run 3"') == 7
    assert html.count("Run 3 against run 1") == 2  # heading and its link


@pytest.mark.parametrize("words", [("a",), ("a", "none"), ("a", "empty"), ("a", "logs"), (".", "a")])
def test_folders_that_cannot_be_compared(tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    made.folder(tmp_path / "a", made.rows())
    (tmp_path / "empty").mkdir()
    for name in ("run.json", "requests.parquet"):
        (made.folder(tmp_path / "logs", made.rows()) / name).unlink()
    with pytest.raises(SystemExit) if words == ("a",) else nullcontext():
        assert main(["compare", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "compare.html").exists()
