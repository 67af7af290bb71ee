"""Commands that a message names, ready to paste: a program is started in them as this process was."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.cli.door import LAUNCHER, is_open, verb_of
from harness.files import ROOT

# The working folder of a user whose command runs this program in another folder.
USERS_FOLDER = "MLPERF_USERS_FOLDER"


class CommandLine(NamedTuple):
    """A command line in its two parts, as text for the user's working folder."""

    start: tuple[str, ...]
    """interpreter and script, or the launcher and its verb"""
    flags: tuple[str, ...]
    folder: str = ""
    """where it is typed, which its relative paths begin at; "" where that is not known"""

    def __str__(self) -> str:
        if self.folder == users_folder():
            return shlex.join((*self.start, *self.flags))
        return self.anywhere()

    def anywhere(self) -> str:
        """The text for any working folder."""
        move = f"{shlex.join(('cd', self.folder))} && " if self.folder else ""
        return move + shlex.join((*self.start, *self.flags))


def start_of(program: str, command: str = "", folder: str = "") -> tuple[str, ...]:
    """``./mlperf score`` where this process was started so, else interpreter and script.

    ``command``: of a program with several that are verbs of their own. ``folder``: where it is typed, if that
    is not the user's working folder.
    """
    if is_open():
        return (*_started(LAUNCHER, folder), verb_of(program, command))
    return (*_started(ROOT / program, folder), *filter(None, [command]))


def of_verb(verb: str) -> tuple[str, ...]:
    """``./mlperf campaign``, or the launcher's path from another folder."""
    return (*_started(LAUNCHER), verb)


def recorded(arguments: Sequence[str], folder: str = "") -> CommandLine:
    """The parts of a command that was kept as sys.argv, and as was the folder where it was typed."""
    program, *flags = arguments
    start = _started(Path(program), folder)
    if Path(program).name == LAUNCHER.name:
        return CommandLine((*start, *flags[:1]), tuple(flags[1:]), folder)
    return CommandLine(start, tuple(flags), folder)


def users_folder() -> str:
    """The folder where the user types commands."""
    return os.environ.get(USERS_FOLDER) or str(Path.cwd())


def shown(path: Path, folder: str = "") -> Path:
    """The path, relative to the folder, or the user's, where it lies in it, and that is not the root."""
    here = Path(folder or users_folder())
    inside = path.is_absolute() and here != Path("/") and path.is_relative_to(here)
    return path.relative_to(here) if inside else path


def _started(script: Path, folder: str = "") -> tuple[str, ...]:
    """What starts a program: ./mlperf starts itself."""
    name = str(shown(script, folder))
    if script.name == LAUNCHER.name:
        return (name if "/" in name else f"./{name}",)
    return str(shown(Path(sys.executable), folder)), name
