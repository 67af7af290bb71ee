"""Events that are as expected: their ids are read in C, and nothing else is taken for them.

tests/fuzz does the same with damaged answers: both have the outcome of what Python alone reads.
"""

import json
from functools import cache
from random import Random

import pytest

from harness.config.protocol import Protocol
from harness.record.outcome import Completion, Failure, FailureKind
from sut.client import native_streams, response
from sut.client.streams import MOST_HELD_BYTES
from sut.client.transport import RECEIVE_BYTES
from tests.batched import read_batched, read_plainly
from tests.fuzz.answers import STREAMS, chunked
from tests.kit import assert_failed, reader_of

TOKENS = 40
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
STOP = b'{"type":"stop"}'
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def chunk(*events):
    return chunk_of(b"".join(b"data: %b\n\n" % event for event in events))


def chunk_of(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(ids, count, text="", more=b"null", after=b""):
    """One incremental event of SGLang."""
    parts = (json.dumps(text).encode(), json.dumps(ids, separators=(",", ":")).encode(), more, count, after)
    return (
        b'{"text":%b,"output_ids":%b,"meta_info":{"finish_reason":%b,"prompt_tokens":3,"completion_tokens":%d%b}}'
        % parts
    )


def rust_event(ids, count, text="", more=b"null", after=b""):
    """The same of its Rust server: the count before the ids."""
    parts = (json.dumps(text).encode(), count, more, after, json.dumps(ids, separators=(",", ":")).encode())
    return (
        b'{"text":%b,"meta_info":{"prompt_tokens":3,"completion_tokens":%d,"finish_reason":%b%b},"output_ids":%b}'
        % parts
    )


ORDERS = pytest.mark.parametrize("event", [event, rust_event])


def read(*pieces, most=TOKENS):
    return read_batched(reader_of("sglang", stream=True, max_new_tokens=most), pieces)


@cache
def plainly(*pieces):
    """The outcome of Python alone, which is the same with and without what is compiled."""
    return read_plainly(reader_of("sglang", stream=True, max_new_tokens=TOKENS), pieces)


def ends(event):
    """The first event and the last one."""
    return HEAD + chunk(event([1], 1, "a")), chunk(event([9], 9, "z", STOP)) + END


FIRST, LAST = ends(event)


def whole(event):
    """What comes between them: ids 2 to 8, by what is expected since the first."""
    return {
        "an event a chunk": [chunk(event([n], n, "x")) for n in range(2, 9)],
        "several ids": [chunk(event([2, 3, 4], 4, "x")), chunk(event([5, 6, 7, 8], 8, "y"))],
        "several events a chunk": [chunk(*(event([n], n, "x") for n in range(2, 9)))],
        "several chunks a read": [b"".join(chunk(event([n], n, "x")) for n in range(2, 9))],
        "without text": [chunk(event([n], n)) for n in range(2, 9)],
        "escaped text": [chunk(event([n], n, '"\\\n ]},"')) for n in range(2, 9)],
        "other characters": [chunk(event([n], n, "x").replace(b'"x"', '"ö€"'.encode())) for n in range(2, 9)],
        "a chunk in two reads": [
            piece
            for n in range(2, 9)
            for piece in (chunk(event([n], n, "x"))[:60], chunk(event([n], n, "x"))[60:])
        ],
        "a chunk without its last bytes": [
            piece for n in range(2, 9) for piece in (chunk(event([n], n, "x"))[:-2], b"\r\n")
        ],
        "with the end": [b"".join(chunk(event([n], n, "x")) for n in range(2, 9)) + ends(event)[1]],
    }


WHOLE = list(whole(event))


@ORDERS
@pytest.mark.parametrize("name", WHOLE)
def test_the_ids_of_expected_events(name, event, is_native):
    first, last = ends(event)
    outcome, ids = read(first, *whole(event)[name], last)
    assert isinstance(outcome, Completion), outcome
    assert outcome.output_ids.tolist() == list(range(1, 10))
    assert ids == (7 if is_native else 0)


@pytest.fixture
def counts(monkeypatch):
    """How many ids a reader has got of events of which it parsed none."""
    if native_streams.library() is None:
        pytest.skip("./setup.sh has compiled no library")
    found = []

    def counted(expected, data):
        ids, used = native_streams.leading_ids(expected, data)
        found.append(len(ids) // 4)
        return ids, used

    monkeypatch.setattr(response, "leading_ids", counted)
    return found


@ORDERS
@pytest.mark.parametrize("name", WHOLE)
def test_the_ids_of_a_first_read_with_many_events(name, event, counts):
    first, last = ends(event)
    reader = reader_of("sglang", stream=True, max_new_tokens=TOKENS)
    outcome = reader.feed(first + b"".join((*whole(event)[name], last)), 40)
    assert isinstance(outcome, Completion), outcome
    assert outcome.output_ids.tolist() == list(range(1, 10))
    assert (reader.first_token_ns, reader.last_byte_ns, reader.first_event_tokens) == (40, 40, 9)
    assert sum(counts) == 7


def test_a_read_with_more_events_than_are_taken_at_once(counts):
    count = 4 * RECEIVE_BYTES // len(chunk(event([2], 2, "x")))
    reader = reader_of("sglang", stream=True, max_new_tokens=count + 1)
    whole = FIRST + b"".join(chunk(event([n % 100], n, "x")) for n in range(2, count + 1))
    whole += chunk(event([9], count + 1, "z", STOP)) + END
    outcome = reader.feed(whole, 1)
    assert outcome.output_ids.tolist() == [1, *(n % 100 for n in range(2, count + 1)), 9]
    assert sum(counts) > count // 3


WITH_OTHERS = {"a longer chunk"}  # takes what follows into it: as what it fails depends on how much has come


def odd(event):
    """What is not expected after the first event."""
    return {
        "another escape": chunk(event([2], 2, "x").replace(b'"x"', b'"\\u20ac"')),
        "spaces between ids": chunk(event([2], 2, "x").replace(b"[2]", b"[ 2 ]")),
        "a leading zero": chunk(event([2], 2, "x").replace(b"[2]", b"[02]")),
        "no id": chunk(event([2], 2, "x").replace(b"[2]", b"[]")),
        "a fraction": chunk(event([2], 2, "x").replace(b"[2]", b"[2.0]")),
        "a negative id": chunk(event([-2], 2, "x")),
        "an id beyond uint32": chunk(event([2**32], 2, "x")),
        "an id outside of the vocabulary": chunk(event([2**31], 2, "x")),
        "an event lost": chunk(event([3], 3, "x")),
        "a count beyond int64": chunk(event([2], 36893488147419103234, "x")),
        "another prompt": chunk(event([2], 2, "x").replace(b'prompt_tokens":3', b'prompt_tokens":4')),
        "an unknown number": chunk(event([2], 2, "x", after=b',"took":7')),
        "an unknown text": chunk(event([2], 2, "x", after=b',"note":"full"')),
        "no escape": chunk(event([2], 2, "x").replace(b'"x"', b'"\\q"')),
        "a line of no event": chunk_of(b"data: %b\n1\n\n" % event([2], 2, "x")),
        "another letter": chunk_of(b"data: %b\n1" % event([2], 2, "x")),
        "no empty line": chunk_of(b"data: %b\n" % event([2], 2, "x")),
        "other line ends": chunk_of(b"data: %b\r\n\r\n" % event([2], 2, "x")),
        "two lines in two chunks": chunk_of(b"data: " + event([2], 2, "x"))
        + chunk_of(b"\ndata: %b\n\n" % event([3], 3, "x")),
        "no line end behind the chunk": chunk(event([2], 2, "x"))[:-2],
        "another line end behind the chunk": chunk(event([2], 2, "x"))[:-2] + b"xx",
        "a control character": chunk(event([2], 2, "x").replace(b'"x"', b'"\x01"')),
        "half a character": chunk(event([2], 2, "x").replace(b'"x"', b'"\xf0\x9f"')),
        "a longer chunk": b"9" + chunk(event([2], 2, "x")),
        "a shorter chunk": chunk(event([2], 2, "x"))[1:],
        "a chunk with an extension": chunk(event([2], 2, "x")).replace(b"\r\n", b";x=1\r\n", 1),
        "a chunk of zeros": b"000" + chunk(event([2], 2, "x")),
        "no chunk": event([2], 2, "x") + b"\n\n",
        "a comment": chunk(event([2], 2, "x")) + b"8\r\n: ping\n\n\r\n",
        "an error": chunk(b'{"error":{"message":"x"}}'),
        "the end": END,
        "another answer": b"HTTP/1.1 200 OK\r\n\r\n",
    }  # fmt: skip


ODD = list(odd(event))


@pytest.mark.usefixtures("is_native")
@ORDERS
@pytest.mark.parametrize("name", ODD)
def test_what_is_not_expected_is_judged_as_ever(name, event):
    """Also if events that are expected stand before and after it, in the same read or in another."""
    start, end = ends(event)
    strange, others = odd(event)[name], [chunk(event([n], n, "x")) for n in range(2, 9)]
    for before, after in ((0, 1), (3, 3)):  # in the place of the first of them, and between two
        first = [start, *others[:before]]
        rest = [*others[after:], end]
        for pieces in (
            (*first, strange, *rest),
            (start, b"".join((*first[1:], strange, *rest))),
            (b"".join((*first, strange, *rest)),),
            (*first, strange[:9], strange[9:], *rest),
            (*first, strange[:-2], strange[-2:] + rest[0][:50], rest[0][50:], *rest[1:]),
        ):
            plain, (outcome, _) = plainly(*pieces), read(*pieces)
            if isinstance(plain, Completion):
                assert repr(outcome) == repr(plain)
            else:
                assert isinstance(outcome, Failure)
                assert outcome.kind is plain.kind or name in WITH_OTHERS


def test_no_more_ids_than_asked_for(is_native):
    outcome, ids = read(FIRST, *(chunk(event([n], n, "x")) for n in range(2, 9)), LAST, most=5)
    assert_failed(outcome, FailureKind.TOO_MANY_TOKENS)
    assert ids == (4 if is_native else 0)
    outcome, _ = read(FIRST + b"".join(chunk(event([n], n, "x")) for n in range(2, 9)) + LAST, most=5)
    assert_failed(outcome, FailureKind.TOO_MANY_TOKENS)


@pytest.mark.usefixtures("is_native")
def test_a_cumulative_answer_is_not_taken_for_an_incremental_one():
    pieces = [chunk(event(list(range(1, n + 1)), n, "x" * n)) for n in range(2, 9)]
    last = chunk(event(list(range(1, 10)), 9, "x" * 9, STOP)) + END
    outcome, ids = read(FIRST, *pieces, last)
    assert outcome.output_ids.tolist() == list(range(1, 10))
    assert ids == 0


@pytest.mark.usefixtures("is_native")
def test_events_of_several_lines_are_not_read_by_their_bytes():
    """A line end inside of JSON begins a line of no event, though an event's joined lines look like that."""
    first = HEAD + chunk(event([1], 1, "a").replace(b'"meta_info"', b'\ndata: "meta_info"'))
    good = [chunk(event([n], n, "x").replace(b'"meta_info"', b'\ndata: "meta_info"')) for n in range(2, 9)]
    outcome, ids = read(first, *good, LAST)
    assert (outcome.output_ids.tolist(), ids) == (list(range(1, 10)), 0)
    joined = event([2], 2, "x").replace(b'"meta_info"', b'\n"meta_info"')
    outcome, _ = read(first, chunk(joined))
    assert_failed(outcome, FailureKind.MALFORMED)


@pytest.mark.parametrize(("characters", "kept"), [(MOST_HELD_BYTES // 2, 7), (2 * MOST_HELD_BYTES, 0)])
def test_a_part_of_an_event_is_kept_up_to_a_bound(characters, kept, is_native):
    """A longer one is held by its reader, whose bound is that of all events."""
    long = chunk(event([2], 2, "x" * characters))
    outcome, ids = read(FIRST, long[:-9], long[-9:], *(chunk(event([n], n, "x")) for n in range(3, 9)), LAST)
    assert outcome.output_ids.tolist() == list(range(1, 10))
    assert ids == (kept if is_native else 0)


@pytest.mark.usefixtures("is_native")
@pytest.mark.parametrize("name", STREAMS)
def test_recorded_answers_in_any_pieces(name):
    protocol, blocks, asked = STREAMS[name]
    whole = chunked(blocks)
    for number in range(12):
        cuts = sorted(Random(number).sample(range(1, len(whole)), number))
        pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        outcome, _ = read_batched(reader_of(protocol, 1 << 20, stream=True, max_new_tokens=asked), pieces)
        plain = reader_of(protocol, 1 << 20, stream=True, max_new_tokens=asked)
        expected = read_plainly(plain, [whole])
        assert repr(outcome) == repr(expected)


# Ids of a recorded answer that are decoded: of the first event, of a second with other fields, of the last.
DECODED = {"sglang-incremental": 3, "sglang-rust-incremental": 2, "openai": 3, "llamacpp": 1, "generate": 2}


@pytest.mark.parametrize("name", DECODED)
def test_a_recorded_answer_event_by_event(name, is_native):
    protocol, blocks, asked = STREAMS[name]
    head, *chunks = [HEAD, *(b"%x\r\n%b\r\n" % (len(block), block) for block in blocks)]
    reader = reader_of(protocol, 1 << 20, stream=True, max_new_tokens=asked)
    outcome, ids = read_batched(reader, [head + chunks[0], *chunks[1:], b"0\r\n\r\n"])
    assert ids == (len(outcome.output_ids) - DECODED[name] if is_native else 0)


def test_a_text_has_no_ids():
    reader = reader_of(Protocol("openai", "chat", "text"), stream=True)
    assert reader.expected is None
