"""Runs beside each other: comparable or not, differences with intervals, changed samples, plans."""

import itertools
import json
import math
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from harness.analysis.bootstrap import estimates
from harness.analysis.comparison import (
    Difference,
    changed_samples,
    differences,
    incomparable,
    plan_differences,
    summary,
)
from harness.analysis.run_files import read_run
from harness.analysis.statistics import statistics
from harness.config.scenario import Scenario
from harness.files import ACCURACY_RESULT
from harness.record.run_record import RunVerdict
from harness.report.html.compare_page import compare_lines, compare_page, compared, names_of
from harness.report.html.page import render
from report import main
from tests import records
from tests.records import ENDED, with_plan


def folder_of(path, rows, record=ENDED):
    """A run's folder whose record is of these queries."""
    return records.folder(path, rows, replace(record, statistics=statistics(rows), loadgen=None))


def run_of(path, record=ENDED, **rows):
    return read_run(folder_of(path, records.rows(**rows), record))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("base"), count=3000)


def of_record(run, record):
    """A run with the same queries and another record."""
    return replace(run, record=record)


def by_name(found):
    return {one.name: one for one in found}


def test_equal_runs_show_no_difference(base, tmp_path):
    found = by_name(differences(base, run_of(tmp_path, count=3000, seed=2)))
    assert found["TTFT p50, ms"].verdict == "no difference shown"
    assert found["TPOT p50, ms"].verdict == "no difference shown"
    assert abs(found["TTFT mean, ms"].change) < 0.1


def test_a_slower_run_differs_in_what_is_slower(base, tmp_path):
    slow = records.rows(count=3000, seed=2)
    slow["last_byte_ns"] += ((slow["osl"].astype(np.int64) - 1) * 4_000_000).astype(np.int64)  # 10 % of TPOT
    found = by_name(differences(base, read_run(records.folder(tmp_path, slow))))
    tpot = found["TPOT mean, ms"]
    assert tpot.verdict == "differs"
    assert (tpot.low, tpot.change, tpot.high) == pytest.approx((0.10, 0.10, 0.10), abs=0.002)
    assert found["TTFT p50, ms"].verdict == "no difference shown"


def test_figures_are_those_of_all_queries(base):
    found, ttft = estimates(base.queries, seed=1), base.queries.ttft
    assert found["TTFT mean, ms"].value == pytest.approx(ttft.mean() * 1e3, rel=1e-5)
    ordered = np.sort(ttft)
    assert found["TTFT p99, ms"].value == pytest.approx(ordered[int(0.99 * len(ordered))] * 1e3)
    assert found["TTFT p99, ms"].resampled.min() <= found["TTFT p99, ms"].value
    rate = base.queries.osl.sum() / base.queries.span
    assert found["tokens/s"].value == pytest.approx(rate)
    assert found["tokens/s"].resampled.mean() == pytest.approx(rate, rel=0.01)


def test_a_short_run_has_no_interval(tmp_path):
    base, other = run_of(tmp_path / "a", count=30), run_of(tmp_path / "b", count=30)
    assert {one.verdict for one in differences(base, other)} == {"no interval"}


def test_answers_in_one_event_have_a_tpot_of_0_without_a_change(tmp_path):
    """As of a server whose stream interval is longer than its answers."""
    made = records.rows(count=3000)
    made["last_byte_ns"] = made["first_token_ns"]
    base, other = (read_run(records.folder(tmp_path / name, made)) for name in "ab")
    assert by_name(differences(base, other))["TPOT p99, ms"].verdict == "no interval"
    assert "no difference in TPOT p99 shown" in "\n".join(compare_lines(compared([base, other])))
    assert "TPOT p99 0 -> 40 ms" in "\n".join(
        compare_lines(compared([base, run_of(tmp_path / "c", count=3000)]))
    )


def test_samples_that_were_issued_at_once_have_no_interval(tmp_path):
    made = records.rows(count=3000)  # as in Offline: not too short, in whatever time they are answered
    made["issued_ns"] = records.START
    base, other = (read_run(records.folder(tmp_path / name, made)) for name in "ab")
    assert {one.verdict for one in differences(base, other)} == {"no interval"}


