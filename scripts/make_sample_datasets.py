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

from harness.config.benchmark import load_benchmark  # noqa: E402
from harness.dataset import cnndm, tokenizer  # noqa: E402
from harness.dataset.chat_messages import HARMONY_SYSTEM  # noqa: E402
from harness.dataset.model_tokenizer import load_tokenizer  # noqa: E402
from harness.errors import HarnessError  # noqa: E402

SAMPLES = ROOT / "datasets" / "samples"
SOURCE = SAMPLES / "source"
REPEATS = load_benchmark("gpt-oss-120b").dataset(accuracy=True).repeats
TODAY = "2026-01-01"  # fixed: it is part of the bytes
HARMONY = "<|start|>system<|message|>{system}<|end|><|start|>user<|message|>{user}<|end|><|start|>assistant"

AIME_TASK = "{text}\n\nReason step by step. Put the final answer, an integer from 0 to 999, into \\boxed{{}}."
GPQA_TASK = """\
{text}

{choices}

Think it over, then end with a line of the form
Answer: X
where X is A, B, C or D."""
MATH_TASK = "{text}\n\nReason step by step. Put the final answer into \\boxed{{}}."
CHOICE_TASK = """\
{text}

{choices}

Think it over, then end with a line of the form
ANSWER: X
where X is one of the letters A to {last}."""
CALL_TASK = "{text}\n\nComplete this class and give it as one Python code block.\n\n```python\n{starter}\n```"
STDIN_TASK = """\
{text}

Give the solution as one Python code block: a program that reads standard input and writes standard output."""


# Llama 3.1's own vocabulary is Meta's: the sample has byte pairs of its own texts, and these ids.
LLAMA_SPECIAL = {
    "<|begin_of_text|>": 128000,
    "<|end_of_text|>": 128001,
    "<|finetune_right_pad_id|>": 128004,
    "<|start_header_id|>": 128006,
    "<|end_header_id|>": 128007,
    "<|eom_id|>": 128008,
    "<|eot_id|>": 128009,
    "<|python_tag|>": 128010,
}
# DeepSeek-R1's ids; </think> and those of the template are no special tokens there.
DEEPSEEK_SPECIAL = {
    "<｜begin▁of▁sentence｜>": 0,
    "<｜end▁of▁sentence｜>": 1,
    "<｜▁pad▁｜>": 2,
}
DEEPSEEK_NAMED = {"<think>": 128798, "</think>": 128799, "<｜User｜>": 128803, "<｜Assistant｜>": 128804}
DEEPSEEK_TEMPLATE = "<｜begin▁of▁sentence｜><｜User｜>{text}<｜Assistant｜>"
SAMPLE_TOKENS = 1500


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of a sample file before it is tokenised."""

    dataset: str
    user: str
    effort: str | None
    ground_truth: str | None


def main() -> int:
    """Write every sample file; exit code 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(description="Rebuild the sample files under datasets/samples/.")
    parser.add_argument(
        "--to", type=Path, default=SAMPLES, metavar="DIR", help="where to write (default: %(default)s)"
    )
    target: Path = parser.parse_args().to
    try:
        target.mkdir(parents=True, exist_ok=True)
        build(target)
    except (HarnessError, OSError) as error:
        print(f"make_sample_datasets: {error}", file=sys.stderr)
        return 2
    return 0


def build(target: Path) -> None:
    """Write the sample files into an existing folder."""
    problems = _source("code")["problem"]
    write_table(target / "perf_sample.parquet", performance_prompts(_source("perf")))
    write_table(target / "acc_sample.parquet", [*aime_prompts(), *gpqa_prompts(), *code_prompts(problems)])
    write_table(target / "compliance_sample.parquet", gpqa_prompts())
    lines = (json.dumps(release_row(problem)) + "\n" for problem in problems)
    (target / "code_sample.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")
    articles = list(news_articles())
    (target / "cnn_sample_tokenizer.json").write_bytes(llama_like_tokenizer(articles))
    llama = load_tokenizer(target / "cnn_sample_tokenizer.json")
    cnndm.write_dataset(target / "cnn_sample.json", articles, llama)
    questions = list(reasoning_questions(problems))
    (target / "r1_sample_tokenizer.json").write_bytes(deepseek_like_tokenizer(questions))
    write_reasoning_table(target / "r1_sample.parquet", questions)


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
        user = GPQA_TASK.format(text=question["text"].strip(), choices=_choices(question))
        yield from _repeated(Prompt("gpqa_diamond", user, "high", question["answer"]))


def code_prompts(problems: Iterable[Mapping[str, Any]]) -> Iterator[Prompt]:
    """Code problems; the ground truth is the question id, by which their tests are found."""
    for problem in problems:
        yield from _repeated(Prompt("livecodebench_v6", _code_task(problem), "high", problem["id"]))


