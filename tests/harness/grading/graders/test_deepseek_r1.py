"""deepseek-r1's graders against upstream's verdicts, which tests/data/deepseek_r1/record.py records."""

import json
import time
import tomllib
from pathlib import Path

import pytest

from harness import files
from harness.config.benchmark import load_benchmark
from harness.errors import ConfigError, DatasetError, GradingError
from harness.grading.decoding.output import ThinkingText
from harness.grading.decoding.output_sources import Place
from harness.grading.evaluation.evaluate import Evaluation, GradedSample, Logged
from harness.grading.evaluation.pass_criteria import check_target
from harness.grading.evaluation.references import Reference
from harness.grading.graders import prm800k
from harness.grading.graders.grader import MATH500, DatasetKind, Grader, TaskOptions
from harness.grading.graders.grader_sets import graders_of
from harness.grading.graders.math500 import boxed
from harness.grading.graders.math_judge import PAIR_MEMORY, AnswerPair, MathJudge
from harness.grading.graders.programs import deepseek_r1 as programs_grader
from harness.grading.livecodebench.release import only_file
from harness.grading.livecodebench.runner import ProgramTask
from harness.grading.sandbox.tiers import Tier, sandbox
from harness.grading.scoring.accuracy_score import Score, lengths
from harness.grading.scoring.grade import WRONG, Grade, GradingMode, Reason
from tests.harness.grading.conftest import quiet
from tests.harness.grading.samples import RELEASE

ROOT = Path(__file__).parents[4]
RECORDED = json.loads((ROOT / "tests/data/deepseek_r1/official.json").read_text("utf-8"))
GRADERS = graders_of("deepseek-r1").by_kind


def grader(kind: str) -> Grader:
    return GRADERS[DatasetKind(kind)]


def judged(tier: Tier, pairs: list[AnswerPair], limit_s: float = 30.0) -> list[Grade]:
    grades = MathJudge(sandbox(tier, PAIR_MEMORY), 1, limit_s).grade(dict.fromkeys(pairs), quiet)
    return [grades[pair] for pair in pairs]


# --- official ---------------------------------------------------------------------------------


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
    assert rows
    for text, truth, code in rows:
        assert programs_grader.official_code(ThinkingText(text)).code == code
        task = ProgramTask(GradingMode.OFFICIAL, truth, code) if code else None
        assert (grader("livecodebench").official(ThinkingText(text), truth) == task) is bool(code)


def test_official_boxes_are_upstreams():
    rows = [row[1:] for row in RECORDED["answers"] if row[0] == "math500"]
    assert rows
    for text, truth, box, right in rows:
        assert boxed(ThinkingText(text).text) == box
        graded = grader("math500").official(ThinkingText(text), truth)
        assert isinstance(graded, AnswerPair) or graded.correct is right


def test_official_equality_is_prm800ks(tier: Tier):
    """Where texts decide they agree with it; a sandbox decides the others, one process for all."""
    assert len(RECORDED["pairs"]) >= 300
    boxes = [(box, truth, right) for kind, _, truth, box, right in RECORDED["answers"] if kind == "math500"]
    rows = [row for row in (*RECORDED["pairs"], *boxes) if row[0]]
    grades = judged(tier, [AnswerPair(GradingMode.OFFICIAL, given, truth) for given, truth, _ in rows])
    for (given, truth, right), grade in zip(rows, grades, strict=True):
        assert grade.correct is right, (given, truth, grade.reason)
        assert right or prm800k.plain(given) != prm800k.plain(truth)


# What a model could write to end, fill, stop or leave the process that compares.
HOSTILE = {
    "power": ("9**9**9**9", {Reason.TIMEOUT, Reason.MEMORY_LIMIT}),
    "factorial": ("(10**9)!", {Reason.TIMEOUT, Reason.MEMORY_LIMIT}),
    "expansion": ("((x+1)**4000)**9", {Reason.TIMEOUT, Reason.MEMORY_LIMIT, Reason.WRONG}),
    "brackets": ("(" * 3000 + "1" + ")" * 3000, {Reason.WRONG, Reason.KILLED, Reason.TIMEOUT}),
    "roots": ("\\sqrt{" * 3000 + "1" + "}" * 3000, {Reason.WRONG, Reason.KILLED, Reason.TIMEOUT}),
    "import": ("__import__('os').system('true')", {Reason.WRONG}),
    "exit": ("exit()", {Reason.WRONG}),
    "attribute by other letters": ("(42.5).__\u217d\u217cass__", {Reason.WRONG}),
    "text that sympy would read": ("42.5),('0'", {Reason.WRONG}),
    "fractions": ("\\frac" * 20_000, {Reason.WRONG, Reason.TIMEOUT}),
    "spaces": ("1 " * 50_000, {Reason.WRONG, Reason.MEMORY_LIMIT, Reason.TIMEOUT}),
}


