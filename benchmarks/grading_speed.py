#!/usr/bin/env python3
"""Speed of grading: a synthetic log of full size, graded by this harness and by a plain program.

    python -m benchmarks.grading_speed --folder /var/tmp/grading-speed

The log has 4,395 outputs in harmony structure with lengths like those of published accuracy runs; programs
and their tests are those of datasets/samples. "Plain" loads the complete log, turns every output into a list
of ids and then into text, and applies the official rules to that. It decodes with this harness's tokenizer
unless --tokenizer-json names a Hugging Face one, which the reference uses and which is slower.
"seconds" cover reading and grading, not the loading of the tokenizer.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from harness.config.benchmark import load_benchmark
from harness.dataset import tokenizer
from harness.grading.graders import AIME, LIVECODEBENCH, aime, gpqa, graders_of
from harness.grading.harmony import HarmonyText
from harness.grading.references import Reference, load_references

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "datasets" / "samples"
# Rows, repeats, and mean output tokens with effort high.
DATASETS = {
    "aime25": (240, 8, 14_000),
    "gpqa_diamond": (990, 5, 8_000),
    "livecodebench_v6": (3165, 3, 11_000),
}
GPT_OSS = load_benchmark("gpt-oss-120b")
LONGEST = 32_768
SPREAD = 0.8  # of the logarithm of lengths


def main() -> None:
    """Make the log if it is not there yet, then measure."""
    parser = argparse.ArgumentParser(description="Measure the speed and memory of grading.")
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp/grading-speed"), help="where the log is kept"
    )
    parser.add_argument(
        "--unanswered", type=int, default=60, metavar="N", help="one of N outputs of a new log has no answer"
    )
    parser.add_argument("--tokenizer-json", type=Path, help="let the plain way decode as the reference does")
    parser.add_argument("--part", choices=("plain", "ours"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        found = (
            ours(arguments.folder)
            if arguments.part == "ours"
            else plain(arguments.folder, arguments.tokenizer_json)
        )
        print(json.dumps(found))
        return
    if not (arguments.folder / "log.json").exists():
        make(arguments.folder, arguments.unanswered)
    size = (arguments.folder / "log.json").stat().st_size
    print(f"log: {size / 1e9:.2f} GB, {len(os.sched_getaffinity(0))} cores")
    for part in ("plain", "ours"):
        own = [sys.executable, __file__, "--part", part, "--folder", str(arguments.folder)]
        own += ["--tokenizer-json", str(arguments.tokenizer_json)] if arguments.tokenizer_json else []
        print(f"AIME and GPQA, {part:5}: {measured(own)}")
    print(f"everything, ours    : {measured(_evaluator(arguments.folder))}")


def measured(command: list[str]) -> str:
    """Run a program. Returns its time and memory, child processes included, and its printed results."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    said = process.stdout.read()
    _, _, used = os.wait4(process.pid, 0)
    kept = [line for line in said.splitlines() if line.startswith(("{", "FINAL", "Strict score"))]
    wall_s, cpu_s = time.monotonic() - started, used.ru_utime + used.ru_stime
    return f"wall {wall_s:.1f} s, CPU {cpu_s:.1f} s, peak {used.ru_maxrss // 1024} MB; {'; '.join(kept)}"


def plain(folder: Path, tokenizer_json: Path | None) -> dict[str, float]:
    """The rules in the plain way: everything in memory, everything decoded."""
    decode, references = _decoder(tokenizer_json), load_references(folder / "reference.parquet", GPT_OSS)
    started = time.monotonic()
    with (folder / "log.json").open() as file:
        entries = json.load(file)
    right = 0
    for entry in entries:
        reference = references[entry["qsl_idx"]]
        if reference.kind == LIVECODEBENCH:
            continue
        data = bytes.fromhex(entry["data"])
        ids = list(struct.unpack(f"<{len(data) // 4}i", data))
        right += _official(HarmonyText(decode(ids)), reference)
    return {"right": right, "seconds": round(time.monotonic() - started, 2)}


def _decoder(tokenizer_json: Path | None) -> Callable[[list[int]], str]:
    """The package tokenizers with a Hugging Face tokenizer.json, or our own."""
    if tokenizer_json is None:
        tokenizer.vocabulary()
        return tokenizer.decode
    from tokenizers import Tokenizer  # a tool of this measurement only

    model = Tokenizer.from_file(str(tokenizer_json))
    return lambda ids: str(model.decode(ids, skip_special_tokens=False))


def _official(output: HarmonyText, reference: Reference) -> bool:
    grader = aime if reference.kind == AIME else gpqa
    return bool(grader.official(output, reference.truth).correct)


