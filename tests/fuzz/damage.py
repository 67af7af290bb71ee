"""Ways to damage a true input: bytes and blocks cut, repeated, moved, flipped, words that parsers dislike."""

from collections.abc import Callable, Sequence
from random import Random

WORDS = (
    b"\r\n\r\n", b"\n\n", b"\r", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J", "\u202e".encode(),
    b"data: ", b"data: [DONE]\n\n", b": ping\n\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n",
    b";ext=" + b"x" * 99,
    b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"content-length: 5\r\n",
    b"content-length: 99999999999999999999\r\n", b"transfer-encoding: chunked\r\n", b"x" * 5000,
    b"{", b"}", b"[", b"]", b'"', b",", b"\\", b"\\ud800", b"null", b"true", b"{}", b"[]", b"NaN", b"-1",
    b"1e9",
    b"1.0", b"4294967296", b"18446744073709551616", b"9" * 4299, b"9" * 4301, b"9" * 9000,
    b"[" * 3000, b'{"a":' * 3000, b'"completion_tokens":', b'"completion_tokens":7,', b'"error":null,',
    b'"error":{"code":1},', b'"output_ids":[1],', b'"finish_reason":{"type":"stop"},', b'"tokens":[5],',
    b'"stop":true,', b'"token_ids":[1],', b'"choices":[],', b'"usage":{"completion_tokens":1}',
    b'"delta":{"content":"x"},', b'"content":null,', b'"reasoning":"y",', b'"text":"z",', b'"message":{},',
    b"\\ud83e", b"\\udda5", b"\xf0\x9f",
)  # fmt: skip


def damaged(data: bytes, rng: Random) -> bytes:
    """One to four damages to bytes anywhere."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(_BYTES)(data, rng)
    return data


def shuffled(blocks: Sequence[bytes], rng: Random) -> list[bytes]:
    """One to three blocks lost, repeated, moved, put in or damaged, or the rest cut off."""
    found = list(blocks)
    for _ in range(rng.choice((1, 1, 2, 3))):
        place, taken = rng.randrange(len(found) + 1), found[(other := rng.randrange(len(found) + 1)) :][:1]
        match rng.choice(("lost", "repeated", "moved", "damaged", "damaged", "damaged", "cut off", "put in")):
            case "lost":
                del found[place : place + 1]
            case "repeated":
                found[place:place] = taken
            case "moved":
                del found[other : other + 1]
                found[place:place] = taken
            case "damaged":
                found[place : place + 1] = [damaged(block, rng) for block in found[place : place + 1]]
            case "cut off":
                del found[place:]
            case "put in":
                found.insert(place, rng.choice(WORDS))
    return found


def pieces(data: bytes, rng: Random) -> list[bytes]:
    """``data`` as a network might deliver it: whole, in a few pieces, or byte by byte."""
    how = rng.randrange(4)
    if how == 0 or len(data) < 2:
        return [data]
    if how == 1 and len(data) < 4000:
        return [data[i : i + 1] for i in range(len(data))]
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.choice((1, 2, 5, 20))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _cut(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _span(data: bytes, rng: Random) -> bytes:
    """A part lost, repeated or moved."""
    start = rng.randrange(len(data) + 1)
    end = start + rng.choice((1, 2, 8, 64, 600))
    rest = data[:start] + data[end:]
    place = rng.randrange(len(rest) + 1)
    moved = rest[:place] + data[start:end] + rest[place:]
    return rng.choice((rest, data[:end] + data[start:], moved))


def _flip(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _digit(data: bytes, rng: Random) -> bytes:
    places = [place for place, byte in enumerate(data[:20_000]) if 48 <= byte <= 57]
    if not places:
        return data
    place = rng.choice(places)
    return data[:place] + rng.choice((b"", b"0", b"7", b"-3", b"55", b"9" * 30)) + data[place + 1 :]


def _insert(data: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    word = rng.choice(WORDS) if rng.random() < 0.8 else rng.randbytes(rng.randrange(1, 40))
    return data[:place] + word + data[place:]


_BYTES: tuple[Callable[[bytes, Random], bytes], ...] = (
    _cut, _span, _span, _span, _flip, _flip, _digit, _digit, _insert, _insert,
)  # fmt: skip
