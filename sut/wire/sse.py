"""Server-sent events, as a feed object: bytes in, complete ``data:`` payloads out."""

import re
from codecs import BOM_UTF8

DONE = b"[DONE]"
# In each protocol a chunk of complete JSON events ends like this, and the end of an answer never does.
EVENT_END = b"}\n\n\r\n"
# The lines that an event may have, by the standard.
_LINE = re.compile(rb"(?:data|event|id|retry)(?::|$)|:|$")
_USUAL = (b"", b"message")  # types of an event


class EventTooLargeError(Exception):
    """An event larger than the reader's bound."""


class OtherEventError(Exception):
    """An event of another type than ``message``; its argument is the event."""


class NoEventError(Exception):
    """A line that no event has, HTML for example; its argument is the line."""


class EventReader:
    """Splits a response body into the payloads of its ``data:`` lines.

    ``feed`` takes the body in any cut and returns the payloads that became complete. An event ends with an
    empty line; LF, CRLF and CR are all line ends. Comments, ids and ``retry`` are skipped; an event with a
    type (``event: error``) raises OtherEventError, a line that is none of these NoEventError. At most
    ``max_event_bytes`` are kept waiting for the end of an event; beyond that EventTooLargeError is raised.
    """

    __slots__ = ("_after_cr", "_max", "_rest")

    def __init__(self, max_event_bytes: int) -> None:
        self._max = max_event_bytes
        self._rest: bytes | bytearray = b""
        self._after_cr = False  # a line feed that follows belongs to the same line end

    @property
    def is_between(self) -> bool:
        """Whether no event has begun that is not complete."""
        return not self._rest and not self._after_cr

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads completed by ``data``, in order."""
        if self._after_cr or b"\r" in data:
            data = self._with_line_feeds(data)
        if self._rest:
            return self._continue(data)
        if data.startswith(b"data: ") and data.endswith(b"\n\n"):
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

    def _with_line_feeds(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data, self._after_cr = data.removeprefix(b"\n"), False
        self._after_cr = self._after_cr or data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _continue(self, data: bytes) -> list[bytes]:
        """Add to an event that has begun; only new bytes are searched, so the time is linear for any cut."""
        rest = self._rest if isinstance(self._rest, bytearray) else bytearray(self._rest)
        start = len(rest) - 1  # the first line feed of an end may have arrived
        rest += data
        if rest.find(b"\n\n", start) >= 0:
            return self._split(bytes(rest))
        self._keep(rest)
        return []

    def _split(self, data: bytes) -> list[bytes]:
        *events, rest = data.split(b"\n\n")
        self._keep(rest)
        payloads = (_payload(event) for event in events)
        return [payload for payload in payloads if payload is not None]

    def _keep(self, rest: bytes | bytearray) -> None:
        self._rest = rest
        if len(rest) > self._max:
            raise EventTooLargeError(f"an event of more than {self._max} bytes")


def _payload(event: bytes) -> bytes | None:
    data: list[bytes] = []
    # A stream may begin with a byte order mark, which is not part of the first line.
    for line in event.removeprefix(BOM_UTF8).split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:") and line[6:].strip() not in _USUAL:
            raise OtherEventError(event)
        elif _LINE.match(line) is None:
            raise NoEventError(line)
    return b"\n".join(data) if data else None
