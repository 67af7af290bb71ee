"""The sections of a first run in turn, within its time; one that fails leaves its row, the others go on."""

import shlex
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from benchmarks.gpu.section_commands import DOOR, PYTHON, Site, server
from benchmarks.gpu.section_figures import UNREADABLE, Found
from benchmarks.gpu.section_process import RandomServer, executed, last_line
from benchmarks.gpu.section_table import PAGE, Row, Table, figures_line
from benchmarks.gpu.sections import SERVER, Section
from harness.cli.signals import InterruptedRun
from harness.errors import EXIT_INVALID, EXIT_VALID, ServerError
from harness.record.output_dir import aside_name
from harness.text import counted, duration, show


@dataclass
class FirstRun:
    """The sections of a folder, on this machine."""

    site: Site
    table: Table
    sections: Sequence[Section]
    seconds: float
    """for all that are tried"""
    server: RandomServer | None = None
    """while it is up"""
    no_server: str = ""
    """why it is not"""
    began: float = field(default_factory=time.monotonic)

    def measure(self, only: Collection[str] = ()) -> int:
        """Try the sections that are named, else those that are not ok; returns the exit code."""
        chosen = [one for one in self.sections if (one.name in only if only else not self._is_ok(one))]
        served = [one for one in chosen if one.needs_server or one.name == SERVER]
        try:
            for section in self.sections:
                if section in chosen or (served and section.name == SERVER):
                    self._enter(self._tried(section))
                if section in served[-1:]:
                    self._stop_server()
        finally:
            self._stop_server()
        return self._end([one.name for one in chosen])

    def _is_ok(self, section: Section) -> bool:
        row = self.table.row(section.name)
        return row is not None and row.status == "ok"

    def _enter(self, row: Row) -> None:
        self.table = self.table.with_row(row, [one.name for one in self.sections])
        self.table.write(self.site.folder)
        said = figures_line(row.figures) if row.status == "ok" else row.reason
        show(f"{row.name:<20}{row.status:<9}{duration(row.seconds):>6}  {said}")

    def _tried(self, section: Section) -> Row:
        """The row of a section, which is run if it can be."""
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        row = Row(name=section.name, status="not run", question=section.question, began=now)
        left = self.seconds - (time.monotonic() - self.began)
        if section.needs_server and (why := self._why_no_server()):
            return structs.replace(row, reason=why)
        if left < section.expected_s:
            are_left = f"{duration(left)} of {duration(self.seconds)} are left"
            reason = f"takes about {duration(section.expected_s)}, {are_left}: repeat the command"
            return structs.replace(row, reason=reason)
        folder = self.site.of(section.name)
        if folder.exists():
            folder.rename(aside_name(folder))
        folder.mkdir()
        began, limit = time.monotonic(), min(section.limit_s, left)
        run = self._run if section.words else self._serve
        row = structs.replace(row, status="failed")
        try:
            row = run(row, section, folder, limit)
        except InterruptedRun as interruption:
            interruption.add_note("repeat the command to continue")
            took = time.monotonic() - began
            self._enter(structs.replace(row, seconds=took, reason=f"ended by {interruption}"))
            raise
        return structs.replace(row, seconds=time.monotonic() - began)

    def _run(self, row: Row, section: Section, folder: Path, limit: float) -> Row:
        """The row of a section with a command."""
        assert section.words is not None
        words = [str(word) for word in section.words(self.site)]
        row = structs.replace(row, command=typed(words))
        code = executed(words, folder, limit, {"BENCH_RESULTS": str(folder)})
        row = structs.replace(row, exit_code=code)
        if code is None:
            row = _judged(row, section, folder, "")
            text = f"ended at its limit of {duration(limit)}"
            return structs.replace(
                row, status="failed", reason=f"{text}: {row.reason}" if row.reason else text
            )
        return _judged(row, section, folder, "" if code in section.passed else last_line(folder))

    def _serve(self, row: Row, section: Section, folder: Path, limit: float) -> Row:
        """The row of the server, which stays for the sections behind it."""
        self.server = RandomServer(server(self.site), self.site.url, folder, self.site.backend)
        row = structs.replace(row, command=shlex.join(self.server.words))
        try:
            self.server.start(limit)
        except ServerError as error:
            self._stop_server()
            self.no_server = f"no server: {error}"
            return structs.replace(row, reason=str(error))
        return _judged(structs.replace(row, exit_code=EXIT_VALID), section, folder, "")

    def _why_no_server(self) -> str:
        if self.server is None:
            return self.no_server or "no server: it was not started"
        return f"no server: {self.server.lost}" if self.server.is_gone() else ""

    def _stop_server(self) -> None:
        if self.server is not None:
            self.server.stop()
        self.server = None

    def _end(self, names: Sequence[str]) -> int:
        """Print what is not ok; returns the exit code."""
        bad = [name for name in names if (row := self.table.row(name)) is None or row.status != "ok"]
        result = f"not ok: {', '.join(bad)}" if bad else "all ok"
        show("", f"{counted(len(names), 'section')}, {result}", f"Table: {self.site.folder / PAGE}")
        return EXIT_INVALID if bad else EXIT_VALID


def typed(words: Sequence[str]) -> str:
    """A command as a user types it in the checkout."""
    if list(words[:2]) == [PYTHON, str(DOOR)]:
        return shlex.join(["./mlperf", *words[2:]])
    return shlex.join([".venv/bin/python" if words[0] == PYTHON else words[0], *words[1:]])


def _judged(row: Row, section: Section, folder: Path, why: str) -> Row:
    """The row with its figures; it is ok if nothing speaks against it."""
    try:
        found: Found = section.figures(folder)
    except UNREADABLE as error:
        found = {}, why or f"no figures: {type(error).__name__}: {error}"
    reason = found[1] or why
    return structs.replace(row, figures=found[0], reason=reason, status="failed" if reason else "ok")
