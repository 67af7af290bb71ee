"""A page's templates: compiled once for all processes, where their folder can be written."""

import shutil

import jinja2
import pytest

from harness.report.html import page
from harness.report.html.page import Page, render

EMPTY = Page("A title", "", (), (), (), ())


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