def reasoning_questions(problems: Iterable[Mapping[str, Any]]) -> Iterator[Prompt]:
    """Questions of deepseek-r1's five kinds, each once, under the names of its data sets."""
    for problem in _source("aime")["problem"]:
        user = AIME_TASK.format(text=problem["text"].strip())
        yield Prompt("aime1983", user, None, str(problem["answer"]))
    for problem in _source("math")["problem"]:
        user = MATH_TASK.format(text=problem["text"].strip())
        yield Prompt("math500", user, None, problem["answer"])
    for dataset, source in (("gpqa", "gpqa"), ("mmlu_pro", "mmlu_pro")):
        for question in _source(source)["question"]:
            user = CHOICE_TASK.format(
                text=question["text"].strip(), choices=_choices(question), last=_letters(question)[-1]
            )
            yield Prompt(dataset, user, None, question["answer"])
    for problem in problems:
        yield Prompt("livecodebench", _code_task(problem), None, problem["id"])


def news_articles() -> Iterator[cnndm.Article]:
    """Every passage of the performance sample with its summary, and some pairs of them."""
    source = _source("cnn")
    texts = [passage["text"].strip() for passage in _source("perf")["passage"]]
    singles = [
        cnndm.Article(text, "\n".join(lines)) for text, lines in zip(texts, source["highlights"], strict=True)
    ]
    yield from singles
    for pair in source["pairs"]:
        first, second = (singles[number] for number in pair)
        yield cnndm.Article(f"{first.text}\n\n{second.text}", f"{first.highlights}\n{second.highlights}")


def llama_like_tokenizer(articles: Sequence[cnndm.Article]) -> bytes:
    """A tokenizer.json of byte pairs as Llama's is one, with Llama's ids for the special tokens."""
    texts = [
        text
        for article in articles
        for text in (cnndm.TEMPLATE.format(input=article.text), article.highlights)
    ]
    document = byte_pairs(texts)
    document["model"]["vocab"] |= LLAMA_SPECIAL
    document["added_tokens"] = added_tokens(LLAMA_SPECIAL, special=True)
    name, number = next(iter(LLAMA_SPECIAL.items()))
    begin = {"SpecialToken": {"id": name, "type_id": 0}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}},
    }
    return compact(document)


def deepseek_like_tokenizer(questions: Sequence[Prompt]) -> bytes:
    """A tokenizer.json of byte pairs, with DeepSeek's ids for the tokens that have a name."""
    document = byte_pairs([question.user for question in questions])
    first = len(DEEPSEEK_SPECIAL)  # their ids come before those of the byte pairs
    pairs = {name: first + number for name, number in document["model"]["vocab"].items()}
    document["model"]["vocab"] = {**DEEPSEEK_SPECIAL, **pairs, **DEEPSEEK_NAMED}
    document["added_tokens"] = [
        *added_tokens(DEEPSEEK_SPECIAL, special=True),
        *added_tokens(DEEPSEEK_NAMED, special=False),
    ]
    return compact(document)


def byte_pairs(texts: Sequence[str]) -> dict[str, Any]:
    """A tokenizer.json of the byte pairs of these texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SAMPLE_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    document: dict[str, Any] = json.loads(learner.to_str())
    return document


def added_tokens(ids: Mapping[str, int], *, special: bool) -> list[dict[str, Any]]:
    """Tokens that are never split, as a tokenizer.json has them."""
    kind = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return [{"id": number, "content": name, **kind} for name, number in ids.items()]


def compact(document: Mapping[str, Any]) -> bytes:
    """JSON in one line."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


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


def write_reasoning_table(path: Path, questions: Iterable[Prompt]) -> None:
    """Write the questions in the columns that are read of deepseek-r1's official file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, ids = pa.string(), pa.list_(pa.int64())
    schema = pa.schema(
        [
            *((name, text) for name in ("dataset", "question", "ground_truth", "text_input")),
            ("templated_text_input", text),
            ("tok_input", ids),
            ("tok_input_len", pa.int64()),
        ]
    )
    deepseek = load_tokenizer(path.with_name("r1_sample_tokenizer.json"))
    rows = []
    for question in questions:
        templated = DEEPSEEK_TEMPLATE.format(text=question.user)
        tokens = deepseek.encode(templated).ids
        rows.append(
            {
                "dataset": question.dataset,
                "question": question.user,
                "ground_truth": question.ground_truth,
                "text_input": question.user,
                "templated_text_input": templated,
                "tok_input": tokens,
                "tok_input_len": len(tokens),
            }
        )
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def _row(prompt: Prompt) -> dict[str, Any]:
    text = HARMONY.format(
        system=HARMONY_SYSTEM.format(today=TODAY, reasoning=prompt.effort), user=prompt.user
    )
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


def _choices(question: Mapping[str, Any]) -> str:
    """One line for each choice, after its letter."""
    pairs = zip(_letters(question), question["choices"], strict=True)
    return "\n".join(f"({letter}) {text}" for letter, text in pairs)


def _letters(question: Mapping[str, Any]) -> str:
    return "ABCDEFGHIJ"[: len(question["choices"])]


def _code_task(problem: Mapping[str, Any]) -> str:
    text, starter = problem["text"].strip(), _starter_code(problem)
    return CALL_TASK.format(text=text, starter=starter.rstrip()) if starter else STDIN_TASK.format(text=text)


def _starter_code(problem: Mapping[str, Any]) -> str:
    return str(problem.get("starter_code", ""))


def _source(name: str) -> dict[str, Any]:
    with (SOURCE / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)


if __name__ == "__main__":
    sys.exit(main())
