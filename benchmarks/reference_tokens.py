#!/usr/bin/env python3
"""Speed and memory of counting the tokens of an events.jsonl with the reference tokenizer.

    python -m benchmarks.reference_tokens --folder /var/tmp/reference-tokens --millions 10
    python -m benchmarks.reference_tokens --folder /var/tmp/reference-tokens --millions 100 --processes 2

Answers are pieces of this repository's documents and sources, 1,500 tokens each with gpt-oss's tokenizer; the
first fragment is a word, as with a stream interval of 1. Each answer's tokens and those after its first
fragment are counted. The requirement is 1 million tokens/s with two processes, and less than 1 GB of memory
for 100 million. On a busy machine the tokens per CPU second say more than those per second.
"""

import json
import resource
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from benchmarks.bench import program_parser
from harness.endpoints.numbers.event_reader import read_events
from harness.endpoints.numbers.event_record import COMPLETE, ENDED, FIRST, ISSUED, START, STOP
from harness.endpoints.run_folder import EVENTS
from harness.files import ROOT

_CHARACTERS = 6_000  # of an answer: about 1,500 tokens
_REQUIRED = 1e6
_ANSWER_TOKENS = 1_500


def main() -> None:
    """Make the file, count it, print the rate."""
    parser = program_parser(__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--millions", type=float, default=10.0, help="tokens")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write(arguments.folder / EVENTS, round(arguments.millions * 1e6 / _ANSWER_TOKENS))
    began, cpu = time.perf_counter(), _cpu_s()
    found = read_events(arguments.folder, None, processes=arguments.processes)
    seconds, cpu = time.perf_counter() - began, _cpu_s() - cpu
    tokens = int(found.samples["output_tokens"].sum())
    print(
        f"{tokens / 1e6:.1f} million tokens of {len(found.samples)} answers, {arguments.processes} processes"
    )
    print(f"{tokens / seconds / 1e6:.2f} million/s: {tokens / seconds / _REQUIRED:.2f} of the required rate")
    free = arguments.processes * tokens / cpu / _REQUIRED
    print(f"{tokens / cpu / 1e6:.2f} million per CPU second: {free:.2f} of it on cores that are free")
    own, child = _peak_mb(resource.RUSAGE_SELF), _peak_mb(resource.RUSAGE_CHILDREN)
    print(f"memory: {own} MB, and at most {child} MB in each process")


def write(path: Path, answers: int) -> None:
    """An events.jsonl with this number of answers."""
    with path.open("w") as file:
        for line in _lines(answers):
            file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")


def _lines(answers: int) -> Iterator[dict[str, object]]:
    yield {"event_type": START, "timestamp_ns": 1, "sample_uuid": ""}
    for number, text in enumerate(islice(cycle(_texts()), answers)):
        uuid, begun = f"{number:032x}", number * 10**6 + 2
        answer = ["TextModelOutput", ["Answer", f" {number}: {text}"], None, None]
        yield {"event_type": ISSUED, "timestamp_ns": begun, "sample_uuid": uuid}
        yield {"event_type": FIRST, "timestamp_ns": begun + 1, "sample_uuid": uuid}
        yield {"event_type": COMPLETE, "timestamp_ns": begun + 2, "sample_uuid": uuid, "data": answer}
    for kind in (STOP, ENDED):
        yield {"event_type": kind, "timestamp_ns": answers * 10**6 + 9, "sample_uuid": ""}


def _texts() -> list[str]:
    files = sorted((*ROOT.glob("docs/**/*.md"), *ROOT.glob("harness/**/*.py")))
    everything = "\n".join(file.read_text() for file in files)
    return [everything[begin : begin + _CHARACTERS] for begin in range(0, len(everything), _CHARACTERS)]


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _peak_mb(who: int) -> int:
    return resource.getrusage(who).ru_maxrss // 1024


if __name__ == "__main__":
    main()
