"""One end of a link: a network namespace with a TUN device, held open until stdin ends.

unshare -rnm python side.py SOCKET HOSTS ADDRESS...     SOCKET: where the device goes; HOSTS: an /etc/hosts
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
DEVICE, MTU = "wire", 1500


def main() -> None:
    """Set the end up, hand its device over, wait."""
    handover, hosts, *addresses = sys.argv[1:]
    device = tun()
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "set", DEVICE, "mtu", MTU, "txqueuelen", 10000, "up")
    for address in addresses:
        duplicates = ["nodad"] if ":" in address else []
        _run("ip", "address", "add", address, "dev", DEVICE, *duplicates)
    if hosts:
        _run("mount", "--bind", hosts, "/etc/hosts")
    with socket.socket(fileno=int(handover)) as channel:
        socket.send_fds(channel, [b"x"], [device])
    os.close(device)
    sys.stdin.read()


def tun() -> int:
    """A new device's descriptor. Raises OSError where that is not allowed."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


if __name__ == "__main__":
    main()
