"""Sentences about the network between this client and the servers, from the figures of a run."""

from collections.abc import Iterator, Mapping

from harness.record.run_record import ReplicaNetwork, RunRecord
from harness.text import milliseconds

_LATE_NS = 100e6  # less may be a busy machine between them
_OTHERS = 0.1  # part of the queries by which the servers' count of first tokens may differ from theirs


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
        f"{sum(one.waited for one in found)} queries waited for it",
        f"{sum(one.retransmitted for one in found)} of {sum(one.sent for one in found)} segments sent again",
        f"{sum(one.gaps for one in found)} of {sum(one.received for one in found)} received after a gap",
    ]
    return ", ".join(parts)


def first_token_line(record: RunRecord) -> str:
    """The parts of the mean TTFT that this client knows; "" where no first token was measured."""
    stats, known = record.statistics, [n for n in record.network.values() if n.rtt_min_ns is not None]
    sent = sum(one.sent for one in known)
    if stats is None or stats.ttft is None or stats.issue_delay is None or not sent:
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


def _between(least_ns: int, most_ns: int) -> str:
    least, most = milliseconds(least_ns), milliseconds(most_ns)
    return least if least == most else f"{least} to {most}"
