"""AIME and GPQA answers: the cases of the field notes, both modes side by side."""

import re
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from harness.dataset import tokenizer
from harness.grading.decoding.harmony import HarmonyOutput, HarmonyText
from harness.grading.graders import aime, code_blocks, programs
from harness.grading.graders.grader import Grader
from harness.grading.graders.multiple_choice import gpt_oss_gpqa as gpqa
from harness.grading.scoring.grade import Reason


def harmony(final: str, analysis: str = "let me think") -> str:
    return (
        f"<|channel|>analysis<|message|>{analysis}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>{final}<|return|>"
    )


CASES = tomllib.loads((Path(__file__).parent / "official_cases.toml").read_text())
LONG = [  # int() takes up to 4,300 digits
    (rf"\boxed{{{'0' * 4_300}70}}", "", "70"),
    (rf"\boxed{{{'9' * 60}}}", "", "9" * 50),
]


# The answers by the official and the strict rules.
ANSWERS = {
    "aime": lambda output: (aime.official(output, "42").answer, aime.strict(output, "42").answer),
    "gpqa": lambda output: (
        gpqa.official(output, "D").answer,
        gpqa.strict(output, "D").answer,
    ),
    "code": lambda output: (programs.gpt_oss.official_code(output).code, programs.strict_code(output).code),
}


@pytest.mark.parametrize(
    ("kind", "final", "official", "strict"),
    [(kind, *case) for kind, cases in (CASES | {"aime": CASES["aime"] + LONG}).items() for case in cases],
)
def test_answers(kind: str, final: str, official: str, strict: str):
    assert ANSWERS[kind](HarmonyText(harmony(final))) == (official or None, strict or None)


PROGRAMS = tomllib.loads((Path(__file__).parent / "program_cases.toml").read_text())["case"]


@pytest.mark.parametrize("case", PROGRAMS, ids=[case["reason"] for case in PROGRAMS])
def test_the_program_among_the_blocks_of_an_answer(case: dict[str, str]):
    found = programs.strict_code(HarmonyText(harmony(case["answer"])))
    assert found.code is not None
    code = code_blocks.program((*found.above, found.code), case["function"])
    assert "".join(re.findall(r"# (\d)$", code, re.MULTILINE)) == case["expected"]


@pytest.mark.parametrize(
    "end",
    ["(", "\ud800", "+1" * 100_000, "-" * 100_000 + "1"],
    ids=["syntax", "half a character", "recursion", "memory"],
)
def test_a_program_that_python_cannot_parse_is_the_answer(end: str):
    code = f"print(input())\n{end}"
    assert code_blocks.program((code, "x = 1"), "") == code


STRICT_TABLE = tomllib.loads((Path(__file__).parent / "strict_cases.toml").read_text())
STRICT_GROUPS = [
    pytest.param(kind, group, id=f"{kind}: {group['reason']}: {group.get('expected', 'never')}"[:80])
    for kind, groups in STRICT_TABLE.items()
    for group in groups
]


def strict_answer(kind: str, final: str) -> str:
    """An AIME answer that is no integer is shown as it stands: never right, whatever the truth."""
    _, answer = ANSWERS[kind](HarmonyText(harmony(final)))
    if kind == "aime" and answer and not answer.removeprefix("-").isdecimal():
        return "expression"
    return answer or ""


def test_the_table_of_strict_cases_is_large():
    groups = [group for groups in STRICT_TABLE.values() for group in groups]
    assert sum(len(group["finals"]) for group in groups) >= 600
    assert all(group["reason"] for group in groups)


@pytest.mark.parametrize(("kind", "group"), STRICT_GROUPS)
def test_strict_reads_what_a_reader_reads(kind: str, group: dict[str, str]):
    found = {final: strict_answer(kind, final) for final in group["finals"]}
    if "never" in group:
        assert {final for final, answer in found.items() if answer == group["never"]} == set()
    else:
        assert found == dict.fromkeys(group["finals"], group["expected"])


@pytest.mark.filterwarnings("error")
def test_python_does_not_warn_of_what_a_model_wrote():
    code = "print(1if input() else 2)"
    found = programs.strict_code(HarmonyText(harmony(f"```code\n{code}\n```")))
    assert found.code == code


@pytest.mark.parametrize("rules", ["official", "strict"])
@pytest.mark.parametrize(
    ("grader", "final", "read"),
    [
        (aime, "We add.\n\nSo \\boxed{42} it is.", "\\boxed{42}"),
        (aime, f"{'x ' * 500}\nAnswer: 42", "Answer: 42"),
        (gpqa, f"{'and so ' * 90}\nAnswer: C", "Answer: C"),
        (gpqa, "Spin counts.\n\nAnswer: C", "Answer: C"),
    ],
)
def test_grades_name_the_text_that_was_read(grader: Grader, rules: str, final: str, read: str):
    grade = getattr(grader, rules)(HarmonyText(harmony(final)), "42")
    assert read in grade.read
    assert len(grade.read) <= 200


