"""The folder beside an output file until the file is complete: settings, and a journal of each attempt.

``FILE.run/`` holds settings.json, a lock, and attempt.N/journal/ as a run's folder does.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from harness.config.generation import SamplingParameters
from harness.errors import ConfigError
from harness.files import JOURNAL_DIR, atomic_write
from harness.record.answer_log import SavedAnswer
from harness.record.journal import lost_rows, read_journal
from harness.record.outcome import FailureKind
from harness.record.resume import ATTEMPT, differences, saved_answers

_SETTINGS, _LOCK = "settings.json", "lock"
_MAY_CHANGE = ("backend", "version")


class EvalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts, model and parameters that a resumed run must share; also in a parquet file's schema.

    ``samples`` rows of the dataset are answered, after the first ``skip``.
    """

    benchmark: str
    dataset_sha256: str
    skip: int
    samples: int
    parameters: SamplingParameters
    backend: str
    model: str | None = None
    weight_version: str | None = None
    version: str | None = None


def require_new(output: Path, folder: Path) -> None:
    """Raise ConfigError where a run without --resume would overwrite something."""
    if (folder / _SETTINGS).exists():
        raise ConfigError(
            f"{folder} keeps the answers of an earlier run: add --resume to send the remaining rows only, "
            "or remove the folder"
        )
    if output.exists():
        raise ConfigError(f"{output}: the file exists; choose another output file, or remove it")


def require_writable(output: Path) -> None:
    """Raise ConfigError where the file could not be written. Creates no folder."""
    folder = output.parent
    while not folder.exists():
        folder = folder.parent
    try:
        if output.exists() and not output.is_file():
            raise IsADirectoryError(0, "not a regular file")
        Path(tempfile.mkdtemp(prefix=".probe-", dir=folder)).rmdir()
    except OSError as error:
        raise ConfigError(
            f"{output}: cannot write there: {error.strerror or error}; choose another output file"
        ) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and lock it against other runs. Raises ConfigError."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigError(f"{folder}: another run is writing there; wait for its end") from None
    finally:
        os.close(lock)


def read_settings(folder: Path) -> EvalSettings:
    """The settings of the run to resume. Raises ConfigError."""
    path = folder / _SETTINGS
    try:
        return msgspec.json.decode(path.read_bytes(), type=EvalSettings)
    except FileNotFoundError:
        raise ConfigError(
            f"--resume: {folder} holds no run to resume; check the name of the output file, or omit --resume"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"--resume: {path} cannot be read: {error}; start again without it") from None


def write_settings(folder: Path, settings: EvalSettings) -> None:
    """Keep them for a later --resume. Raises OSError."""
    with atomic_write(folder / _SETTINGS) as file:
        file.write(msgspec.json.format(msgspec.json.encode(settings)))


def check_same(folder: Path, earlier: EvalSettings, now: EvalSettings) -> list[str]:
    """Raise ConfigError if dataset, model or settings differ from those of the run; returns warnings."""
    before, after = (msgspec.to_builtins(one) for one in (earlier, now))
    found = {
        name: list(differences(name, before[name], after[name])) for name in EvalSettings.__struct_fields__
    }
    if None in (earlier.weight_version, now.weight_version):  # not named, or by an earlier version of this
        found.pop("weight_version")
    decisive = [text for name, texts in found.items() if name not in _MAY_CHANGE for text in texts]
    if decisive:
        raise ConfigError(
            f"--resume: {folder} holds a run with {'; '.join(decisive)}; give the same arguments as before, "
            "or start again with another output file"
        )
    return [f"--resume: earlier answers are of {text}" for name in _MAY_CHANGE for text in found[name]]


def next_attempt(folder: Path) -> Path:
    """A new folder for the journal of this attempt. Raises OSError."""
    number = 1
    while (attempt := folder / f"{ATTEMPT}{number}").exists():
        number += 1
    (attempt / JOURNAL_DIR).mkdir(parents=True)
    return attempt


def answers(folder: Path, samples: int) -> dict[int, SavedAnswer]:
    """Every answer of all attempts, by sample index."""
    return saved_answers(folder, samples)


def failures(attempt: Path, lost: Sequence[tuple[int, int]]) -> Mapping[int, tuple[FailureKind, str]]:
    """Kind and detail of each failure of an attempt, by sample index; ``lost`` as in journal.lost_rows."""
    journal = read_journal(attempt / JOURNAL_DIR)
    found = {}
    for rows in (journal.rows, lost_rows(lost)):
        for row in rows[rows["failure"] > 0]:
            kind = FailureKind(int(row["failure"]))
            detail = journal.details.get(int(row["query_id"]), "")
            found[int(row["sample_index"])] = kind, detail
    return found


def elapsed_s(folder: Path) -> float:
    """Seconds from the first request of each attempt to its last complete answer, all attempts together."""
    total_ns = 0
    for journal in folder.glob(f"{ATTEMPT}*/{JOURNAL_DIR}"):
        rows = read_journal(journal).rows
        done = rows[rows["failure"] == 0]
        if len(done):
            total_ns += int(done["last_byte_ns"].max() - rows["issued_ns"].min())
    return total_ns / 1e9


def remove(folder: Path) -> None:
    """The file is complete: nothing of the folder is needed any more."""
    shutil.rmtree(folder)
