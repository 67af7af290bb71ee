"""Which samples a log holds: TEST07 and TEST09 need each exactly once."""

import numpy as np
import numpy.typing as npt

from harness.accuracy_log import AccuracyLog
from harness.errors import GradingError

_LISTED = 5


def require_whole(log: AccuracyLog) -> npt.NDArray[np.int64]:
    """The sample index of every entry, in the order of the log. GradingError for a log that breaks off."""
    indexes = np.fromiter((entry.qsl_idx for entry in log), np.int64)
    if log.cut is not None:
        raise GradingError(
            f"{log.path}: cut short at byte {log.cut.offset} after {len(indexes)} entries "
            f"({log.cut.reason}); verify the whole log, or run the test again"
        )
    return indexes


def require_each_once(log: AccuracyLog, expected: int | None) -> int:
    """Every index from 0 to ``expected`` - 1 once; None: to the number of entries. Returns the number.

    Raises GradingError that says how many samples are missing, repeated or strange.
    """
    indexes = require_whole(log)
    wanted = len(indexes) if expected is None else expected
    known = indexes[(indexes >= 0) & (indexes < wanted)]
    counts = np.bincount(known, minlength=wanted)
    found = [
        _told(np.flatnonzero(counts == 0), f"of {wanted} samples missing"),
        _told(np.flatnonzero(counts > 1), "logged more than once"),
        _told(np.unique(indexes[(indexes < 0) | (indexes >= wanted)]), f"beyond 0..{wanted - 1}"),
    ]
    if any(found):
        raise GradingError(
            f"{log.path}: {', '.join(filter(None, found))}; the test needs each sample exactly once: "
            "check that the audit settings were in force and the dataset is the test's"
        )
    return wanted


def _told(indexes: npt.NDArray[np.int64], what: str) -> str:
    if not len(indexes):
        return ""
    shown = ", ".join(str(index) for index in indexes[:_LISTED])
    return f"{len(indexes)} {what} (qsl_idx {shown}{', ...' if len(indexes) > _LISTED else ''})"
