"""The long run: every target in turn until the time is up; findings with their numbers, rate and memory."""

import argparse
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.session import TARGETS, run_one

_MOST_FINDINGS = 5  # shown for each target
_WARM = 0.2  # of the time, after which memory must not grow any more
_MOST_GROWTH_MIB = 32.0
# A damaged BYTEARRAY8 asks for gigabytes. Where they cannot be had, CPython 3.11 to 3.13 drops the bytearray
# before its count of exports is set, prints this where nobody can catch it, and raises the MemoryError that
# we expect.
_OF_THE_UNPICKLER = "deallocated bytearray object has exported buffers"


def main() -> int:
    """Run; 0 without findings."""
    sys.excepthook = lambda kind, error, trace: (
        None if str(error) == _OF_THE_UNPICKLER else sys.__excepthook__(kind, error, trace)
    )
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", choices=sorted(TARGETS), help="one target (default: all in turn)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (default: 0)")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(TARGETS)
    runs: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    start, warm_mib = time.monotonic(), 0.0
    number = arguments.first
    with tempfile.TemporaryDirectory() as folder:
        while (elapsed := time.monotonic() - start) < arguments.seconds:
            if not warm_mib and elapsed > _WARM * arguments.seconds:
                warm_mib = _resident_mib()
            for name in names:
                runs[name] += 1
                _run(name, number, Path(folder), findings)
            number += 1
    return _report(runs, findings, time.monotonic() - start, _resident_mib() - warm_mib)


def _run(name: str, number: int, folder: Path, findings: Counter[str]) -> None:
    try:
        run_one(name, number, folder)
    except Exception:  # noqa: BLE001 - whatever comes out of a target is a finding
        findings[name] += 1
        if findings[name] <= _MOST_FINDINGS:
            print(f"FINDING {name} {number}: {traceback.format_exc(limit=-4)[-1500:]}", flush=True)


def _report(runs: Counter[str], findings: Counter[str], seconds: float, growth_mib: float) -> int:
    for name, count in runs.items():
        print(f"{name:20} {count:9} inputs {findings[name]:4} findings")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = runs.total()
    print(
        f"{total} inputs in {seconds:.0f} s, {total / seconds:.0f}/s, {findings.total()} findings, "
        f"memory {growth_mib:+.1f} MiB after the first fifth, peak {peak:.0f} MiB"
    )
    return 1 if findings or growth_mib > _MOST_GROWTH_MIB else 0


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    sys.exit(main())
