"""A stub server and a run against it on a machine with few local ports: start it with ``unshare -rn``.

python -m tests.faults.few_ports FIRST LAST -- COMMAND...     {url} in COMMAND becomes the stub's
"""

import fcntl
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.stub import StubServer

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def main() -> int:
    """The exit code of the command."""
    first, last, _, *words = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    _RANGE.write_text(f"{first} {last}")
    # Of ::1 there is one; in 127.0.0.0/8 a client finds further source addresses, and ports with each.
    with StubServer(host="::1", event_delay_s=0.05) as stub:
        return subprocess.run([word.replace("{url}", stub.url) for word in words]).returncode


if __name__ == "__main__":
    sys.exit(main())
