"""Empties the servers after a probe was cut off or a step of a ladder has ended."""

import logging
import time
from collections.abc import Sequence

from harness.errors import ServerError
from harness.record.server_metrics import QUANTITIES, values_of
from harness.record.settled import ServerInfo
from sut.client.endpoint import Access
from sut.servers.health import ask_health, ask_work
from sut.servers.info_client import InfoClient, WaitNotices

_ANSWER_S = 10.0
_QUIET_S = 3.0  # a server has no work if its metrics have not changed for this time
_UNKNOWN_S = 3.0  # wait for a server without metrics; its connections are closed
_LONGEST_S = 900.0
_ABORT = "/abort_request"  # SGLang's

log = logging.getLogger("mlperf")


def empty_servers(servers: Sequence[ServerInfo], access: Access) -> tuple[str, ...]:
    """Have every server drop its requests, and wait until none works; returns why a server is not usable.

    The connections of the requests are closed by now, which most servers take as an abort. SGLang also
    gets a request to abort them.
    """
    for server in servers:
        if server.has_sglang_pages:
            _abort_all(server.url, access)
    until, notices = time.monotonic() + _LONGEST_S, WaitNotices()
    for server in servers:
        _wait_idle(server.url, access, until, notices)
    return tuple(failure for server in servers if (failure := ask_health(server.url, access)))


def _abort_all(url: str, access: Access) -> None:
    with InfoClient(url, access, _ANSWER_S) as client:
        try:
            status, _ = client.ask(_ABORT, "POST", {"rid": "", "abort_all": True})
        except ServerError as error:
            log.debug("%s", error)
            return
    if status != 200:
        log.debug("%s: %s answered %d: its requests end by themselves", url, _ABORT, status)


def _wait_idle(url: str, access: Access, until: float, notices: WaitNotices) -> None:
    """Wait until /metrics show no request running or queued, or no sign of work, for some time."""
    before, since = ask_work(url, access), time.monotonic()
    if before is None:
        time.sleep(_UNKNOWN_S)
        return
    while time.monotonic() < until and time.monotonic() - since < _QUIET_S:
        time.sleep(_QUIET_S / 6)
        now = ask_work(url, access)
        if now != before and (now is None or requests_in(now) != 0):
            since = time.monotonic()
        before = now
        notices.tick(f"{url} to end its requests")


def requests_in(page: bytes) -> float | None:
    """Requests running and queued by a page of metrics; None where it does not report them."""
    names = {name for key in ("running", "queued") for name in QUANTITIES[key].names}
    found = [value for series, value in values_of(page) if series.partition(b"{")[0].decode() in names]
    return sum(found) if found else None
