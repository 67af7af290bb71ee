"""Whether LoadGen's logs are complete. It does not notice a full disk and drops what it cannot write."""

from collections.abc import Iterator
from pathlib import Path

from harness.report.loadgen_log import read_detail

DETAIL = "mlperf_log_detail.txt"
ACCURACY = "mlperf_log_accuracy.json"
_END = b"]\n"
_BLOCK = 1 << 22


def loadgen_file_problems(
    log_dir: Path, *, accuracy: bool, samples: int, cause_known: bool = False
) -> tuple[str, ...]:
    """A reason for each log that is missing or cut short; ``samples`` is what an accuracy log must hold.

    ``cause_known``: the run ended for a reason that explains an incomplete log.
    """
    problem = read_detail(log_dir / DETAIL).problem
    reasons = [f"{DETAIL} is {problem}"] if problem else []
    if accuracy:
        reasons += _accuracy_log_problem(log_dir / ACCURACY, samples, cause_known)
    return tuple(reasons)


def _accuracy_log_problem(path: Path, samples: int, cause_known: bool) -> Iterator[str]:
    """Entries are flat objects, so each brace opens one; nothing of a file of gigabytes is decoded."""
    if not path.is_file():
        yield f"{ACCURACY} is missing"
        return
    entries, tail = 0, b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            entries += block.count(b"{")
            tail = (tail + block)[-len(_END) :]
    if tail != _END:
        question = "" if cause_known else ": is the disk full?"
        yield f"{ACCURACY} is cut short after {entries} entries, expected {samples}{question}"
    elif entries != samples:
        yield f"{ACCURACY} has {entries} entries, expected {samples}"