@pytest.mark.engine
def test_the_interval_holds_the_truth_as_often_as_it_says(tmp_path):
    """Equal systems in pairs: 5 % of the intervals leave out 0; of intervals half as wide 11 of these 32."""
    runs = [run_of(tmp_path / str(n), seed=n, count=1500) for n in range(9)]
    names = ("TTFT mean, ms", "TTFT p50, ms", "TTFT p99, ms", "latency mean, ms")
    found = [by_name(differences(*pair)) for pair in itertools.pairwise(runs)]
    assert sum(one[name].verdict == "differs" for one in found for name in names) < 7


OTHER_SETTINGS = ENDED.settled.loadgen_settings | {"min_duration_ms": 1}
OTHER_RATE = ENDED.settled.loadgen_settings | {"server_target_qps": 99.0}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, ()),
        ({"loadgen_settings": OTHER_RATE}, ()),
        ({"dataset_sha256": "f" * 64}, ("dataset",)),
        ({"scenario": Scenario.INTERACTIVE}, ("scenario",)),
        ({"samples": 5}, ("samples",)),
        ({"benchmark": replace(ENDED.plan.client.benchmark, name="b")}, ("benchmark: gpt-oss-120b and b",)),
        ({"mode": "accuracy"}, ("mode: performance and accuracy",)),
        ({"loadgen_settings": OTHER_SETTINGS}, ("LoadGen's min_duration_ms",)),
        ({"parameters": replace(ENDED.plan.client.parameters, max_new_tokens=7)}, ("max_new_tokens",)),
    ],
)
def test_what_makes_runs_incomparable(base, changes, named):
    reasons = list(incomparable(base, of_record(base, with_plan(ENDED, **changes))))
    assert len(reasons) == len(named)
    assert all(reason.startswith(name) for reason, name in zip(reasons, named, strict=True))


def test_runs_without_settings_or_an_end_are_incomparable(base):
    for pair in ((base, replace(base, record=None)), (replace(base, record=None), base)):
        (unknown,) = incomparable(*pair)
        assert unknown == "a folder has no run.json, so its settings are not known"
        assert plan_differences(*pair) == []
        assert summary(*pair, [], "b", "a").endswith("; the settings are not known.")
    packages = base.record.provenance.packages | {"mlcommons-loadgen": "5.0"}
    provenance = replace(base.record.provenance, packages=packages)
    (version,) = incomparable(base, of_record(base, replace(base.record, provenance=provenance)))
    assert version.startswith("LoadGen: ") and version.endswith(" and 5.0")
    lost = RunVerdict("INVALID", ("lost: 3 queries were over the limit",))
    for changes in ({"verdict": None}, {"interrupted_by": "SIGTERM"}, {"verdict": lost}):
        (reason,) = incomparable(base, replace(base, record=replace(base.record, **changes)))
        assert reason == f"{base.folder} did not end"


def test_files_of_another_run_are_incomparable(base, tmp_path):
    """Such as a table that was copied: the figures are the table's, the settings those of run.json."""
    other = read_run(records.folder(tmp_path / "other", records.rows(), replace(base.record, loadgen=None)))
    (reason,) = incomparable(base, other)
    assert reason.startswith(f"{other.folder}: requests.parquet is of another run: it has 900 queries and ")
    assert list(incomparable(other, base)) == [reason]


def test_plans_are_compared_leaf_by_leaf(base):
    other = with_plan(ENDED, loadgen_settings=OTHER_RATE, concurrency=77)
    concurrency, rate = plan_differences(base, of_record(base, other))
    assert concurrency[0] == "plan.concurrency"
    before = json.dumps(ENDED.settled.loadgen_settings["server_target_qps"])
    assert rate == ("plan.loadgen_settings.server_target_qps", before, "99.0")


@pytest.mark.parametrize("count", [1, 512])
def test_servers_are_compared_by_what_they_serve(base, count):
    def run_with(port, **odd):
        one = ENDED.servers[0]
        servers = [replace(one, url=f"http://n{n}:{port}", trial_s=n / port) for n in range(count)]
        servers[-1] = replace(servers[-1], **odd)
        urls = tuple(server.url for server in servers)
        return of_record(base, replace(with_plan(ENDED, server_urls=urls), servers=tuple(servers)))

    assert plan_differences(run_with(1), run_with(1)) == []
    changed = run_with(1, settings=ENDED.servers[0].settings | {"tp_size": 7})
    assert [name for name, *_ in plan_differences(run_with(1), changed)] == [
        f"servers[{count - 1}].settings.tp_size"
    ]
    rows = plan_differences(run_with(1), run_with(2, context_length=77))
    assert [name for name, *_ in rows] == ["plan.server_urls", f"servers[{count - 1}].context_length"]
    hosts = "n0" if count == 1 else "n[0-511]"
    assert rows[0][1:] == (f"http://{hosts}:1", f"http://{hosts}:2")


