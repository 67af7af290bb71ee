#!/usr/bin/env python3
"""Speed of grading: a synthetic log of full size, graded by this harness and by a plain program.

    python -m benchmarks.grading_speed --folder /var/tmp/grading-speed
    python -m benchmarks.grading_speed --folder /var/tmp/programs --alone
    python -m benchmarks.grading_speed --folder /var/tmp/programs --share 0.1 --programs FOLDER \\
        --against CHECKOUT --times 3

The log has 4,395 outputs in harmony structure with lengths like those of published accuracy runs. Programs
and their tests are those of datasets/samples, or model-written ones of --programs: problems.json and
solutions.jsonl, of which variants (a comment, other names) make 1,709 different programs, as many as the
graded log of a real run had. "Plain" loads the complete log, turns every output into a list
of ids and then into text, and applies the official rules to that. It decodes with this harness's tokenizer
unless --tokenizer-json names a Hugging Face one, which the reference uses and which is slower.
"seconds" cover reading and grading, not the loading of the tokenizer. With --against the evaluators of this
and of other checkouts grade the same log in turn, in each mode.

CPU time includes that of a sandbox's programs only where the sandbox ended in order, so it can differ by a
multiple between runs that do the same: compare seconds.
"""

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.benchmark import load_benchmark
from harness.dataset import tokenizer
from harness.files import ROOT
from harness.grading.decoding.harmony import HarmonyText
from harness.grading.decoding.output_decoder import HarmonyDecoder
from harness.grading.evaluation.evaluate import grade
from harness.grading.evaluation.references import Reference, load_references
from harness.grading.graders import aime, multiple_choice
from harness.grading.graders.grader import AIME, LIVECODEBENCH
from harness.grading.graders.grader_sets import graders_of
from harness.grading.livecodebench.compare import same_printout
from harness.grading.livecodebench.index import ProblemIndex, prepared
from harness.grading.livecodebench.runner import ProgramTask
from harness.grading.sandbox.jail.protocol import OK, Job, TestRun
from harness.grading.sandbox.sandbox_process import SandboxProcess
from harness.grading.sandbox.tier_probe import choose_sandbox
from harness.grading.scoring.grade import BOTH_MODES, Grade, GradingMode
from harness.loadgen_logs.accuracy_log import AccuracyLog

SAMPLES = ROOT / "datasets" / "samples"
CODE = "livecodebench_v6"
# Rows, repeats, and mean output tokens with effort high.
DATASETS = {
    "aime25": (240, 8, 14_000),
    "gpqa_diamond": (990, 5, 8_000),
    CODE: (3165, 3, 11_000),
}
DIFFERENT_PROGRAMS = 1_709  # among the 3,165 of one mode
GPT_OSS = load_benchmark("gpt-oss-120b")
LONGEST = 32_768
SPREAD = 0.8  # standard deviation of the logarithm of lengths
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Make the log if it is not there yet, then measure."""
    parser = argparse.ArgumentParser(description="Measure the speed and memory of grading.")
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp/grading-speed"), help="where the log is kept"
    )
    parser.add_argument(
        "--unanswered", type=int, default=60, metavar="N", help="one of N outputs of a new log has no answer"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the outputs, in a new log (default: 1)")
    parser.add_argument("--programs", type=Path, help="folder of problems.json and solutions.jsonl")
    parser.add_argument("--tokenizer-json", type=Path, help="let the plain way decode as the reference does")
    parser.add_argument(
        "--against", type=Path, action="append", default=[], help="another checkout to measure"
    )
    parser.add_argument("--times", type=int, default=1, help="measurements of each evaluator and mode")
    parser.add_argument("--alone", action="store_true", help="measure the time of the programs themselves")
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
        if os.fork() == 0:  # a forked process counts its parent's memory in its peak
            make(arguments.folder, arguments.unanswered, arguments.share, _programs(arguments.programs))
            os._exit(0)
        os.wait()
    size = (arguments.folder / "log.json").stat().st_size
    print(f"log: {size / 1e9:.2f} GB, {len(os.sched_getaffinity(0))} cores")
    if arguments.alone:
        print(f"programs alone, one mode: {alone(arguments.folder)}")
        return
    if arguments.against:
        compare([ROOT, *arguments.against], arguments.folder, arguments.times)
        return
    for part in ("plain", "ours"):
        own = [sys.executable, __file__, "--part", part, "--folder", str(arguments.folder)]
        own += ["--tokenizer-json", str(arguments.tokenizer_json)] if arguments.tokenizer_json else []
        print(f"AIME and GPQA, {part:5}: {measured(own)}")
    print(f"everything, ours    : {_evaluated(ROOT, arguments.folder, 'both')}")


def compare(checkouts: Sequence[Path], folder: Path, times: int) -> None:
    """Print the cost of each checkout and mode, in turn, and the medians of the CPU time."""
    found: dict[tuple[Path, str], list[float]] = {}
    for _ in range(times):
        for mode in ("both", "official", "strict"):
            for checkout in checkouts:
                cost = _evaluated(checkout, folder, mode)
                found.setdefault((checkout, mode), []).append(cost.cpu_s)
                print(f"{checkout} {mode:8}: {cost}", flush=True)
    for (checkout, mode), seconds in found.items():
        print(f"{checkout} {mode:8}: CPU {statistics.median(seconds):.1f} s, median of {times}")


@dataclass(frozen=True)
class Cost:
    """Seconds, the largest process in bytes, and what the program printed."""

    wall_s: float
    cpu_s: float
    peak: int
    printed: tuple[str, ...]

    def __str__(self) -> str:
        cost = f"wall {self.wall_s:.1f} s, CPU {self.cpu_s:.1f} s, peak {self.peak >> 20} MB"
        return "; ".join([cost, *self.printed])


def measured(command: list[str], checkout: Path = ROOT) -> Cost:
    """Run a program of a checkout. This process inherits and counts what outlives its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    assert process.stdout is not None
    said = process.stdout.read()
    cpu_s, peak = 0.0, 0
    with contextlib.suppress(ChildProcessError):
        while True:
            _, _, used = os.wait4(-1, 0)
            cpu_s, peak = cpu_s + used.ru_utime + used.ru_stime, max(peak, used.ru_maxrss << 10)
    kept = tuple(line for line in said.splitlines() if line.startswith(("{", "FINAL", "Strict score")))
    return Cost(time.monotonic() - started, cpu_s, peak, kept)


