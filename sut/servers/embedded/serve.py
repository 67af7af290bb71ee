"""The engine's own process: llama.cpp's HTTP server from the wheel xllamacpp.

    python -m sut.servers.embedded.serve MODEL.gguf --slots 16 --context-per-slot 4096 --threads 1

Prints one line to stdout, the URL that it listens on, when the model is loaded; logs go to stderr.
Ends with its parent, when stdin is closed.
"""

import argparse
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xllamacpp

# A stream holds one of llama.cpp's HTTP workers from its request to its last byte, also while it
# waits for a slot, and an idle connection holds one for 5 s. Idle threads cost nothing.
HTTP_WORKERS = 256
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Serve until the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor reacts to Ctrl-C
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    arguments = _parser().parse_args()
    announce = _keep_stdout_for_the_url()
    try:
        server = _serve(arguments)
    except RuntimeError as error:
        sys.exit(f"llama.cpp cannot serve {arguments.model}: {error}")
    with os.fdopen(announce, "w") as stdout:
        print(server.listening_address, file=stdout)
    sys.stdin.buffer.read()  # returns when the parent closes the pipe or dies
    os._exit(0)  # no destructors: requests may be running


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sut.servers.embedded.serve")
    parser.add_argument("model")
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context-per-slot", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser


def _keep_stdout_for_the_url() -> int:
    """Redirect llama.cpp's own prints to stderr; returns a descriptor of the original stdout."""
    announce = os.dup(1)
    os.dup2(2, 1)
    return announce


def _serve(arguments: argparse.Namespace) -> "xllamacpp.Server":
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.model_alias = {Path(arguments.model).stem}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # llama.cpp binds a free one
    params.n_parallel = arguments.slots
    params.n_ctx = arguments.slots * arguments.context_per_slot
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = arguments.threads
    params.n_threads_http = HTTP_WORKERS
    params.endpoint_metrics = params.endpoint_slots = True
    # Nothing is to be fitted into memory; llama.cpp would load the model once more for that.
    params.warmup = params.ui = params.fit_params = False
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
