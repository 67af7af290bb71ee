"""The ways in which a server can fail, and when it does.

What each does is one function: in content.py, where the answer says something wrong, or in transport.py,
where it is sent wrongly.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto

from .request import Request


class Fault(Enum):
    """What goes wrong with one request."""

    HTTP_500 = auto()
    HTTP_500_HTML = auto()
    HTTP_500_EMPTY = auto()
    HTTP_400_JSON = auto()
    HTTP_404 = auto()
    HTTP_429_EMPTY = auto()
    HTTP_503 = auto()
    REDIRECT = auto()
    NOT_HTTP = auto()
    EMPTY_ANSWER = auto()
    RESET_AT_ONCE = auto()
    RESET_BEFORE_FIRST = auto()
    RESET_IN_FIRST = auto()
    RESET_AFTER_FIRST = auto()
    RESET_MIDDLE = auto()
    CLOSE_AT_ONCE = auto()
    CLOSE_AFTER_HEADERS = auto()
    CUT_CHUNKED = auto()
    CUT_IN_CHUNK = auto()
    CUT_LENGTH = auto()
    CUT_UNFRAMED = auto()
    CUT_UNFRAMED_BETWEEN = auto()
    SILENT = auto()
    SILENT_AFTER_HEADERS = auto()
    SILENT_AFTER_FIRST = auto()
    SLOW_HEADERS = auto()
    ENDLESS_HEADERS = auto()
    CRLF = auto()
    BYTEWISE = auto()
    SPLIT_UTF8 = auto()
    HUGE_EVENT = auto()
    ENDLESS_EVENT = auto()
    GARBAGE_AFTER = auto()
    SECOND_RESPONSE = auto()
    ERROR_AT_START = auto()
    ERROR_MIDDLE = auto()
    MALFORMED_JSON = auto()
    ABORT = auto()
    NO_FINISH = auto()
    WRONG_COUNT = auto()
    SHRINKING_IDS = auto()
    DUPLICATED_ID = auto()
    SKIPPED_ID = auto()
    CHANGED_IDS = auto()
    REPEATED_EVENT = auto()
    SKIPPED_EVENT = auto()
    NEGATIVE_ID = auto()
    HUGE_ID = auto()
    FLOAT_ID = auto()
    NAN_ID = auto()
    ZERO_TOKENS = auto()
    ONE_TOKEN = auto()
    TOO_MANY_TOKENS = auto()
    UNKNOWN_REASON = auto()
    EMPTY_REASON = auto()
    ERROR_GOES_ON = auto()
    ERROR_EVENT = auto()
    ABORT_GOES_ON = auto()
    MALFORMED_MIDDLE = auto()
    SWAPPED_MIDDLE = auto()
    TWO_ENDS = auto()
    GZIP = auto()
    HTML = auto()
    BOM = auto()
    ONE_PIECE = auto()


# Odd, but a whole and correct answer all the same: a client must complete these.
BENIGN = frozenset(
    {
        Fault.SLOW_HEADERS,
        Fault.CRLF,
        Fault.BOM,
        Fault.ONE_PIECE,
        Fault.BYTEWISE,
        Fault.SPLIT_UTF8,
        Fault.ONE_TOKEN,
        Fault.HUGE_EVENT,
        Fault.GARBAGE_AFTER,
        Fault.SECOND_RESPONSE,
    }
)

Schedule = Callable[[Request], Fault | None]


def every(k: int, fault: Fault, first: int = 0) -> Schedule:
    """Every k-th generation request fails, from arrival number ``first`` on."""
    return lambda request: fault if request.index >= first and (request.index - first) % k == 0 else None


def first_time(fault: Fault) -> Schedule:
    """Each prompt fails when it is seen first; a second attempt succeeds."""
    seen: set[tuple[int, ...]] = set()

    def choose(request: Request) -> Fault | None:
        prompt = tuple(request.prompt_ids)
        if prompt in seen:
            return None
        seen.add(prompt)
        return fault

    return choose


def as_schedule(faults: "Schedule | Fault | Sequence[Fault | None] | None") -> Schedule:
    """One fault for all requests, a list in order of arrival, or a rule."""
    if faults is None or isinstance(faults, Fault):
        return lambda request: faults
    if callable(faults):
        return faults
    return lambda request: faults[request.index] if request.index < len(faults) else None
