"""A line of the examination, and the exit code of all of them."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from harness.errors import EXIT_SERVER, EXIT_USAGE, EXIT_VALID

Level = Literal["ok", "warning", "error"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    level: Level
    """`warning`: a run works, but slower or with less than it could have; `error`: it does not"""
    subject: str
    text: str
    """what was found, with its numbers"""
    remedy: str = ""
    """what to do, for a warning or an error"""
    of_server: bool = False
    """whether a server has to be mended, not this machine"""


def ok(subject: str, text: str) -> Finding:
    """As it should be."""
    return Finding("ok", subject, text)


def from_line(level: Level, subject: str, line: str, *, of_server: bool = False) -> Finding:
    """What a warning or an error of a run says: its remedy, if it has one, follows the last semicolon."""
    text, _, remedy = line.rpartition("; ")
    return Finding(level, subject, text or remedy, remedy if text else "", of_server)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 without an error, 3 where only servers have errors, else 2."""
    errors = [finding for finding in findings if finding.level == "error"]
    if not errors:
        return EXIT_VALID
    return EXIT_SERVER if all(error.of_server for error in errors) else EXIT_USAGE
