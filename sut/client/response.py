"""Reads one HTTP response into one Outcome: HTTP/1.1, then events, then the protocol's answer.

A feed object without a socket: bytes and their arrival time go in, an Outcome comes out once.
"""

from codecs import BOM_UTF8
from typing import Any

import httptools

from harness.record.outcome import Failure, FailureKind, Outcome
from harness.text import counted
from sut.client.native_streams import leading_ids
from sut.wire.answer_checks import AnswerReader, Expected, excerpt
from sut.wire.fields import is_harmless
from sut.wire.sse import (
    DONE,
    EVENT_END,
    EventReader,
    EventTooLargeError,
    NoEventError,
    OtherEventError,
)

_ERROR_BODY_BYTES = 4096
_MOST_PARTS = 4  # of one read: the first event of many servers has more fields than those that follow
# The most bytes of headers, informational responses, chunk extensions and trailers: no answer needs as many.
_MOST_AROUND_BYTES = 1 << 18
# Beginnings of an event stream's lines; any other end of a body is not a cut-off event.
_EVENT_LINES = (b"data", b"event", b"id", b"retry", b":")
# Trailers that a server may add after a chunked body; any other may report an error that it met meanwhile.
_TRAILERS = frozenset(
    b"age cache-control connection content-digest content-length content-md5 content-type date digest etag "
    b"expires keep-alive last-modified repr-digest server server-timing trailer traceparent tracestate "
    b"transfer-encoding vary via x-request-id".split()
)
# Headers of proxies that send a request again when it has failed, with the number of a first attempt.
_ATTEMPTS = {
    b"x-litellm-attempted-retries": b"0",
    b"x-litellm-attempted-fallbacks": b"0",
    b"x-envoy-attempt-count": b"1",
}
_CACHED = b"x-litellm-cache-key"  # LiteLLM's answers from its cache alone have it
# Of caches of whole responses, which say a hit. An engine's or a router's header of its prefix cache is none.
_CACHES = frozenset(b"x-cache x-cache-status x-proxy-cache cf-cache-status cache-status".split())
_TELLING = frozenset((*_ATTEMPTS, *_CACHES, _CACHED))
_FROM_CACHE = "it is from a cache; switch off the proxy's"
_REPEATED = "an earlier attempt at it failed; switch off the proxy's retries and fallbacks to see why"
_GRPC_OK = (b"grpc-status", b"0")
# llhttp's message for a Content-Length header although the body is chunked.
_SECOND_LENGTH = "Content-Length can't be present with Transfer-Encoding"


