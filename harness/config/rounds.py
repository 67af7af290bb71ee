"""The rounds of MLPerf Inference.

Each is a folder of configs/rounds/ with round.toml and a file for each benchmark. Imports stay light, since
``--help`` shows the current round.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.files import CONFIG_DIR

_ROUNDS_DIR = CONFIG_DIR / "rounds"
_FILE = "round.toml"


@cache
def available_rounds(folder: Path = _ROUNDS_DIR) -> tuple[str, ...]:
    """Names of the rounds, the latest first."""
    names = (path.parent.name for path in folder.glob(f"*/{_FILE}"))
    return tuple(sorted(names, key=_numbers, reverse=True))


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", name))


def current_round() -> str:
    """The latest round, whose rules hold unless another one is named."""
    return available_rounds()[0]


def round_file(name: str) -> Path:
    """The file with the rules for all benchmarks. Raises ConfigError for an unknown round."""
    if name not in available_rounds():
        raise ConfigError(f"configs/rounds/ has no round {name}; name one of {', '.join(available_rounds())}")
    return _ROUNDS_DIR / name / _FILE


def benchmark_rules(round_name: str, benchmark: str) -> Path:
    """The file with what a round locks for a benchmark, which may not exist. Raises ConfigError."""
    return round_file(round_name).with_name(f"{benchmark}.toml")


def seeds_of(round_name: str) -> dict[str, int]:
    """LoadGen's seeds by LoadGen's names. Raises ConfigError."""
    return dict(_rules(round_name)["seeds"])


def loadgen_of(round_name: str) -> str:
    """The version of mlcommons-loadgen that has the round's settings. Raises ConfigError."""
    return str(_rules(round_name)["loadgen"])


@cache
def _rules(round_name: str) -> dict[str, Any]:
    path = round_file(round_name)
    found = read_toml(path)
    if missing := {"seeds", "loadgen"} - found.keys():
        raise ConfigError(f"{path}: missing: {', '.join(sorted(missing))}")
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file. Raises ConfigError when it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
