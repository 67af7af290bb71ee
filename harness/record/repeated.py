"""The first line of a repeated command: it continues what its folder holds, is complete, or begins anew.

Every program that keeps its answers says it in these words, a dry run in the conditional.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.cli.commands import CommandLine, recorded
from harness.config.other_flags import flag_of
from harness.text import utc

_RESTART, _RESUME = "--restart", "--resume"
ANEW_OR_NOT = {_RESTART: False, _RESUME: False}  # no value follows
# Of remedies. Most commands that meet them were printed with the second flag, which contradicts the first.
ANEW = f"{_RESTART} (and no {_RESUME})"
MOVES_ASIDE = f"add {ANEW}, which moves"


class FirstLine(msgspec.Struct, frozen=True):
    """The sentences of one program; ``dry_run``: nothing of it is done."""

    dry_run: bool = False

    def continues(self, earlier: str, counts: str) -> str:
        """``continues the run of 2026-11-23 01:32:35 UTC: 36 of 96 samples are answered``."""
        return f"{self._verb('continues', 'continue')} {earlier}: {counts}"

    def complete(self, earlier: str, place: Path, anew: str = "--restart begins anew") -> str:
        """``complete: the run of 2026-11-23 01:32:35 UTC, VALID, in FOLDER; nothing is sent``."""
        sent = "would be" if self.dry_run else "is"
        return f"complete: {earlier} in {place}; nothing {sent} sent ({anew})"

    def anew(self, why: str, earlier: str, aside: Path, back: CommandLine | None = None) -> str:
        """What differs, what the folder holds, where that goes, and how to go back to it."""
        reason = f", {why}" if why else ""
        moved = "would be moved" if self.dry_run else "is moved"
        how = f"; to go back to it, move it back and run {back}" if back else ""
        return (
            f"{self._verb('begins', 'begin')} anew{reason}: {earlier} {moved} to {aside} before the first "
            f"query{how}"
        )

    def _verb(self, now: str, conditional: str) -> str:
        return f"would {conditional}" if self.dry_run else now


class NextStep(NamedTuple):
    """What to do after a run, as a line for the user's working folder."""

    words: str
    """``Repeat it with``"""
    command: CommandLine

    def __str__(self) -> str:
        return f"{self.words}: {self.command}"

    def anywhere(self) -> str:
        """The line for any working folder."""
        return f"{self.words}: {self.command.anywhere()}"


def repeat_step(arguments: Sequence[str], folder: str, *, mend: bool) -> NextStep:
    """The command of a program, given as sys.argv with its folder, that measures again.

    ``mend``: what went wrong would do so again.
    """
    words = "Mend the cause, then repeat it with" if mend else "Repeat it with"
    return NextStep(words, recorded(arguments, folder))


def resuming_command(arguments: Sequence[str], folder: str = "") -> CommandLine:
    """The command of a program, given as sys.argv with its folder, with ``--resume``: never anew."""
    return _with_flag(arguments, folder, _RESUME)


def restarting_command(arguments: Sequence[str], folder: str = "") -> CommandLine:
    """With ``--restart``: it never continues."""
    return _with_flag(arguments, folder, _RESTART)


def without(flags: Sequence[str], dropped: Mapping[str, bool]) -> Iterator[str]:
    """The flags of a command line but for those ``dropped``, each with whether a value follows it."""
    words = iter(flags)
    for word in words:
        name = flag_of(word)
        if name not in dropped:
            yield word
        elif dropped[name] and "=" not in word:
            next(words, None)


def _with_flag(arguments: Sequence[str], folder: str, flag: str) -> CommandLine:
    made = recorded(arguments, folder)
    return made._replace(flags=(*without(made.flags, ANEW_OR_NOT), flag))


def run_of(started: datetime) -> str:
    """``the run of 2026-11-23 01:32:35 UTC``."""
    return f"the run of {utc(started)}"
