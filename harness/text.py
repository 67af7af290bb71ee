"""Text for people: outside text made safe to print, figures with their units, tables for a terminal."""

import signal
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import TextIO

MAX_CHARACTERS = 300
LONG_LINE = 2000
_KEPT = "\n\t"
SIGNALLED = 128  # a shell's exit codes from here on are of signals


def legible(text: str) -> str:
    """Text of any length for a report, escaped as ``printable`` does; line breaks and tabs stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c in _KEPT else _escape(c) for c in text)


def printable(text: str, limit: int = MAX_CHARACTERS) -> str:
    """One line without control, format or surrogate characters, at most ``limit`` characters long.

    What cannot be printed is shown as its escape (``\\x1b``), so a hostile answer stays readable.
    """
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    if text.isprintable():
        return text
    shown = "".join(c if c.isprintable() else _escape(c) for c in text)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def one_line(message: object, limit: int = MAX_CHARACTERS) -> str:
    """The text of an error, or of a file, with a space for each line break and indent; as ``printable``."""
    return printable(" ".join(str(message).split()), limit)


def show(*lines: str, file: TextIO | None = None) -> None:
    """Print lines with paths and texts from outside; each stays one line, whatever it contains."""
    for line in lines:
        print(printable(line, LONG_LINE), file=file or sys.stdout)
    (file or sys.stdout).flush()


_OF_SEVERAL = {"has": "have", "is": "are", "was": "were"}


def counted(count: int, noun: str, verb: str = "") -> str:
    """``1 server``, ``2 queries``; with its verb ``1 line is``, ``2 lines are``."""
    if count != 1:
        noun = f"{noun.removesuffix('y')}ies" if noun.endswith(("query", "entry")) else f"{noun}s"
        verb = _OF_SEVERAL.get(verb, verb)
    return " ".join(filter(None, (f"{count:,}", noun, verb)))


def first_few(texts: Iterable[object], most: int, between: str = ", ") -> str:
    """``a, b and 3 more``; with ``; `` between them ``a; b; and 3 more``."""
    found = list(map(str, texts))
    comma = between.strip().removeprefix(",")
    more = f"{comma} and {len(found) - most} more" if len(found) > most else ""
    return between.join(found[:most]) + more


def by_kind(counts: Mapping[str, int], most: int | None = None) -> str:
    """``timeout 2, connect 1``, the most frequent kinds first; ``most`` is the largest number of them."""
    frequent = sorted(counts.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{kind} {count:,}" for kind, count in frequent)


def duration(seconds: float) -> str:
    """``59s``, ``12m05s``, ``3h02m``."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def moment(seconds: float) -> str:
    """A time since the beginning of a run: ``0:17``, ``12:05``, ``3:02:09``."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def utc(time: datetime) -> str:
    """``2026-11-23 01:32:35 UTC``."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def milliseconds(nanoseconds: float) -> str:
    """Milliseconds with three or four significant digits: ``0.853``, ``12.34``, ``155822``."""
    value = nanoseconds / 1e6
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{value:.{decimals}f}"


def figure(value: float) -> str:
    """A rate, with four significant digits or more and no exponent: ``5.425``, ``88.07``, ``146,012``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def labelled(label: str, texts: Iterable[str], width: int = 9) -> Iterator[str]:
    """``WARNING   text`` for each of the texts."""
    return (f"{label:<{width}} {text}" for text in texts)


def aligned(
    rows: Sequence[Sequence[str]], sides: str = "<", *, least: Sequence[int] = (0,), gap: str = "  "
) -> Iterator[str]:
    """The lines of a table: every column as wide as its widest cell.

    ``sides`` has ``<`` or ``>`` for each column, ``least`` its least width; the last one of each holds for
    all further columns.
    """
    widest = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    columns = zip(widest, chain(least, repeat(least[-1])), sides.ljust(len(widest), sides[-1]), strict=False)
    forms = [(side, max(width, bound)) for width, bound, side in columns]
    for row in rows:
        yield gap.join(_padded(cell, *form) for cell, form in zip(row, forms, strict=True)).rstrip()


def _columns(text: str) -> int:
    """The columns of a terminal that a printable text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def _padded(text: str, side: str, columns: int) -> str:
    blank = " " * (columns - _columns(text))
    return blank + text if side == ">" else text + blank


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def how_it_ended(code: int | None) -> str:
    """What became of a program, by its exit code from subprocess or a shell: ``ended with exit code 1``."""
    if code is None:
        return "hung up"
    names = {one.value: one.name for one in signal.Signals}
    signum = -code if code < 0 else code - SIGNALLED
    if code >= 0 and signum not in names:
        return f"ended with exit code {code}"
    shells = f" (exit code {code})" if code > 0 else ""
    if signum == signal.SIGKILL:
        return f"was killed by SIGKILL, as the kernel does where memory is short (see dmesg){shells}"
    if signum == signal.SIGXCPU:
        return f"was ended by SIGXCPU, the limit on the CPU time of a process (ulimit -t){shells}"
    return f"was ended by {names.get(signum, f'signal {signum}')}{shells}"
