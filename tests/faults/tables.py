"""The matrix as tables of docs/reference/faults.md.

``python -m tests.faults.tables`` writes the page again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.faults.matrix import (
    ANSWER_RUNS,
    FIVE,
    MACHINE_FAULTS,
    NOTHING,
    PROCESS_FAULTS,
    SERVER_FAULTS,
    TWO,
    WAYS,
    RunFault,
    Way,
)
from tests.stub import Fault

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/faults.md"
BEGIN, END = "<!-- fault matrix: written by tests/faults/tables.py -->", "<!-- end of the fault matrix -->"
RUN_FAULTS = (*SERVER_FAULTS, *PROCESS_FAULTS, *MACHINE_FAULTS)
# test_ports.py: too many asked for, Offline takes what fits, ports run out in the others.
PORT_CELLS = len(TWO) + len(FIVE)
_ANSWER_HEAD = ["an answer", "failure", "of an answer that is not streamed", "of text without ids", "noticed"]
_ALL_WAYS = (*WAYS, *(kind.way for kind in ANSWER_RUNS))


def answer_cells() -> int:
    """Faults of single answers, over all runs that meet them."""
    return sum(len(kind.faults) * len(kind.settings) for kind in ANSWER_RUNS)


def way_cells() -> int:
    """Faults of single answers, over all ways to ask."""
    return sum(len(way.faults) for way in WAYS)


def run_cells() -> int:
    """Faults that have a run of their own."""
    return sum(len(row.settings) for row in RUN_FAULTS) + PORT_CELLS


def tables() -> str:
    """One line for each fault."""
    met = [fault for fault in Fault if any(fault in way.faults for way in _ALL_WAYS)]
    in_turn = sum(len(kind.settings) for kind in ANSWER_RUNS)
    cells = (
        f"{len(met)} faults of single answers are tested through {len(WAYS)} ways to ask a server "
        f"({way_cells()} tests of the client) and in {in_turn} complete runs ({answer_cells()} tests); "
        f"another {run_cells()} tests are runs with one fault each."
    )
    runs = [_run_line(row) for row in RUN_FAULTS]
    head = ["fault", "result", "exit code", "message"]
    parts = [*table(_ANSWER_HEAD, map(_answer_line, met)), "", *table(head, runs)]
    return "\n".join([cells, "", *parts])


def written(text: str) -> str:
    """``text`` with the tables as they are now."""
    return between(text, BEGIN, END, tables())


def between(text: str, begin: str, end: str, content: str) -> str:
    """``text`` with the part between the marks replaced."""
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{content}\n{end}{after}"


def _answer_line(row: Fault) -> list[str]:
    ids = [way for way in _ALL_WAYS if way.protocol.answers == "ids"]
    text = [way for way in _ALL_WAYS if way.protocol.answers == "text"]
    kinds = ([w for w in ids if w.streams], [w for w in ids if not w.streams], text)
    return [row.what, *(_named(row, ways) for ways in kinds), _noticed(row)]


def _named(row: Fault, ways: Sequence[Way]) -> str:
    """The kinds of failure in these ways; more than one where the protocols differ."""
    found = dict.fromkeys(way.failure(row) for way in ways if row in way.faults)
    return " or ".join(f"`{failure}`" if failure else "complete" for failure in found) or "-"


def _noticed(row: Fault) -> str:
    fails = any(way.failure(row) for way in _ALL_WAYS if row in way.faults)
    return "deadline" if row.late else "at once" if fails else "-"


def _run_line(row: RunFault) -> list[str]:
    outcome = row.outcome
    names = ", ".join(f"`{name}`" for name in sorted(outcome.failures))
    said = "; ".join(part for part in (outcome.words, names) if part)
    result = "no run" if outcome.verdict == NOTHING else outcome.verdict
    return [row.what, result, str(outcome.code), said or "-"]


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [_line(head), _line(["---"] * len(head)), *(_line(line) for line in lines)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
