"""The folder beside an output file until the file is complete: settings, and a journal of each attempt.

``FILE.run/`` holds settings.json, a lock, and attempt.N/journal/ as a run's folder does.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from harness.analysis.statistics import completed
from harness.config.generation import SamplingParameters
from harness.config.plans import ClientPlan
from harness.config.protocol import Answers
from harness.errors import ConfigError
from harness.files import JOURNAL_DIR, explained_write, hold, move_path, open_lock
from harness.json_files import read_json, write_json
from harness.record.journal import lost_rows, read_journal
from harness.record.outcome import FailureKind
from harness.record.output_dir import aside_name, written_at
from harness.record.repeated import ANEW, MOVES_ASIDE, FirstLine, run_of
from harness.record.resume import ATTEMPT, EarlierRun, differences, saved_answers
from harness.record.run_record import EncodedAnswers

_SETTINGS, _LOCK = "settings.json", "lock"
# NFS, and FUSE, keep a removed file in its folder under another name until it is closed.
_LOCK_IS_OPEN = (errno.ENOTEMPTY, errno.EBUSY)
_MAY_CHANGE = ("backend", "version")
OTHER_OUTPUT = "choose another output file, or remove it"
_ANOTHER = f"give the same arguments and servers as before, another output file, or {ANEW} to begin anew"


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
    prompts: Literal["ids", "text"] = "ids"
    answers: Answers | None = None
    """None until the trial requests have shown it"""
    tokenizer_sha256: str | None = None
    """of what encodes answers that are text, as of EncodedAnswers"""


def earlier_rows(
    output: Path,
    folder: Path,
    now: EvalSettings,
    client: ClientPlan,
    in_file: Callable[[Path], EvalSettings | None],
) -> EarlierRun | None:
    """What lies there before a server is asked; ``now`` without the model takes that of the earlier run.

    ``in_file`` gives the settings that a complete file names, None where its format has no place for them.

    Raises ConfigError where --resume finds nothing to resume, where answers lie without their settings, and
    where a complete file would be replaced.
    """
    before, line, other = None if client.restart else read_settings(folder), FirstLine(client.dry_run), ""
    if before is None and output.is_file() and not client.restart:
        made = in_file(output)
        other = "" if made is None else decisive_differences(made, _served_as(made, now))
        if made is not None and not other:
            what = f"all {now.samples} rows are answered with the same settings"
            return EarlierRun("complete", line.complete(what, output, "remove it to begin anew"))
    if client.resume and other:
        raise ConfigError(
            f"--resume: {output} has the answers of a run with {other}; give the same arguments as before, "
            "or omit --resume and choose another output file"
        )
    if client.resume and before is None:
        raise ConfigError(
            f"--resume: {folder} holds no run to resume; check the name of the output file, or omit --resume"
        )
    if before is None:
        return _without_settings(output, folder, client, other)
    kept = f"{len(saved_answers(folder, before.samples))} of {before.samples} rows are answered"
    earlier = run_of(written_at(folder / _SETTINGS))
    if not (found := decisive_differences(before, _served_as(before, now))):
        return EarlierRun("continue", line.continues(earlier, kept))
    if client.resume:
        raise ConfigError(f"--resume: {folder} holds a run with {found}; {_ANOTHER}")
    return _anew(output, folder, client, f"as the earlier run has {found}", f"{earlier} ({kept})")


def _without_settings(output: Path, folder: Path, client: ClientPlan, other: str) -> EarlierRun | None:
    """The run begins anew. Raises ConfigError where it would replace a complete file.

    ``other``: the settings of that file that differ.
    """
    if output.exists() and not (client.restart and folder.exists()):
        made = f" with the answers of a run with {other}" if other else ""
        raise ConfigError(f"{output}: the file exists{made}; {OTHER_OUTPUT}")
    if not folder.exists():
        return None
    return _anew(output, folder, client, "as asked for" if client.restart else "", f"what {folder} holds")


def _anew(output: Path, folder: Path, client: ClientPlan, why: str, earlier: str) -> EarlierRun:
    goes = aside_name(folder)
    if output.exists():
        earlier += f" with its file {output.name}"
    return EarlierRun("anew", FirstLine(client.dry_run).anew(why, earlier, goes))


def _served_as(before: EvalSettings, now: EvalSettings) -> EvalSettings:
    """``now`` with the servers' part of an earlier run: it is compared once the servers are known."""
    part = (*_MAY_CHANGE, "model", "weight_version", "answers", "tokenizer_sha256")
    return msgspec.structs.replace(now, **{name: getattr(before, name) for name in part})


def move_aside(output: Path, folder: Path) -> None:
    """Move what an earlier run has left, its file into its folder. Raises ConfigError for one at work."""
    with locked(folder):
        aside = aside_name(folder)
        if output.exists():
            output.rename(folder / output.name)
        move_path(folder, aside)


