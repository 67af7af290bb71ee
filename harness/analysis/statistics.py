"""Statistics of the journal's rows (harness/record/journal.py QUERY_ROW), by LoadGen's definitions.

Latencies count from the call of the issue callback; LoadGen counts from the scheduled time, so its TTFT and
latency also hold the lag of its own schedule. Failed queries enter only the counts.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.arrays import kept
from harness.record.journal import Rows
from harness.record.outcome import FailureKind
from harness.record.run_record import Distribution, Statistics

PERCENTILES = (50.0, 90.0, 95.0, 97.0, 99.0, 99.9)

Nanoseconds = npt.NDArray[np.int64]


def completed(rows: Rows) -> Rows:
    """The rows of queries that ended in a Completion."""
    return kept(rows, rows["failure"] == 0)


def of_this_attempt(rows: Rows) -> Rows:
    """The rows without answers of an earlier attempt at the run, which have no times."""
    return kept(rows, rows["resumed"] == 0)


def ttft_ns(rows: Rows) -> Nanoseconds:
    """Issue to first token, for rows that have one."""
    seen = rows[rows["first_token_ns"] > 0]
    times: Nanoseconds = seen["first_token_ns"] - seen["issued_ns"]
    return times


def has_tpot(rows: Rows) -> npt.NDArray[np.bool_]:
    """For each row whether it has a time per token: two tokens or more, and the time of the first."""
    has: npt.NDArray[np.bool_] = (rows["osl"] >= 2) & (rows["first_token_ns"] > 0)
    return has


def tpot_ns(rows: Rows) -> Nanoseconds:
    """(last - first) / (OSL - 1) in whole ns, as LoadGen computes it, for rows that have one."""
    seen = rows[has_tpot(rows)]
    gaps = seen["osl"].astype(np.int64) - 1
    times: Nanoseconds = (seen["last_byte_ns"] - seen["first_token_ns"]) // gaps
    return times


def latency_ns(rows: Rows) -> Nanoseconds:
    """Issue to last byte, for rows that have one."""
    ended = rows[rows["last_byte_ns"] > 0]
    times: Nanoseconds = ended["last_byte_ns"] - ended["issued_ns"]
    return times


def mean_latency_s(rows: Rows) -> float | None:
    """The mean of the completed queries in seconds; None without one."""
    times = latency_ns(completed(rows))
    return float(times.mean()) / 1e9 if len(times) else None


def issue_delay_ns(rows: Rows) -> Nanoseconds:
    """Issue to the last byte of the request in the kernel, for rows that were sent: our own queueing."""
    sent = rows[rows["sent_ns"] > 0]
    times: Nanoseconds = sent["sent_ns"] - sent["issued_ns"]
    return times


def distribution(values: Nanoseconds) -> Distribution | None:
    """Percentiles without interpolation: LoadGen takes the sorted values' element floor(p * n)."""
    n = len(values)
    if n == 0:
        return None
    ranks = [int(p / 100 * n) for p in PERCENTILES]
    ordered = np.partition(values, sorted({0, *ranks, n - 1}))
    return Distribution(
        count=n,
        mean=float(values.mean()),
        min=int(ordered[0]),
        max=int(ordered[-1]),
        percentiles={f"{p:g}": int(ordered[rank]) for p, rank in zip(PERCENTILES, ranks, strict=True)},
    )


def percentile(values: npt.NDArray[Any], share: float) -> float:
    """The sorted values' element floor(share * n), as LoadGen takes it; one value or more, share < 1."""
    rank = int(share * len(values))
    return float(np.partition(values, rank)[rank])


def user_tokens_per_s(tpot_ns: float | None) -> float | None:
    """Output tokens per second of a user, as MLPerf Endpoints defines it: 1 second over the TPOT.

    None without a TPOT above 0.
    """
    return 1e9 / tpot_ns if tpot_ns is not None and tpot_ns > 0 else None


def failures_by_kind(rows: Rows) -> dict[str, int]:
    """Counts by label, in the order of FailureKind; an unknown kind is ``unknown_<number>``."""
    counts = np.bincount(rows["failure"])
    return {_label(kind): int(counts[kind]) for kind in range(1, len(counts)) if counts[kind]}


def _label(kind: int) -> str:
    known = {member.value: member.label for member in FailureKind}
    return known.get(kind, f"unknown_{kind}")


def statistics(rows: Rows) -> Statistics:
    """All statistics of rows, in any order."""
    good = completed(rows)
    timed = of_this_attempt(good)
    duration = _duration_ns(rows, timed)
    return Statistics(
        queries=len(rows),
        completed=len(good),
        retries=int(rows["retries"].sum(dtype=np.int64)),
        resumed=len(good) - len(timed),
        failures=failures_by_kind(rows),
        duration_ns=duration,
        samples_per_s=_rate(len(timed), duration),
        tokens_per_s=_rate(tokens(timed), duration),
        output_tokens=tokens(good),
        isl_mean=float(good["isl"].mean()) if len(good) else None,
        osl_mean=float(good["osl"].mean()) if len(good) else None,
        ttft=distribution(ttft_ns(good)),
        tpot=distribution(tpot_ns(good)),
        latency=distribution(latency_ns(good)),
        issue_delay=distribution(issue_delay_ns(good)),
    )


def tokens(rows: Rows) -> int:
    """All output tokens."""
    return int(rows["osl"].sum(dtype=np.int64))


def first_issue_ns(rows: Rows) -> int:
    """When the first query was issued; 0 where no row has the time, as of queries lost with their worker."""
    issued = rows["issued_ns"][rows["issued_ns"] > 0]
    return int(issued.min()) if len(issued) else 0


def _duration_ns(rows: Rows, good: Rows) -> int | None:
    return int(good["last_byte_ns"].max()) - first_issue_ns(rows) if len(good) else None


def _rate(count: int, duration_ns: int | None) -> float | None:
    return count * 1e9 / duration_ns if duration_ns else None
