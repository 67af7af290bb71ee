"""Sentences about the network between this client and the servers, from the figures of a run."""

from collections.abc import Iterator, Mapping

import numpy as np

from harness.analysis.statistics import completed, has_tpot
from harness.record.journal import Rows
from harness.record.run_record import ReplicaNetwork, RunRecord
from harness.text import counted, milliseconds

_LATE_NS = 100e6  # less may be a busy machine between them
_HELD_NS = 20e6  # less may be a busy machine that reads two tokens at once
_OTHERS = 0.1  # part of the queries by which the servers' count of first tokens may differ from theirs

_HOLDERS = (
    "a proxy holds tokens back, nginx without proxy_buffering off, HAProxy without option http-no-delay, or "
    "the server does"
)


def network_line(network: Mapping[str, ReplicaNetwork]) -> str:
    """``round trip 0.05 to 0.2 ms, connecting 0.3 ms (at most 43.6), ...``; "" where nothing is known."""
    found = network.values()
    trips = [one.rtt_min_ns for one in found if one.rtt_min_ns is not None]
    connects = sum(one.connects for one in found)
    if not trips or not connects:
        return ""
    mean_ns = sum(one.connect_mean_ns * one.connects for one in found if one.connect_mean_ns) / connects
    longest_ns = max(one.connect_max_ns or 0 for one in found)
    parts = [
        f"round trip {_between(min(trips), max(trips))} ms",
        f"connecting {milliseconds(mean_ns)} ms (at most {milliseconds(longest_ns)})",
        f"{counted(sum(one.waited for one in found), 'query')} waited for it",
        f"{sum(one.retransmitted for one in found):,} of "
        f"{sum(one.sent for one in found):,} segments sent again",
        f"{sum(one.gaps for one in found):,} of {sum(one.received for one in found):,} received after a gap",
    ]
    return ", ".join(parts)


def first_token_line(record: RunRecord) -> str:
    """The parts of the mean TTFT that this client knows; "" where no first token was measured."""
    stats, known = record.statistics, [n for n in record.network.values() if n.rtt_min_ns is not None]
    sent = sum(one.sent for one in known)
    if stats is None or stats.ttft is None or stats.issue_delay is None or not (sent and stats.queries):
        return ""
    trip_ns = sum((one.rtt_min_ns or 0) * one.sent for one in known) / sent
    waited_ns = sum(one.waited * (one.waited_mean_ns or 0) for one in known) / stats.queries
    rest_ns = stats.ttft.mean - stats.issue_delay.mean - trip_ns
    return (
        f"mean TTFT {milliseconds(stats.ttft.mean)} ms = {milliseconds(stats.issue_delay.mean)} ms until the "
        f"request was sent (connecting: {milliseconds(waited_ns)} ms) + {milliseconds(trip_ns)} ms round "
        f"trip + {milliseconds(rest_ns)} ms in the server, with losses and delays of the network"
    )


def held_back_warnings(record: RunRecord) -> Iterator[str]:
    """A warning where first tokens arrived much later than the servers say that they had them.

    Not where answers are text: a parser of the server's may hold back the first of them, as gpt-oss's names.
    """
    stats, load = record.statistics, record.server_load
    if stats is None or stats.ttft is None or stats.issue_delay is None or load is None or record.encoded:
        return
    count = load.counts.get("ttft_count", 0.0)
    if count <= 0 or abs(count - stats.completed) > _OTHERS * stats.completed:  # they have other clients, too
        return
    here_ns = stats.ttft.mean - stats.issue_delay.mean
    there_ns = load.counts.get("ttft_seconds", 0.0) / count * 1e9
    if here_ns - there_ns > max(here_ns / 2, _LATE_NS):
        yield (
            f"the servers had a first token {milliseconds(there_ns)} ms after its request on average, and it "
            f"came after {milliseconds(here_ns)} ms: a proxy between holds tokens back (nginx: "
            "proxy_buffering off; HAProxy: option http-no-delay), or the servers' HTTP front ends are "
            "overloaded (vLLM: --api-server-count)"
        )


def clump_text(rows: Rows) -> str:
    """How first tokens came, where most of them came with those that follow; "" elsewhere.

    Servers send the first token alone, whatever their stream interval is. The time that the tokens of the
    first event took is known by the pace of the others.
    """
    good = completed(rows)
    good = good[has_tpot(good)]
    first, osl = good["first_event_tokens"].astype(np.int64), good["osl"].astype(np.int64)
    at_once = first >= osl
    if 2 * int(at_once.sum()) > len(good):
        return (
            f"{int(at_once.sum())} of {len(good)} answers came in one event ({_HOLDERS}): their TPOT is 0 "
            "and shows no token's time"
        )
    pace_ns = (good["last_byte_ns"] - good["first_token_ns"]) / np.maximum(osl - first, 1)
    held = at_once | ((first - 1) * pace_ns > _HELD_NS)
    if 2 * int(held.sum()) <= len(good):
        return ""
    return (
        f"{int(held.sum())} of {len(good)} answers came in pieces, the first one with "
        f"{int(np.median(first[held]))} tokens ({_HOLDERS}): their TTFT is longer, and their TPOT shorter, "
        "than the server's"
    )


def _between(least_ns: int, most_ns: int) -> str:
    least, most = milliseconds(least_ns), milliseconds(most_ns)
    return least if least == most else f"{least} to {most}"
