"""Whether LoadGen's logs are complete and its settings as planned.

LoadGen does not notice a full disk, and drops what it cannot write.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.config.loadgen_settings import ACCURACY_MODE, BY_ATTRIBUTE, PERFORMANCE_MODE
from harness.files import ACCURACY_LOG, DETAIL, SUMMARY
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES, SUBMISSION_GAP
from harness.loadgen_logs.summary_and_detail import LoadgenDetail, read_detail, read_summary
from harness.text import counted

_END = b"]\n"
_BLOCK = 1 << 22
_DIGITS = 1e-5  # LoadGen logs fractions with six digits


def loadgen_file_errors(
    log_dir: Path, detail: LoadgenDetail, *, accuracy: bool, samples: int, cause_known: bool
) -> tuple[str, ...]:
    """A reason for each log that is missing or cut short; ``samples`` is what an accuracy log must hold.

    ``cause_known``: the run ended for a reason that explains an incomplete log.
    """
    reasons = [f"{DETAIL} is {detail.problem}"] if detail.problem else []
    if accuracy:
        reasons += _accuracy_log_errors(log_dir / ACCURACY_LOG, samples, cause_known)
    return tuple(reasons)


def damage(logs: Path | None, answers: Path | None) -> str:
    """What is wrong with a log that was complete once, "" for nothing; of accuracy logs the ends are read.

    ``logs``: the folder of summary and detail log; ``answers``: that of the accuracy log; None: not needed.
    """
    if logs is not None:
        found = {SUMMARY: read_summary(logs / SUMMARY).problem, DETAIL: read_detail(logs / DETAIL).problem}
        for name, problem in found.items():
            if problem:
                return f"{name} is {problem}"
    if answers is None:
        return ""
    log = answers / ACCURACY_LOG
    if not log.is_file():
        return f"{ACCURACY_LOG} is missing"
    if log.stat().st_size <= EMPTY_LOG_BYTES:
        return f"{ACCURACY_LOG} has no answers"
    return "" if is_complete(log) else f"{ACCURACY_LOG} is cut short"


def is_complete(path: Path) -> bool:
    """Whether LoadGen's JSON array has its end and was not truncated."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 64))
        if not file.read().rstrip().endswith(b"]"):
            return False
        # A log truncated for a submission has the gap right after its first 4 KiB.
        file.seek(0)
        return SUBMISSION_GAP not in file.read(64 << 10)


def settings_in_force(detail: LoadgenDetail) -> dict[str, Any]:
    """The settings with which LoadGen ran, as it logged them, and the queries that followed."""
    generated = {key: value for key, value in detail.values.items() if key.startswith("generated_")}
    return detail.effective | generated


def setting_errors(detail: LoadgenDetail, planned: Mapping[str, Any], *, accuracy: bool) -> tuple[str, ...]:
    """The settings of LoadGen's run that differ from ``planned``, which has TestSettings' names.

    A setting that the log does not hold is not a difference.
    """
    ran = detail.requested
    found = []
    asked = ACCURACY_MODE if accuracy else PERFORMANCE_MODE
    if (mode := ran.get("test_mode", asked)) != asked:
        found.append(f"LoadGen ran in mode {mode}, not in {asked} as planned")
    for name, value in planned.items():
        logged = ran.get(BY_ATTRIBUTE[name].requested_name, value)
        same = logged == value or (
            isinstance(value, float)
            and isinstance(logged, int | float)
            and math.isclose(logged, value, rel_tol=_DIGITS)
        )
        if not same:
            found.append(f"LoadGen ran with {name} = {logged}, not {value} as planned")
    return tuple(found)


def _accuracy_log_errors(path: Path, samples: int, cause_known: bool) -> Iterator[str]:
    """Entries are flat objects, so each brace opens one; nothing of a file of gigabytes is decoded."""
    if not path.is_file():
        yield f"{ACCURACY_LOG} is missing"
        return
    entries, tail = 0, b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            entries += block.count(b"{")
            tail = (tail + block)[-len(_END) :]
    if tail != _END:
        question = "" if cause_known else ": is the disk full?"
        yield f"{ACCURACY_LOG} is cut short after {counted(entries, 'entry')}, expected {samples}{question}"
    elif entries != samples:
        yield f"{ACCURACY_LOG} has {counted(entries, 'entry')}, expected {samples}"
