"""What a run is worth: an answer and its reasons."""

from dataclasses import dataclass
from typing import Literal

Result = Literal["VALID", "INVALID", "INTERRUPTED"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reasons`` say why it is not VALID; VALID needs none.

    ``complete``: every query has its whole answer and LoadGen met no error; what is INVALID then is only too
    slow or too short.
    """

    result: Result
    reasons: tuple[str, ...] = ()
    complete: bool = False
