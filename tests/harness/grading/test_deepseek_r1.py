"""deepseek-r1's graders against upstream's verdicts, which tests/data/deepseek_r1/record.py records."""

import json
import time
from pathlib import Path

import pytest

from harness.errors import DatasetError
from harness.grading.grade import Grade, Mode, Reason
from harness.grading.graders import DatasetKind, Grader, graders_of
from harness.grading.graders.deepseek_r1 import livecodebench, prm800k
from harness.grading.graders.deepseek_r1.judge import PAIR_MEMORY, Judge, Pair
from harness.grading.graders.deepseek_r1.math500 import boxed
from harness.grading.livecodebench.release import only_file
from harness.grading.livecodebench.runner import ProgramTask
from harness.grading.output import ThinkingText
from harness.grading.sandbox.tiers import Tier, sandbox
from tests.harness.grading.conftest import quiet

ROOT = Path(__file__).parents[3]
RECORDED = json.loads((ROOT / "tests/data/deepseek_r1/official.json").read_text("utf-8"))
GRADERS = graders_of("deepseek-r1")


def grader(kind: str) -> Grader:
    return GRADERS[DatasetKind(kind)]


def judged(tier: Tier, pairs: list[Pair], cpu_s: float = 30.0) -> list[Grade]:
    grades = Judge(sandbox(tier, PAIR_MEMORY), 1, cpu_s).grade(dict.fromkeys(pairs), quiet)
    return [grades[pair] for pair in pairs]


# --- official ---------------------------------------------------------------------------------


def test_enough_is_recorded():
    assert len(RECORDED["answers"]) >= 100
    assert len(RECORDED["pairs"]) >= 300


@pytest.mark.parametrize("kind", ["gpqa", "mmlu_pro", "aime"])
def test_official_answers_are_upstreams(kind: str):
    rows = [row[1:] for row in RECORDED["answers"] if row[0] == kind]
    assert len(rows) > 50
    graded = grader(kind)
    found = []
    for text, truth, _, _ in rows:
        grade = graded.official(ThinkingText(text), graded.check_reference(truth))
        assert isinstance(grade, Grade)
        found.append([text, truth, grade.answer, bool(grade.correct)])
    assert found == rows


def test_official_programs_are_upstreams():
    rows = [row[1:4] for row in RECORDED["answers"] if row[0] == "livecodebench"]
    assert [
        [text, truth, livecodebench.official_code(ThinkingText(text)).code] for text, truth, _ in rows
    ] == rows
    for text, truth, code in rows:
        task = ProgramTask(Mode.OFFICIAL, truth, code) if code else None
        assert (grader("livecodebench").official(ThinkingText(text), truth) == task) is bool(code)


def test_official_boxes_are_upstreams():
    rows = [row[1:] for row in RECORDED["answers"] if row[0] == "math500"]
    assert [[text, truth, boxed(ThinkingText(text).text), right] for text, truth, _, right in rows] == rows
    for text, truth, _, right in rows:
        graded = grader("math500").official(ThinkingText(text), truth)
        assert isinstance(graded, Pair) or graded.correct is right


def test_official_equality_is_prm800ks(tier: Tier):
    """Where texts decide they agree with it; a sandbox decides the others, one process for all."""
    rows = RECORDED["pairs"] + [
        row[3:4] + row[2:3] + row[4:5] for row in RECORDED["answers"] if row[0] == "math500"
    ]
    pairs = [(Pair(Mode.OFFICIAL, given, truth), right) for given, truth, right in rows if given]
    assert not [
        pair for pair, right in pairs if prm800k.plain(pair.given) == prm800k.plain(pair.truth) and not right
    ]
    grades = judged(tier, [pair for pair, _ in pairs])
    differing = [
        (pair, grade.reason)
        for (pair, right), grade in zip(pairs, grades, strict=True)
        if grade.correct is not right
    ]
    assert differing == []


