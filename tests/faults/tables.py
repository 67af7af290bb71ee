"""The matrix as tables of docs/reference/faults.md.

``python -m tests.faults.tables`` writes the page again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.faults.matrix import (
    ANSWER_RUNS,
    ANSWERS,
    MACHINE_FAULTS,
    NOTHING,
    PROCESS_FAULTS,
    SERVER_FAULTS,
    SETTINGS,
    TWO,
    RunFault,
)
from tests.stub import INCREMENTAL_ONLY, ONLY_STREAMS, Fault

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/faults.md"
BEGIN, END = "<!-- fault matrix: written by tests/faults/tables.py -->", "<!-- end of the fault matrix -->"
RUN_FAULTS = (*SERVER_FAULTS, *PROCESS_FAULTS, *MACHINE_FAULTS)
# test_ports.py: too many asked for, Offline takes what fits, ports run out in the others.
PORT_CELLS = len(TWO) + len(SETTINGS)
_ANSWER_HEAD = ["an answer", "failure", "of an answer that is not streamed", "noticed"]


def answer_cells() -> int:
    """Faults of single answers, over all runs that meet them."""
    return sum(len(kind.faults) * len(kind.settings) for kind in ANSWER_RUNS)


def run_cells() -> int:
    """Faults that have a run of their own."""
    return sum(len(row.settings) for row in RUN_FAULTS) + PORT_CELLS


def tables() -> str:
    """One line for each fault."""
    answers = [[row.what, _named(row.failure), _named_whole(row), _noticed(row)] for row in ANSWERS]
    new_tokens = [fault for fault in Fault if fault in INCREMENTAL_ONLY]
    incremental = [
        [f"{row.what} (incremental)", _named(row.failure), "-", _noticed(row)] for row in new_tokens
    ]
    met = len(ANSWERS) + len(incremental)
    in_turn = sum(len(kind.settings) for kind in ANSWER_RUNS)
    cells = (
        f"{met} faults of single answers are tested in {in_turn} kinds of run ({answer_cells()} tests); "
        f"another {run_cells()} tests are runs with one fault each."
    )
    runs = [_run_line(row) for row in RUN_FAULTS]
    head = ["fault", "result", "exit code", "message"]
    parts = [*_table(_ANSWER_HEAD, answers + incremental), "", *_table(head, runs)]
    return "\n".join([cells, "", *parts])


def written(text: str) -> str:
    """``text`` with the part between the marks replaced by the tables."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def _named(failure: str) -> str:
    return f"`{failure}`" if failure else "complete"


def _named_whole(row: Fault) -> str:
    return "-" if row.whole == ONLY_STREAMS else _named(row.whole)


def _noticed(row: Fault) -> str:
    return "deadline" if row.late else "at once" if row.failure else "-"


def _run_line(row: RunFault) -> list[str]:
    outcome = row.outcome
    names = ", ".join(f"`{name}`" for name in sorted(outcome.failures))
    said = "; ".join(part for part in (outcome.words, names) if part)
    result = "no run" if outcome.verdict == NOTHING else outcome.verdict
    return [row.what, result, str(outcome.code), said or "-"]


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    return [_line(head), _line(["---"] * len(head)), *(_line(line) for line in lines)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
