"""Resumption of an accuracy run: checks of the earlier attempt, and its answers."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from harness.errors import ConfigError
from harness.files import JOURNAL_DIR, RUN_RECORD
from harness.record.answer_log import SavedAnswer, read_saved_answers
from harness.record.run_record import RunRecord
from harness.record.server_changes import other_model

ATTEMPT = "attempt."  # folders of attempts; a number follows
_ATTEMPT_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_SHOWN = 80  # characters of a value


def check_resumable(log_dir: Path, record: RunRecord) -> None:
    """Raise ConfigError if the earlier run had other settings than this one, or is already complete."""
    earlier = _earlier_run(log_dir)
    before, now = (_decisive(one) for one in (earlier, record))
    for name, value in before.items():
        if found := list(differences(name, value, now[name])):
            raise ConfigError(
                f"--resume: {log_dir} holds a run with {'; '.join(found)}; "
                "give the same arguments as before or start again without --resume"
            )
    server = record.servers[0]
    others = [other_model(before, server) for before in earlier.servers]
    if others and all(others):
        raise ConfigError(
            f"--resume: the answers in {log_dir} are of another model than the servers now serve: "
            f"{others[0]}; one result needs one model"
        )
    if earlier.verdict is not None and earlier.verdict.result == "VALID":
        raise ConfigError(f"--resume: the run in {log_dir} is VALID and complete; nothing is left to do")


def _decisive(record: RunRecord) -> dict[str, object]:
    """The facts that decide which prompts are answered, by which model, and how."""
    return {
        "scenario": str(record.plan.scenario),
        "mode": record.plan.mode,
        "model_key": record.plan.model_key,
        "samples": record.settled.samples,
        "dataset_sha256": record.settled.dataset_sha256,
        "parameters": msgspec.to_builtins(record.plan.client.parameters),
    }


def version_changes(log_dir: Path, version: str | None) -> Iterator[str]:
    """Warnings about earlier answers of another server version than ``version``."""
    earlier = {server.version for run in _readable_runs(log_dir) for server in run.servers}
    if others := sorted(str(other) for other in earlier - {version, None}):
        yield (
            f"--resume: earlier answers in {log_dir} are of server version {', '.join(others)}, the servers "
            f"now report {version or 'no version'}"
        )


def archive_attempt(log_dir: Path) -> Path:
    """Move the files of the earlier attempt into a separate folder; returns that folder."""
    number = 1 + max((_number(path) for path in _attempts(log_dir)), default=0)
    attempt = log_dir / f"{ATTEMPT}{number}"
    attempt.mkdir()
    for entry in sorted(log_dir.iterdir()):
        if not entry.name.startswith(ATTEMPT):
            entry.rename(attempt / entry.name)
    return attempt


def saved_answers(log_dir: Path, samples: int) -> dict[int, SavedAnswer]:
    """Every answer of the attempts in ``log_dir``, by sample index."""
    return read_saved_answers([attempt / JOURNAL_DIR for attempt in _attempts(log_dir)], samples)


def _earlier_run(log_dir: Path) -> RunRecord:
    """The newest run.json: of the last attempt, or of one before when a crash came between."""
    for folder in (log_dir, *reversed(_attempts(log_dir))):
        try:
            return RunRecord.read(folder / RUN_RECORD)
        except FileNotFoundError:
            continue
        except ConfigError as error:
            raise ConfigError(
                f"--resume: {error}; "
                "restore it, or start without --resume (the answers there are then moved aside, not used)"
            ) from None
    raise ConfigError(
        f"--resume: {log_dir} holds no run to resume; check --output-dir and --scenario, "
        "or start without --resume"
    )


def _readable_runs(log_dir: Path) -> Iterator[RunRecord]:
    for folder in (log_dir, *_attempts(log_dir)):
        with suppress(OSError, ConfigError):
            yield RunRecord.read(folder / RUN_RECORD)


def differences(name: str, earlier: object, now: object) -> Iterator[str]:
    """``parameters.temperature 1.0, this one has 0.5``, for each value that differs."""
    if earlier == now:
        return
    if not isinstance(earlier, Mapping) or not isinstance(now, Mapping):
        yield f"{name} {_short(earlier)}, this one has {_short(now)}"
        return
    for key in dict.fromkeys([*earlier, *now]):
        yield from differences(f"{name}.{key}", earlier.get(key), now.get(key))


def _attempts(log_dir: Path) -> list[Path]:
    found = [path for path in log_dir.glob(f"{ATTEMPT}*") if path.is_dir() and _number(path)]
    return sorted(found, key=_number)


def _number(path: Path) -> int:
    digits = path.name.removeprefix(ATTEMPT)
    return int(digits) if _ATTEMPT_NUMBER.fullmatch(digits) else 0


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