def test_a_statement_that_the_token_limit_ended_may_be_cut():
    cut = HarmonyText("<|channel|>final<|message|>Answer: 20", defect=Reason.TRUNCATED)
    assert aime.strict(cut, "20").reason is Reason.TRUNCATED
    assert aime.strict(
        HarmonyText("<|channel|>final<|message|>Answer: 20.", defect=Reason.TRUNCATED), "20"
    ).correct


def test_drafts_count_officially_and_not_strictly():
    output = HarmonyText(harmony("I give up.", analysis=r"maybe \boxed{42}"))
    assert aime.official(output, "42").correct
    assert aime.strict(output, "42").reason is Reason.NO_ANSWER
    output = HarmonyText(harmony("See above.", analysis="```python\nprint(1)\n```"))
    assert programs.gpt_oss.official_code(output).code == "print(1)"
    assert programs.strict_code(output) == programs.Extraction(None, Reason.NO_ANSWER)
    output = HarmonyText(harmony("```\nprint(2)\n```", analysis="```python\nprint(1)\n```"))
    assert programs.gpt_oss.official_code(output).code == "print(2)"


FINAL_CASES = [
    ("<|channel|>final<|message|>x<|return|>", "x", "x"),
    ("<|channel|>final 明<|message|>x<|return|>", "x", "x"),
    ("<|channel|>final537<|message|>x", "x", "x"),
    ("<|channel|>final<|constrain|>json<|message|>x", None, "x"),
    ("<|channel|>final <|constrain|>json<|message|>x<|return|>", None, "x"),
    ("<|channel|>commentary <|constrain|>json<|message|>x", None, None),
    ("<|channel|>final<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>y<|return|>",
     "x<|end|><|start|>assistant<|channel|>final<|message|>y", "y"),
    ("<|channel|>analysis<|message|>x<|return|>", None, None),
    ("plain", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "section", "final"), FINAL_CASES)
def test_final_sections(text: str, section: str | None, final: str | None):
    assert (HarmonyText(text).official_final, HarmonyText(text).strict_final) == (section, final)
    output = HarmonyOutput(np.array(tokenizer.encode_harmony(text), np.int32))
    assert (output.official_final, output.strict_final) == (section, final)


def test_reasons_tell_why_there_is_no_answer():
    assert aime.strict(HarmonyText("x"), "1").reason is Reason.NO_FINAL
    assert gpqa.strict(HarmonyText("x", defect=Reason.TRUNCATED), "A").reason is Reason.TRUNCATED
    for defect, reason in ((None, Reason.NO_ANSWER), (Reason.TRUNCATED, Reason.TRUNCATED)):
        output = HarmonyText(harmony("x"), defect=defect)
        assert aime.official(output, "1").reason is gpqa.official(output, "A").reason is reason
        for rules in (programs.gpt_oss, programs.deepseek_r1):
            assert rules.official_code(output).reason is reason
    assert programs.strict_code(HarmonyText(harmony("x"), defect=Reason.TRUNCATED)).reason is Reason.TRUNCATED
    assert aime.strict(HarmonyText(harmony("Answer: 2")), "1").reason is Reason.WRONG


PIECES = [
    *"}{:(C.=-\n ", "\\boxed{", "Answer", "answer is", "**", "A", "a ", "42", "1,000", "```", "```python",
    "<|channel|>final", "<|message|>", "<|return|>", "<|channel|>", "°", "^\\circ", "\\text{",
    "FINAL", "\\n", "\\'", "['", "']", "\ud800",
]  # fmt: skip


def grade_everything(text: str) -> None:
    for answers in ANSWERS.values():
        answers(HarmonyText(text, defect=Reason.TRUNCATED))


RUNS = [
    *" \n*({[\\9a`_$#=,.:", "\\boxed{", "answer is ", "ANSWER", "FINAL ", "**a", "```python\n",
    "<|channel|>final", "\\boxed{1", "option ", "1,000", "{{", "x is correct ", "-",
]  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize(
    "lead", ["", *(pytest.param(lead, marks=pytest.mark.engine) for lead in ("answer", "\\boxed{"))]
)
@pytest.mark.parametrize("piece", RUNS)
def test_long_runs_take_linear_time(piece: str, lead: str):
    started = time.process_time()
    grade_everything(harmony(lead + piece * (40_000 // len(piece)) + "x"))
    assert time.process_time() - started < 4  # of CPU; it takes 0.2 at most, quadratic time 8