# p of the exact McNemar test, from scipy.stats.binomtest(min, n, 0.5).pvalue.
@pytest.mark.parametrize(
    ("first", "second", "to_wrong", "to_right", "chance"),
    [
        ("1111", "1111", (), (), 1.0),
        ("1" * 12, "0" * 10 + "11", range(10), (), 0.001953125),
        ("1" * 10 + "00", "0" * 10 + "11", range(10), (10, 11), 0.03857421875),
        ("1" * 3000 + "0" * 3100, "0" * 3000 + "1" * 3100, range(3000), range(3000, 6100), 0.2050),
    ],
)
def test_changed_samples(base, tmp_path, first, second, to_wrong, to_right, chance):
    runs = [replace(base, folder=tmp_path / name) for name in "ab"]
    for run, right in zip(runs, (first, second), strict=True):
        run.folder.mkdir()
        records.score(run.folder, right={"official": right})
    changed = changed_samples(*runs)
    assert (changed.to_wrong, changed.to_right) == (tuple(to_wrong), tuple(to_right))
    assert changed.chance == pytest.approx(chance, rel=1e-3)
    assert changed.verdict == ("differs" if chance < 0.05 else "no difference shown")
    records.score(runs[1].folder, right={"official": f"{second}1"})  # of a dataset with one sample more
    assert changed_samples(*runs) is None


