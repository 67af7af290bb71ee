"""endpoints.html: what it says of whole, short, broken and unfinished curves, and what a browser draws."""

import re
from datetime import date
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from harness.endpoints.planning import shortfalls as planned
from harness.endpoints.planning.shortfalls import CLIENT
from harness.endpoints.point_run import read_point_run, write_point_run
from harness.endpoints.run_folder import NOT_A_RESULT_FILE, PAGE, POINT_YAML, RUNS, SUMMARY, TREE
from harness.endpoints.steady.steady_point import steady_state
from harness.endpoints.tree.build_tree import build_tree
from harness.endpoints.tree.system_file import read_system
from harness.endpoints.view.curve_charts import steady_charts
from harness.endpoints.view.curve_files import read_curve
from harness.endpoints.view.curve_steady import steady_states
from harness.endpoints.view.curve_tables import points_table
from harness.endpoints.view.endpoints_page import endpoints_page, write_endpoints_page
from harness.endpoints.view.shortfalls import shortfalls
from harness.errors import ConfigError
from harness.text import duration
from tests import endpoints_folders as made
from tests import endpoints_kit as kit
from tests.browser import DRIVER, browser
from tests.harness.endpoints.steady.made_up_runs import SHAPES, run_of
from tests.harness.report.html.test_browser import PIXELS

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u2028"


@pytest.fixture(autouse=True)
def today(monkeypatch):
    """A day on which the seeds can be taken."""
    monkeypatch.setattr(planned, "date", SimpleNamespace(today=lambda: date(2026, 12, 1)))


def page_of(folder):
    curve = read_curve(folder)
    return endpoints_page(curve, steady_states(curve))


def cells(page, section):
    """The texts of a section's tables, row by row."""
    (found,) = (one for one in page.sections if one.id == section)
    return [
        [cell if isinstance(cell, str) else cell.text for cell in row]
        for table in found.tables
        for row in table.rows
    ]


def badges(page):
    return [one.text for one in page.badges]


def change_run(folder, name, **changes):
    plan = kit.curve()
    (point,) = (one for one in plan.points if one.name == name)
    write_point_run(folder / RUNS / name, kit.point_run(point, plan, **changes))


def test_a_whole_rehearsal_is_still_no_result(tmp_path):
    page = page_of(made.rehearsal(tmp_path))
    assert badges(page) == ["NOT AN MLPERF RESULT"]
    assert page.reasons == [CLIENT]
    rows = cells(page, "curve")
    assert [row[0] for row in rows] == ["r1", "r8", "r32", "r64", "r256", "r512", "r1024", "offline"]
    assert [row[2] for row in rows] == [
        "Ultra Low",
        "Low",
        "Medium",
        "Medium",
        "High",
        "High",
        "High",
        "Offline",
    ]
    assert [row[2] for row in cells(page, "bands")] == ["1", "8", "32, 64", "256, 512, 1,024", "none"]
    assert [row[3] for row in cells(page, "bands")] == ["1", "8", "64", "1,024", "not needed"]
    assert all(value == "83.5" for _, _, value, *_ in cells(page, "accuracy"))
    assert ["r64", "20.0 s", "64", "64", "64", "accuracy dataset", "0.180", "0.210"] in cells(page, "warm-up")


def test_what_keeps_it_from_being_a_submission_in_order(tmp_path):
    """The gravest first: short, then missing, failed, unsteady, without accuracy, the client."""
    folder = made.rehearsal(tmp_path, points=("r1", "r64", "r1024"), short=True)
    (r64,) = (one for one in read_curve(folder).points if one.name == "r64")
    write_point_run(folder / RUNS / "r64", replace(r64.run, failures={"timeout": 5, "http_500": 2}))
    made.change(folder / RUNS / "r64", lambda found: found["steady_state"].update(verdict="drifting_up"))
    (folder / RUNS / "r1/accuracy/accuracy_results.json").unlink()
    page = page_of(folder)
    begun = [re.split(r"[:(]", line)[0].strip() for line in page.reasons]
    assert begun == [
        "--short",
        "points of the plan that were not run",
        "failed requests",
        "no official steady window, so that the complete run counts",
        "no accuracy run",
        "requests are sent by this client, not by MLCommons's own, unmodified",
    ]
    assert badges(page) == [
        "NOT AN MLPERF RESULT",
        "SHORT",
        "3 OF 8 POINTS MEASURED",
        "FAILED REQUESTS",
    ]
    assert "drifting_up r64" in page.reasons[3]
    assert page.reasons[4].endswith("Ultra Low, Low, Offline")
    assert [row[3] for row in cells(page, "curve")][-5:] == ["not measured yet"] * 5


def reasons(folder):
    return [one for one in shortfalls(read_curve(folder)) if one != CLIENT]


