"""Messages between the grader and the warden, over two pipes: lengths, a JSON header, a payload."""

import json
import os
import struct
from typing import NamedTuple

_LENGTHS = struct.Struct("<II")  # header bytes, payload bytes
_SMALL = 1 << 16  # bytes that are copied rather than written on their own


class Job(NamedTuple):
    """A solution to run."""

    mode: str
    """official or strict"""
    function: str
    """Empty for a stdin program."""
    code: str


class TestRun(NamedTuple):
    """A run of one test."""

    limit_s: float
    text: str
    """Its input."""
    memory: int = 0
    """The bytes above which the warden asks for more; 0: never."""


class TestRunResult(NamedTuple):
    """The end of a test run."""

    status: str
    """One of STATUSES."""
    detail: str
    """The last line of stderr, or what else explains the status."""
    output: bytes
    """stdout, or the encoded return value."""


OK, ERROR, TIMEOUT, STARVED, OUTPUT, MEMORY, THREADS, FILES, KILLED = STATUSES = (
    "ok",  # ended by itself, without an uncaught exception
    "error",  # an uncaught exception, a syntax error, a missing function, a non-zero exit
    "timeout",  # the limit of its time
    "starved",  # the limit of wall time, most of which other programs had the processors
    "output_limit",  # printed more than the sandbox takes
    "memory_limit",  # an uncaught MemoryError under the sandbox's limit
    "thread_limit",  # too many threads
    "file_limit",  # too many open files
    "killed",  # died of a signal
)


def send(fd: int, kind: str, fields: dict[str, object], payload: bytes = b"") -> None:
    """Write one message; raises OSError when the peer is gone."""
    header = json.dumps({"kind": kind, **fields}).encode()
    start = _LENGTHS.pack(len(header), len(payload)) + header
    if len(payload) <= _SMALL:
        write_all(fd, start + payload)
    else:
        write_all(fd, start)
        write_all(fd, payload)


def receive(fd: int) -> tuple[dict[str, object], bytes]:
    """Read one message; EOFError when the peer closed its end."""
    header_size, payload_size = _LENGTHS.unpack(read_exactly(fd, _LENGTHS.size))
    header = json.loads(read_exactly(fd, header_size))
    return header, read_exactly(fd, payload_size)


def send_result(fd: int, result: TestRunResult) -> None:
    """Write a TestRunResult, its output as the payload."""
    send(fd, "result", {"status": result.status, "detail": result.detail}, result.output)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_exactly(fd: int, size: int) -> bytes:
    """Read ``size`` bytes from a blocking descriptor; EOFError when it ends before."""
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            raise EOFError("the other end closed the pipe")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
