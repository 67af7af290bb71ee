"""The page of a ladder: what it says, and that it can be read without a script."""

import re

from msgspec.structs import replace

from harness.peak.ladder.ladder_page import ladder_page
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.report.html.page import render
from tests.harness.peak.ladder.made import ladder, step


def text_of(html):
    """What a reader without JavaScript sees."""
    return re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style)[^>]*>.*?</\1>", "", html))


def test_every_figure_of_every_step_is_readable_without_a_script():
    made = ladder()
    page = ladder_page(made)
    text = text_of(render(page))
    assert NOT_A_RESULT in text and NOT_A_RESULT.upper() in text
    for one in made.steps:
        assert f"{one.tokens_per_s:,.1f}" in text
    assert "knee" in text and "most tokens/s inside the limits" in text and "TTFT p99 is" in text
    charts = {chart.id: chart for section in page.sections for chart in section.charts}
    assert set(charts) == {"interactivity", "throughput", "tpot-by-n", "ttft-by-n"}
    assert list(charts["interactivity"].x) == sorted(charts["interactivity"].x)
    assert [limit.value for limit in charts["tpot-by-n"].limits] == [80]


def test_answers_of_one_token_have_no_chart_of_their_tpot():
    page = ladder_page(ladder(*(replace(step(level, 200), tpot=None) for level in (4, 8))))
    charts = {chart.id for section in page.sections for chart in section.charts}
    assert charts == {"throughput", "ttft-by-n"}


def test_what_is_wrong_is_marked():
    steps = (step(4, 200, steady=False), step(8, 300, failures={"timeout": 3}), step(16, 600, ttft=9000))
    page = ladder_page(
        ladder(*steps, complete=False, errors=("the server is gone",), stopped="the server is gone")
    )
    marks = {NOT_A_RESULT.upper(), "ENDED EARLY", "FAILED REQUESTS", "NOT STEADY"}
    assert {badge.text for badge in page.badges} == marks
    assert page.sections[0].tables[0].marked == {0, 1, 2}
    assert "the server is gone" in text_of(render(page))


def test_a_ladder_without_a_step_has_a_page():
    assert "ended by SIGINT" in render(ladder_page(ladder(wanted=(4,), steps=(), stopped="ended by SIGINT")))
