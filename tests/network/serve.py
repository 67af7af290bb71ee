"""Stub servers at the far end of a link, until stdin ends.

python -m tests.network.serve PORT KNOBS HOST...

One on each HOST, the same PORT; KNOBS: fields of Options as JSON, with those of Facts.
"""

import json
import sys
from contextlib import ExitStack

from tests.stub import Facts, StubServer


def main() -> None:
    """Print a line once they listen."""
    port, text, *hosts = sys.argv[1:]
    knobs = json.loads(text)
    facts = Facts(**knobs.pop("facts", {}))
    with ExitStack() as servers:
        for host in hosts:
            servers.enter_context(StubServer(host=host, port=int(port), facts=facts, **knobs))
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
