"""The kernel's figures of the network under a connection: round trips, segments sent again, gaps."""

import errno
import struct
from collections.abc import MutableSequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness.record.run_record import ReplicaNetwork
from harness.text import counted

# The size of struct tcp_info (linux/tcp.h) with rcv_ooopack (Linux 5.4); an older kernel gives fewer bytes.
TCP_INFO_BYTES = 232
# tcpi_unacked, _rtt, _total_retrans, _min_rtt, _data_segs_in, _data_segs_out, _rcv_ooopack
_FIELDS = struct.Struct("=24xI40xI28xI44xIII64xI4x")
_GAPS = struct.Struct("=224xI")
_LAST_RECEIVED = struct.Struct("=52xI")  # tcpi_last_data_recv, in ms
_NEVER_MEASURED = (1 << 32) - 1  # tcpi_min_rtt before the first answer
# The kernel gave up: nothing was acknowledged for as long as sut.client.transport allows.
GIVEN_UP = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


class TcpInfo(NamedTuple):
    """One connection until now; counts are segments with data."""

    unacknowledged: int
    rtt_us: int
    min_rtt_us: int
    sent: int
    retransmitted: int
    """Sent again by this side, counted once for each time."""
    received: int
    gaps: int
    """Arrived while an earlier one was missing, which was lost on the way or overtaken."""

    @classmethod
    def of(cls, data: bytes) -> "TcpInfo":
        """Read the bytes of getsockopt(TCP_INFO); fields that the kernel does not have are 0."""
        fields = _FIELDS.unpack(data.ljust(TCP_INFO_BYTES, b"\0"))
        unacknowledged, rtt_us, retransmitted, least, received, sent, gaps = fields
        min_rtt_us = 0 if least == _NEVER_MEASURED else least
        return cls(unacknowledged, rtt_us, min_rtt_us, sent, retransmitted, received, gaps)

    def evidence(self) -> str:
        """A sign of the network in the failure of an answer; "" when there is none."""
        if self.unacknowledged and self.retransmitted:
            return self.nothing_came()
        if self.gaps:
            return (
                f"{counted(self.gaps, 'segment')} arrived after a missing one: the way from the server loses "
                "packets or drops large ones (MTU)"
            )
        return ""

    def nothing_came(self) -> str:
        """The message for a connection on which nothing was acknowledged for long."""
        if not self.retransmitted:
            return "the server's machine is gone, or the way to it is interrupted"
        return (
            f"{counted(self.retransmitted, 'segment')} sent again without an acknowledgement: the server's "
            "machine is gone, or the way to it is interrupted or drops large packets (MTU)"
        )


def gaps_of(info: bytes) -> int:
    """``TcpInfo.of(info).gaps``, several times as fast: for every read of a busy client."""
    gaps: int = _GAPS.unpack_from(info)[0] if len(info) >= _GAPS.size else 0
    return gaps


def since_received_ms(info: bytes) -> int:
    """How long ago the latest data came, in ms; 0 where the kernel does not say."""
    since_ms: int = _LAST_RECEIVED.unpack_from(info)[0] if len(info) >= _LAST_RECEIVED.size else 0
    return since_ms


class Network(IntEnum):
    """Columns of the network figures of one replica in one worker."""

    CONNECTS = 0
    CONNECT_NS = 1  # sum
    CONNECT_MAX_NS = 2
    FAILED_CONNECTS = 3
    WAITED = 4  # queries that waited for their connection
    WAITED_NS = 5
    MEASURED = 6  # connections with round trips
    RTT_US = 7  # sum
    MIN_RTT_US = 8  # 0: none
    SENT = 9  # segments with data
    RETRANSMITTED = 10
    RECEIVED = 11
    GAPS = 12
    ARRIVED_NS = 13  # not a figure of the network: when the latest bytes of an answer came


Figures = MutableSequence[int] | memoryview  # indexed by Network


def count_connect(figures: Figures, took_ns: int, waited_ns: int | None) -> None:
    """Count a connection that is established; ``waited_ns``: for how long a query has waited for it."""
    figures[Network.CONNECTS] += 1
    figures[Network.CONNECT_NS] += took_ns
    figures[Network.CONNECT_MAX_NS] = max(figures[Network.CONNECT_MAX_NS], took_ns)
    if waited_ns is not None:
        figures[Network.WAITED] += 1
        figures[Network.WAITED_NS] += waited_ns


def count_closed(figures: Figures, info: TcpInfo) -> None:
    """Count the figures of a connection at its end."""
    figures[Network.SENT] += info.sent
    figures[Network.RETRANSMITTED] += info.retransmitted
    figures[Network.RECEIVED] += info.received
    figures[Network.GAPS] += info.gaps
    if info.min_rtt_us:
        figures[Network.MEASURED] += 1
        figures[Network.RTT_US] += info.rtt_us
        least = figures[Network.MIN_RTT_US]
        figures[Network.MIN_RTT_US] = min(least, info.min_rtt_us) if least else info.min_rtt_us


def network_of_replicas(values: npt.NDArray[np.int64]) -> tuple[ReplicaNetwork, ...]:
    """The figures of all workers together; ``values``: shape (workers, replicas, len(Network))."""
    totals = values.sum(axis=0)
    totals[:, Network.CONNECT_MAX_NS] = values[:, :, Network.CONNECT_MAX_NS].max(axis=0)
    least = values[:, :, Network.MIN_RTT_US]
    totals[:, Network.MIN_RTT_US] = np.where(least > 0, least, np.iinfo(np.int64).max).min(axis=0)
    return tuple(_of_replica(row) for row in totals.tolist())


def _of_replica(row: list[int]) -> ReplicaNetwork:
    connects, waited, measured = row[Network.CONNECTS], row[Network.WAITED], row[Network.MEASURED]
    return ReplicaNetwork(
        connects=connects,
        connect_mean_ns=_whole_us(row[Network.CONNECT_NS] / connects) if connects else None,
        connect_max_ns=_whole_us(row[Network.CONNECT_MAX_NS]) if connects else None,
        failed_connects=row[Network.FAILED_CONNECTS],
        waited=waited,
        waited_mean_ns=_whole_us(row[Network.WAITED_NS] / waited) if waited else None,
        rtt_mean_ns=_whole_us(1000 * row[Network.RTT_US] / measured) if measured else None,
        rtt_min_ns=1000 * row[Network.MIN_RTT_US] if measured else None,
        sent=row[Network.SENT],
        retransmitted=row[Network.RETRANSMITTED],
        received=row[Network.RECEIVED],
        gaps=row[Network.GAPS],
    )


def _whole_us(ns: float) -> int:
    """Rounded to microseconds, the unit of the kernel's figures; of 512 servers each digit is 2 kB."""
    return 1000 * round(ns / 1000)