class ResponseReader:
    """One response, whose events ``answer`` reads.

    ``text_after``: tokens at the start of an answer that are no text. Failures and the tokens of ``answer``
    do not include what is held, until ``parse_held``.
    """

    __slots__ = (
        "_around",
        "_body",
        "_chunked",
        "_complete",
        "_done",
        "_ended_event",
        "_events",
        "_failure",
        "_framed",
        "_headed",
        "_held",
        "_max_body",
        "_parser",
        "_pieces",
        "_refusal",
        "_status",
        "_text_after",
        "answer",
        "first_byte_ns",
        "first_event_tokens",
        "first_token_ns",
        "last_byte_ns",
        "last_event_ns",
        "on_body",
        "reusable",
        "visible_ns",
        "visible_tokens",
    )

    def __init__(
        self, answer: AnswerReader, *, streams: bool, max_event_bytes: int, text_after: int = 0
    ) -> None:
        self.answer = answer
        self._events = EventReader(max_event_bytes) if streams else None
        self._max_body = max_event_bytes
        self._pieces: list[bytes] = []  # pieces of the body, from one call of the parser
        self.on_body = self._pieces.append
        self._parser: Any = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._around = 0  # bytes received since the last piece of the body
        self._failure: Failure | None = None
        self._framed = False
        self._chunked = False
        self._held = b""
        self._ended_event = False  # what was fed latest ended with an event
        self._refusal: Failure | None = None  # what its headers say against it, if its status is 200
        self._headed = False  # the headers are complete: headers that follow are trailers
        self._text_after = text_after
        self._complete = False
        self._done = False  # the end mark has come
        self.reusable = False  # whether the connection may carry another request
        self._status = 0
        # Times are the ``arrived_ns`` that ``feed`` was given with these bytes; 0 until they came.
        self.first_byte_ns = 0
        self.first_token_ns = 0
        self.first_event_tokens = 0  # the tokens that arrived with the first one
        self.visible_ns = 0  # arrival of the first text: that of the first token where all is text
        self.visible_tokens = 0  # the tokens that had arrived then
        self.last_byte_ns = 0
        self.last_event_ns = 0  # a comment, with which a gateway keeps a connection open, is no event

    @property
    def holds(self) -> bool:
        """Whether its events may be held: the end of a chunked answer never looks like that of an event."""
        return self._chunked

    @property
    def expected(self) -> Expected | None:
        """The form of the next events; None unless a chunk of them begins now.

        The CRLF of EVENT_END is the chunk's and not of an event, in which it would begin another one.
        """
        events, begins = self._events, self._chunked and self._ended_event and not self._held
        return self.answer.expected if begins and events is not None and events.is_between else None

    def feed(self, data: bytes, arrived_ns: int) -> Outcome | None:
        """Take received bytes; the Outcome once there is one."""
        if not self.first_byte_ns:
            self.first_byte_ns = arrived_ns
        self.last_byte_ns = arrived_ns
        held, self._held = self._held, b""
        error = self._read(held + data if held else data)
        if error is not None and self._headed and str(error) == _SECOND_LENGTH:
            self._take_trailers(data)
            error = None
        if error is not None and self._failure is None and not self._complete:
            self._failure = Failure(FailureKind.HTTP_PROTOCOL, f"{error}: {excerpt(data)}")
        if self._failure is not None:
            return self._failure
        if self._complete:
            return self._judge(arrived_ns)
        self._around += len(data)
        if self._around > _MOST_AROUND_BYTES:
            self._failure = Failure(
                FailureKind.TOO_LARGE, f"more than {_MOST_AROUND_BYTES} bytes of headers or framing at once"
            )
            return self._failure
        if not self.visible_ns and self.answer.tokens:
            self._mark(arrived_ns)
        return None

    def hold(self, data: bytes, arrived_ns: int, ids: bytes = b"") -> None:
        """Take the ``ids`` of events that were as expected; keep others for ``feed``: all at once is cheaper.

        No time depends on those between the first token and the end.
        """
        if ids:
            self.answer.add(ids)
            self.last_event_ns = arrived_ns
        self._held += data
        self.last_byte_ns = arrived_ns

    def parse_held(self) -> Outcome | None:
        """Parse what is held; its Failure if it has one."""
        return self.feed(b"", self.last_byte_ns) if self._held else None

    def closed(self) -> Outcome:
        """The peer closed the connection before an Outcome: allowed only for a body without framing."""
        if (outcome := self.parse_held()) is not None:
            return outcome
        if self._failure is not None:
            return self._failure
        if not self.first_byte_ns:
            return Failure(FailureKind.NO_RESPONSE, "the server closed the connection without an answer")
        if self._ends_with_connection and (self._events is not None or self._ends_by_content):
            return self._judge(self.last_byte_ns)
        return Failure(
            FailureKind.TRUNCATED,
            f"the connection closed inside the answer, after {counted(self.answer.tokens, 'token')}",
        )

    def broken(self) -> Outcome | None:
        """The connection broke before an Outcome: a body without framing is complete if its content shows it.

        None for any other body.
        """
        if (outcome := self.parse_held()) is not None:
            return outcome
        if self._ends_with_connection and self._ends_by_content:
            return self._failure or self._judge(self.last_byte_ns)
        return None

    @property
    def _ends_with_connection(self) -> bool:
        """Whether the end of the connection is the body's only end."""
        return self._headed and not self._framed and self._status >= 200

    @property
    def _ends_by_content(self) -> bool:
        """Whether the content shows that nothing is missing: the end mark, or the end of a JSON document."""
        return (
            self._done or self._status != 200 or (self._events is None and self._body.rstrip().endswith(b"}"))
        )

    def release(self) -> None:
        """Release the parser, which refers to this reader: workers run without a garbage collector."""
        self._parser = None

    def _read(self, data: bytes) -> Exception | None:
        """Parse bytes; of several events at once only those that are not as expected after the one before."""
        if self._events is None:
            return self._parse(data)
        for _ in range(_MOST_PARTS):
            end = data.find(EVENT_END) + len(EVENT_END)
            if end < len(EVENT_END) or end == len(data):
                break
            if error := self._parse(data[:end]):
                return error
            data = data[end:]
            if self._failure is not None or (expected := self.expected) is None:
                break
            ids, used = leading_ids(expected, data)
            self.answer.add(ids)
            self.last_event_ns = self.last_byte_ns
            if used == len(data):
                return None
            data = data[used:]
        return self._parse(data)

    def _parse(self, data: bytes) -> Exception | None:
        """Let httptools call back, and take what it found of the body; what it refuses is returned."""
        self._ended_event = data.endswith(EVENT_END)
        error = None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as refusal:
            if isinstance(refusal.__context__, MemoryError):
                raise refusal.__context__ from None  # from our own code, not from the server
            self.reusable = False
            error = refusal
        if self._pieces and not self._complete:
            self._take_body()
        return error

    def _take_body(self) -> None:
        """Take the pieces of the body that the parser has found."""
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._around = 0
        if self._failure is not None:
            return
        if self._events is None or self._status != 200:
            self._keep(body)
            return
        try:
            payloads = self._events.feed(body)
        except EventTooLargeError as error:
            self._failure = Failure(FailureKind.TOO_LARGE, str(error))
            return
        except OtherEventError as error:
            self._failure = Failure(
                FailureKind.IN_BAND_ERROR, f"an event of another type than message: {excerpt(error.args[0])}"
            )
            return
        except NoEventError as error:
            self._failure = Failure(
                FailureKind.MALFORMED, f"a line that is neither an event's nor JSON: {excerpt(error.args[0])}"
            )
            return
        self._take_events(payloads)

    def _take_events(self, payloads: list[bytes]) -> None:
        after: list[bytes] = []
        if self._done:
            payloads, after = [], payloads
        elif DONE in payloads:
            self._done = True
            end = payloads.index(DONE)
            payloads, after = payloads[:end], payloads[end + 1 :]
        if payloads:
            self.last_event_ns = self.last_byte_ns
            self._failure = self.answer.feed_all(payloads)
        if after and self._failure is None:
            self._failure = Failure(
                FailureKind.AFTER_END, f"an event came after the end mark: {excerpt(after[0])}"
            )

    def _mark(self, arrived_ns: int) -> None:
        """Note the first token, and the first text."""
        tokens = self.answer.tokens
        if not self.first_token_ns:
            self.first_token_ns = arrived_ns
            self.first_event_tokens = tokens
        if tokens > self._text_after:
            self.visible_ns = arrived_ns
            self.visible_tokens = tokens

    def _judge(self, arrived_ns: int) -> Outcome:
        if self._status != 200:
            said = excerpt(bytes(self._body))
            return Failure(FailureKind.HTTP_STATUS, f"HTTP {self._status}{said and f': {said}'}")
        if self._events is None:
            self._failure = self.answer.feed(bytes(self._body).removeprefix(BOM_UTF8))
        elif rest := self._events.flush():
            return self._left_over(rest)
        if self._failure is not None:
            return self._failure
        if not self.visible_ns and self.answer.tokens:
            self._mark(arrived_ns)
        return self.answer.finish()

    def _left_over(self, rest: bytes) -> Failure:
        """The Failure of a body that does not end with a complete event."""
        if rest.startswith(_EVENT_LINES):
            detail = f"after {counted(self.answer.tokens, 'token')} an event was cut off: {excerpt(rest)}"
            return Failure(FailureKind.TRUNCATED, detail)
        if rest.startswith(b"{"):
            if failure := self.answer.feed(rest):
                return failure
            return Failure(
                FailureKind.MALFORMED, f"one JSON document where a stream was asked for: {excerpt(rest)}"
            )
        return Failure(FailureKind.MALFORMED, f"neither events nor JSON: {excerpt(rest)}")

    # httptools calls these, and ``on_body``, while feed_data runs. Anything after the answer is ignored.

    def on_message_begin(self) -> None:
        """A response begins; a second one is unexpected."""
        self._headed = self._complete
        if self._complete:
            self.reusable = False

    def on_headers_complete(self) -> None:
        """Take the status."""
        self._headed = True
        if not self._complete:
            self._status = int(self._parser.get_status_code())
            if self._status == 200:
                self._failure = self._refusal

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note whether the body has framing, and what speaks against it; refuse a trailer."""
        name = name.lower()
        if self._headed:
            self._take_trailer(name, value.strip())
        elif name in (b"content-length", b"transfer-encoding"):
            self._framed = True
            self._chunked = name != b"content-length"
        elif name == b"content-encoding" and value.strip().lower() != b"identity":
            detail = f"compressed, without being asked (Content-Encoding: {excerpt(value)})"
            self._refusal = Failure(FailureKind.MALFORMED, detail)
        elif name in _TELLING and (why := _why_not_first(name, value.strip())):
            detail = f"the response says {excerpt(name)}: {excerpt(value)}: {why}"
            self._refusal = Failure(FailureKind.IN_BAND_ERROR, detail)

    def on_message_complete(self) -> None:
        """The body is complete by its framing."""
        if self._status >= 200 and not self._complete:
            self._complete = True
            self._take_body()
            # llhttp resets this as soon as the callback returns.
            self.reusable = bool(self._parser.should_keep_alive())

    def _take_trailer(self, name: bytes, value: bytes) -> None:
        if self._complete or name in _TRAILERS or (name, value) == _GRPC_OK:
            return
        if self._failure is None and not is_harmless(name.decode("latin-1"), value.decode("latin-1")):
            shown = f"{excerpt(name)}: {excerpt(value)}"
            self._failure = Failure(FailureKind.IN_BAND_ERROR, f"a trailer of the response says {shown}")

    def _take_trailers(self, data: bytes) -> None:
        """Take trailers with a Content-Length among them, at which the parser stops.

        Trailers follow the last chunk, so that the body is complete.
        """
        for line in data[data.rfind(b"\r\n0") + 1 :].split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if colon:
                self._take_trailer(name.strip().lower(), value.strip())
        self._complete = True

    def _keep(self, data: bytes) -> None:
        free = (_ERROR_BODY_BYTES if self._status != 200 else self._max_body) - len(self._body)
        if self._status == 200 and len(data) > free:
            self._failure = Failure(FailureKind.TOO_LARGE, f"an answer of more than {self._max_body} bytes")
        elif free > 0:
            self._body += data[:free]


def _why_not_first(name: bytes, value: bytes) -> str:
    """What a header says against an answer that no server made for this request alone; "" for nothing."""
    if name in _ATTEMPTS:
        return _REPEATED if value != _ATTEMPTS[name] else ""
    says = value.lower()
    return _FROM_CACHE if name == _CACHED or says.startswith(b"hit") or b"; hit" in says else ""
