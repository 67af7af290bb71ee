"""Sends a query to a server and reads its answer as a worker does; prints outcome and memory as JSON.

Each line on stdin is a query: ``URL {stream,whole} TIMEOUT_S``. ``peak_mib`` is how much the process
has grown by so far, at its highest.
"""

import json
import sys
from pathlib import Path

from harness.config.deadlines import Deadlines
from harness.record.outcome import Failure, Outcome
from sut.client.client import HttpClient
from sut.client.endpoint import Access, resolve_endpoint
from tests.kit import make_request, wire_of


def drain(url: str, shape: str, timeout_s: float, before_kib: int) -> None:
    """One query with the limits of an official accuracy run."""
    outcomes: list[Outcome] = []
    client = HttpClient(
        [resolve_endpoint(url, wire_of().path, Access())],
        Deadlines(request_s=timeout_s),
        on_done=lambda request, outcome: outcomes.append(outcome),
    )
    client.start(make_request([1, 2, 3], max_new_tokens=32768, stream=shape == "stream"))
    while not outcomes:
        client.poll(0.05)
        client.tick()
    client.close()
    (outcome,) = outcomes
    found = {"kind": "completed"}
    if isinstance(outcome, Failure):
        found = {"kind": outcome.kind.label, "detail": outcome.detail}
    print(json.dumps(found | {"peak_mib": (_peak_kib() - before_kib) / 1024}), flush=True)


def _peak_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    before_kib = _peak_kib()
    for line in sys.stdin:
        url, shape, timeout_s = line.split()
        drain(url, shape, float(timeout_s), before_kib)
