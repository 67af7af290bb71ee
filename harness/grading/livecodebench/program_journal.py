"""Final results of programs, one JSON line each, which the next call reuses."""

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from harness.errors import GradingError
from harness.files import lock_file
from harness.grading.livecodebench import packages
from harness.grading.livecodebench.run_solution import ProgramResult
from harness.grading.scoring.grade import Reason

_GRADING = Path(__file__).resolve().parents[1]
_JUDGES = ("sandbox", "sandbox/jail", "livecodebench")  # the folders whose modules decide a result


def journal_path(output_file: Path | None, log: Path) -> Path:
    """The file for results of programs: beside the result of the evaluation, else beside the log."""
    beside = output_file or log
    return beside.with_name(f"{beside.stem}.programs.jsonl")


def task_key(mode: str, limit_s: float, digest: str, code: str, tier: str) -> str:
    """SHA-256 of all that a result depends on: rules, limit, tests, code, packages, sandbox and grader."""
    parts = (_judges(), packages.used_by(code), tier, mode, repr(limit_s), digest, code)
    combined = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        combined.update(b"%d:" % len(data) + data)
    return combined.hexdigest()


@cache
def _judges() -> str:
    """Digest of the modules that run and compare programs, and of the Python that runs them."""
    combined = hashlib.sha256(sys.version.encode())
    for module in judging_modules():
        combined.update(module.read_bytes())
    return combined.hexdigest()


def judging_modules() -> list[Path]:
    """The modules that run programs and compare their outputs."""
    return sorted(path for folder in _JUDGES for path in (_GRADING / folder).glob("*.py"))


class _Key(msgspec.Struct):
    key: str


class ResultJournal:
    """An append-only file that one evaluator at a time has; a line cut by a crash is skipped when read."""

    def __init__(self, path: Path, restart: bool = False) -> None:
        """Append to the file, or start a new one with ``restart``. Raises GradingError if not writable.

        Waits for another evaluator that has it, and then reuses its results.
        """
        self._path = path
        try:
            # The name is known beforehand: a link there is not followed.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.fdopen(os.open(path, flags, 0o644), "a+b", buffering=0)
            self._wait_for_others()
            if restart:
                self._file.truncate(0)
            self.known, is_complete = self._read()
            if not is_complete:
                self._file.write(b"\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def add(self, key: str, outcome: ProgramResult) -> None:
        """Record a final result; it is in the file before this returns. Raises GradingError."""
        self.known[key] = outcome
        try:
            self._file.write((json.dumps({"key": key, **asdict(outcome)}) + "\n").encode())
        except OSError as error:
            raise self._unwritable(error) from error

    def reused(self, keys: Collection[str]) -> str:
        """A line on the results that are in the file; empty where there are none."""
        if not self.known:
            return ""
        used = sum(key in self.known for key in keys)
        others = "; the others are of other programs, tests, limits or packages, or of another version"
        return (
            f"{self._path}: {used} of its {len(self.known)} verdicts are reused"
            f"{others if used < len(self.known) else ''}"
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _unwritable(self, error: OSError) -> GradingError:
        return GradingError(
            f"{self._path}: cannot write the verdicts on programs ({error.strerror}); pass --output with a "
            "file elsewhere, they are written beside it"
        )

    def _wait_for_others(self) -> None:
        try:
            lock_file(self._file)
        except BlockingIOError:
            print(
                f"{self._path}: another evaluator uses this journal; waiting for its end, to reuse its "
                "verdicts (or choose another --output)",
                file=sys.stderr,
            )
            lock_file(self._file, fcntl.LOCK_EX)

    def _read(self) -> tuple[dict[str, ProgramResult], bool]:
        """The results by key, and whether the last line is complete."""
        self._file.seek(0)
        text = self._file.read()
        found: dict[str, ProgramResult] = {}
        for line in text.split(b"\n"):
            try:
                key = msgspec.json.decode(line, type=_Key).key
                outcome = msgspec.json.decode(line, type=ProgramResult)
            except (msgspec.DecodeError, UnicodeError):
                continue  # cut by a crash, or of another version: that task is graded again
            # What the machine may have caused is run again.
            if outcome.reason is not Reason.SANDBOX_LOST and not outcome.contended:
                found[key] = outcome
        return found, not text or text.endswith(b"\n")
