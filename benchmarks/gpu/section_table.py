"""The table of a first run: a row for each section, as table.json and, for people, table.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

import msgspec
from msgspec import structs

from harness.files import atomic_write, read_decoded
from harness.text import counted, duration, printable

TABLE, PAGE = "table.json", "table.md"

Status = Literal["ok", "failed", "not run"]
Figure = str | int | float | None


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of one section, the last time that it was tried."""

    name: str
    status: Status
    question: str
    """what it is to show"""
    command: str = ""
    """as a user types it in the checkout; "" where it did not begin"""
    exit_code: int | None = None
    """of the command; None where it did not begin, or was ended at its limit"""
    began: str = ""
    """UTC"""
    seconds: float = 0.0
    figures: dict[str, Figure] = {}
    reason: str = ""
    """why it is not ok"""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All rows so far, of one machine and one checkout."""

    machine: dict[str, str]
    """as a submission describes a system; the first try's"""
    commit: str
    rehearsal: bool
    """a tiny model and short loads, on any machine: its figures say nothing about a GPU"""
    rows: tuple[Row, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The table of a folder; None where it has none. Raises ConfigError for a file that is no table."""
        path = folder / TABLE
        if not path.exists():
            return None
        remedy = "name another folder with --output"
        return read_decoded(str(path), path, msgspec.json.Decoder(cls).decode, remedy)

    def row(self, name: str) -> Row | None:
        """The row of a section that was tried."""
        return next((row for row in self.rows if row.name == name), None)

    def with_row(self, row: Row, order: Sequence[str]) -> Self:
        """The table with ``row`` in place of an earlier one of its name, in the order of the sections."""
        rows = {one.name: one for one in (*self.rows, row)}
        return structs.replace(self, rows=tuple(rows[name] for name in order if name in rows))

    def write(self, folder: Path) -> None:
        """Write both files, each of which appears complete. Raises OSError."""
        for name, content in ((TABLE, msgspec.json.format(msgspec.json.encode(self))), (PAGE, self.page())):
            with atomic_write(folder / name) as file:
                file.write(content if isinstance(content, bytes) else content.encode())

    def page(self) -> str:
        """The table as Markdown: results first, then each section's question and command."""
        bad = sum(row.status != "ok" for row in self.rows)
        lines = [
            f"# First run{' (rehearsal)' if self.rehearsal else ''}: "
            f"{counted(len(self.rows), 'section')}, {bad} not ok",
            "",
            *(f"- {name}: {_cell(value)}" for name, value in {**self.machine, "commit": self.commit}.items()),
            "",
            "| section | result | took | figures |",
            "|---|---|---|---|",
            *(
                f"| {row.name} | {_result(row)} | {duration(row.seconds)} | {_figures(row)} |"
                for row in self.rows
            ),
            "",
        ]
        for row in self.rows:
            lines += [f"## {row.name}", "", f"{row.question} {row.began}".strip(), ""]
            lines += ["```bash", row.command, "```", ""] if row.command else []
        return "\n".join(lines)


def figures_line(figures: Mapping[str, Figure]) -> str:
    """``samples/s 12.5 · TTFT p99 ms 431``; unknown ones are left out."""
    return " · ".join(f"{name} {_number(value)}" for name, value in figures.items() if value is not None)


def _figures(row: Row) -> str:
    return _cell(figures_line(row.figures))


def _result(row: Row) -> str:
    code = "" if row.exit_code in (None, 0) else f" (exit code {row.exit_code})"
    return _cell(f"{row.status}{code}{f': {row.reason}' if row.reason else ''}")


def _cell(text: str) -> str:
    return printable(text, 2000).replace("|", "\\|")


def _number(value: Figure) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
