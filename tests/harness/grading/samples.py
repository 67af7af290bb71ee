"""The sample dataset of this repository, and what a model that is always right would answer."""

import tomllib
from functools import cache
from pathlib import Path

from harness.config.benchmark import load_benchmark
from harness.grading.evaluation.references import Reference, load_references
from harness.grading.graders.grader import AIME, GPQA

FOLDER = Path(__file__).resolve().parents[3] / "datasets" / "samples"
REFERENCE = FOLDER / "acc_sample.parquet"
RELEASE = FOLDER / "code_sample.jsonl"


@cache
def references() -> tuple[Reference, ...]:
    return load_references(REFERENCE, load_benchmark("gpt-oss-120b"))


@cache
def solutions() -> dict[str, str]:
    problems = tomllib.loads((FOLDER / "source" / "code.toml").read_text())["problem"]
    return {problem["id"]: problem["solution"] for problem in problems}


def right_answer(row: Reference) -> str:
    if row.kind == AIME:
        return rf"So the answer is $\boxed{{{row.truth}}}$."
    if row.kind == GPQA:
        return f"**Answer:** {row.truth}"
    return f"Here it is:\n\n```python\n{solutions()[row.truth]}\n```"