def test_a_run_below_the_time_of_the_rules(tmp_path):
    """The official checker takes such a window for what it says."""
    folder = made.rehearsal(tmp_path)
    made.change(folder / RUNS / "r64", lambda found: found["steady_state"]["window"].update(duration_s=300.0))
    assert reasons(folder) == ["issued for less than the rules' time (section 6.2): r64 300 of 1,200 s"]
    made.change(folder / RUNS / "r64", lambda found: found["steady_state"].update(verdict="drifting_up"))
    (steady,) = reasons(folder)  # of a window that is not official the time is the run's
    assert "drifting_up r64" in steady


def test_the_time_of_a_dedicated_offline_run_is_that_of_the_run(tmp_path):
    """It issues everything at once."""
    folder = made.rehearsal(tmp_path)
    run = read_point_run(folder / RUNS / "offline")
    at_once = replace(run, issue_s=2.0, drain_s=run.issue_s + run.drain_s - 2.0)
    write_point_run(folder / RUNS / "offline", at_once)
    assert reasons(folder) == []
    made.change(folder / RUNS / "offline", lambda found: found.update(duration_ns=300 * 10**9))
    assert reasons(folder) == ["issued for less than the rules' time (section 6.2): offline 300 of 1,200 s"]


def test_a_super_pass_without_tpot_leaves_a_gap_in_the_chart():
    """The window is shaded by the numbers of all."""
    shape = SHAPES["plateau"]
    state = steady_state(run_of(shape, 1), shape.size, 1200)
    first, second, *others = state.passes
    gap = replace(state, passes=(first, replace(second, tpot_count=0), *others))
    (chart,) = steady_charts({"r64": gap})
    assert chart.x.tolist() == [1, *range(3, len(state.passes) + 1)]


def test_a_part_of_a_pass(tmp_path):
    folder = made.rehearsal(tmp_path)
    change_run(folder, "r8", issued=kit.SAMPLES + 7)
    assert reasons(folder) == ["the last pass of the dataset is incomplete (section 6.4): r8"]


def test_what_the_plan_showed_is_shown_to_the_end(tmp_path):
    """A dataset that is not the rules' is nothing that the files of a point show."""
    folder = made.rehearsal(tmp_path, samples=5000, replacement=True)
    line = "performance dataset of 5000 samples, expected 6396 (section 6.4)"
    assert reasons(folder) == [line]
    build_tree([folder], None, folder / TREE)
    assert f"\n- {line}\n" in (folder / TREE / NOT_A_RESULT_FILE).read_text()


@pytest.mark.parametrize("official", [True, False])
def test_a_dedicated_offline_run_is_all_at_once(tmp_path, official):
    """The official client's files have no number in flight for it, ours that of the samples."""
    kit.write_runs(tmp_path, "dedicated", official=official)
    points = points_table(read_curve(tmp_path))
    assert {row[1] for row in points.rows if row[2] == "Offline"} == {"all at once"}
    assert [row[1] for row in points.rows[:3]] == ["1", "8", "32"]


def test_accuracy_at_most_32_in_flight_is_that_of_the_lowest_band(tmp_path):
    """32 are in the Medium band of this curve, which has another accuracy run."""
    folder = made.rehearsal(tmp_path)
    (folder / RUNS / "r1/accuracy").rename(folder / RUNS / "r32/accuracy")
    assert reasons(folder) == []
    (folder / RUNS / "r32/accuracy").rename(folder / RUNS / "r256/accuracy")
    assert reasons(folder) == ["no accuracy run (section 5.3): Ultra Low"]
    assert any("in the bands Ultra Low;" in one for one in build_tree([folder], None, folder / TREE).missing)


def test_a_score_below_its_target(tmp_path):
    folder = made.rehearsal(tmp_path)
    file = folder / RUNS / "r64/accuracy/accuracy_results.json"
    file.write_text(file.read_text().replace("83.5", "70.5"))
    page = page_of(folder)
    assert "ACCURACY NOT PASSED" in badges(page)
    assert "70.5" in page.reasons[0]
    ((_, _, value, target, _),) = (row for row in cells(page, "accuracy") if row[0] == "r64")
    assert (value, target) == ("70.5", "82.2987 or more")


def test_an_offline_run_that_is_slower_than_c_max(tmp_path):
    folder = made.rehearsal(tmp_path)
    made.change(folder / RUNS / "offline", lambda found: found.update(duration_ns=2 * found["duration_ns"]))
    (line,) = reasons(folder)
    assert line.startswith("Offline has 53.6% of the throughput at C_max, the rules ask for 98%")
    (offline,) = (one for one in page_of(folder).sections if one.id == "offline")
    assert offline.lines[-1] == "Its throughput is 53.6% of that at C_max (98% or more): too little."


