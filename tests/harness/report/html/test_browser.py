"""The page in a real browser: what is drawn, zoom, legend, and that nothing foreign runs."""

import pytest

from harness.files import REPORT
from report import main
from tests import records
from tests.browser import DRIVER, browser
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


@pytest.fixture(scope="module")
def window():
    with browser() as opened:
        yield opened


@pytest.fixture
def page(tmp_path):
    folder = records.folder(tmp_path, records.rows(slow=2))
    assert main(["html", str(folder)]) == 0
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


def test_nothing_foreign_runs(window, hostile):  # noqa: F811
    assert main(["html", str(hostile)]) == 0
    window.open(hostile / REPORT)
    assert window.run("return document.title") != "owned"
    assert window.run("return document.querySelectorAll('img').length") == 0
    assert int(window.run("return document.documentElement.dataset.charts")) >= 10
