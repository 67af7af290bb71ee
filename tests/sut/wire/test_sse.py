"""The event reader against the event-stream rules (WHATWG HTML 9.2) and recorded streams of real servers."""

from pathlib import Path

import pytest

from sut.wire.sse import DONE, EventReader, EventTooLargeError, NoEventError, OtherEventError

DATA = Path(__file__).parents[2] / "data"
BOUND = 1 << 20
STREAMS = {
    "two events": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "lf and crlf mixed": (b"data: a\r\n\ndata: b\n\r\ndata: c\n\n", [b"a", b"b", b"c"]),
    "no space after the colon": (b"data:a\n\n", [b"a"]),
    "only one space is dropped": (b"data:  a \n\n", [b" a "]),
    "data over several lines": (b"data: a\ndata: b\ndata:\ndata: c\n\n", [b"a\nb\n\nc"]),
    "comments": (b": ping\n\n:\ndata: a\n: x\n\n: ping\n\n", [b"a"]),
    "other fields": (b"event: message\nid: 7\nretry: 10\ndata: a\n\nevent\nid\n\n", [b"a"]),
    "cr": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "all line ends": (b"data: a\r\r\ndata: b\n\rdata: c\r\n\rdata: d\r\n\n", [b"a", b"b", b"c", b"d"]),
    "empty lines before and between": (b"\n\n\ndata: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
    "end mark": (b"data: {}\n\ndata: [DONE]\n\n", [b"{}", DONE]),
    "escaped newlines stay": (rb'data: {"text":"a\n\nb\r\n"}' + b"\n\n", [rb'{"text":"a\n\nb\r\n"}']),
    # llama.cpp sends U+2028 and U+0085 raw: line ends for str.splitlines, none for an event stream.
    "unicode line separators": ("data: \u2028\u0085é\n\n".encode(), ["\u2028\u0085é".encode()]),
    "an empty payload": (b"data:\n\n", [b""]),
}
RECORDED = sorted(path.name for path in DATA.glob("*_*.txt") if b"\n\n" in path.read_bytes()[-2:])
assert len(RECORDED) >= 10


def read(pieces, bound=BOUND):
    reader = EventReader(bound)
    found = [payload for piece in pieces for payload in reader.feed(piece)]
    return found, reader.flush()


@pytest.mark.parametrize("name", STREAMS)
def test_every_cut_gives_the_same_payloads(name):
    stream, expected = STREAMS[name]
    assert read([stream[i : i + 1] for i in range(len(stream))]) == (expected, b"")
    for first in range(len(stream)):
        for second in range(first, len(stream)):
            pieces = [stream[:first], stream[first:second], stream[second:]]
            assert read(filter(None, pieces)) == (expected, b""), (first, second)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_streams_in_every_cut(name):
    stream = (DATA / name).read_bytes()
    expected = [part.removeprefix(b"data: ") for part in stream.split(b"\n\n") if part]
    assert read([stream[i : i + 1] for i in range(len(stream))]) == (expected, b"")
    for cut in range(0, len(stream), 7):
        assert read(filter(None, [stream[:cut], stream[cut:]])) == (expected, b"")


@pytest.mark.parametrize(
    ("stream", "events", "rest"),
    [
        (b"data: a\n\ndata: b", [b"a"], b"data: b"),
        (b"data: a\n\ndata: b\n", [b"a"], b"data: b"),
        (b"data: a\r\n\r\ndata: b\r\n", [b"a"], b"data: b"),
        (b"data: a\r\rdata: b\r", [b"a"], b"data: b"),
        (b"dat", [], b"dat"),
        (b"data: a\n\n\n", [b"a"], b""),
        (b"", [], b""),
    ],
)
def test_an_event_without_its_empty_line_is_left_over(stream, events, rest):
    assert read([stream]) == (events, rest)
    assert read([stream[i : i + 1] for i in range(len(stream))]) == (events, rest)


# What hides an event from a reader that skips unknown lines.
NO_EVENTS = {
    "the type error": (b"event: error\ndata: x\n\n", OtherEventError),
    "the type error, ended by CR": (b"event: error\rdata: x\r\r", OtherEventError),
    "the type abort": (b"event:abort\n\n", OtherEventError),
    "a type that no document names": (b"data: a\nevent: token\n\n", OtherEventError),
    "HTML before": (b"<html>\ndata: a\n\n", NoEventError),
    "HTML behind": (b"data: a\n\n<html>502</html>\n\n", NoEventError),
    "a response": (b"data: a\n\nHTTP/1.1 502 Bad Gateway\r\n\r\n", NoEventError),
    "a field that only begins like data": (b"database: a\n\n", NoEventError),
    "an unknown field": (b"error: a\n\n", NoEventError),
}


@pytest.mark.parametrize("name", NO_EVENTS)
def test_what_is_no_event_is_not_skipped(name):
    stream, error = NO_EVENTS[name]
    for cut in range(len(stream)):
        with pytest.raises(error):
            read(filter(None, [stream[:cut], stream[cut:]]))


def test_an_endless_event_stops_at_the_bound():
    reader = EventReader(1000)
    fed = 0
    with pytest.raises(EventTooLargeError, match="1000 bytes"):
        while fed < 10_000:
            fed += 100
            reader.feed(b"data: " + b"x" * 94)
    assert fed <= 1200


def test_an_event_as_large_as_the_bound_passes():
    payload = b"x" * 994
    stream = b"data: " + payload + b"\n\n"
    assert read([stream[i : i + 10] for i in range(0, len(stream), 10)], bound=1002) == ([payload], b"")


def test_many_events_in_one_piece_are_not_one_large_event():
    assert len(read([b"data: 12345\n\n" * 1000], bound=64)[0]) == 1000