def _evaluated(checkout: Path, folder: Path, mode: str) -> Cost:
    """Grade the log with the evaluator of a checkout, every program anew."""
    for journal in folder.glob("log.*.jsonl"):
        journal.unlink()
    command = [sys.executable, str(checkout / "eval_mlperf_accuracy.py"), "--mode", mode]
    command += ["--mlperf-log", str(folder / "log.json"), "--lcb-data", str(folder / "release.jsonl")]
    return measured([*command, "--reference-data", str(folder / "reference.parquet")], checkout)


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
    grader = aime if reference.kind == AIME else multiple_choice.gpt_oss_gpqa
    return bool(grader.official(output, reference.truth).correct)


def ours(folder: Path) -> dict[str, float]:
    """Both modes, as the evaluator grades them."""
    decoder, references = HarmonyDecoder(LONGEST), load_references(folder / "reference.parquet", GPT_OSS)
    graders = graders_of(GPT_OSS.name).by_kind
    tokenizer.vocabulary()
    started, right = time.monotonic(), 0
    for entry in AccuracyLog(folder / "log.json"):
        reference = references[entry.qsl_idx]
        if reference.kind != LIVECODEBENCH:
            grades = grade(decoder.output(entry), reference, graders[reference.kind], BOTH_MODES)
            official = grades[GradingMode.OFFICIAL]
            right += isinstance(official, Grade) and official.correct is True
    return {"right": right, "seconds": round(time.monotonic() - started, 2)}


@dataclass(frozen=True)
class Program:
    """A solution to a problem, and whether its wrong outputs need another program."""

    question_id: str
    code: str
    always_right: bool


@dataclass(frozen=True)
class Programs:
    """A LiveCodeBench release and its solutions, in turn."""

    release: bytes
    solutions: Sequence[Program]


def _programs(folder: Path | None) -> Programs:
    if folder is None:
        problems = tomllib.loads((SAMPLES / "source" / "code.toml").read_text())["problem"]
        ours = [Program(problem["id"], problem["solution"], True) for problem in problems]
        return Programs((SAMPLES / "code_sample.jsonl").read_bytes(), ours)
    released = [_as_released(problem) for problem in json.loads((folder / "problems.json").read_text())]
    rows = [json.loads(line) for line in (folder / "solutions.jsonl").read_text().splitlines()]
    solutions = [Program(row["question_id"], row["code"], False) for row in rows]
    return Programs("".join(released).encode(), solutions)


def _as_released(problem: dict[str, Any]) -> str:
    """A line in the layout of a release, all tests public."""
    names = ("input", "output", "testtype")
    row = {
        "question_id": problem["question_id"],
        "metadata": json.dumps({"func_name": problem["func_name"]} if problem["func_name"] else {}),
        "public_test_cases": json.dumps([{name: test[name] for name in names} for test in problem["tests"]]),
        "private_test_cases": "[]",
    }
    return json.dumps(row) + "\n"