def test_an_elected_offline_point_needs_no_other(tmp_path):
    page = page_of(made.rehearsal(tmp_path, offline="elected"))
    assert page.reasons == [CLIENT]
    (offline,) = (one for one in page.sections if one.id == "offline")
    assert "r1024" in offline.lines[0]


def test_what_the_page_shows_of_each_point(tmp_path):
    """The row of a point, and its place in the chart of the curve."""
    folder = made.rehearsal(tmp_path, offline="elected")
    page = page_of(folder)
    rows = {row[0]: row for row in cells(page, "curve")}
    assert rows["r1024"][2] == "High, elected Offline" and rows["r512"][2] == "High"
    point = next(one for one in read_curve(folder).points if one.name == "r1024")
    assert duration(point.seconds) in rows["r1024"]
    (chart,) = (one for section in page.sections for one in section.charts if one.id == "pareto")
    assert list(chart.x) == sorted(chart.x)
    names = [name for line in chart.series for name in line.names or () if name]
    assert sorted(names) == sorted(["1", "8", "32", "64", "256", "512", "1,024, elected Offline"])


def test_a_point_that_another_exceeds_in_both_numbers_is_named(tmp_path):
    folder = made.rehearsal(tmp_path)
    (curve,) = (one for one in page_of(folder).sections if one.id == "curve")
    assert curve.lines == []

    def slower(summary):
        summary["output_sequence_lengths"]["total"] //= 100

    made.change(folder / RUNS / "r512", slower)
    (curve,) = (one for one in page_of(folder).sections if one.id == "curve")
    assert [line.rpartition(": ")[2] for line in curve.lines] == ["r512."]


def test_a_dedicated_offline_run_has_no_steady_state_in_its_row(tmp_path):
    """Section 4.4 of the rules: it is outside its scope."""
    rows = {row[0]: row for row in cells(page_of(made.rehearsal(tmp_path)), "curve")}
    assert rows["offline"][10] == rows["offline"][4]  # which is that of no user, too
    assert rows["r1024"][10] != rows["offline"][10]


def test_a_point_that_ended_early_and_a_slow_client(tmp_path):
    folder = made.rehearsal(tmp_path)
    change_run(folder, "r8", complete=False, errors=("no server answered for 10 s",))
    change_run(folder, "r64", client_bound=("the issuing process had no CPU left",))
    assert reasons(folder) == [
        "incomplete, no server answered for 10 s: the same command continues there (r8)",
        "the client may have been the bottleneck (r64)",
    ]
    page = page_of(folder)
    assert "7 OF 8 POINTS MEASURED" in badges(page)
    assert cells(page, "client") == [["r64", "the issuing process had no CPU left"]]


def test_a_point_whose_requests_failed_has_no_numbers(tmp_path):
    """It has no result_summary.json; its failures are shown all the same."""
    folder = made.rehearsal(tmp_path)
    (folder / RUNS / "r8" / SUMMARY).unlink()
    change_run(folder, "r8", failures={"timeout": 3})
    assert reasons(folder) == ["no numbers: r8", "failed requests: r8 3 of 51,168"]
    page = page_of(folder)
    assert cells(page, "failures") == [["r8", "timeout", "3"]]
    assert "FAILED REQUESTS" in badges(page)


def test_run_folders_of_the_official_client(tmp_path):
    """Their model may be served by another name than the benchmark's; what they have is shown."""
    page = page_of(made.run_folders(tmp_path))
    assert page.reasons == []
    assert [row[3] for row in cells(page, "accuracy")] == ["82.2987 or more"] * 5
    assert [row[1] for row in cells(page, "curve")][:3] == ["1", "8", "32"]
    assert not cells(page, "definitions")


def test_throughput_for_a_kilowatt_of_the_nodes_in_use(tmp_path):
    folder = made.tree(tmp_path)
    assert reasons(folder) == []  # of a complete tree
    (path,) = folder.rglob("r8/point.yaml")
    path.write_text(path.read_text().replace("point_power_kw: 10.05", "point_power_kw: 5.025"))
    rates = {one.name: one.system_tps for one in read_curve(folder).points}
    shown = {name: text for name, *_, text in cells(page_of(folder), "curve")}
    assert shown["r1024"] == f"{rates['r1024'] / 10.05:,.1f}"
    assert shown["r8"] == f"{rates['r8'] / 5.025:,.1f}"


def test_a_system_that_nobody_described_has_no_watts(tmp_path):
    folder = made.rehearsal(tmp_path)
    build_tree([folder], None, folder / TREE)
    assert read_curve(folder).kilowatts is None
    build_tree([folder], read_system(kit.write_system(tmp_path)), folder / TREE)
    assert read_curve(folder).kilowatts == pytest.approx(10.05)


