"""A stub server and a run against it in a network of its own with few local ports.

python -m tests.faults.few_ports FIRST LAST -- COMMAND...     {url} in COMMAND becomes the stub's
"""

import subprocess
import sys
from pathlib import Path

from tests.stub import StubServer


def main() -> int:
    """The exit code of the command."""
    first, last, _, *words = sys.argv[1:]
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{first} {last}")
    # An answer takes two seconds: all queries are in flight at once.
    # Of ::1 there is one; in 127.0.0.0/8 a client finds further source addresses, and ports with each.
    with StubServer(host="::1", event_delay_s=0.2) as stub:
        return subprocess.run([word.replace("{url}", stub.url) for word in words]).returncode


if __name__ == "__main__":
    sys.exit(main())