def test_the_first_line_says_whether_runs_are_comparable(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path / "a", records.rows())
    folder_of(tmp_path / "b", records.rows(seed=2))
    folder_of(tmp_path / "c", records.rows(), with_plan(ENDED, samples=5))
    for name, right in {"a": "1101", "b": "1011"}.items():
        records.score(tmp_path / name, right={"official": right})
    assert main(["compare", "a", "b"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("comparable: ")
    assert "right to wrong: 1 (qsl_idx 1); from wrong to right: 1 (qsl_idx 2); McNemar's p = 1: no" in out
    (tmp_path / "c" / ACCURACY_RESULT).write_text("{")
    assert main(["compare", "a", "c", "--output", "other.html"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("NOT COMPARABLE: ") and "McNemar" not in out
    html = (tmp_path / "other.html").read_text()
    assert html.index("NOT COMPARABLE") < html.index("is not comparable with") < html.index("TTFT p99")
    assert (tmp_path / "compare.html").stat().st_size < 500_000


def faster(base, path, **fields):
    """A run with 20 % less TPOT at 17 queries/s, VALID."""
    quick = records.rows(count=3000, seed=2)
    quick["last_byte_ns"] -= ((quick["osl"].astype(np.int64) - 1) * 8_000_000).astype(np.int64)
    rate = ENDED.settled.loadgen_settings | {"server_target_qps": 17.0}
    record = replace(with_plan(ENDED, loadgen_settings=rate, **fields), verdict=RunVerdict("VALID", (), True))
    return read_run(folder_of(path / "other", quick, record))


def test_one_sentence_says_what_changed_and_since_what(base, tmp_path):
    other = faster(base, tmp_path)
    page = compare_page(compared([base, other]))
    sentence = page.reasons[0]
    before = ENDED.settled.loadgen_settings["server_target_qps"]
    for part in ("is VALID", "INVALID", "TPOT p99 -20.", f"since target_qps {before} -> 17.0"):
        assert part in sentence
    assert page.badges[1].text == "INVALID -> VALID"
    assert "other" in sentence


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "the settings are the same"),
        ({"loadgen_settings": OTHER_RATE}, "since target_qps 20.0 -> 99.0"),
        ({"max_concurrency": 9}, "since max_concurrency null -> 9"),
        (
            {"loadgen_settings": OTHER_RATE, "max_concurrency": 9},
            "since target_qps 20.0 -> 99.0 and 1 more difference below",
        ),
    ],
)
def test_the_rate_is_the_first_of_the_settings_that_differ(base, changes, said):
    assert summary(base, of_record(base, with_plan(ENDED, **changes)), [], "new", "old").endswith(
        f"; {said}."
    )


def test_another_package_is_named_behind_the_settings(base):
    packages = ENDED.provenance.packages | {"numpy": "9"}
    other = replace(ENDED, provenance=replace(ENDED.provenance, packages=packages))
    numpy = f"numpy {ENDED.provenance.packages['numpy']} -> 9"
    assert summary(base, of_record(base, other), [], "new", "old").endswith(f"; since {numpy}.")
    other = replace(other, servers=(replace(other.servers[0], context_length=77), *other.servers[1:]))
    said = summary(base, of_record(base, other), [], "new", "old")
    assert "; since context_length " in said and said.endswith(" -> 77 and 1 more difference below.")


@pytest.mark.parametrize(
    ("name", "before", "after", "interval", "said"),
    [
        ("TPOT p99, ms", 40.0, 32.0, (-0.25, -0.15), "TPOT p99 -20.0%"),
        ("tokens/s", 40.0, 44.0, (0.05, 0.15), "tokens/s +10.0%"),
        ("TPOT p99, ms", 40.0, 32.0, (-0.25, 0.1), "no difference in TPOT p99 shown"),
        ("TPOT p99, ms", 40.0, 32.0, (math.nan, math.nan), "TPOT p99 -20.0% (no interval)"),
        ("TPOT p99, ms", 40.0, 40.0, (math.nan, math.nan), "no difference in TPOT p99 shown"),
        ("TPOT p99, ms", 0.0, 3.5, (math.nan, math.nan), "TPOT p99 0 -> 3.5 ms"),
        ("tokens/s", 0.0, 3.5, (math.nan, math.nan), "tokens/s 0 -> 3.5"),
    ],
)
def test_a_change_in_the_sentence(base, name, before, after, interval, said):
    verdict = base.record.verdict.result
    found = [Difference(name, before, after, *interval)]
    assert summary(base, base, found, "new", "old") == f"new is {verdict}: {said}; the settings are the same."


def test_better_and_worse_have_a_colour_and_a_word(base, tmp_path):
    (section,) = [
        one
        for one in compare_page(compared([base, faster(base, tmp_path)])).sections
        if one.id == "figures-2"
    ]
    rows = {row[0]: row for row in section.tables[0].rows}
    assert (rows["TPOT p99, ms"][3].status, rows["TPOT p99, ms"][5].text) == ("good", "better")
    meant = {"better": "good", "worse": "bad", "no difference shown": "plain"}
    assert all(row[3].status == row[5].status == meant[row[5].text] for row in rows.values())


@pytest.mark.parametrize(
    ("change", "name", "better"),
    [
        (0.1, "tokens/s", True),
        (-0.1, "tokens/s", False),
        (0.1, "TTFT p99, ms", False),
        (0.0, "tokens/s", None),
    ],
)
def test_more_a_second_and_fewer_milliseconds_are_better(change, name, better):
    one = Difference(name, 1.0, 1 + change, change - 0.01, change + 0.01)
    assert one.is_better is better


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (("a/server/performance", "b/server/performance"), ["a", "b"]),
        (("a/server/performance", "a/offline/performance"), ["server", "offline"]),
        (("a/x", "a"), ["run 1", "run 2"]),
        (("a", "a"), ["run 1", "run 2"]),
    ],
)
def test_runs_are_named_by_what_differs_in_their_folders(base, folders, names):
    assert names_of([replace(base, folder=Path(folder)) for folder in folders]) == names


def test_the_page_has_a_series_for_each_run(base):
    html = render(compare_page(compared([base] * 3)))
    assert html.count('"label":"run 3"') == 7
    assert html.count("run 3 against run 1") == 2  # heading and its link


@pytest.mark.parametrize("words", [("a",), ("a", "none"), ("a", "empty"), ("a", "logs"), (".", "a")])
def test_folders_that_cannot_be_compared(tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    records.folder(tmp_path / "a", records.rows())
    (tmp_path / "empty").mkdir()
    for name in ("run.json", "requests.parquet"):
        (records.folder(tmp_path / "logs", records.rows()) / name).unlink()
    with pytest.raises(SystemExit) if words == ("a",) else nullcontext():
        assert main(["compare", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "compare.html").exists()
