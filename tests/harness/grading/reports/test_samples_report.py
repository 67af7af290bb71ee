"""The page of samples to look at: what is marked in an output, and filters in a real browser."""

import re
from pathlib import Path

import pytest

from harness.grading.evaluation.evaluate import GradedSample
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import GPQA
from harness.grading.reports.result_file import explanation
from harness.grading.reports.sample_texts import evidence
from harness.grading.reports.samples_report import spans_of
from harness.grading.scoring.grade import WRONG, Grade, GradingMode, Reason, answered, scored, unanswered
from harness.report.html.page import Badge, Page
from harness.report.html.samples_page import Answer, Excerpt, Question, Span, render_samples
from tests.browser import DRIVER, browser

BOTH = ("official", "strict")


def marked(text, *readings):
    """The marked parts, with what is the answer between asterisks."""
    return [
        ("".join(f"*{span.text}*" if span.strong else span.text for span in [one]), one.marks)
        for one in spans_of(text, readings)
        if one.marks
    ]


@pytest.mark.parametrize(
    ("text", "readings", "expected"),
    [
        ("so Answer: B ok", [(BOTH, "Answer: B", "B")], [("Answer: ", BOTH), ("*B*", BOTH)]),
        ("A is B. A", [(("strict",), "A is B", "A")], [("*A*", ("strict",)), (" is B", ("strict",))]),
        ("B. But", [(BOTH, "B. But", "B")], [("*B*", BOTH), (". But", BOTH)]),
        ("B or B", [(BOTH, "B or B", "B")], [("B or B", BOTH)]),  # which one is not known
        ("7", [(BOTH, "7", "7")], [("7", BOTH)]),
        ("none", [(BOTH, "Answer: B", "B")], []),
        (
            "so **Answer:** B.",
            [(BOTH, "Answer: B.", "B")],
            [("**Answer:** ", BOTH), ("*B*", BOTH), (".", BOTH)],
        ),
        (
            "**Answer:** B or Answer:** B",  # the last one
            [(BOTH, "Answer: B", "B")],
            [("Answer:** ", BOTH), ("*B*", BOTH)],
        ),
        ("7*7*7", [(BOTH, "77", "")], [("*7*7", BOTH)]),  # the last one
        ("*" * 300_000, [(BOTH, "A*", "")], []),  # an answer that repeats itself, in linear time
        ("Answer: B** ok", [(BOTH, "Answer: B", "B")], [("Answer: ", BOTH), ("*B*", BOTH)]),
        (
            "one two three",
            [(("official",), "one two", ""), (("strict",), "two three", "")],
            [("one ", ("official",)), ("two", BOTH), (" three", ("strict",))],
        ),
    ],
)
def test_the_span_that_was_read_is_marked(text, readings, expected):
    readings = [(modes, read, answer or read) for modes, read, answer in readings]
    assert marked(text, *readings) == expected
    assert "".join(span.text for span in spans_of(text, readings)) == text


RIGHT, MISTAKEN, NONE = answered("C", True), answered("B", False), unanswered(Reason.NO_ANSWER)


@pytest.mark.parametrize(
    ("official", "strict", "said"),
    [
        (MISTAKEN, MISTAKEN, "answer B"),
        (MISTAKEN, RIGHT, "official answer B, strict answer C"),
        (NONE, RIGHT, "strict answer C"),
        (NONE, NONE, ""),
    ],
)
def test_the_answers_of_both_modes_are_one_line(official, strict, said):
    grades = {GradingMode.OFFICIAL: official, GradingMode.STRICT: strict}
    assert evidence(GradedSample(0, Reference("gpqa", GPQA, "C", None), None, grades)) == said


@pytest.mark.parametrize(
    ("grade", "said"),
    [
        (RIGHT, "Correct"),
        (MISTAKEN, "Incorrect (extracted: B, ground_truth: C)"),
        (NONE, "No answer extracted from model output (no_answer)"),
        (Grade(WRONG, False, "x = 1", Reason.TIMEOUT, "test 2: 60 s"), "Failed (timeout): test 2: 60 s"),
        (scored({"rouge1": 0.5}, "text"), "Scored"),
    ],
)
def test_a_grade_is_explained_in_the_words_of_the_reference(grade, said):
    assert explanation(grade, "C") == said


def answer(index, reason, kind="wrong by all"):
    spans = (Span("the answer is "), Span("<b>C</b>", ("strict",), strong=True))
    verdicts = [("official", reason, "bad"), ("strict", "correct", "good")]
    return Answer(index, "repeat 1", verdicts, "9 tokens", [kind], "", [Excerpt("end", spans)])


@pytest.fixture
def page(tmp_path):
    questions = [
        Question("aime25", "question 1", "What?", "7", [answer(0, "wrong"), answer(1, "no_answer")]),
        Question("gpqa", "question 2", "Why? " * 100, "C", [answer(10, "wrong", kind="disagree")]),
    ]
    path = tmp_path / "samples.html"
    path.write_text(render_samples(Page("t", "s", (Badge("b", "bad"),), (), (), ()), questions))
    return path


def test_the_page_is_complete_without_javascript(page: Path):
    html = re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL)
    assert html.count('<details class="answer"') == 3
    assert html.count('<article class="card"') == 2
    assert '<mark class="strict" title="read by the strict rules"><b>&lt;b&gt;C&lt;/b&gt;</b></mark>' in html
    assert '<form class="filters" hidden>' in html


SHOWN = "return [...document.querySelectorAll('.answer')].filter((a) => a.offsetParent).map((a) => a.id)"
CHOOSE = """
const [name, label] = arguments, select = document.querySelector(`select[name=${name}]`);
select.value = [...select.options].find((option) => option.text === label).value;
select.dispatchEvent(new Event("input", { bubbles: true }));
"""


@pytest.mark.engine
@pytest.mark.skipif(DRIVER is None, reason="no chromedriver (Debian: chromium-driver)")
def test_filters_hide_what_they_leave_out(page: Path):
    with browser() as window:
        window.open(page)
        assert window.run(SHOWN) == ["s0", "s1", "s10"]
        window.run(CHOOSE, "reason", "no_answer")
        assert window.run(SHOWN) == ["s1"]
        assert window.run("return document.getElementById('shown').textContent") == "1"
        window.run(CHOOSE, "reason", "all")
        window.run(CHOOSE, "kind", "disagree")
        assert window.run(SHOWN) == ["s10"]
        window.run(CHOOSE, "dataset", "aime25")
        assert window.run(SHOWN) == []
        window.run("document.querySelector('.filters button').click()")
        window.click("#s1 summary")
        assert window.run("return document.querySelector('#s1 mark').offsetHeight") > 0


@pytest.mark.engine
@pytest.mark.skipif(DRIVER is None, reason="no chromedriver (Debian: chromium-driver)")
def test_texts_are_read_in_their_own_direction(tmp_path):
    """The question mark of a Hebrew question stood at its begin."""
    spans = [Span("\u05e9\u05dc\u05d5\u05dd?")]
    replies = [Answer(0, "", [], "", [], "", [Excerpt("end of the output", spans)])]
    questions = [Question("d", "q", text, "", replies) for text in ("\u05e9\u05dc\u05d5\u05dd?", "Peace?")]
    path = tmp_path / "samples.html"
    path.write_text(render_samples(Page("t", "s", (), (), (), ()), questions))
    direction = (
        "return [...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e).direction)"
    )
    with browser() as window:
        window.open(path)
        assert window.run(direction, ".card > p") == ["rtl", "ltr"]
        assert window.run(direction, ".card pre") == ["rtl", "rtl"]
