"""A link between two network namespaces that delays, loses and withholds packets, and remembers them all.

Two TUN devices, each in a namespace of its own with the kernel's TCP behind it, and a thread that carries IP
packets from one to the other. It needs no qdisc of the kernel (`netem` is often not built in), only
/dev/net/tun and `unshare`.
"""

import functools
import heapq
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import inet_ntoa
from typing import Any

from tests.network.side import MTU

# The kernel sorts the addresses of a name by the bits that they share with ours: NOBODY's comes first.
CLIENT, CLIENT6 = "10.77.0.1", "fd77::1"
SERVER, SECOND = "10.77.0.9", "10.77.0.10"
SERVER6, SECOND6 = "fd77::9", "fd77::10"
DEAF, NOBODY = "10.77.0.11", "10.77.0.2"  # the server's, where nothing listens; nobody's: packets vanish
UP, DOWN = 0, 1  # to the server; to the client
MIDDLE = 20  # requests on the link when the fault comes
REQUEST = b"POST /generate"  # in the first packet of a query
_SYN, _TCP = 0x02, 6
_QUEUE_BYTES = 1 << 20  # of a link with a limited rate: a router's buffer


@functools.cache
def why_no_link() -> str:
    """Why this machine cannot have such a link; "" where it can."""
    if missing := [name for name in ("unshare", "nsenter", "ip", "mount") if shutil.which(name) is None]:
        return f"no {', '.join(missing)} here"
    script = 'mount --bind /etc/hosts /etc/hosts && exec "$0" -c "from tests.network.side import tun; tun()"'
    words = ["unshare", "-rnm", "sh", "-c", script, sys.executable]
    done = subprocess.run(words, capture_output=True, cwd=Path(__file__).parents[2])
    return "" if done.returncode == 0 else "no namespaces (unshare -rnm) or no /dev/net/tun here"


@dataclass
class Way:
    """One direction. May be changed while packets pass."""

    delay_s: float = 0.0
    loss: float = 0.0
    """The share of packets that is lost."""
    rate: float = 0.0
    """Bit/s; 0: unlimited."""
    mtu: int = MTU
    """The longest packet that passes: longer ones vanish without an ICMP message."""
    up: bool = True
    gone: frozenset[str] = frozenset()
    """Addresses whose machines are gone."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A TCP segment as the link saw it; times are CLOCK_MONOTONIC ns, 0 if they never came."""

    way: int
    connection: tuple[bytes, int]
    """The server's address and the client's port."""
    syn: bool
    number: int
    payload: bytes
    left_ns: int
    """When it was read from the sender."""
    handed_ns: int
    """Just before it was given to the receiver."""
    taken_ns: int
    """Just after."""

    @property
    def lost(self) -> bool:
        return not self.handed_ns


