"""Answers without end or measure: each ends as a Failure, in bounded time and with bounded memory."""

import gzip
import itertools
import json
import subprocess
import sys

import pytest

from tests.kit import listening, read_request
from tests.runs import ROOT
from tests.security.hostile import OK, STREAM, chunk

# The largest event of an honest answer of 32 768 tokens is 5 MiB; a list of its ids, decoded, as much again.
MOST_MIB = 24
SECONDS = 120.0  # the deadline of answers that end by themselves
TIMEOUT_S = 0.3  # for answers that end only by the deadline


def endless(piece):
    return itertools.repeat(piece)


def tiny(block, times):
    """Many chunks in each piece that is sent: a read brings thousands of them."""
    return endless(chunk(block) * times)


def event(body):
    return chunk(b"data: " + body + b"\n\n")


BOMB = gzip.compress(bytes(1 << 20)) * 64
META = b'"meta_info":{"completion_tokens":%d}'

# name: (pieces after each other, expected failures)
STREAMED = {
    "an event of a gigabyte": ([STREAM], tiny(b"x" * 65536, 4), {"too_large"}),
    "an event in tiny chunks": ([STREAM, chunk(b"data: ")], tiny(b"xxxx", 8_000), {"too_large"}),
    "lines of one event without end": ([STREAM], tiny(b"data: x\n", 8_000), {"too_large"}),
    "carriage returns without end": ([STREAM], tiny(b"\r\r\r\r", 8_000), {"timeout"}),
    "a header without end": ([OK, b"x-a: "], endless(b"y" * 65536), {"too_large", "http_protocol"}),
    "headers without end": ([OK], endless(b"x-a: b\r\n" * 8_000), {"too_large", "http_protocol"}),
    "a status line without end": ([b"HTTP/1.1 200 "], endless(b"O" * 65536), {"too_large", "http_protocol"}),
    "informational responses without end": (
        [], endless(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2_000), {"too_large", "http_protocol"}),
    "a chunk extension without end": ([STREAM, b"5;"], endless(b"e" * 65536), {"too_large", "http_protocol"}),
    "trailers without end": (
        [STREAM, b"0\r\n"], endless(b"x-a: 5\r\n" * 8_000), {"too_large", "http_protocol"}),
    "a trailer without end": ([STREAM, b"0\r\nx: "], endless(b"y" * 65536), {"too_large", "http_protocol"}),
    "comments without end": ([STREAM], tiny(b": ping\n\n", 8_000), {"timeout"}),
    "tokens without end": (
        [STREAM], (event(b'{"output_ids":[7],' + META % n + b"}") for n in itertools.count(1)),
        {"too_many_tokens"}),
    "a million ids in one event": (
        [STREAM, event(b'{"output_ids":[' + b"7," * 1_000_000 + b"7]," + META % 1_000_001 + b"}")], [],
        {"too_many_tokens"}),
    "empty events by the million": ([STREAM], endless(event(b'{"output_ids":[],' + META % 0 + b"}") * 900),
                                    {"timeout"}),
    "JSON of a million brackets": ([STREAM, event(b'{"x":' + b"[" * 1_000_000)], [], {"malformed"}),
    "an error of a million brackets": ([STREAM, event(b'{"error":' + b"[" * 1_000_000)], [], {"malformed"}),
    "a number of a million digits": (
        [STREAM, event(b'{"output_ids":[' + b"9" * 1_000_000 + b"]}")], [], {"malformed"}),
    "a gzip bomb": (
        [OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(BOMB) + BOMB], [],
        {"truncated", "malformed"}),
    "an error page without end": ([b"HTTP/1.1 500 E\r\n\r\n"], endless(b"<b>" * 20_000), {"timeout"}),
}  # fmt: skip
WHOLE = {
    "a document of a gigabyte": ([OK + b"\r\n"], endless(b" " * 65536), {"too_large", "truncated"}),
    "a document in chunks of one byte": ([STREAM], tiny(b" ", 10_000), {"too_large"}),
    "a length of a terabyte": (
        [OK + b"content-length: 1099511627776\r\n\r\n"], endless(b" " * 65536), {"too_large"}),
    "a document of a million brackets": (
        [OK + b"content-length: 1000000\r\n\r\n" + b"[" * 1_000_000], [], {"malformed"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def drainer():
    """One process for all floods: what one leaves behind would show in the next."""
    words = [sys.executable, "-m", "tests.security.drain"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        yield process
        process.stdin.close()


def drain(process, shape, pieces, rest, timeout_s):
    def serve(connection):
        read_request(connection)
        for piece in itertools.chain(pieces, rest):
            connection.sendall(piece)
        read_request(connection)

    with listening(serve) as url:
        process.stdin.write(f"{url} {shape} {timeout_s}\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())


@pytest.mark.engine
@pytest.mark.parametrize("flood", [*STREAMED, *WHOLE])
def test_flood(flood, drainer):
    shape = "stream" if flood in STREAMED else "whole"
    pieces, rest, kinds = (STREAMED | WHOLE)[flood]
    found = drain(drainer, shape, pieces, rest, TIMEOUT_S if kinds == {"timeout"} else SECONDS)
    assert found["kind"] in kinds
    assert found["detail"].isprintable() and len(found["detail"]) < 1000
    assert found["peak_mib"] < MOST_MIB
