"""SGLang's processes as forks of one that has imported it.

SGLang starts each of its processes with an interpreter of its own, which imports for 8 s of CPU. Here they
are forked, before there is a thread, from multiprocessing's own server of forks. Loaded through SGLang's
plugin entry point, in each of its processes.
"""

import multiprocessing
from multiprocessing import context, forkserver

_MANAGERS = ("scheduler", "detokenizer_manager", "data_parallel_controller")


def register() -> None:
    """What SGLang spawns from now on is forked."""
    context._concrete_contexts["spawn"] = context._concrete_contexts["forkserver"]
    multiprocessing.set_forkserver_preload([f"sglang.srt.managers.{name}" for name in _MANAGERS])
    server = forkserver._forkserver
    if server._forkserver_address:  # in a fork: those of its own come from the same server
        server.ensure_running = lambda: None
