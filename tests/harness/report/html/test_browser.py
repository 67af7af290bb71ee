"""The page in a real browser: what is drawn, zoom, legend, and that nothing foreign runs."""

import numpy as np
import pytest

from harness.files import REPORT
from report import main
from tests import records
from tests.browser import DRIVER, FRAME, browser
from tests.harness.report.html.test_run_page import hostile  # noqa: F401

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(DRIVER is None, reason="no chromedriver (Debian: chromium-driver)"),
]

# Pixels of a chart that have the colour of its n-th series.
PIXELS = """
const [id, color] = arguments;
const canvas = document.querySelector(`#chart-${id} canvas`);
const probe = document.createElement("canvas").getContext("2d");
probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(color).trim();
probe.fillRect(0, 0, 1, 1);
const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
let count = 0;
for (let i = 0; i < data.length; i += 4)
  if ([r, g, b].every((part, at) => Math.abs(data[i + at] - part) < 12) && data[i + 3] > 200) count++;
return count;
"""


# Pixels between the ends of a chart's x axis and its first and last bar.
BARS = """
const canvas = document.querySelector(`#chart-${arguments[0]} canvas`), { width, height } = canvas;
const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
const plot = document.querySelector(`#chart-${arguments[0]} .u-over`).getBoundingClientRect();
const left = plot.left - canvas.getBoundingClientRect().left, row = Math.round(height / 2);
const filled = [...Array(width).keys()].filter((x) => data[4 * (row * width + x) + 3] > 80);
return [filled[0] - left, left + plot.width - filled.at(-1)];
"""


@pytest.fixture(scope="module")
def window():
    with browser() as opened:
        yield opened


@pytest.fixture
def page(tmp_path):
    folder = records.folder(tmp_path, records.rows(slow=2))
    assert main(["show", str(folder)]) == 0
    return folder / REPORT


def test_every_chart_is_drawn(window, page):
    window.open(page)
    assert int(window.run("return document.documentElement.dataset.charts")) >= 10
    for chart, color in (
        ("rates", "--c0"),
        ("rates", "--c1"),
        ("tokens", "--c2"),
        ("ttft", "--c1"),
        ("osl", "--c0"),
    ):
        assert window.run(PIXELS, chart, color) > 200, (chart, color)
    assert window.run(PIXELS, "curve-ttft", "--bad") > 30  # the limit
    named = "return document.querySelector('#chart-rates canvas').ariaLabel"
    assert window.run(named) == "Queries a second: issued, ended"


def test_a_single_value_is_a_point(window, tmp_path):
    """It makes no line."""
    folder = records.folder(tmp_path, records.rows(1))
    assert main(["show", str(folder)]) == 0
    window.open(folder / REPORT)
    assert window.run(PIXELS, "ttft", "--c1") > 20


def test_a_limit_far_above_the_values_is_named(window, tmp_path):
    rows = records.rows()
    rows["last_byte_ns"] = rows["first_token_ns"] + (rows["osl"].astype(np.int64) - 1) * 4_000_000
    folder = records.folder(tmp_path, rows)
    assert main(["show", str(folder)]) == 0
    window.open(folder / REPORT)
    assert window.run(PIXELS, "tpot", "--bad") > 15


def test_the_first_and_last_bar_are_complete(window, tmp_path):
    """Bars are around their x; half of these two was beyond the axis."""
    rows = records.rows(900)
    rows["osl"] = 10 + np.arange(900) % 2
    folder = records.folder(tmp_path, rows)
    assert main(["show", str(folder)]) == 0
    window.open(folder / REPORT)
    left, right = window.run(BARS, "osl")
    assert left > 5 and right > 5


def test_printed_charts_fit_their_frames(window, page):
    outside = """
        const within = (c, f) => c.left >= f.left && c.right <= f.right && c.bottom <= f.bottom;
        const box = (element) => element.getBoundingClientRect();
        return [...document.querySelectorAll("canvas")].filter(
            (canvas) => box(canvas).height < 50 || !within(box(canvas), box(canvas.closest("figure")))).length
    """
    with window.printed(page, width=700):
        assert window.run("return matchMedia('print').matches")
        assert window.run(outside) == 0


# Dark pixels of a chart; axes, lines and limits have none in the colours of paper.
DARK = """
const canvas = document.querySelector(`#chart-${arguments[0]} canvas`);
const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
let count = 0;
for (let i = 0; i < data.length; i += 4)
  if (data[i + 3] > 150 && Math.max(data[i], data[i + 1], data[i + 2]) < 60) count++;
return count;
"""


def test_a_page_of_a_dark_screen_is_printed_in_the_colours_of_paper(window, page):
    """The patches of the labels were black, and the labels on them could not be read."""
    with window.printed(page, width=700, scheme="dark"):
        assert window.run(PIXELS, "curve-ttft", "--bad") > 30  # the limit
        assert window.run(DARK, "curve-ttft") < 20
        assert window.run("return getComputedStyle(document.querySelector('.bad')).backgroundColor") == (
            "rgb(192, 39, 45)"
        )


def test_printed_tables_are_not_cut(window, page):
    outside = """
        const right = (element) => element.getBoundingClientRect().right;
        const cut = [...document.querySelectorAll(".scroll table")].filter(
            (table) => right(table) > right(document.querySelector("main")) + 1);
        return cut.map((table) => table.rows[0].textContent)
    """
    with window.printed(page, width=700):
        assert window.run(outside) == []


def test_dragging_zooms(window, page):
    window.open(page)
    before = window.run(PIXELS, "in-flight", "--c0")
    window.drag("#chart-in-flight .u-over", 0.45, 0.5)
    assert window.run(PIXELS, "in-flight", "--c0") != before
    assert window.run(PIXELS, "in-flight", "--c0") > 50


def test_the_legend_hides_a_series(window, page):
    window.open(page)
    assert window.run(PIXELS, "rates", "--c1") > 200
    window.click("#chart-rates .u-legend tr:nth-child(3) th")
    assert window.run(PIXELS, "rates", "--c1") < 20
    assert window.run(PIXELS, "rates", "--c0") > 200


def test_a_legend_breaks_where_its_line_is_full(window, page):
    """Each value had the width of a cell of the tables, and two fitted into a line."""
    window.open(page)
    tops = """
        return [...document.querySelectorAll("#chart-ttft .u-legend tr")].map((row) => row.offsetTop)
    """
    assert len(found := window.run(tops)) == 3 and len(set(found)) == 1
    window.run("document.querySelector('#chart-ttft .u-legend').style.width = '200px'")
    assert len(set(window.run(tops))) > 1


def test_the_keyboard_reaches_the_legend(window, page):
    window.open(page)
    press = """
        const name = document.querySelector("#chart-rates .u-legend tr:nth-child(3) th");
        name.focus();
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: arguments[0] }));
        return document.activeElement === name
    """
    assert window.run(press, "Tab")
    assert window.run(PIXELS, "rates", "--c1") > 200
    assert window.run(press, "Enter")
    window.run(FRAME)
    assert window.run(PIXELS, "rates", "--c1") < 20


def test_nothing_foreign_runs(window, hostile):  # noqa: F811
    assert main(["show", str(hostile)]) == 0
    window.open(hostile / REPORT)
    assert window.run("return document.title") != "owned"
    assert window.run("return document.querySelectorAll('img').length") == 0
    assert int(window.run("return document.documentElement.dataset.charts")) >= 10
