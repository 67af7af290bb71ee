"""The first line of a repeated command: it continues what its folder holds, is complete, or begins anew.

Every program that keeps its answers says it in these words, a dry run in the conditional.
"""

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from harness.cli.commands import recorded
from harness.text import utc

_RESTART, _RESUME = "--restart", "--resume"
# Of a remedy. Most commands that meet it were printed with the second flag, which contradicts the first.
MOVES_ASIDE = f"add {_RESTART} (and no {_RESUME}), which moves"


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

    def anew(self, why: str, earlier: str, aside: Path, command: Sequence[str] = ()) -> str:
        """What differs, what the folder holds, where that goes, and how to go back to it."""
        reason = f", {why}" if why else ""
        moved = "would be moved" if self.dry_run else "is moved"
        back = f"; to go back to it, move it back and run {resuming_command(command)}" if command else ""
        return (
            f"{self._verb('begins', 'begin')} anew{reason}: {earlier} {moved} to {aside} before the first "
            f"query{back}"
        )

    def _verb(self, now: str, conditional: str) -> str:
        return f"would {conditional}" if self.dry_run else now


def repeat_line(arguments: Sequence[str], *, mend: bool) -> str:
    """The line with the command of a program, given as sys.argv, that measures again.

    ``mend``: what went wrong would do so again.
    """
    start, flags = recorded(arguments)
    words = "Mend the cause, then repeat it with" if mend else "Repeat it with"
    return f"{words}: {shlex.join((*start, *flags))}"


def resuming_command(arguments: Sequence[str]) -> str:
    """The command of a program, given as sys.argv, with ``--resume``: it never begins anew."""
    return _with_flag(arguments, _RESUME)


def restarting_command(arguments: Sequence[str]) -> str:
    """With ``--restart``: it never continues."""
    return _with_flag(arguments, _RESTART)


def _with_flag(arguments: Sequence[str], flag: str) -> str:
    start, flags = recorded(arguments)
    kept = [given for given in flags if given not in (_RESTART, _RESUME)]
    return shlex.join((*start, *kept, flag))


def run_of(started: datetime) -> str:
    """``the run of 2026-11-23 01:32:35 UTC``."""
    return f"the run of {utc(started)}"
