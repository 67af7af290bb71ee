"""Rows of a dataset, each issued once, in order. A query's id is its position among the rows."""

from collections.abc import Sequence

import msgspec

from sut.issuers.loop import IssuingLoop, IssuingProcess


class RowsInOrder(msgspec.Struct, frozen=True):
    """Issues these samples; workers get them as slots become free."""

    rows: Sequence[int]
    name: str = "the process that issues the rows"
    first_tokens: bool = False
    keeps_answers: bool = True
    wall_clock: bool = False
    text_after: int | None = None

    def run(self, process: IssuingProcess) -> None:
        """Issue all rows at once and wait for their ends."""
        RowsLoop(self.rows, process).run()


class RowsLoop(IssuingLoop):
    """All rows at once."""

    def __init__(self, rows: Sequence[int], process: IssuingProcess) -> None:
        super().__init__(process)
        self._rows = rows

    def begin(self) -> None:
        """Issue everything."""
        self.issue(range(len(self._rows)), self._rows)