def make(folder: Path, unanswered: int, share: float, programs: Programs) -> None:
    """Write log.json, reference.parquet and release.jsonl; one of ``unanswered`` outputs has no answer."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "release.jsonl").write_bytes(programs.release)
    rows = list(_rows(programs.solutions, share))
    pd.DataFrame(rows, columns=["dataset", "ground_truth", "text_input"]).to_parquet(
        folder / "reference.parquet"
    )
    prompts = np.concatenate(list(pd.read_parquet(SAMPLES / "acc_sample.parquet")["input_tokens"]))
    words = np.array([token for token in prompts.tolist() if _is_thought(token)])
    rng = np.random.default_rng(1)
    codes = iter(_codes(programs.solutions, share))
    with (folder / "log.json").open("w") as file:
        for index, (dataset, truth, _) in enumerate(rows):
            code = next(codes) if dataset == CODE else ""
            ids = _output(rng, words, DATASETS[dataset][2], _final(dataset, truth, code, index, unanswered))
            separator = "[\n" if index == 0 else ",\n"
            file.write(f'{separator}{{ "seq_id" : {index}, "qsl_idx" : {index}, "data" : "{hexed(ids)}", ')
            file.write(f'"token_data" : "{hexed(ids[:1])}", "token_count" : {len(ids)} }}')
        file.write("\n]\n")


ALONE = """
import json, threading, time
def seconds():
    return time.process_time()
started = seconds()
code = compile({code!r}, "solution.py", "exec")
compiled, found = seconds(), None
try:
    exec(code, globals())
    if {function!r}:
        owner = Solution() if "class Solution" in {code!r} else None
        call = getattr(owner, {function!r}) if owner else globals()[{function!r}]
        found = call(*(json.loads(line) for line in sys.stdin.read().split("\\n")))
        found = list(found) if isinstance(found, tuple) else found
        print(json.dumps(found))
finally:
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    print("\\n" + json.dumps([compiled - started, seconds() - compiled]))
"""


def alone(folder: Path) -> str:
    """CPU time of every program of the log: compiled once, and run on its tests until the first that fails.

    It is taken inside of the sandbox, from the first statement to the last.
    """
    decoder, references = HarmonyDecoder(LONGEST), load_references(folder / "reference.parquet", GPT_OSS)
    grader = graders_of(GPT_OSS.name).by_kind[LIVECODEBENCH]
    tasks: dict[ProgramTask, None] = {}
    for entry in AccuracyLog(folder / "log.json"):
        reference = references[entry.qsl_idx]
        if reference.kind == LIVECODEBENCH:
            task = grader.strict(decoder.output(entry), reference.truth)
            if isinstance(task, ProgramTask):
                tasks[task] = None
    problems = ProblemIndex(prepared(folder / "release.jsonl", print))
    compiling = running = 0.0
    tests = 0
    with SandboxProcess(choose_sandbox(allow_unsandboxed=False)) as process:
        for task in tasks:
            facts = problems.find(task.question_id)
            assert facts is not None
            process.begin(Job(GradingMode.STRICT, "", ALONE.format(code=task.code, function=facts.function)))
            for number, test in enumerate(problems.tests(task.question_id)):
                result = process.attempt(TestRun(120.0, test.input))
                if result.status != OK:
                    break
                printed, _, spent = result.output.decode().strip().rpartition("\n")
                tests += 1
                compiling += json.loads(spent)[0] if number == 0 else 0.0
                running += json.loads(spent)[1]
                if not _as_expected(printed, test.expected, facts.function):
                    break
    return f"{len(tasks)} programs, {tests} tests; compiled in {compiling:.2f} s, run in {running:.1f} s"


def _as_expected(printed: str, expected: str, function: str) -> bool:
    if function:
        return bool(json.loads(printed) == json.loads(expected))
    return same_printout(printed, expected)


def _is_thought(token: int) -> bool:
    """Whether a token may stand in a thought; the official rules take a code fence for a program."""
    return token < min(tokenizer.SPECIAL.values()) and b"`" not in tokenizer.token_bytes(token)


def _rows(solutions: Sequence[Program], share: float) -> Iterator[tuple[str, str, str]]:
    for dataset, (count, repeats, _) in DATASETS.items():
        for number in range(int(count * share)):
            question = number // repeats
            truth = {
                "aime25": str(question * 7 % 1000),
                "gpqa_diamond": "ABCD"[question % 4],
                CODE: _solution(solutions, number, share).question_id,
            }[dataset]
            yield dataset, truth, f"{dataset} question {question}"


def _solution(solutions: Sequence[Program], number: int, share: float) -> Program:
    return solutions[number % int(DIFFERENT_PROGRAMS * share) % len(solutions)]


def _codes(solutions: Sequence[Program], share: float) -> Iterator[str]:
    """Every output's program; a comment makes the repeated ones different, up to the number wanted."""
    for number in range(int(DATASETS[CODE][0] * share)):
        variant = number % int(DIFFERENT_PROGRAMS * share)
        program = _solution(solutions, number, share)
        is_wrong = program.always_right and variant % 6 == 0
        yield f"# attempt {variant}\n{'print(0)' if is_wrong else program.code}"


def _final(dataset: str, truth: str, code: str, index: int, unanswered: int) -> str:
    """Five of six answers are right; one of ``unanswered`` outputs has none."""
    if index % unanswered == 0:
        return "I could not find it."
    is_wrong = index % 6 == 0
    if dataset == CODE:
        return f"This works:\n\n```python\n{code}\n```\n"
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
