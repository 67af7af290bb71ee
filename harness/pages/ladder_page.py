"""The page of a ladder."""

from collections.abc import Sequence
from pathlib import Path

from harness.peak.measurement import StepRows
from harness.peak.result import Ladder


def write_ladder_page(folder: Path, ladder: Ladder, rows: Sequence[StepRows]) -> None:
    """Write ladder.html. Raises OSError."""
    del folder, ladder, rows
