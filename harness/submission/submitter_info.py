"""What only the submitter knows: a small TOML. configs/submission/example.toml is one."""

import re
from pathlib import Path
from typing import Literal

import msgspec

from harness.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


Value = str | int


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``submitter`` and ``system_id`` become folders; ``system`` and ``measurements`` are fields by name."""

    submitter: str
    system_id: str
    division: Literal["closed", "open"] = "closed"
    system: dict[str, Value] = {}
    measurements: dict[str, Value] = {}


def read_statement(path: Path, division: str | None = None) -> Statement:
    """Read and check the names; ``division`` overrides the file's. Raises ConfigError."""
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=Statement)
    except OSError as error:
        raise ConfigError(
            f"--submission {path}: {error.strerror}; configs/submission/example.toml is one to start from"
        ) from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"--submission {path}: {error}") from error
    for field in ("submitter", "system_id"):
        _check_name(path, field, getattr(found, field))
    return found if division is None else msgspec.structs.replace(found, division=division)


def _check_name(path: Path, field: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--submission {path}: {field} is {name!r}, expected a folder's name: letters, digits and ._+-, "
            "no slash, no space, no leading dot"
        )
