"""A made-up dataset of deepseek-r1 in the official size and composition, and answers that are mostly right.

Questions are numbers. An answer is a thought of words from the sample's tokenizer, ``</think>`` and a final
text, right for 81.25 % of the rows of each data set; lengths are as those of published runs.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.config.benchmark import load_benchmark
from harness.dataset.model_tokenizer import load_tokenizer
from tests.made_up.cnn import MadeUp
from tests.made_up.synthetic import PROGRAM, Answer, problem
from tests.runs import ROOT

DEEPSEEK = load_benchmark("deepseek-r1")
COMPOSITION = {"mmlu_pro": 2410, "aime1983": 932, "math500": 499, "livecodebench": 349, "gpqa": 198}
TOKENIZER = ROOT / "datasets" / "samples" / "r1_sample_tokenizer.json"
BEGIN, END, USER, ASSISTANT = 0, 1, 128803, 128804
_FIRST = 1000  # id of the first row's question
_TOKENS, _SPREAD = 3756, 1000  # of an answer
_WRONG = (3, 8, 13)  # of 16 rows


@dataclass(frozen=True)
class Row:
    """One sample."""

    number: int
    dataset: str
    truth: str

    @property
    def prompt(self) -> list[int]:
        """A question of its own in the template."""
        return [BEGIN, USER, _FIRST + self.number, 200 + self.number % 97, ASSISTANT]

    @property
    def final(self) -> str:
        """What an answer says behind its thought."""
        right = self.number % 16 not in _WRONG
        if self.dataset == "livecodebench":
            return f"```python\n{PROGRAM if right else 'print(0)'}\n```"
        if self.dataset == "math500":
            return rf"It is $\boxed{{{self.truth if right else 0}}}$."
        if self.dataset == "aime1983":
            return rf"It is $\boxed{{{self.truth if right else (int(self.truth) + 1) % 1000}}}$."
        return f"ANSWER: {self.truth if right else chr(ord('A') + ord(self.truth) % 4)}"


def rows(composition: Mapping[str, int] = COMPOSITION) -> Iterator[Row]:
    """The samples in the order of the file, one data set after another."""
    number = 0
    for dataset, size in composition.items():
        for of_dataset in range(size):
            yield Row(number, dataset, _truth(dataset, of_dataset))
            number += 1


def _truth(dataset: str, number: int) -> str:
    if dataset == "livecodebench":
        return f"made-up-{number}"
    if dataset == "math500":
        return rf"\frac{{{number + 1}}}{{{number + 2}}}"
    if dataset == "aime1983":
        return str(number * 31 % 1000)
    return "ABCDEFGHIJ"[number % (4 if dataset == "gpqa" else 10)]


@cache
def _final_ids(final: str) -> list[int]:
    ids: list[int] = load_tokenizer(TOKENIZER).encode(f"</think>\n\n{final}").ids
    return [*ids, END]


@cache
def _words() -> list[int]:
    text = "Let me see how the two of them are related, step by step; it is not so. "
    return list(load_tokenizer(TOKENIZER).encode(text).ids)


def answers(
    composition: Mapping[str, int] = COMPOSITION, tokens: int = _TOKENS, spread: int = _SPREAD
) -> Answer:
    """Answers of ``tokens`` more or less ``spread``, or as many as the final text needs."""
    known = {tuple(row.prompt): row for row in rows(composition)}

    def answer(prompt: list[int]) -> list[int]:
        row = known[tuple(prompt)]
        final, words = _final_ids(row.final), _words()
        thought = max(0, tokens + row.number * 7919 % (2 * spread + 1) - spread - len(final))
        return [*(words * (thought // len(words) + 1))[:thought], *final]

    return answer


def write(folder: Path, composition: Mapping[str, int] = COMPOSITION) -> MadeUp:
    """Write the dataset as a pickle, as the official one is, and the tests of its programs."""
    import pandas as pd  # here: many modules of tests import this one, and few write it

    table = pd.DataFrame(
        {
            "dataset": row.dataset,
            "question": f"question {row.number}",
            "ground_truth": row.truth,
            "text_input": f"question {row.number}",
            "tok_input": row.prompt,
            "tok_input_len": len(row.prompt),
        }
        for row in rows(composition)
    )
    dataset = folder / DEEPSEEK.dataset(accuracy=True).file
    table.to_pickle(dataset)
    release = folder / "release.jsonl"
    problems = map(problem, range(composition["livecodebench"]))
    release.write_text("".join(json.dumps(each) + "\n" for each in problems))
    return MadeUp(dataset, TOKENIZER, release)