@pytest.mark.engine
@pytest.mark.parametrize("mode", GradingMode)
def test_hostile_answers_are_wrong_and_cost_only_themselves(mode: GradingMode, tier: Tier):
    pairs = [AnswerPair(mode, text, "42.5") for text, _ in HOSTILE.values()]
    innocent = AnswerPair(mode, "85/2", "42.5"), AnswerPair(mode, "43/2", "42.5")
    *grades, right, wrong = judged(tier, [*pairs, *innocent], limit_s=2.0)
    reasons = {name: grade.reason for name, grade in zip(HOSTILE, grades, strict=True)}
    refused = {Reason.WRONG} if mode is GradingMode.STRICT else set()  # its reader takes no such thing
    assert [item for item in reasons.items() if item[1] not in HOSTILE[item[0]][1] | refused] == []
    assert not any(grade.correct for grade in grades)
    assert (right.reason, wrong.reason) == (Reason.CORRECT, Reason.WRONG)


RUNS = [*" \n(a{}1", "answer ", "answer:", "ANSWER FINAL ", "A "]
RUNS += ["\\boxed{", "\\boxed{1", "```python", "```", "\\n"]


@pytest.mark.engine
@pytest.mark.parametrize("piece", RUNS)
def test_long_runs_take_linear_time(piece: str):
    text = "answer" + piece * (40_000 // len(piece))
    started = time.process_time()
    for kind in GRADERS:
        grader(kind).official(ThinkingText(text), "1")
        grader(kind).strict(ThinkingText("</think>" + text), "1")
    assert time.process_time() - started < 5  # of CPU; it takes 0.25 at most, quadratic time 8


# --- strict -----------------------------------------------------------------------------------

MATH = tomllib.loads((Path(__file__).parent / "strict_math.toml").read_text("utf-8"))["group"]
FINALS = tomllib.loads((Path(__file__).parent / "strict_finals.toml").read_text("utf-8"))


@pytest.mark.parametrize(
    ("kind", "final", "answer"), [(kind, *case) for kind, cases in FINALS.items() for case in cases]
)
def test_strict_reads_what_follows_the_thinking(kind: str, final: str, answer: str):
    output = ThinkingText(f"<think>Answer: B. \\boxed{{B}}</think>\n\n{final}")
    grade = grader(kind).strict(output, "A")
    assert (grade.given if isinstance(grade, AnswerPair) else grade.answer or "") == answer
    assert (getattr(grade, "reason", None) is Reason.NO_ANSWER) is not bool(answer)


@pytest.mark.parametrize("kind", list(GRADERS))
def test_thinking_that_does_not_end_has_no_strict_answer(kind: str):
    text = "<think>Answer: 1 \\boxed{1} \\boxed{A} ```python\nprint(1)\n```"
    outputs = (ThinkingText(text, defect=defect) for defect in (None, Reason.TRUNCATED))
    grades = [grader(kind).strict(output, "1") for output in outputs]
    assert [getattr(grade, "reason", None) for grade in grades] == [Reason.NO_FINAL, Reason.TRUNCATED]


def test_strict_programs_follow_the_thinking():
    text = "<think>```python\ndraft()\n```</think>\n```python\nfirst()\n```\n```python\nlast()\n```"
    program = grader("livecodebench").strict(ThinkingText(text), "q")
    assert program == ProgramTask(GradingMode.STRICT, "q", "last()", ("first()",))
    assert programs_grader.official_code(ThinkingText(text)).code == "draft()"


def test_only_an_answer_other_than_the_true_text_is_compared():
    output = ThinkingText("<think>x</think>\\boxed{\\frac{1}{2}}")
    same, other = (grader("math500").strict(output, truth) for truth in ("\\frac{1}{2} ", "0.5"))
    assert isinstance(same, Grade) and same.correct
    assert isinstance(other, AnswerPair) and (other.given, other.truth) == ("\\frac{1}{2}", "0.5")


def test_strict_equality(tier: Tier):
    cases = [
        (AnswerPair(GradingMode.STRICT, given, group["truth"]), key == "right")
        for group in MATH
        for key in ("right", "wrong")
        for given in group[key]
    ]
    assert len(cases) > 400
    cases.append((AnswerPair(GradingMode.STRICT, "0+" * 2500 + "1", "1"), False))  # too long to be read
    assert all(group["reason"] for group in MATH)
    for (pair, is_same), grade in zip(cases, judged(tier, [pair for pair, _ in cases]), strict=True):
        assert grade.correct is is_same, pair


@pytest.mark.parametrize("reason", [Reason.TIMEOUT, Reason.MEMORY_LIMIT, Reason.WRONG])
def test_comparisons_that_a_limit_ended_are_named(reason: Reason):
    grades = {GradingMode.OFFICIAL: Grade(WRONG, False, "9**9**9", reason)}
    reference = Reference("math500", MATH500, "1", None)
    sample = GradedSample(7, reference, Logged(0, 4, None, True, Place(0, 0)), grades)
    scores = {GradingMode.OFFICIAL: Score(1, {}, {})}
    evaluation = Evaluation((sample,), (), None, lengths([4], 0), scores)
    warnings = check_target(evaluation, load_benchmark("deepseek-r1"), None).warnings
    assert sum("MATH-500" in warning for warning in warnings) == (reason is not Reason.WRONG)
    assert not any("programs" in warning for warning in warnings)


# --- references -------------------------------------------------------------------------------


def test_kinds_are_looked_for_in_upstreams_order():
    assert list(GRADERS) == ["gpqa", "mmlu_pro", "math500", "aime", "livecodebench"]


@pytest.mark.parametrize(
    ("kind", "value", "truth"),
    [("gpqa", "c", "C"), ("gpqa", "A", "A"), ("aime", 42.5, None),
     ("mmlu_pro", " J", "J"), ("math500", "x^2", "x^2"), ("math500", 3, "3"),
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
    with pytest.raises(DatasetError, match=r" test\.jsonl"):
        only_file(tmp_path, "test.jsonl")
    (tmp_path / "test.jsonl").touch()
    assert only_file(tmp_path, "test.jsonl") == tmp_path / "test.jsonl"
    assert only_file(tmp_path, None) == tmp_path
    assert only_file(tmp_path / "test2.jsonl", "test.jsonl") == tmp_path / "test2.jsonl"


def no_home():
    raise ConfigError("user 12345 has no home folder")


def test_programs_have_the_benchmarks_time_and_are_never_skipped(
    tmp_path: Path, tier: Tier, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "cache_home", no_home)  # the tests are prepared beside the release
    (tmp_path / "test.jsonl").write_bytes(RELEASE.read_bytes())
    rule = load_benchmark("deepseek-r1").dataset(accuracy=True)
    options = TaskOptions(
        references=tmp_path / "none" / "reference.pkl",
        benchmark="deepseek-r1",
        dataset=rule,
        journal=tmp_path / "log.programs.jsonl",
        lcb_data=tmp_path,
        workers=1,
        restart=False,
        allow_unsandboxed=False,
    )
    programs = programs_grader.prepare(["sample-lamp-row"], options)
    assert programs.sandbox.tier is tier
    assert programs.execution.limit_s == rule.program_s == 60
    with pytest.raises(GradingError, match="another"):
        programs_grader.prepare(["sample-lamp-row", "another"], options)


def test_tests_that_are_not_here_are_those_of_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """gpt-oss-120b's are 4.5 GB in six files."""
    monkeypatch.setattr("harness.grading.graders.programs.find_release", lambda _: None)
    options = TaskOptions(
        references=tmp_path / "reference.pkl",
        benchmark="deepseek-r1",
        dataset=load_benchmark("deepseek-r1").dataset(accuracy=True),
        journal=tmp_path / "log.programs.jsonl",
        lcb_data=None,
        workers=1,
        restart=False,
        allow_unsandboxed=False,
    )
    with pytest.raises(GradingError, match="--benchmark deepseek-r1 --what livecodebench"):
        programs_grader.prepare(["sample-lamp-row"], options)
