"""AIME and GPQA answers: the cases of the field notes, both modes side by side."""

import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.grading.decoding.harmony import HarmonyText
from harness.grading.grade import Reason
from harness.grading.graders import aime, gpqa, livecodebench


def harmony(final: str, analysis: str = "let me think") -> str:
    return (
        f"<|channel|>analysis<|message|>{analysis}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>{final}<|return|>"
    )


# final channel, official answer, strict answer. Official ones were taken from the published rules.
AIME_CASES = [
    (r"\boxed{42}", "42", "42"),
    (r"Thus \boxed{ 042 }.", "42", "42"),
    (r"$\boxed{\text{42}}$", None, "42"),
    (r"\boxed{\mathbf{42}}", None, "42"),
    (r"\boxed{42.}", None, "42"),
    ("Answer: 42.", None, "42"),
    ("Answer: 42", "42", "42"),
    ("**Answer:** 42", None, "42"),
    ("**Answer: 42**", "42", "42"),
    ("The answer is 42.", None, "42"),
    ("The final answer is $42$.", None, "42"),
    ("42", None, "42"),
    ("So we get\n\n**42**", None, "42"),
    (r"\boxed{60^\circ}", None, "60"),
    (r"\boxed{60^{\circ}}", None, "60"),
    ("Answer: 60°", "60", "60"),
    ("Answer: 60 degrees", "60", "60"),
    (r"\boxed{1{,}000}", None, "1000"),
    ("Answer: 1,000", "1", "1000"),
    (r"\boxed{m+n = 13+29 = 42}", None, "42"),
    (r"First \boxed{7}, but then \boxed{42}", "42", "42"),
    (r"\boxed{\frac{1}{2}}", None, r"\frac{1}{2}"),
    (r"\boxed{42^2}", None, "42^2"),
    (r"\boxed{1234}", None, "1234"),
    ("I could not solve it.", None, None),
    ("", None, None),
    (rf"\boxed{{{'0' * 60}70}}", "70", "70"),  # int() takes up to 4,300 digits
    (f"Answer: {'0' * 60}70", "70", "70"),
    (rf"\boxed{{{'0' * 4_300}70}}", None, "70"),
    (rf"\boxed{{{'9' * 60}}}", None, "9" * 50),
]


@pytest.mark.parametrize(("final", "official", "strict"), AIME_CASES)
def test_aime_answers(final: str, official: str | None, strict: str | None):
    output = HarmonyText(harmony(final))
    assert aime.official(output, "42").answer == official
    assert aime.strict(output, "42").answer == strict


STRICT_TABLE = tomllib.loads((Path(__file__).parent / "strict_cases.toml").read_text())
STRICT_CASES = [
    pytest.param(kind, final, group["expected"], id=f"{kind}: {group['reason']}: {final[:40]!r}")
    for kind, groups in STRICT_TABLE.items()
    for group in groups
    for final in group["finals"]
]


def test_the_table_of_strict_cases_is_large():
    assert len(STRICT_CASES) >= 300
    assert all(group["reason"] for groups in STRICT_TABLE.values() for group in groups)


@pytest.mark.parametrize(("kind", "final", "expected"), STRICT_CASES)
def test_strict_reads_what_a_reader_reads(kind: str, final: str, expected: str):
    """An AIME answer that is no integer is shown as it stands: never right, whatever the truth."""
    output = HarmonyText(harmony(final))
    if kind == "code":
        assert (livecodebench.strict_code(output).code or "") == expected
    elif kind == "gpqa":
        assert (gpqa.strict(output, "C").answer or "") == expected
    else:
        answer = aime.strict(output, "70").answer or ""
        is_integer = answer.removeprefix("-").isdecimal()
        assert answer == expected if is_integer or not answer else expected == "expression"


def test_aime_drafts_count_officially_and_not_strictly():
    output = HarmonyText(harmony("I give up.", analysis=r"maybe \boxed{42}"))
    assert aime.official(output, "42").correct
    assert aime.strict(output, "42").reason is Reason.NO_ANSWER


GPQA_CASES = [
    ("C", "C", "C"),
    ("**C**", "C", "C"),
    ("(C)", "C", "C"),
    ("C) 4.3 eV", "C", "C"),
    ("**Answer:** C", "C", "C"),
    ("Answer: C", "C", "C"),
    ("answer: c", "C", "C"),
    ("Answer: (C)", "C", "C"),  # by the third official rule, over the full text
    ("The answer is C.", None, "C"),
    ("The correct answer is **(C)**.", None, "C"),
    ("The correct choice is option C because of symmetry.", None, "C"),
    (r"\boxed{C}", None, "C"),
    (r"$\boxed{\text{C}}$", None, "C"),
    (r"\boxed{\mathrm{(C)}}", None, "C"),
    ("A careful estimate gives 4.3 eV.\n\nAnswer: D", "A", "D"),
    ("(a) false\n(b) true\n\nAnswer: D", "A", "D"),
    ("**Answer: D**\n\nOption A fails because it ignores spin.", "D", "D"),
    ("Answer: A at first sight. On reflection the answer is D.", "A", "D"),
    ("The answer is a function of temperature.", None, None),
    ("The answer is A because it is.", None, "A"),
    ("The answer is not B.", None, None),
    ("Option C is correct.", None, "C"),
    ("We choose (B).", None, "B"),
    ("Nothing follows.", None, None),
    ("", None, None),
]


