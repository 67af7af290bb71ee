"""The matrix as tables of docs/reference/faults.md.

``python -m tests.faults.tables`` writes the page again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.faults.matrix import (
    ANSWERS,
    CUMULATIVE_RUNS,
    INCREMENTAL,
    INCREMENTAL_RUNS,
    MACHINE_FAULTS,
    NOTHING,
    OPENAI_RUNS,
    PROCESS_FAULTS,
    SERVER_FAULTS,
    SETTINGS,
    TRTLLM_RUNS,
    TWO,
    WHOLE_OPENAI_RUNS,
    WHOLE_RUNS,
    WHOLE_TRTLLM_RUNS,
    RunFault,
)
from tests.stub import CUMULATIVE_ONLY, ONLY_STREAMS, Fault

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/faults.md"
BEGIN, END = "<!-- fault matrix: written by tests/faults/tables.py -->", "<!-- end of the fault matrix -->"
RUN_FAULTS = (*SERVER_FAULTS, *PROCESS_FAULTS, *MACHINE_FAULTS)
# test_ports.py: too many asked for, Offline takes what fits, ports run out in the others.
PORT_CELLS = len(TWO) + len(SETTINGS)
_DELTA_RUNS = INCREMENTAL_RUNS + OPENAI_RUNS + TRTLLM_RUNS
_WHOLE_RUNS = WHOLE_RUNS + WHOLE_OPENAI_RUNS + WHOLE_TRTLLM_RUNS
_ANSWER_HEAD = ["an answer", "failure", "of an answer that is not streamed", "noticed"]


def answer_cells() -> int:
    """Faults of single answers, over all runs that meet them."""
    others = len(ANSWERS) - len(CUMULATIVE_ONLY) + len(INCREMENTAL)
    whole = sum(row.whole != ONLY_STREAMS for row in ANSWERS)
    return len(ANSWERS) * len(CUMULATIVE_RUNS) + others * len(_DELTA_RUNS) + whole * len(_WHOLE_RUNS)


def run_cells() -> int:
    """Faults that have a run of their own."""
    return sum(len(row.settings) for row in RUN_FAULTS) + PORT_CELLS


def tables() -> str:
    """One line for each fault."""
    answers = [[row.what, _named(row.failure), _named_whole(row), _noticed(row)] for row in ANSWERS]
    incremental = [
        [f"{row.what} (incremental)", _named(row.failure), "-", _noticed(row)] for row in INCREMENTAL
    ]
    met = len(ANSWERS) + len(INCREMENTAL)
    in_turn = len(CUMULATIVE_RUNS + _DELTA_RUNS + _WHOLE_RUNS)
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
