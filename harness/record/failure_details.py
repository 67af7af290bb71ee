"""What the details of failures show: the remedy of a status, and a limit of time, by how late they came."""

import re
from collections.abc import Iterable

from harness.api_key import key_remedy

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
_DENIED = (401, 403)
_REMEDIES = {
    **dict.fromkeys(
        (301, 302, 307, 308),
        "the server or a gateway before it redirects, which is not followed; name the server itself with "
        "--server-url",
    ),
    407: "a proxy before the server asks for a password; name the server itself with --server-url",
    408: "a gateway lets too few requests through at once (SMG: --max-concurrent-requests), or limits their "
    "time (LiteLLM: timeout, stream_timeout)",
    413: "a gateway limits the size of requests (nginx: client_max_body_size); name the server itself",
    429: "the server or a gateway before it limits the rate of requests; raise that limit",
    502: "a gateway reaches no server behind it",
    503: "the server, or the one behind a gateway, takes no requests now",
    504: f"a gateway waits for less time than the server needs ({_TIME_LIMITS})",
    529: "the server is too busy to take a request",
}
OF_ANY_REQUEST = frozenset({*_DENIED, *_REMEDIES})
"""Statuses that say nothing about the form of the request."""


def status_remedy(status: int | None) -> str:
    """What to do about an HTTP status, whatever the request was; "" where that depends on the request."""
    return key_remedy() if status in _DENIED else _REMEDIES.get(status or 0, "")


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
