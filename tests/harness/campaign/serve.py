"""A stub server as the command of a campaign's servers: ``python -m tests.harness.campaign.serve PORT``."""

import signal
import sys

from tests.stub.server import StubServer

if __name__ == "__main__":
    with StubServer(port=int(sys.argv[1])) as server:
        print(f"serving on {server.url}", flush=True)
        signal.sigwait({signal.SIGTERM})
