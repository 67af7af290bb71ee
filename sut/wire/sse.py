"""Server-sent events, as a feed object: bytes in, complete ``data:`` payloads out."""

import re

DONE = b"[DONE]"
_END = re.compile(rb"\r?\n\r?\n")
BOM = b"\xef\xbb\xbf"  # a stream may begin with one; it is not part of the first line
_END_BYTES = 3  # bytes of an end that may already have arrived without its last


class EventTooLargeError(Exception):
    """An event larger than the reader's bound."""


class ErrorEventError(Exception):
    """An event of the type ``error``; its argument is the event's data."""


class EventReader:
    """Splits a response body into the payloads of its ``data:`` lines.

    ``feed`` takes the body in any cut and returns the payloads that became complete. An event ends with an
    empty line; LF and CRLF are both accepted. Comments and other fields are skipped; an ``event: error``
    raises ErrorEventError. At most ``max_event_bytes`` are kept waiting for the end of an event; beyond that
    EventTooLargeError is raised.
    """

    __slots__ = ("_max", "_rest")

    def __init__(self, max_event_bytes: int) -> None:
        self._max = max_event_bytes
        self._rest: bytes | bytearray = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads completed by ``data``, in order."""
        if self._rest:
            return self._continue(data)
        if data.startswith(b"data: ") and data.endswith(b"\n\n") and b"\r" not in data:
            payloads = data[6:-2].split(b"\n\ndata: ")
            for payload in payloads:
                if b"\n" in payload:
                    break
            else:
                return payloads  # the usual case: complete events of one line each
        return self._split(data)

    def flush(self) -> bytes:
        """The rest at the end of the body; empty when no event was cut off."""
        return bytes(self._rest).strip()

    def _continue(self, data: bytes) -> list[bytes]:
        """Add to an event that has begun; only new bytes are searched, so the time is linear for any cut."""
        rest = self._rest if isinstance(self._rest, bytearray) else bytearray(self._rest)
        start = max(0, len(rest) - _END_BYTES)
        rest += data
        if _END.search(rest, start) is not None:
            return self._split(bytes(rest))
        self._keep(rest)
        return []

    def _split(self, data: bytes) -> list[bytes]:
        if b"\r" in data:
            *events, rest = _END.split(data)
            events = [event.replace(b"\r\n", b"\n") for event in events]
        else:
            *events, rest = data.split(b"\n\n")
        self._keep(rest)
        payloads = (_payload(event) for event in events)
        return [payload for payload in payloads if payload is not None]

    def _keep(self, rest: bytes | bytearray) -> None:
        self._rest = rest
        if len(rest) > self._max:
            raise EventTooLargeError(f"an event of more than {self._max} bytes")


def _payload(event: bytes) -> bytes | None:
    lines = event.removeprefix(BOM).split(b"\n")
    data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    if any(line.startswith(b"event:") and line[6:].strip() == b"error" for line in lines):
        raise ErrorEventError(b"\n".join(data))
    return b"\n".join(data) if data else None