def test_a_short_rehearsal_is_scored_by_its_benchmark(tmp_path):
    """Its model has a name that no submission has."""
    curve = read_curve(made.rehearsal(tmp_path, short=True, model_name="short-rehearsal"))
    assert all(one.accuracy.metrics for one in curve.points if one.scored)
    assert sum(one.scored for one in curve.points) == 5


def test_a_point_of_which_this_client_has_no_numbers_of_its_own(tmp_path):
    folder = made.rehearsal(tmp_path)
    change_run(folder, "r64", own=None)
    page = page_of(folder)
    assert [row[0] for row in cells(page, "definitions")][1:4] == ["r8", "r32", "r256"]
    assert any("gpt-oss-120b" in value for _, value in cells(page, "settings"))


def test_what_a_run_folder_lacks_is_read_from_the_tree_that_was_built_of_it(tmp_path):
    folder = made.rehearsal(tmp_path)
    made.built(folder, folder / TREE)
    for path in (folder / RUNS).glob(f"*/{POINT_YAML}"):
        path.unlink()
    assert all(one.kilowatts for one in read_curve(folder).points)


def test_both_definitions_stand_side_by_side(tmp_path):
    folder = made.rehearsal(tmp_path)
    made.change(folder / RUNS / "r64", lambda found: found["output_sequence_lengths"].update(total=1e6))
    change_run(folder, "r64", own=replace(kit.point_run(kit.curve().points[3]).own, tokens=1_010_000))
    page = page_of(folder)
    (section,) = (one for one in page.sections if one.id == "definitions")
    table, _ = section.tables
    assert list(table.header[:4]) == ["point", "output tokens: ours", "Endpoints'", "difference"]
    assert {len(row) for row in table.rows} == {len(table.header)}
    rows = {row[0]: row for row in cells(page, "definitions")}
    assert rows["r64"][1:4] == ["1,010,000", "1,000,000", "-0.99%"]
    assert "reference tokenizer" in rows["output tokens"][1]


def test_requests_count_before_what_a_file_states(tmp_path):
    folder = made.rehearsal(tmp_path, samples=40)
    made.count(folder / RUNS / "r64", [20, 30, 40, 50, 60, 70, 80, 90], 40)
    page = page_of(folder)
    assert any("r64" in line and "steady window" in line for line in page.reasons)
    ((_, status, verdict, *_),) = (row for row in cells(page, "steady") if row[0] == "r64")
    assert (status, verdict) != ("windowable", "STEADY STATE")


def test_a_folder_without_points_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no run folder"):
        write_endpoints_page(tmp_path)
    assert not (tmp_path / PAGE).exists()


@pytest.fixture
def steady(tmp_path):
    folder = made.rehearsal(tmp_path, samples=40, model_name="gpt-oss-120b")
    made.count(folder / RUNS / "r64", [20, 22, 24, 24.1, 23.9, 24, 24.1, 23.9, 24, 24], 40)
    change_run(folder, "r8", deviations=(HOSTILE,))
    return write_endpoints_page(folder)


def test_the_page_needs_nothing_from_elsewhere(steady):
    html = steady.read_text()
    assert not re.search(r"(?i)(src|href)\s*=\s*[\"']?\s*(https?:|//)|@import|url\(|\bfetch\(|XMLHttp", html)
    assert "<img" not in html
    assert len(html) < 500_000


@pytest.mark.engine
@pytest.mark.skipif(DRIVER is None, reason="no chromedriver (Debian: chromium-driver)")
def test_a_browser_draws_the_curve_the_windows_and_both_themes(steady):
    with browser() as window:
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            window._chromium("Emulation.setEmulatedMedia", features=[feature])
            for width in (1400, 420):
                size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
                window._chromium("Emulation.setDeviceMetricsOverride", **size)
                window.open(steady)
                assert window.run("return document.title").startswith("MLPerf Endpoints")
                assert int(window.run("return document.documentElement.dataset.charts")) == 4
                assert window.run("return document.documentElement.scrollWidth") <= width
                for chart, color in (
                    ("pareto", "--c0"),  # the steps
                    ("pareto", "--c5"),  # Offline
                    ("pareto", "--c1"),  # points of the High band
                    ("pareto", "--text"),  # their names
                    ("steady-r64", "--c0"),
                    ("ttft-by-n", "--c1"),
                ):
                    assert window.run(PIXELS, chart, color) > 10, (scheme, width, chart, color)
                assert window.run(SHADED, "steady-r64") > 1000
                assert window.run(SHADED, "pareto") < 100  # edges of glyphs


# Pixels of a chart that have the colour of a shade: --good at 15 % over nothing.
SHADED = """
const canvas = document.querySelector(`#chart-${arguments[0]} canvas`);
const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
let count = 0;
for (let i = 0; i < data.length; i += 4)
  if (data[i + 3] > 30 && data[i + 3] < 45 && data[i + 1] > data[i] + 30) count++;
return count;
"""
