"""Output tokens a second by the servers' metrics: answers that are not streamed show none until they end.

Only counts that grow in the middle of answers are taken; those of a server that hangs stand still.
"""

import re
import time
from collections.abc import Callable

from harness.analysis.rank_watch import recent_s
from harness.record.server_metrics import RANK_LABEL_BYTES

_COUNTS = re.compile(
    rb'^(?:sglang:realtime_tokens_total\{(?=[^\n]*mode="decode")|vllm:generation_tokens_total\{)'
    rb"([^\n]*)\} ([\d.e+]+)$",
    re.MULTILINE,
)


class ServersRate:
    """Takes the pages as they are read, in another thread than it is asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rates: dict[str, tuple[float, float]] = {}  # and until when it is of now
        self._read: dict[str, tuple[float, float]] = {}

    def page(self, server: str, page: bytes, now_s: float) -> None:
        """A page of metrics of a server, read at this time."""
        if (count := _tokens(page)) is None:
            return
        before, then_s = self._read.get(server, (count, now_s))
        self._read[server] = count, now_s
        rate = max(0.0, count - before) / (now_s - then_s) if now_s > then_s else 0.0
        self._rates[server] = rate, now_s + recent_s(now_s - then_s)

    def __call__(self) -> float | None:
        """Of all servers together, between their two latest pages; None where none counts them now."""
        now = self._clock()
        rates = [rate for rate, until_s in tuple(self._rates.values()) if now < until_s]
        return sum(rates) if rates else None


def _tokens(page: bytes) -> float | None:
    """The sum over data-parallel ranks, whose other processes all report the same; None without a count."""
    found: dict[bytes, float] = {}
    for labels, value in _COUNTS.findall(page):
        rank = RANK_LABEL_BYTES.search(b"{" + labels)
        found.setdefault(rank[1] if rank else b"", float(value))
    return sum(found.values()) if found else None
