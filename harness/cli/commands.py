"""Commands that a message names, ready to paste: a program is started in them as this process was."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.cli.door import LAUNCHER, is_open, verb_of
from harness.files import ROOT

# The working folder of a user whose command runs this program in another folder.
USERS_FOLDER = "MLPERF_USERS_FOLDER"


class CommandLine(NamedTuple):
    """A command line in its two parts."""

    start: tuple[str, ...]
    """interpreter and script, or the launcher and its verb"""
    flags: tuple[str, ...]


def start_of(program: str, command: str = "") -> tuple[str, ...]:
    """``./mlperf score`` where this process was started so, else interpreter and script.

    ``command``: of a program with several that are verbs of their own.
    """
    if is_open():
        return (*_started(LAUNCHER), verb_of(program, command))
    return (*_started(ROOT / program), *filter(None, [command]))


def of_verb(verb: str) -> tuple[str, ...]:
    """``./mlperf campaign``, or the launcher's path from another folder."""
    return (*_started(LAUNCHER), verb)


def recorded(arguments: Sequence[str]) -> CommandLine:
    """The parts of a command that was kept as sys.argv."""
    program, *flags = arguments
    start = _started(Path(program))
    if Path(program).name == LAUNCHER.name:
        return CommandLine((*start, *flags[:1]), tuple(flags[1:]))
    return CommandLine(start, tuple(flags))


def shown(path: Path) -> Path:
    """The path, relative to the user's working folder where it lies in it, and that is not the root."""
    here = Path(os.environ.get(USERS_FOLDER) or Path.cwd())
    inside = path.is_absolute() and here != Path("/") and path.is_relative_to(here)
    return path.relative_to(here) if inside else path


def _started(script: Path) -> tuple[str, ...]:
    """What starts a program: ./mlperf starts itself."""
    name = str(shown(script))
    if script.name == LAUNCHER.name:
        return (name if "/" in name else f"./{name}",)
    return str(shown(Path(sys.executable))), name
