"""Variables of the environment in the TOML's URLs, such as ``slurm:$SLURM_JOB_NODELIST:30000``.

Their values are kept beside the results, so that the table of steps can be printed outside of the job.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from harness.errors import ConfigError
from harness.json_files import read_kept, write_json

_KEPT = "variables.json"
_NAME = re.compile(r"\$(\{)?(?P<name>\w+)(?(1)\})")


def expanded(folder: Path, text: str) -> str:
    """``text`` with the values of its variables. Raises ConfigError for one that is not set."""
    kept = read_kept(folder / _KEPT)

    def value(found: re.Match[str]) -> str:
        name = found["name"]
        here = os.environ.get(name) or kept.get(name)
        if here is None:
            raise ConfigError(f"url {text!r}: ${name} is not set; is this inside of its job?")
        return here

    return _NAME.sub(value, text)


def keep(folder: Path, texts: Iterable[str]) -> None:
    """Keep the values of all variables in ``texts``. Raises OSError."""
    names = {found["name"] for text in texts for found in _NAME.finditer(text)}
    if here := {name: os.environ[name] for name in sorted(names) if name in os.environ}:
        write_json(folder / _KEPT, read_kept(folder / _KEPT) | here)
