"""A page's templates: compiled once for all processes, where their folder can be written."""

import shutil

import jinja2
import numpy as np
import pytest
from msgspec.structs import replace

from harness.report.html import page
from harness.report.html.page import Chart, Gauge, Page, PageTable, Section, Series, render

EMPTY = Page("A title", "", (), (), (), ())


def test_a_table_without_a_row_is_not_shown():
    header = PageTable(("mean", "max"), [])
    html = render(replace(EMPTY, sections=[Section("a", "One"), Section("b", "Two", tables=[header])]))
    assert "<table" not in html and "<h2>" not in html
    html = render(replace(EMPTY, sections=[Section("b", "Two", ["A line."], tables=[header])]))
    assert "<table" not in html and "<h2>Two</h2>" in html


@pytest.mark.parametrize("content", [{"gauges": [Gauge("a", 0.5, "half")]}, {"links": {"a file": "a.csv"}}])
def test_a_section_of_gauges_or_links_alone_is_shown(content):
    assert "<h2>Two</h2>" in render(replace(EMPTY, sections=[Section("b", "Two", **content)]))


@pytest.mark.parametrize(
    ("axes", "note", "caption"),
    [
        (("number", "number"), "", ""),
        (("number", "number"), "a note", "a note"),
        (("nines", "log"), "", "logarithmic y axis"),
        (("log", "log"), "a note", "a note; logarithmic x and y axis"),
    ],
)
def test_a_chart_names_its_logarithmic_axes(axes, note, caption):
    values = np.array([1.0, 2.0])
    chart = Chart("a", "A chart", values, [Series("s", values)], *axes, note=note)
    assert chart.caption == caption
    html = render(replace(EMPTY, sections=[Section("b", "Two", charts=[chart])]))
    assert f"A chart{f' <small>{caption}</small>' if caption else ''}</figcaption>" in html


def test_only_a_page_of_charts_says_that_they_need_javascript():
    assert "<noscript>" not in render(EMPTY)


@pytest.fixture
def templates(tmp_path, monkeypatch):
    """A copy of the templates' folder that nothing has been compiled for; ``fresh`` begins a new process."""
    html = shutil.copytree(page._HERE, tmp_path / "html", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(page, "_HERE", html)
    page._environment.cache_clear()
    yield html / "templates"
    page._environment.cache_clear()


def test_templates_are_compiled_once(templates, monkeypatch):
    first = render(EMPTY)
    page._environment.cache_clear()
    monkeypatch.setattr(jinja2.Environment, "compile", lambda *_, **__: pytest.fail("compiled again"))
    assert render(EMPTY) == first
    assert "A title" in first


def test_a_changed_template_is_compiled_again(templates):
    before = render(EMPTY)
    page._environment.cache_clear()
    with (templates / "page.html").open("a") as file:
        file.write("changed")
    assert render(EMPTY) != before


def test_without_a_place_for_them_templates_are_compiled(templates):
    (templates / "__pycache__").write_text("no folder")
    assert "A title" in render(EMPTY)
