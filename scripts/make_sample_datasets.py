#!/usr/bin/env python3
"""Rebuild the sample files under datasets/samples/ from their plain-text sources, byte for byte.

usage: python scripts/make_sample_datasets.py [--to DIR]      (default: datasets/samples)
"""

import argparse
import base64
import json
import pickle
import sys
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.dataset import tokenizer  # noqa: E402
from harness.errors import HarnessError  # noqa: E402

SAMPLES = ROOT / "datasets" / "samples"
SOURCE = SAMPLES / "source"
REPEATS = {"aime25": 8, "gpqa_diamond": 5, "livecodebench_v6": 3}  # as in configs/gpt-oss-120b.toml

# gpt-oss's system message without tools. The date is fixed: it is part of the bytes.
SYSTEM = """\
You are ChatGPT, a large language model trained by OpenAI.
Knowledge cutoff: 2024-06
Current date: 2026-01-01

Reasoning: {effort}

# Valid channels: analysis, commentary, final. Channel must be included for every message."""
HARMONY = "<|start|>system<|message|>{system}<|end|><|start|>user<|message|>{user}<|end|><|start|>assistant"

AIME_TASK = "{text}\n\nReason step by step. Put the final answer, an integer from 0 to 999, into \\boxed{{}}."
GPQA_TASK = """\
{text}

{choices}

Think it over, then end with a line of the form
Answer: X
where X is A, B, C or D."""
CALL_TASK = "{text}\n\nComplete this class and give it as one Python code block.\n\n```python\n{starter}\n```"
STDIN_TASK = """\
{text}

Give the solution as one Python code block: a program that reads standard input and writes standard output."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of a sample file before it is tokenised."""

    dataset: str
    user: str
    effort: str
    ground_truth: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write every sample file; exit code 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(description="Rebuild the sample files under datasets/samples/.")
    parser.add_argument(
        "--to", type=Path, default=SAMPLES, metavar="DIR", help="where to write (default: %(default)s)"
    )
    target: Path = parser.parse_args(arguments).to
    try:
        target.mkdir(parents=True, exist_ok=True)
        build(target)
    except (HarnessError, OSError) as error:
        print(f"make_sample_datasets: {error}", file=sys.stderr)
        return 2
    return 0


def build(target: Path) -> None:
    """Write the four sample files into an existing folder."""
    problems = _source("code")["problem"]
    write_table(target / "perf_sample.parquet", performance_prompts(_source("perf")))
    write_table(target / "acc_sample.parquet", [*aime_prompts(), *gpqa_prompts(), *code_prompts(problems)])
    write_table(target / "compliance_sample.parquet", gpqa_prompts())
    lines = (json.dumps(release_row(problem)) + "\n" for problem in problems)
    (target / "code_sample.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")


def performance_prompts(source: Mapping[str, Any]) -> Iterator[Prompt]:
    """Questions, passages with two tasks each, and every other pair of neighbouring passages: 64 prompts."""
    passages = [passage["text"].strip() for passage in source["passage"]]
    tasks: list[str] = source["tasks"]
    texts = list(source["questions"])
    for number, passage in enumerate(passages):
        texts += [f"{tasks[(number + turn) % len(tasks)]}\n\n{passage}" for turn in (0, 2)]
    couples = list(pairwise(passages))[: 64 - len(texts)]
    texts += [f"{source['comparison']}\n\nFirst text: {one}\n\nSecond text: {two}" for one, two in couples]
    # Neighbouring rows should differ in length as real requests do; 27 has no factor in common with 64.
    for number in range(len(texts)):
        yield Prompt("harness_sample", texts[number * 27 % len(texts)], "low", None)


def aime_prompts() -> Iterator[Prompt]:
    """AIME-like problems, answered by an integer."""
    for problem in _source("aime")["problem"]:
        user = AIME_TASK.format(text=problem["text"].strip())
        yield from _repeated(Prompt("aime25", user, "high", str(problem["answer"])))


def gpqa_prompts() -> Iterator[Prompt]:
    """GPQA-like questions, answered by a letter."""
    for question in _source("gpqa")["question"]:
        choices = "\n".join(
            f"({letter}) {text}" for letter, text in zip("ABCD", question["choices"], strict=True)
        )
        user = GPQA_TASK.format(text=question["text"].strip(), choices=choices)
        yield from _repeated(Prompt("gpqa_diamond", user, "high", question["answer"]))


def code_prompts(problems: Iterable[Mapping[str, Any]]) -> Iterator[Prompt]:
    """Code problems; the ground truth is the question id, by which their tests are found."""
    for problem in problems:
        text, starter = problem["text"].strip(), _starter_code(problem)
        user = (
            CALL_TASK.format(text=text, starter=starter.rstrip()) if starter else STDIN_TASK.format(text=text)
        )
        yield from _repeated(Prompt("livecodebench_v6", user, "high", problem["id"]))


def release_row(problem: Mapping[str, Any]) -> dict[str, str]:
    """A code problem as LiveCodeBench's release files have it; the tests are JSON inside of strings."""
    kind = "functional" if "func_name" in problem else "stdin"
    public, private = (
        json.dumps([{**test, "testtype": kind} for test in problem[part]]) for part in ("public", "private")
    )
    # Stored, not deflated: what deflate gives depends on the zlib that Python was built with.
    packed = zlib.compress(pickle.dumps(private, protocol=4), level=0)
    return {
        "question_title": problem["title"],
        "question_content": problem["text"].strip(),
        "platform": "harness-sample",
        "question_id": problem["id"],
        "contest_id": "harness-sample",
        "contest_date": "2026-01-01T00:00:00",
        "starter_code": _starter_code(problem),
        "difficulty": problem["difficulty"],
        "public_test_cases": public,
        "private_test_cases": base64.b64encode(packed).decode("ascii"),
        "metadata": json.dumps({"func_name": problem["func_name"]} if "func_name" in problem else {}),
    }


def write_table(path: Path, prompts: Iterable[Prompt]) -> None:
    """Tokenise the prompts and write them in the columns of the official reference files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema(
        [
            ("input_tokens", pa.list_(pa.int64())),
            ("num_tokens", pa.int64()),
            ("text_input", pa.string()),
            ("original_messages", pa.list_(message)),
            ("ground_truth", pa.string()),
            ("dataset", pa.string()),
        ]
    )
    rows = [_row(prompt) for prompt in prompts]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def _row(prompt: Prompt) -> dict[str, Any]:
    text = HARMONY.format(system=SYSTEM.format(effort=prompt.effort), user=prompt.user)
    ids = tokenizer.encode_harmony(text)
    return {
        "input_tokens": ids,
        "num_tokens": len(ids),
        "text_input": text,
        "original_messages": [{"role": "user", "content": prompt.user}],
        "ground_truth": prompt.ground_truth,
        "dataset": prompt.dataset,
    }


def _repeated(prompt: Prompt) -> list[Prompt]:
    return [prompt] * REPEATS[prompt.dataset]


def _starter_code(problem: Mapping[str, Any]) -> str:
    return str(problem.get("starter_code", ""))


def _source(name: str) -> dict[str, Any]:
    with (SOURCE / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)


if __name__ == "__main__":
    sys.exit(main())