def require_writable(output: Path) -> None:
    """Raise ConfigError where the file could not be written. Creates no folder."""
    folder = output.parent
    while not folder.exists():
        folder = folder.parent
    with explained_write(output, "output file"):
        if output.exists() and not output.is_file():
            raise IsADirectoryError(0, "not a regular file")
        Path(tempfile.mkdtemp(prefix=".probe-", dir=folder)).rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and lock it against other runs. Raises ConfigError."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = open_lock(folder / _LOCK)
    try:
        hold(lock)
        yield
    except BlockingIOError:
        raise ConfigError(f"{folder}: another run is writing there; wait for its end") from None
    finally:
        os.close(lock)
        with suppress(OSError):  # what is left of a folder that was removed is empty now
            folder.rmdir()


def read_settings(folder: Path) -> EvalSettings | None:
    """The settings of the run to resume; None where there is none. Raises ConfigError for damaged ones."""
    path = folder / _SETTINGS
    remedy = f"restore it, or {MOVES_ASIDE} {folder} aside"
    return read_json(path, EvalSettings, remedy) if path.exists() else None


def write_settings(folder: Path, settings: EvalSettings) -> None:
    """Keep them for a repeated command. Raises ConfigError where the folder cannot be written."""
    with explained_write(folder / _SETTINGS, "output file"):
        write_json(folder / _SETTINGS, settings)


def decisive_differences(earlier: EvalSettings, now: EvalSettings) -> str:
    """The differences of prompts, model or parameters; "" for none."""
    found = _differences(earlier, now)
    return "; ".join(text for name, texts in found.items() if name not in _MAY_CHANGE for text in texts)


def check_same(folder: Path, earlier: EvalSettings, now: EvalSettings) -> list[str]:
    """Raise ConfigError if dataset, model or settings differ from those of the run; returns warnings."""
    if decisive := decisive_differences(earlier, now):
        raise ConfigError(f"{folder} holds a run with {decisive}; {_ANOTHER}")
    found = _differences(earlier, now)
    return [f"earlier answers are of {text}" for name in _MAY_CHANGE for text in found[name]]


def answered(
    folder: Path, settings: EvalSettings, answers: Answers, encoded: EncodedAnswers | None
) -> EvalSettings:
    """The settings with the form of the answers. Raises ConfigError if earlier ones came in another."""
    sha256 = encoded and encoded.tokenizer_sha256
    now = msgspec.structs.replace(settings, answers=answers, tokenizer_sha256=sha256)
    if settings.answers is not None and (other := decisive_differences(settings, now)):
        raise ConfigError(f"{folder} holds a run with {other}; {_ANOTHER}")
    return now


def _differences(earlier: EvalSettings, now: EvalSettings) -> dict[str, list[str]]:
    before, after = (msgspec.to_builtins(one) for one in (earlier, now))
    found = {
        name: list(differences(name, before[name], after[name])) for name in EvalSettings.__struct_fields__
    }
    if None in (earlier.weight_version, now.weight_version):  # a server does not name it
        found.pop("weight_version")
    return found


def remove(folder: Path) -> None:
    """Remove it after its file was written. Without settings, what a kill leaves of it is no run to resume.

    Raises OSError.
    """
    (folder / _SETTINGS).unlink()
    try:
        shutil.rmtree(folder)
    except OSError as error:
        if error.errno not in _LOCK_IS_OPEN:
            raise


def next_attempt(folder: Path) -> Path:
    """A new folder for the journal of this attempt. Raises OSError."""
    number = 1
    while (attempt := folder / f"{ATTEMPT}{number}").exists():
        number += 1
    (attempt / JOURNAL_DIR).mkdir(parents=True)
    return attempt


def failures(
    attempt: Path, lost: Sequence[tuple[int, int]], answers: Container[int]
) -> Mapping[int, tuple[FailureKind, str]]:
    """Kind and detail of each failure of an attempt, by sample index; ``lost`` as in journal.lost_rows.

    A worker that died may have kept an answer without reporting it: samples with ``answers`` have none.
    """
    journal = read_journal(attempt / JOURNAL_DIR)
    found = {}
    for rows in (journal.rows, lost_rows(lost)):
        for row in rows[rows["failure"] > 0]:
            kind = FailureKind(int(row["failure"]))
            detail = journal.details.get(int(row["query_id"]), "")
            found[int(row["sample_index"])] = kind, detail
    return {sample: failure for sample, failure in found.items() if sample not in answers}


def elapsed_s(folder: Path) -> float:
    """Seconds from the first request of each attempt to its last complete answer, all attempts together."""
    total_ns = 0
    for journal in folder.glob(f"{ATTEMPT}*/{JOURNAL_DIR}"):
        rows = read_journal(journal).rows
        if len(done := completed(rows)):
            total_ns += int(done["last_byte_ns"].max() - rows["issued_ns"].min())
    return total_ns / 1e9