def ours(folder: Path) -> dict[str, float]:
    """Both modes, as the evaluator grades them."""
    from harness.grading.evaluate import grade
    from harness.grading.grade import BOTH_MODES, Grade, Mode
    from harness.grading.output_decoder import HarmonyDecoder
    from harness.loadgen_logs.accuracy_log import AccuracyLog

    decoder, references = HarmonyDecoder(LONGEST), load_references(folder / "reference.parquet", GPT_OSS)
    graders = graders_of(GPT_OSS.name)
    tokenizer.vocabulary()
    started, right = time.monotonic(), 0
    for entry in AccuracyLog(folder / "log.json"):
        reference = references[entry.qsl_idx]
        if reference.kind != LIVECODEBENCH:
            grades = grade(decoder.output(entry), reference, graders[reference.kind], BOTH_MODES)
            official = grades[Mode.OFFICIAL]
            right += isinstance(official, Grade) and official.correct is True
    return {"right": right, "seconds": round(time.monotonic() - started, 2)}


def _evaluator(folder: Path) -> list[str]:
    command = [
        sys.executable,
        str(ROOT / "eval_mlperf_accuracy.py"),
        "--mlperf-log",
        str(folder / "log.json"),
    ]
    command += ["--reference-data", str(folder / "reference.parquet")]
    return [*command, "--lcb-data", str(folder / "release.jsonl")]


def make(folder: Path, unanswered: int) -> None:
    """Write log.json, reference.parquet and release.jsonl; one of ``unanswered`` outputs has no answer."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "release.jsonl").write_bytes((SAMPLES / "code_sample.jsonl").read_bytes())
    problems = tomllib.loads((SAMPLES / "source" / "code.toml").read_text())["problem"]
    rows = list(_rows(problems))
    pd.DataFrame(rows, columns=["dataset", "ground_truth", "text_input"]).to_parquet(
        folder / "reference.parquet"
    )
    prompts = np.concatenate(list(pd.read_parquet(SAMPLES / "acc_sample.parquet")["input_tokens"]))
    words = np.array([token for token in prompts.tolist() if _is_thought(token)])
    rng = np.random.default_rng(1)
    codes = {problem["id"]: problem["solution"] for problem in problems}
    with (folder / "log.json").open("w") as file:
        for index, (dataset, truth, _) in enumerate(rows):
            ids = _output(rng, words, DATASETS[dataset][2], _final(dataset, truth, codes, index, unanswered))
            separator = "[\n" if index == 0 else ",\n"
            file.write(f'{separator}{{ "seq_id" : {index}, "qsl_idx" : {index}, "data" : "{hexed(ids)}", ')
            file.write(f'"token_data" : "{hexed(ids[:1])}", "token_count" : {len(ids)} }}')
        file.write("\n]\n")


def _is_thought(token: int) -> bool:
    """Whether a token may stand in a thought; the official rules take a code fence for a program."""
    return token < min(tokenizer.SPECIAL.values()) and b"`" not in tokenizer.token_bytes(token)


def _rows(problems: list[dict[str, str]]) -> Iterator[tuple[str, str, str]]:
    for dataset, (count, repeats, _) in DATASETS.items():
        for number in range(count):
            question = number // repeats
            truth = {"aime25": str(question * 7 % 1000), "gpqa_diamond": "ABCD"[question % 4]}.get(
                dataset, problems[question % len(problems)]["id"]
            )
            yield dataset, truth, f"{dataset} question {question}"


def _final(dataset: str, truth: str, codes: dict[str, str], index: int, unanswered: int) -> str:
    """Five of six are right, one of ``unanswered`` has none; a comment makes every program another one."""
    if index % unanswered == 0:
        return "I could not find it."
    is_wrong = index % 6 == 0
    if dataset == "livecodebench_v6":
        code = "print('no idea')" if is_wrong else codes[truth]
        return f"This works:\n\n```python\n# attempt {index}\n{code}\n```\n"
    if dataset == "aime25":
        return rf"Therefore $\boxed{{{int(truth) + is_wrong}}}$."
    return f"It follows.\n\n**Answer:** {'ABCDA'['ABCD'.index(truth) + is_wrong]}"


def _output(rng: np.random.Generator, words: np.ndarray, mean: int, final: str) -> np.ndarray:
    length = min(int(rng.lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD)) + 50, LONGEST - 500)
    start = int(rng.integers(len(words)))
    thought = np.resize(np.roll(words, -start), length)
    head = tokenizer.encode_harmony("<|channel|>analysis<|message|>")
    tail = tokenizer.encode_harmony(f"<|end|><|start|>assistant<|channel|>final<|message|>{final}<|return|>")
    return np.concatenate([head, thought, tail]).astype("<i4")


def hexed(ids: np.ndarray) -> str:
    """As LoadGen writes token ids."""
    return ids.astype("<i4").tobytes().hex().upper()


if __name__ == "__main__":
    main()
