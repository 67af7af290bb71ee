#!/usr/bin/env python3
"""Speed and memory of deepseek-r1's evaluator: a made-up log of full size, 4,388 outputs and 16.5 M tokens.

    python -m benchmarks.grading_speed_r1 --folder /var/tmp/grading-speed-r1 [--tokenizer TOKENIZER_JSON]

Outputs are random words of the tokenizer, which is the sample's unless another one is named, with lengths
like those of published runs (3,756 tokens on average, 20,000 at most); the answer stands at the end. The
right answers to MATH-500 are sums of another form than their references, which sympy has to compare. The
reference is a pickled DataFrame with prompts of up to 3,136 tokens. The first call grades everything, the
second one finds the verdicts on programs in the first one's journal: it is the time without the programs.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

from benchmarks.grading_speed import ROOT, hexed, measured
from harness.dataset.model_tokenizer import load_tokenizer
from tests.made_up import deepseek_r1 as made_up_r1
from tests.made_up.deepseek_r1 import END, Row

MEAN, LONGEST, SPREAD = 3756, 20_000, 0.75  # tokens of an output; spread of the logarithm
PROMPT, LONGEST_PROMPT = 400, 3136


def main() -> None:
    """Make the files if they are not there yet, then measure."""
    parser = argparse.ArgumentParser(description="Measure the speed and memory of grading deepseek-r1.")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/grading-speed-r1"))
    parser.add_argument("--tokenizer", type=Path, default=made_up_r1.TOKENIZER)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    if not (folder / "log.json").exists():
        make(folder, arguments.tokenizer)
    size = (folder / "log.json").stat().st_size
    print(f"log: {size / 1e9:.2f} GB, {len(os.sched_getaffinity(0))} cores")
    command = [sys.executable, str(ROOT / "eval_mlperf_accuracy.py"), "--benchmark", "deepseek-r1"]
    command += ["--mlperf-log", str(folder / "log.json"), "--reference-data", str(folder / "reference.pkl")]
    command += ["--tokenizer", str(arguments.tokenizer), "--lcb-data", str(folder / "release.jsonl")]
    print(f"everything      : {measured([*command, '--restart'])}")
    print(f"without programs: {measured(command)}")


def make(folder: Path, tokenizer: Path) -> None:
    """Write log.json, reference.pkl and release.jsonl."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    made_up_r1.write(folder).dataset.rename(folder / "reference.pkl")
    rng = np.random.default_rng(1)
    table = pd.read_pickle(folder / "reference.pkl")
    lengths = np.minimum(rng.lognormal(np.log(PROMPT), SPREAD, len(table)).astype(int), LONGEST_PROMPT)
    table["tok_input"] = [rng.integers(3, 120_000, length).tolist() for length in lengths]
    table["text_input"] = table["question"] = ["four" * length for length in lengths]
    table.to_pickle(folder / "reference.pkl")
    model = load_tokenizer(tokenizer)
    vocabulary = model.get_vocab(with_added_tokens=False)
    words = np.array([number for name, number in vocabulary.items() if "`" not in name and number < 128_000])
    with (folder / "log.json").open("w") as file:
        for row in made_up_r1.rows():
            ids = _output(rng, words, model.encode(f"</think>\n\n{_final(row)}").ids)
            file.write("[\n" if row.number == 0 else ",\n")
            file.write(f'{{ "seq_id" : {row.number}, "qsl_idx" : {row.number}, "data" : "{hexed(ids)}", ')
            file.write(f'"token_data" : "{hexed(ids[:1])}", "token_count" : {len(ids)} }}')
        file.write("\n]\n")


def _final(row: Row) -> str:
    """The row's final text; n / (n + 1) as 1 - 1 / (n + 1)."""
    _, _, denominator = row.truth.rpartition("{")
    return (
        row.final.replace(row.truth, rf"1-\frac{{1}}{{{denominator}")
        if row.dataset == "math500"
        else row.final
    )


def _output(rng: np.random.Generator, words: np.ndarray, final: list[int]) -> np.ndarray:
    """A thought and the final text."""
    length = min(int(rng.lognormal(np.log(MEAN) - SPREAD**2 / 2, SPREAD)) + 50, LONGEST - 500)
    return np.concatenate([rng.choice(words, length), final, [END]])


if __name__ == "__main__":
    main()
