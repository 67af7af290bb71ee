"""What a compliance test says of a log: pass or fail, and the text that stands for it in a submission."""

from dataclasses import dataclass

WIDTH = 80
RULE = "=" * WIDTH


@dataclass(frozen=True, slots=True)
class ComplianceVerdict:
    """``statement`` is the official verification file; ``summary`` one line of figures.

    ``scorecard`` is the evaluator's printout where the test scores answers.
    """

    passed: bool
    summary: str
    statement: str
    scorecard: str = ""
