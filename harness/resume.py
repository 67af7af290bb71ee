"""Going on with an accuracy run: was the earlier attempt the same run, and which answers did it leave?"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.answers import KeptAnswer, kept_answers
from harness.errors import ConfigError
from harness.journal import JOURNAL_DIR

RUN_RECORD = "run.json"
_ATTEMPT = "attempt."
# Whatever decides which prompts are answered, by which model, and how.
_DECISIVE = ("scenario", "mode", "model_key", "samples", "dataset_sha256", "parameters")


def check_resumable(log_dir: Path, plan: Mapping[str, Any], model: str | None) -> None:
    """Refuse to go on with a run that was another one, or is whole. Raises ConfigError.

    ``plan`` is the new run's plan as run.json has it, ``model`` what its servers say they serve.
    """
    record = _earlier_record(log_dir)
    earlier = record.get("plan") or {}
    for name in _DECISIVE:
        if earlier.get(name) != plan.get(name):
            raise ConfigError(
                f"--resume: {log_dir} holds a run with {name} {_short(earlier.get(name))}, this one has "
                f"{_short(plan.get(name))}; give the same arguments as before or start anew without --resume"
            )
    served = [server.get("model") for server in record.get("servers") or ()]
    if served and model not in served:
        raise ConfigError(
            f"--resume: the answers in {log_dir} are of {served[0]}, the servers now serve {model}; "
            "one result needs one model"
        )
    if (record.get("verdict") or {}).get("result") == "VALID":
        raise ConfigError(f"--resume: the run in {log_dir} is VALID and whole; there is nothing left to do")


def set_aside(log_dir: Path) -> Path:
    """Move what the earlier attempt left into a folder of its own beside the others; returns that folder."""
    number = 1 + max((_number(path) for path in _attempts(log_dir)), default=0)
    attempt = log_dir / f"{_ATTEMPT}{number}"
    attempt.mkdir()
    for entry in sorted(log_dir.iterdir()):
        if not entry.name.startswith(_ATTEMPT):
            entry.rename(attempt / entry.name)
    return attempt


def earlier_answers(log_dir: Path, samples: int) -> dict[int, KeptAnswer]:
    """Every answer that the attempts in ``log_dir`` have kept, by sample index."""
    return kept_answers([attempt / JOURNAL_DIR for attempt in _attempts(log_dir)], samples)


def _earlier_record(log_dir: Path) -> Mapping[str, Any]:
    """The newest run.json: of the last attempt, or of one before when a crash came between."""
    for folder in (log_dir, *reversed(_attempts(log_dir))):
        try:
            record = json.loads((folder / RUN_RECORD).read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ConfigError(f"--resume: {folder / RUN_RECORD} cannot be read: {error}") from None
        if isinstance(record, dict):
            return record
    raise ConfigError(
        f"--resume: {log_dir} holds no run to go on with; check --output-dir and --scenario, "
        "or start without --resume"
    )


def _attempts(log_dir: Path) -> list[Path]:
    found = [path for path in log_dir.glob(f"{_ATTEMPT}*") if path.is_dir() and _number(path)]
    return sorted(found, key=_number)


def _number(path: Path) -> int:
    digits = path.name.removeprefix(_ATTEMPT)
    return int(digits) if digits.isdigit() else 0


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
