"""Stub servers at the far end of a link, until stdin ends.

python -m tests.network.serve PORT KNOBS HOST...

One on each HOST, the same PORT; KNOBS: fields of Options as JSON.
"""

import json
import sys
from contextlib import ExitStack

from tests.stub import StubServer


def main() -> None:
    """Print a line once they listen."""
    port, knobs, *hosts = sys.argv[1:]
    with ExitStack() as servers:
        for host in hosts:
            servers.enter_context(StubServer(host=host, port=int(port), **json.loads(knobs)))
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
