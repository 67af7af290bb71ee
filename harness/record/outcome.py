"""The outcome of a query: exactly one Completion or one Failure, returned and never raised."""

import re
from collections.abc import Iterable
from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt


class FailureKind(IntEnum):
    """The reason why a query has no usable answer. The values are stored in journals; never renumber them."""

    CONNECT = 1  # refused, unreachable, TLS or connect timeout
    SEND = 2  # the connection broke while the request was written
    NO_RESPONSE = 3  # closed or reset before the first response byte
    TRUNCATED = 4  # closed or reset inside the response
    HTTP_STATUS = 5  # any status but 200
    HTTP_PROTOCOL = 6  # the bytes are not HTTP/1.1
    MALFORMED = 7  # an event is not the JSON of the protocol
    IN_BAND_ERROR = 8  # a field, event or trailer of a 200 response that no complete answer has
    ABORTED = 9  # finish reason "abort" or "error"
    UNFINISHED = 10  # the stream ended without a finish reason
    TOKEN_COUNT = 11  # ids disagree with the server's own count, or shrink, or change
    TOKEN_VALUE = 12  # an id is negative or beyond the vocabulary
    NO_TOKENS = 13  # finished without a single token
    TOO_MANY_TOKENS = 14  # more tokens than were asked for
    TIMEOUT = 15  # the request's deadline passed
    WORKER_LOST = 16  # the worker process that held the query died
    TOO_LARGE = 17  # the response exceeds every bound that an honest answer can have
    LOCAL_LIMIT = 18  # this machine has no descriptor, local port or buffer left for the connection
    FINISH_REASON = 19  # a finish reason that the protocol does not document as that of a complete answer
    AFTER_END = 20  # another event after the one that ended the answer
    OTHER_REQUEST = 21  # the answer, or a part of it, carries the id or the prompt of another request
    OTHER_MODEL = 22  # the answer names another model or version of weights than the trial requests' answers
    ENCODER_LOST = 23  # the process that held the answer's text, to encode it, died

    @property
    def label(self) -> str:
        """Stable lower-case name for reports: ``http_status``."""
        return self.name.lower()


class Completion(msgspec.Struct, frozen=True):
    """A complete answer.

    ``output_ids`` are all output tokens, the first included: shape (OSL,), int32, OSL >= 1.
    ``prompt_tokens`` is the server's count, or None where it reports none.
    """

    output_ids: npt.NDArray[np.int32]
    finish_reason: str
    prompt_tokens: int | None = None
    counted: int | None = None
    """The server's own count of output tokens, where the ids are those of the encoded text."""


class TextCompletion(msgspec.Struct, frozen=True):
    """A complete answer as text. Encoding it gives a Completion."""

    text: str
    """Reasoning first, where the server separates it; not empty."""
    finish_reason: str
    prompt_tokens: int | None
    """The server's count; None where it reports none."""
    counted: int | None
    """The server's count of output tokens; None where it reports none."""


UNSEEN = 16
"""Tokens of an answer that a server may count and keep out of its text: the end token, and harmony's markers
and channel names (10 with one thought, 17 with a call of a tool, in answers of vLLM and SGLang)."""


class Failure(msgspec.Struct, frozen=True):
    """No usable answer; ``detail`` is one line of evidence, printable and bounded."""

    kind: FailureKind
    detail: str


Outcome = Completion | TextCompletion | Failure


_LONG_NS = 1_000_000_000  # a shorter time is no limit of a proxy
_EVENTS = {"its request": "their requests", "the last bytes": "the last bytes"}
_AGE = re.compile(rf"([\d.]+) s after ({'|'.join(_EVENTS)})")
_STATUS = re.compile(r"HTTP (\d{3})")
_OF_TIME = (408, 504)
_ALIKE, _ALIKE_S = 0.03, 0.25  # the part, or the time, by which equal times differ
_FEWEST = 3  # failures that show a limit
_APART_S = 0.25  # what ends at one moment ends within less
_TIME_LIMITS = (
    "nginx: proxy_read_timeout, by default 60 s; HAProxy: timeout server; Envoy: timeout and idle_timeout of "
    "the route, 15 s and 5 min; Traefik: writeTimeout"
)
_KEY = "put the server's key into SGLANG_API_KEY or OPENAI_API_KEY"
STATUS_REMEDIES = {
    401: _KEY,
    403: _KEY,
    408: "a gateway lets too few requests through at once (SMG: --max-concurrent-requests)",
    413: "a gateway limits the size of requests (nginx: client_max_body_size); name the server itself",
    429: "the server or a gateway before it limits the rate of requests; raise that limit",
    502: "a gateway reaches no server behind it",
    503: "the server, or the one behind a gateway, takes no requests now",
    504: f"a gateway waits for less time than the server needs ({_TIME_LIMITS})",
    529: "the server is too busy to take a request",
}
"""What to do about an HTTP status, whatever the request was."""


def status_of(detail: str) -> int | None:
    """The HTTP status with which a server refused, from the ``detail`` of the Failure."""
    found = _STATUS.match(detail)
    return int(found[1]) if found else None


def with_times(detail: str, age_ns: int, silent_ns: int) -> str:
    """The ``detail`` of a Failure that another ended, with the times since its request and the last bytes."""
    if age_ns <= _LONG_NS:
        return detail
    before, colon, after = detail.partition(":") if status_of(detail) else (detail, "", "")
    silent = f", {silent_ns / 1e9:.1f} s after the last bytes" if silent_ns > _LONG_NS else ""
    return f"{before}, {age_ns / 1e9:.1f} s after its request{silent}{colon}{after}"


def time_limit_text(failures: Iterable[tuple[str, int]]) -> str:
    """What failures that came after equal times show, by their details and moments in ns; "" for nothing.

    ``30 failures came 60.0 s after the last bytes: ...``. Those of one moment have one cause, which is a
    limit only where a status says so.
    """
    times: dict[str, list[tuple[float, int]]] = {}
    proved = False
    for detail, moment_ns in failures:
        for found in _AGE.finditer(detail):
            times.setdefault(found[2], []).append((float(found[1]), moment_ns))
            proved |= status_of(detail) in _OF_TIME
    for since, found_times in times.items():
        middle = sorted(found_times)[len(found_times) // 2][0]
        near = [one for one in found_times if abs(one[0] - middle) <= max(_ALIKE * middle, _ALIKE_S)]
        ages, moments = zip(*near, strict=True)
        apart_s, differ_s = (max(moments) - min(moments)) / 1e9, max(ages) - min(ages)
        most = len(near) >= max(_FEWEST, len(found_times) / 2)
        if most and (proved or apart_s > 2 * differ_s + _APART_S):
            return (
                f"{len(near)} failures came {middle:.1f} s after {_EVENTS[since]}: a limit of time, most "
                f"likely of a proxy ({_TIME_LIMITS})"
            )
    return ""
