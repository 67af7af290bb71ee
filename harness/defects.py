"""Defects of this program in what only tells of a run: they cost a line or a figure, and never the run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from harness.errors import explained

log = logging.getLogger("mlperf")


class Defects:
    """``found``: warnings of the run, one for each thing that is missing."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    @property
    def found(self) -> tuple[str, ...]:
        """One for each thing that was missing at any time."""
        return tuple(self._found.values())

    @contextmanager
    def cost(self, what: str) -> Iterator[None]:
        """Go on after the block whatever defect it has; ``what`` is then missing. The first one is logged.

        Raises what a user can cause or cure, as OSError and HarnessError.
        """
        try:
            yield
        except Exception as error:
            if explained(error) is not None:
                raise
            if what not in self._found:
                name = type(error).__name__
                self._found[what] = f"a defect of this program ({name}: {error}): no {what}"
                log.exception("warning: %s", self._found[what])
