"""Outcomes that are final, one JSON line each, so that an interrupted grading resumes."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import IO

from harness.errors import GradingError
from harness.grading.lcb.trial import Outcome
from harness.grading.verdict import Reason


def task_key(mode: str, cpu_limit_s: float, digest: str, code: str) -> str:
    """What an outcome depends on: rules, limit, tests and code."""
    parts = (mode, repr(cpu_limit_s), digest, code)
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        whole.update(b"%d:" % len(data) + data)
    return whole.hexdigest()


class OutcomeJournal:
    """Append-only; a line cut by a crash is dropped when the journal is read again."""

    def __init__(self, path: Path, resume: bool) -> None:
        """Start anew, or with ``resume`` go on after what is there; GradingError if not writable."""
        self.known: dict[str, Outcome] = _read(path) if resume else {}
        try:
            path.unlink(missing_ok=True)  # the name is known beforehand: a link there is not followed
            self._file: IO[str] = path.open("x")
            for key, outcome in self.known.items():
                self._write(key, outcome)
            self._file.flush()
        except OSError as error:
            raise GradingError(
                f"{path}: cannot write the grading journal ({error}); choose another --output-file"
            ) from error

    def add(self, key: str, outcome: Outcome) -> None:
        """Record a final outcome, on disk before this returns to the caller's next task."""
        self.known[key] = outcome
        self._write(key, outcome)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, key: str, outcome: Outcome) -> None:
        self._file.write(json.dumps({"key": key, **asdict(outcome)}) + "\n")


def _read(path: Path) -> dict[str, Outcome]:
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
            outcome = Outcome(Reason(row["reason"]), row["failed_test"], row["detail"], row["cpu_s"])
            found[str(row["key"])] = outcome
        except (ValueError, KeyError, TypeError):
            continue  # cut by a crash: that task is graded again
    return found
