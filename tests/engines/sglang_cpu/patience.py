"""SGLang's data-parallel controller waits for messages; it asks for them in a loop, two thirds of a core.

Loaded through SGLang's plugin entry point.
"""

from typing import Any

_WAIT_MS = 100  # its watchdog wants to hear of it in between


def register() -> None:
    """Wait for a message before each look for one."""
    from sglang.srt.managers import data_parallel_controller as controller

    receive = controller.sock_recv

    def patiently(socket: Any, *arguments: Any, **options: Any) -> Any:
        socket.poll(_WAIT_MS)
        return receive(socket, *arguments, **options)

    controller.sock_recv = patiently