@dataclass
class Link:
    """The link, as a context manager."""

    ways: tuple[Way, Way] = field(default_factory=lambda: (Way(), Way()))
    """By UP and DOWN."""
    hosts: Path | None = None
    """The client's /etc/hosts."""
    ipv4: bool = True
    """False: both ends have IPv6 addresses only."""
    seed: int = 1
    lost_request: int = 0
    """The number among the requests on the link, from 1, of one that is always lost; 0: none."""
    fault: Mapping[str, Any] = field(default_factory=dict)
    """Changes of both ways from the MIDDLE-th request on, which meets them; if machines are gone then, from
    the first request to one of them."""
    packets: list[Packet] = field(default_factory=list)
    """In the order in which they left the link."""
    struck: threading.Event = field(default_factory=threading.Event)
    """Set when the fault comes."""

    def __enter__(self) -> "Link":
        client = [f"{CLIENT6}/64", *([f"{CLIENT}/24"] if self.ipv4 else [])]
        server = [
            f"{SERVER6}/64",
            f"{SECOND6}/64",
            *(f"{one}/24" for one in (SERVER, SECOND, DEAF) if self.ipv4),
        ]
        self._random = random.Random(self.seed)
        self._requests: set[bytes] = set()
        self._client, near = _side(client, self.hosts)
        self._server, far = _side(server, None)
        self._devices = (near, far)  # by the way that begins there
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._carry, name="link", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._stopped)
        self._thread.join()
        for holder in (self._client, self._server):
            holder.communicate()
        for descriptor in (*self._devices, self._stop):
            os.close(descriptor)

    def set(self, **changes: object) -> None:
        """Change both directions."""
        for way in self.ways:
            for name, value in changes.items():
                setattr(way, name, value)

    def at_client(self, words: Sequence[str]) -> list[str]:
        """``words`` as a command at the client's end."""
        return _inside(self._client, words)

    def at_server(self, words: Sequence[str]) -> list[str]:
        """``words`` as a command at the server's end."""
        return _inside(self._server, words)

    def _carry(self) -> None:
        """Packets wait in a heap until they are due: (due, turn, way, left, bytes)."""
        waiting: list[tuple[int, int, int, int, bytes]] = []
        free_ns, turn = [0, 0], 0
        for device in self._devices:
            os.set_blocking(device, False)
        while True:
            until = max(0, waiting[0][0] - time.monotonic_ns()) / 1e9 if waiting else None
            ready, _, _ = select.select([*self._devices, self._stop], [], [], until)
            if self._stop in ready:
                return
            for way, device in enumerate(self._devices):
                while (data := _read(device)) is not None:
                    turn += 1
                    left = time.monotonic_ns()
                    due = self._due(self.ways[way], data, left, free_ns, way)
                    if due is None:
                        self._note(way, data, left, 0, 0)
                    else:
                        heapq.heappush(waiting, (due, turn, way, left, data))
            while waiting and waiting[0][0] <= time.monotonic_ns():
                _, _, way, left, data = heapq.heappop(waiting)
                self._hand_over(way, data, left)

    def _due(self, way: Way, data: bytes, left: int, free_ns: list[int], number: int) -> int | None:
        """When the packet arrives; None: never."""
        size, is_lost = len(data), REQUEST in data and self._request(data)
        if way.gone and not way.gone.isdisjoint(_addresses(data)):
            return None
        if not way.up or size > way.mtu or self._random.random() < way.loss or is_lost:
            return None
        begins = left
        if way.rate:
            begins = max(left, free_ns[number])
            if (begins - left) / 8e9 * way.rate > _QUEUE_BYTES:
                return None
            begins = free_ns[number] = begins + int(size * 8e9 / way.rate)
        return begins + int(way.delay_s * 1e9)

    def _request(self, data: bytes) -> bool:
        """Count a request, once; the fault may come with it. Whether it is the one that is to be lost."""
        counted = len(self._requests)
        self._requests.add(_segment(data))
        number = len(self._requests)
        gone = self.fault.get("gone") or frozenset(_addresses(data))
        if number >= MIDDLE and not self.struck.is_set() and not gone.isdisjoint(_addresses(data)):
            self.set(**self.fault)
            self.struck.set()
        return counted < number == self.lost_request

    def _hand_over(self, way: int, data: bytes, left: int) -> None:
        if not self.ways[way].up:  # it was on the wire when the link went down
            self._note(way, data, left, 0, 0)
            return
        handed = time.monotonic_ns()
        os.write(self._devices[1 - way], data)
        self._note(way, data, left, handed, time.monotonic_ns())

    def _note(self, way: int, data: bytes, left: int, handed: int, taken: int) -> None:
        version = data[0] >> 4
        if data[9 if version == 4 else 6] != _TCP:
            return
        begin, end = (data[0] & 15) * 4, struct.unpack_from("!H", data, 2)[0]
        if version == 6:
            begin, end = 40, 40 + struct.unpack_from("!H", data, 4)[0]
        source, destination, number = struct.unpack_from("!HHI", data, begin)
        payload = data[begin + (data[begin + 12] >> 4) * 4 : end]
        addresses = data[12:20] if version == 4 else data[8:40]
        half = len(addresses) // 2
        connection = (addresses[half:], source) if way == UP else (addresses[:half], destination)
        syn = bool(data[begin + 13] & _SYN)
        self.packets.append(Packet(way, connection, syn, number, payload, left, handed, taken))


def _addresses(data: bytes) -> tuple[str, str]:
    return inet_ntoa(data[12:16]), inet_ntoa(data[16:20])


def _segment(data: bytes) -> bytes:
    """What a segment has in common with its repetitions: addresses, ports and number."""
    ends, begin = (data[12:20], (data[0] & 15) * 4) if data[0] >> 4 == 4 else (data[8:40], 40)
    return ends + data[begin : begin + 8]


def _read(device: int) -> bytes | None:
    try:
        return os.read(device, 1 << 16)
    except BlockingIOError:
        return None


def _side(addresses: Sequence[str], hosts: Path | None) -> tuple[subprocess.Popen[bytes], int]:
    """A process that holds one end's namespace, and the end's device."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = Path(__file__).with_name("side.py")
        words = [
            "unshare",
            "-rnm",
            sys.executable,
            str(program),
            str(theirs.fileno()),
            str(hosts or ""),
            *addresses,
        ]
        holder = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()])
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return holder, descriptors[0]


def _inside(holder: subprocess.Popen[bytes], words: Sequence[str]) -> list[str]:
    target = ["-t", str(holder.pid), "-U", "-n", "-m", "--preserve-credentials", f"--wd={Path.cwd()}"]
    return ["nsenter", *target, *map(str, words)]