# What a model could write to end, fill, stop or leave the process that compares.
HOSTILE = {
    "power": ("9**9**9**9", {Reason.TIMEOUT, Reason.MEMORY_LIMIT}),
    "factorial": ("(10**9)!", {Reason.TIMEOUT, Reason.MEMORY_LIMIT}),
    "expansion": ("((x+1)**4000)**9", {Reason.TIMEOUT, Reason.MEMORY_LIMIT, Reason.WRONG}),
    "brackets": ("(" * 3000 + "1" + ")" * 3000, {Reason.WRONG, Reason.KILLED, Reason.TIMEOUT}),
    "roots": ("\\sqrt{" * 3000 + "1" + "}" * 3000, {Reason.WRONG, Reason.KILLED}),
    "import": ("__import__('os').system('true')", {Reason.WRONG}),
    "exit": ("exit()", {Reason.WRONG}),
    "fractions": ("\\frac" * 20_000, {Reason.WRONG}),
    "spaces": ("1 " * 50_000, {Reason.WRONG, Reason.MEMORY_LIMIT}),
}


@pytest.mark.engine
def test_hostile_answers_are_wrong_and_cost_only_themselves(tier: Tier):
    pairs = [Pair(Mode.OFFICIAL, text, "42.5") for text, _ in HOSTILE.values()]
    innocent = Pair(Mode.OFFICIAL, "85/2", "42.5"), Pair(Mode.OFFICIAL, "43/2", "42.5")
    *grades, right, wrong = judged(tier, [*pairs, *innocent], cpu_s=2.0)
    assert [
        name for name, grade in zip(HOSTILE, grades, strict=True) if grade.reason not in HOSTILE[name][1]
    ] == []
    assert not any(grade.correct for grade in grades)
    assert (right.reason, wrong.reason) == (Reason.CORRECT, Reason.WRONG)


RUNS = [
    "answer ",
    "answer:",
    "ANSWER FINAL ",
    " ",
    "\n",
    "(",
    "A ",
    "a",
    "\\boxed{",
    "{",
    "}",
    "```python",
    "```",
    "\\n",
    "1",
    "\\boxed{1",
]


@pytest.mark.parametrize("piece", RUNS)
def test_a_megabyte_takes_linear_time(piece: str):
    text = "answer" + piece * (1_000_000 // len(piece))
    started = time.process_time()
    for kind in GRADERS:
        grader(kind).official(ThinkingText(text), "1")
    assert time.process_time() - started < 60  # of CPU; it takes under 2, and quadratic time would be hours


# --- references -------------------------------------------------------------------------------

NAMES = {
    "gpqa": "gpqa", "GPQA_diamond": "gpqa", "mmlu_pro": "mmlu_pro", "math500": "math500", "aime1983": "aime",
    "livecodebench_v1": "livecodebench", "aime_gpqa": "gpqa", "MMLU-Pro": None, "math-500": None, "": None,
}  # fmt: skip


def test_kinds_are_looked_for_in_upstreams_order():
    assert list(GRADERS) == ["gpqa", "mmlu_pro", "math500", "aime", "livecodebench"]
    found = {name: next((kind for kind in GRADERS if kind in name.lower()), None) for name in NAMES}
    assert found == NAMES


@pytest.mark.parametrize(
    ("kind", "value", "truth"),
    [("gpqa", "c", "C"), ("mmlu_pro", " J", "J"), ("math500", "x^2", "x^2"), ("math500", 3, "3"),
     ("aime", 204.0, "204"), ("gpqa", "E", None), ("mmlu_pro", "K", None), ("mmlu_pro", "AB", None),
     ("math500", "", None), ("math500", None, None), ("math500", float("nan"), None), ("aime", "x", None),
     ("aime", "42.0", None), ("livecodebench", "", None)],
)  # fmt: skip
def test_references(kind: str, value: object, truth: str | None):
    if truth is None:
        with pytest.raises(ValueError):
            grader(kind).check_reference(value)
    else:
        assert grader(kind).check_reference(value) == truth


def test_programs_are_tested_with_the_first_release_alone(tmp_path: Path):
    (tmp_path / "test2.jsonl").touch()
    with pytest.raises(DatasetError, match=r"test\.jsonl"):
        only_file(tmp_path, "test.jsonl")
    (tmp_path / "test.jsonl").touch()
    assert only_file(tmp_path, "test.jsonl") == tmp_path / "test.jsonl"
    assert only_file(tmp_path, None) == tmp_path
    assert only_file(tmp_path / "test2.jsonl", "test.jsonl") == tmp_path / "test2.jsonl"
