"""A stub server as the command of a campaign's servers: ``python -m tests.harness.campaign.serve PORT DIE``.

It dies as an engine does each time the file DIE appears.
"""

import sys
import time
from pathlib import Path

from tests.stub import StubServer

if __name__ == "__main__":
    with StubServer(port=int(sys.argv[1]), event_delay_s=0.05) as server:
        print(f"serving on {server.url}", flush=True)
        while not Path(sys.argv[2]).exists():
            time.sleep(0.02)
        Path(sys.argv[2]).unlink()
        print("CUDA error: an illegal memory access", flush=True)
        sys.exit(9)
