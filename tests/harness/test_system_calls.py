"""System calls that not every Python has."""

import os
import re
import select
import signal
import subprocess
from pathlib import Path

import pytest

from harness.system_calls import memory_file, process_descriptor, send_signal
from tests.kit import PATIENCE_S
from tests.test_architecture import program


def test_a_file_in_memory_is_not_inherited():
    descriptor = memory_file("text")
    os.write(descriptor, b"ab")
    assert os.pread(descriptor, 9, 0) == b"ab"
    assert Path(f"/proc/self/fd/{descriptor}").readlink().name == "memfd:text (deleted)"
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_a_process_is_signalled_and_its_end_is_seen():
    with subprocess.Popen(["sleep", "600"]) as process:
        descriptor = process_descriptor(process.pid)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        assert not poller.poll(0)
        send_signal(descriptor, signal.SIGTERM)
        assert poller.poll(PATIENCE_S * 1000)
    assert process.returncode == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        send_signal(descriptor, signal.SIGTERM)
    os.close(descriptor)


def test_a_refusal_is_an_error():
    with pytest.raises(OSError, match="pidfd_open: Invalid argument"):
        process_descriptor(-1)


def test_nothing_asks_python_for_them():
    """conda's Python and uv's have neither: they are built for older systems."""
    asks = re.compile(r"os\.(memfd_create|MFD_|pidfd_open)|signal\.pidfd")
    assert [path for path in program() if asks.search(path.read_text())] == []
