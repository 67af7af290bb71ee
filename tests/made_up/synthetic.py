"""A synthetic benchmark of full size: datasets of the official sizes, and a server that knows the answers.

Tests have no official datasets, and a stub cannot solve problems. So the rows are made up, and the server
answers from their ground truth, rightly for a fixed share of the rows: the score is near a real one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.config.benchmark import load_benchmark
from tests.harness.grading.logs import harmony_ids
from tests.stub.exchange import Exchange
from tests.stub.protocol import Step, expected_ids
from tests.stub.server import StubServer

BENCHMARK = load_benchmark("gpt-oss-120b")
END_OF_SYSTEM = 200007
SIZES = {"aime25": 30, "gpqa_diamond": 198, "livecodebench_v6": 1055}
REPEATS = BENCHMARK.datasets["accuracy"].repeats
PROGRAM = "print(2 * int(input()))"


@dataclass(frozen=True)
class Row:
    """One sample: a short prompt of its own that names the effort, and its truth."""

    prompt: tuple[int, ...]
    dataset: str
    truth: str
    problem: str


@dataclass(frozen=True)
class Datasets:
    """Files of the official sizes."""

    performance: Path
    accuracy: Path
    compliance: Path
    release: Path
    rows: tuple[Row, ...]


def make_datasets(folder: Path, sizes: Mapping[str, int] = SIZES) -> Datasets:
    """Write all of them; takes about a second. ``sizes``: problems of each accuracy dataset."""
    rows = tuple(accuracy_rows(sizes))
    quick = [_prompt("low", number) for number in range(BENCHMARK.datasets["performance"].samples)]
    performance = folder / "perf.parquet"
    pq.write_table(pa.table({"input_tokens": quick}), performance)
    gpqa = [row for row in rows if row.dataset == "gpqa_diamond"]
    release = folder / "release.jsonl"
    numbers = range(sizes["livecodebench_v6"])
    release.write_text("".join(json.dumps(problem(number)) + "\n" for number in numbers))
    accuracy, compliance = _write(folder / "acc.parquet", rows), _write(folder / "gpqa.parquet", gpqa)
    return Datasets(performance, accuracy, compliance, release, rows)


def accuracy_rows(sizes: Mapping[str, int] = SIZES) -> Iterator[Row]:
    """4395 rows: 30 x 8, 198 x 5 and 1055 x 3."""
    number = 0
    for dataset, size in sizes.items():
        for problem in range(size):
            for _ in range(REPEATS[dataset]):
                yield Row(_prompt("high", number), dataset, _truth(dataset, problem), f"{dataset} {problem}")
                number += 1


def _prompt(effort: str, number: int) -> tuple[int, ...]:
    return (200006, *BENCHMARK.reasoning_effort_ids[effort], END_OF_SYSTEM, 1000 + number, 2000 + number % 97)


def _truth(dataset: str, problem: int) -> str:
    if dataset == "aime25":
        return str(problem * 31 % 1000)
    return "ABCD"[problem % 4] if dataset == "gpqa_diamond" else f"made-up-{problem}"


def _write(path: Path, rows: Sequence[Row]) -> Path:
    columns = {
        "input_tokens": [row.prompt for row in rows],
        "dataset": [row.dataset for row in rows],
        "ground_truth": [row.truth for row in rows],
        "text_input": [row.problem for row in rows],
    }
    pq.write_table(pa.table(columns), path)
    return path


def problem(number: int) -> dict[str, str]:
    """A programming problem in LiveCodeBench's format, which ``PROGRAM`` solves."""
    tests = [{"input": "21\n", "output": "42\n", "testtype": "stdin"}]
    return {
        "question_id": f"made-up-{number}",
        "difficulty": "easy",
        "public_test_cases": json.dumps(tests),
        "private_test_cases": json.dumps(tests),
        "metadata": "{}",
    }


def _final(row: Row, right: bool) -> str:
    if row.dataset == "aime25":
        return f"\\boxed{{{row.truth if right else (int(row.truth) + 1) % 1000}}}"
    if row.dataset == "gpqa_diamond":
        return f"Answer: {row.truth if right else 'ABCD'['ABCD'.index(row.truth) - 1]}"
    return f"```python\n{PROGRAM if right else 'print(0)'}\n```"


Answer = Callable[[list[int]], list[int]]


class AnsweringServer(StubServer):
    """Answers with ``answer(prompt)`` in two events, cut to the requested number of tokens."""

    def __init__(self, answer: Answer, **knobs: Any) -> None:
        super().__init__(**knobs)
        self._answer_of = answer

    async def _generate(self, x: Exchange) -> None:
        request = x.request
        self._take(request)
        ids = self._answer_of(request.prompt_ids)
        cut = len(ids) > request.asked_tokens
        ids = ids[: request.asked_tokens]
        protocol = self._protocols[request.path]
        rest = ids if protocol.cumulative or not request.streams else ids[1:]
        steps = [Step(ids[:1], 1), Step(rest, len(ids), finish="length" if cut else "stop")]
        x.blocks = protocol.render(request, steps)
        await x.send_answer()


def truth(rows: Sequence[Row], *, wrong_each: float) -> Answer:
    """Right except for every ``wrong_each``-th row; different shares give different scores."""
    known: dict[str, list[int]] = {}
    answers: dict[tuple[int, ...], list[int]] = {}
    for number, row in enumerate(rows):
        final = _final(row, number % wrong_each >= 1)
        if final not in known:
            known[final] = harmony_ids(final)
        answers[row.prompt] = known[final]
    return lambda prompt: answers[tuple(prompt)]


def long_answers(tokens: int) -> Answer:
    """Every answer has this number of tokens."""
    return lambda prompt: expected_ids(prompt, tokens)