@pytest.mark.parametrize(("final", "official", "strict"), GPQA_CASES)
def test_gpqa_answers(final: str, official: str | None, strict: str | None):
    output = HarmonyText(harmony(final))
    assert gpqa.official(output, "D").answer == official
    assert gpqa.strict(output, "D").answer == strict


FINAL_CASES = [
    ("<|channel|>final<|message|>x<|return|>", "x", "x"),
    ("<|channel|>final 明<|message|>x<|return|>", "x", "x"),
    ("<|channel|>final537<|message|>x", "x", "x"),
    ("<|channel|>final<|constrain|>json<|message|>x", None, None),
    ("<|channel|>final<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>y<|return|>",
     "x<|end|><|start|>assistant<|channel|>final<|message|>y", "y"),
    ("<|channel|>analysis<|message|>x<|return|>", None, None),
    ("plain", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "section", "final"), FINAL_CASES)
def test_final_sections(text: str, section: str | None, final: str | None):
    assert (HarmonyText(text).official_final, HarmonyText(text).strict_final) == (section, final)


CODE_CASES = [
    ("```python\nprint(1)\n```", "print(1)", "print(1)"),
    ("```python\nprint(1)\n```\nor\n```python\nprint(2)\n```", "print(2)", "print(2)"),
    ("```\npython\nprint(1)\n```", "print(1)", "python\nprint(1)"),
    ("```py\nprint(1)\n```", "print(1)", "print(1)"),
    ("```Python\nprint(1)\n```", "print(1)", "print(1)"),
    ("```python\nprint(1)\n```\n```text\n1\n```", "print(1)", "print(1)"),
    ("```python\nx = '''\n```\n'''\n```", "x = '''", "x = '''"),
    ('```python\nx = "```"\nprint(x)\n```', 'x = "', 'x = "```"\nprint(x)'),
    ("no code", None, None),
    ("```python\nprint(1)", None, None),
]


@pytest.mark.parametrize(("final", "official", "strict"), CODE_CASES)
def test_code_extraction(final: str, official: str | None, strict: str | None):
    output = HarmonyText(harmony(final))
    assert livecodebench.official_code(output).code == official
    assert livecodebench.strict_code(output).code == strict


def test_code_of_the_analysis_is_a_draft():
    output = HarmonyText(harmony("See above.", analysis="```python\nprint(1)\n```"))
    assert livecodebench.official_code(output).code == "print(1)"
    assert livecodebench.strict_code(output) == livecodebench.Extraction(None, Reason.NO_ANSWER)


def test_reasons_tell_why_there_is_no_answer():
    assert aime.strict(HarmonyText("x"), "1").reason is Reason.NO_FINAL
    assert gpqa.strict(HarmonyText("x", truncated=True), "A").reason is Reason.TRUNCATED
    assert livecodebench.strict_code(HarmonyText(harmony("x"), truncated=True)).reason is Reason.TRUNCATED
    assert aime.strict(HarmonyText(harmony("Answer: 2")), "1").reason is Reason.WRONG


PIECES = [
    *"}{:(C.=-\n ", "\\boxed{", "Answer", "answer is", "**", "A", "a ", "42", "1,000", "```", "```python",
    "<|channel|>final", "<|message|>", "<|return|>", "<|channel|>", "°", "^\\circ", "\\text{",
    "FINAL", "\\n", "\\'", "['", "']", "\ud800",
]  # fmt: skip


def grade_everything(text: str) -> None:
    output = HarmonyText(text, truncated=True)
    for grade, truth in ((aime.official, "42"), (aime.strict, "42")):
        grade(output, truth)
    for letter_grade in (gpqa.official, gpqa.strict):
        letter_grade(output, "C")
    livecodebench.official_code(output), livecodebench.strict_code(output)


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join)))
def test_no_text_crashes_a_grader(text: str):
    grade_everything(text)
    grade_everything(harmony(text))


RUNS = [
    *" \n*({[\\9a`_$#=,.:", "\\boxed{", "answer is ", "ANSWER", "FINAL ", "**a", "```python\n",
    "<|channel|>final", "\\boxed{1", "option ", "1,000", "{{", "x is correct ", "-",
]  # fmt: skip


@pytest.mark.parametrize("lead", ["", "answer", "\\boxed{"])
@pytest.mark.parametrize("piece", RUNS)
def test_long_runs_take_linear_time(piece: str, lead: str):
    started = time.process_time()
    grade_everything(harmony(lead + piece * (60_000 // len(piece)) + "x"))
    assert time.process_time() - started < 20  # of CPU; quadratic time would be a minute
