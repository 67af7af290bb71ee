"""The sample datasets: prompts and ids are as tokenizers write them, and every answer is the true one."""

import base64
import json
import math
import pickle
import re
import subprocess
import sys
import tomllib
import zlib
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

import pyarrow.parquet as pq
import pytest

from harness.dataset import tokenizer
from harness.dataset.model_tokenizer import load_tokenizer
from harness.dataset.samples import load_samples, prompt_efforts
from tests.runs import ROOT, SAMPLES

SCRIPT = str(ROOT / "scripts" / "make_sample_datasets.py")
REASONING = {"low": [30377, 289, 25, 4465], "high": [30377, 289, 25, 1932]}


@cache
def source(name):
    return tomllib.loads((SAMPLES / "source" / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def rows(name):
    return pq.read_table(SAMPLES / f"{name}_sample.parquet").to_pylist()


@pytest.mark.engine
def test_rebuild_gives_the_same_bytes(tmp_path):
    subprocess.run([sys.executable, SCRIPT, "--to", str(tmp_path / "new")], check=True, cwd=tmp_path)
    built = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    kept = [path for path in SAMPLES.iterdir() if path.is_file()]
    index = ".sqlite"  # the grader's
    assert built == {path.name: path.read_bytes() for path in kept if path.suffix != index}
    assert len(built) == 8


def test_rebuild_into_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, SCRIPT, "--to", str(tmp_path / "file" / "x")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1


EXPECTED = [
    ("perf", {"harness_sample": 64}, "low"),
    ("acc", {"aime25": 48, "gpqa_diamond": 30, "livecodebench_v6": 18}, "high"),
    ("compliance", {"gpqa_diamond": 30}, "high"),
]


@pytest.mark.parametrize(("name", "datasets", "effort"), EXPECTED)
def test_rows(name, datasets, effort):
    samples = load_samples(SAMPLES / f"{name}_sample.parquet", vocabulary_size=tokenizer.VOCABULARY_SIZE)
    assert Counter(row["dataset"] for row in rows(name)) == datasets
    assert len(samples) == len(rows(name))
    assert set(prompt_efforts(samples, REASONING)) == {effort}
    assert [row["num_tokens"] for row in rows(name)] == samples.lengths.tolist()


@pytest.mark.parametrize("name", ["perf", "acc", "compliance"])
def test_tokens_are_the_text_and_the_text_is_the_conversation(name):
    for row in rows(name):
        assert tokenizer.decode(row["input_tokens"]) == row["text_input"]
        (message,) = row["original_messages"]
        assert message["role"] == "user"
        user = f"<|end|><|start|>user<|message|>{message['content']}<|end|><|start|>assistant"
        assert row["text_input"].startswith("<|start|>system<|message|>You are ChatGPT,")
        assert row["text_input"].endswith(user) and row["text_input"].count("<|") == 7


def test_rendering_is_openai_harmony_s():
    """The ids that openai-harmony 0.0.8 renders for the first question of the performance sample."""
    (row,) = (row for row in rows("perf") if "<|message|>Why does ice float" in row["text_input"])
    assert row["input_tokens"] == json.loads((ROOT / "tests/data/harmony_ids.json").read_text())


def test_performance_prompts_are_distinct_and_short():
    lengths = [row["num_tokens"] for row in rows("perf")]
    assert len({row["text_input"] for row in rows("perf")}) == 64
    assert 150 <= sum(lengths) / 64 <= 250 and max(lengths) < 400


def triangle_points():
    a, b, c = (0, 0), (12, 3), (5, 11)

    def side(p, q, r):
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    grid = product(range(13), range(12))
    return sum(side(a, b, p) > 0 and side(b, c, p) > 0 and side(c, a, p) > 0 for p in grid)


def walks():
    steps = (path for path in product((0, 1), repeat=12) if sum(path) == 6)
    return sum(all(sum(path[:n]) <= n - sum(path[:n]) for n in range(13)) for path in steps)


AIME_ANSWERS = {
    "grid-walks": walks,
    "coin-sums": lambda: sum(
        (100 - 25 * q - 10 * d) // 5 + 1 for q in range(5) for d in range((100 - 25 * q) // 10 + 1)
    ),
    "square-ending": lambda: sum(n for n in range(100, 1000) if n % 8 == 0 and (n * n - n) % 1000 == 0),
    "lattice-triangle": triangle_points,
    "double-a-words": lambda: sum(
        all(pair not in (("b", "b"), ("c", "c")) for pair in pairwise(word))
        for word in product("abc", repeat=6)
    ),
    "self-powers": lambda: sum(n**n for n in range(1, 21)) % 1000,
}


@pytest.mark.parametrize("problem", source("aime")["problem"], ids=lambda problem: problem["id"])
def test_aime_answer(problem):
    assert AIME_ANSWERS[problem["id"]]() == problem["answer"]
    found = [row["ground_truth"] for row in rows("acc") if problem["text"].strip() in row["text_input"]]
    assert found == [str(problem["answer"])] * 8


# CODATA values.
PLANCK, LIGHT, ELECTRON = 6.62607015e-34, 299792458.0, 9.1093837e-31
WELL_ENERGY = PLANCK**2 / (8 * ELECTRON * 1e-9**2)
GPQA_ANSWERS = {
    "well-photon": PLANCK * LIGHT / (WELL_ENERGY * (3**2 - 2**2)) * 1e9,
    "half-titrated-buffer": 4.76 + math.log10(75 / (100 - 75)),
    "carrier-among-healthy": 2 * 0.02 * 0.98 / (1 - 0.02**2),
    "muon-range": 0.99 * LIGHT * 2.2e-6 / math.sqrt(1 - 0.99**2),
    "first-order-half-life": 50 * math.log(2) / math.log(10),
    "hot-large-star": 3**2 * 2**4,
}


@pytest.mark.parametrize("question", source("gpqa")["question"], ids=lambda question: question["id"])
def test_gpqa_answer(question):
    true = GPQA_ANSWERS[question["id"]]
    values = [float(re.match(r"[\d.]+", choice)[0]) for choice in question["choices"]]
    right = "ABCD".index(question["answer"])
    assert values[right] == pytest.approx(true, rel=0.01)
    assert all(abs(value / true - 1) > 0.05 for number, value in enumerate(values) if number != right)
    for name in ("acc", "compliance"):
        found = [row["ground_truth"] for row in rows(name) if question["text"].strip() in row["text_input"]]
        assert found == [question["answer"]] * 5


MATH_ANSWERS = {
    "three-dice": lambda: r"\frac{{{0.numerator}}}{{{0.denominator}}}".format(
        Fraction(sum(sum(dice) >= 16 for dice in product(range(1, 7), repeat=3)), 6**3)
    ),
    "slanted-line": lambda: next(
        f"({x}, {x - 7})" for x in range(-20, 20) if (x - 7 - 3) * (3 - 1) == (-1 - 3) * (x - 1)
    ),
    "bowl": lambda: interval([x / 4 for x in range(-80, 81) if x != 20 and (x / 4 + 2) / (5 - x / 4) >= 0]),
    "box-diagonal": lambda: surd(4**2 + 5**2 + 7**2),
    "ring": lambda: rf"{5**2 - 2**2}\pi",
    "rising-prices": lambda: rf"{120 * 110 // 100 - 100}\%",
    "clock-hands": lambda: rf"{abs((9 * 60 + 30) // 2 - 30 * 6)}^\circ",
    "rounds-of-letters": lambda: str(math.factorial(8) // 8),
}


def surd(square):
    outer = max(n for n in range(1, square) if square % n**2 == 0)
    return rf"{outer}\sqrt{{{square // outer**2}}}"


def interval(found):
    """Of quarters: the upper end is the first that is not found."""
    assert found == [found[0] + n / 4 for n in range(len(found))]
    return f"[{found[0]:g}, {found[-1] + 0.25:g})"


@pytest.mark.parametrize("problem", source("math")["problem"], ids=lambda problem: problem["id"])
def test_math_answer(problem):
    assert MATH_ANSWERS[problem["id"]]() == problem["answer"]


MMLU_ANSWERS = {
    "perpetuity": 60 / 0.04,
    "elastic-demand": -6 * 10 / (100 - 6 * 10),
    "two-resistors": 1 / (1 / 12 + 1 / 24),
    "subnet": 2 ** (32 - 26) - 2,
    "truth-table": sum(not (p or q) or (q and r) for p, q, r in product((False, True), repeat=3)),
    "two-tests": 0.01 * 0.9 / (0.01 * 0.9 + 0.99 * 0.05),
}


@pytest.mark.parametrize("question", source("mmlu_pro")["question"], ids=lambda question: question["id"])
def test_mmlu_answer(question):
    values = [float(re.match(r"-?[\d.]+", choice)[0]) for choice in question["choices"]]
    right = "ABCDEFGHIJ".index(question["answer"])
    assert len(set(values)) == 10
    assert values[right] == pytest.approx(MMLU_ANSWERS[question["id"]], rel=0.001)


R1_TEMPLATE = (0, 128803, 128804)
R1_DATASETS = {"aime1983": 6, "math500": 8, "gpqa": 6, "mmlu_pro": 6, "livecodebench": 6}


def test_reasoning_rows():
    """Every question once, in DeepSeek's template and in ids of its tokenizer."""
    file = SAMPLES / "r1_sample.parquet"
    samples, found = load_samples(file, vocabulary_size=129280), rows("r1")
    assert Counter(row["dataset"] for row in found) == R1_DATASETS
    deepseek = load_tokenizer(SAMPLES / "r1_sample_tokenizer.json")
    for row, length in zip(found, samples.lengths, strict=True):
        begin, user, *ids, assistant = row["tok_input"]
        assert (begin, user, assistant) == R1_TEMPLATE
        assert deepseek.decode(ids) == row["text_input"] == row["question"]
        assert row["tok_input_len"] == length == len(ids) + 3
    kept = {(name, "answer") for name in ("aime", "math", "gpqa", "mmlu_pro")} | {("code", "id")}
    truths = [
        str(one[field])
        for name, field in kept
        for one in source(name)["problem" if name in ("aime", "math", "code") else "question"]
    ]
    assert Counter(row["ground_truth"] for row in found) == Counter(truths)


def run_function(problem, test):
    space = {}
    exec("from typing import List\n" + problem["solution"], space)
    arguments = [json.loads(line) for line in test["input"].split("\n")]
    return json.dumps(getattr(space["Solution"](), problem["func_name"])(*arguments))


def run_program(problem, test):
    command = [sys.executable, "-I", "-c", problem["solution"]]
    done = subprocess.run(command, input=test["input"], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("problem", source("code")["problem"], ids=lambda problem: problem["id"])
def test_reference_solution_passes_every_test(problem):
    run = run_function if "func_name" in problem else run_program
    for test in problem["public"] + problem["private"]:
        assert run(problem, test) == test["output"], test


def test_release_rows():
    """The fields of LiveCodeBench's release files; its own loader takes the tests apart in this order."""
    problems = {problem["id"]: problem for problem in source("code")["problem"]}
    lines = (SAMPLES / "code_sample.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(problems)
    for row in map(json.loads, lines):
        problem = problems[row["question_id"]]
        kind = "functional" if "func_name" in problem else "stdin"
        private = json.loads(pickle.loads(zlib.decompress(base64.b64decode(row["private_test_cases"]))))
        for found, stated in ((json.loads(row["public_test_cases"]), "public"), (private, "private")):
            assert found == [{**test, "testtype": kind} for test in problem[stated]]
        assert json.loads(row["metadata"]).get("func_name") == problem.get("func_name")
        assert row["difficulty"] in ("easy", "medium", "hard")
        assert {type(value) for value in row.values()} == {str}


def test_code_rows_name_their_problem():
    ids = [row["ground_truth"] for row in rows("acc") if row["dataset"] == "livecodebench_v6"]
    assert ids == [problem["id"] for problem in source("code")["problem"] for _ in range(3)]
