"""Addresses of this machine, as Linux reports them."""

import fcntl
import ipaddress
import socket
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

_SIOCGIFCONF = 0x8912  # asm-generic/sockios.h
_IFREQ = struct.Struct("16s4x4s16x")  # name and sockaddr_in of a struct ifreq, 64 bits
_MOST_ADDRESSES = 1024
_IF_INET6 = Path("/proc/net/if_inet6")
_GLOBAL_SCOPE = "00"


def is_own_address(family: int, address: str) -> bool:
    """Only an address of this machine can be bound."""
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def interface_addresses(family: int) -> list[tuple[str, str]]:
    """Interfaces with their addresses, link-local ones left out; an alias (``eth0:1``) is its interface's."""
    if family == socket.AF_INET:
        return list(_ipv4())
    return list(ipv6(_IF_INET6.read_text() if _IF_INET6.is_file() else ""))


def _ipv4() -> Iterator[tuple[str, str]]:
    buffer = array("B", bytes(_IFREQ.size * _MOST_ADDRESSES))
    address, size = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iP", size, address))
    (filled,) = struct.unpack_from("i", answer)
    for name, packed in _IFREQ.iter_unpack(buffer.tobytes()[:filled]):
        yield name.rstrip(b"\0").decode().partition(":")[0], socket.inet_ntoa(packed)


def ipv6(if_inet6: str) -> Iterator[tuple[str, str]]:
    """Of the text of /proc/net/if_inet6: address, interface number, prefix, scope, flags, name."""
    for line in if_inet6.splitlines():
        digits, _, _, scope, _, name = line.split()
        if scope == _GLOBAL_SCOPE:
            yield name, str(ipaddress.IPv6Address(int(digits, 16)))
