"""Information pages of a hostile server: an error or "not told" within seconds, with little memory."""

import gzip
import itertools
import json
import threading
import time
import tracemalloc

import pytest

from harness.errors import ServerError
from harness.record.settled import ServerInfo
from sut.client.endpoint import Access
from sut.servers.discovery import discover
from sut.servers.info_client import InfoClient
from sut.servers.preflight import flush_caches
from tests.kit import listening, read_request
from tests.runs import run_here, small_dataset
from tests.security.hostile import OK, STREAM, chunk, document, hostile

WITHIN_S = 0.5
MOST_MIB = 8  # the pages themselves may be 1 MiB

PAGES = {
    "a gigabyte": lambda: itertools.chain([OK + b"\r\n"], itertools.repeat(b"x" * 65536)),
    "a length of a terabyte": lambda: itertools.chain(
        [OK + b"content-length: 1099511627776\r\n\r\n"], itertools.repeat(b"x" * 65536)
    ),
    "chunks of one byte": lambda: itertools.chain([STREAM], itertools.repeat(chunk(b"x") * 9000)),
    "headers without end": lambda: itertools.chain([OK], itertools.repeat(b"x-a: b\r\n" * 8000)),
    "a header without end": lambda: itertools.chain([OK, b"x: "], itertools.repeat(b"y" * 65536)),
    "a status line without end": lambda: itertools.chain([b"HTTP/1.1 200 "], itertools.repeat(b"y" * 65536)),
    "a chunk extension without end": lambda: itertools.chain([STREAM, b"5;"], itertools.repeat(b"e" * 65536)),
    "slow bytes": lambda: slowly(OK + b"content-length: 1000\r\n\r\n", itertools.repeat(b"x")),
    "slow headers": lambda: slowly(OK + b"x: ", itertools.repeat(b"y")),
    "slow informational responses": lambda: slowly(b"", itertools.repeat(b"HTTP/1.1 103 E\r\n\r\n")),
    "informational responses without end": lambda: itertools.repeat(b"HTTP/1.1 103 E\r\n\r\n" * 3000),
    "silence": lambda: slowly(b"", itertools.repeat(b"")),
    "nothing at all": list,
    "a second answer": lambda: [document(b"{}"), document(b"{}")],
    "no HTTP": lambda: [b"\x1b[2J\x1b]0;owned\x07 220 smtp ready\r\n\r\n"],
}


def slowly(head, rest):
    yield head
    for piece in rest:
        time.sleep(0.05)
        yield piece


def answering(pieces):
    def serve(connection):
        read_request(connection)
        for piece in pieces():
            connection.sendall(piece)

    return listening(serve)


@pytest.mark.engine
@pytest.mark.parametrize("name", PAGES)
def test_page_ends_in_time_and_memory(name):
    """The question itself ends: the thread only keeps a failure of this test from hanging it."""
    with answering(PAGES[name]) as url:
        tracemalloc.start()
        control, told = InfoClient(url, Access(), WITHIN_S), []
        thread = threading.Thread(target=ask, args=(control, told), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        control.close()
        peak_mib = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    assert peak_mib < MOST_MIB
    assert told and all(isinstance(one, bytes) or (one.isprintable() and len(one) < 600) for one in told)


def ask(control, told):
    try:
        told.append(control.ask("/health")[1][:10])
    except ServerError as error:
        told.append(str(error))


@pytest.mark.parametrize(
    ("status", "location"),
    [
        (b"301 Moved", b"file:///etc/passwd"),
        (b"302 Found", b"http://127.0.0.1:9/"),
        (b"307 Temporary", b"//elsewhere/"),
        (b"308 Permanent", b"gopher://x/"),
    ],
)
def test_redirects_are_not_followed(status, location):
    moved = {"/health": lambda head: [document(b"", status, b"location: %b\r\n" % location)]}
    with hostile(lambda head: [], moved) as server, pytest.raises(ServerError, match="answered 30"):
        discover([server.url], "sglang", Access(), 20)
    assert [head.split(b" ")[1] for head in server.heads] == [b"/health"]


SIZES = (-1, 0, 2**31, 2**70, 10**4000, 8.0, 1.5, True, "7", None, [8], {"a": 1})


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size)[:12])
def test_sizes_that_cannot_be_count_as_not_told(size):
    names = ("max_running_requests", "dp_size", "stream_interval", "context_length")
    said = json.dumps({**dict.fromkeys(names, size), "version": 5}).encode()
    with hostile(lambda head: [], {"/server_info": lambda head: [document(said)]}) as server:
        (facts,) = discover([server.url], "sglang", Access(), 20)
    assert [getattr(facts, name) for name in (*names, "version")] == [None] * 5


@pytest.mark.parametrize(
    "body", [b"[" * 200_000, b'{"a":' * 200_000, b"\xff\xfe{}", b'"\\ud800"', b"9" * 9000, b""]
)
def test_pages_that_are_no_json(body):
    page = {"/model_info": lambda head: [document(body)]}
    with hostile(lambda head: [], page) as server, pytest.raises(ServerError, match="or correct --server"):
        discover([server.url], "sglang", Access(), 20)


def test_a_compressed_page_is_not_unpacked():
    bomb = gzip.compress(b" " * (2 << 20))
    page = {"/model_info": lambda head: [document(bomb, extra=b"content-encoding: gzip\r\n")]}
    with hostile(lambda head: [], page) as server, pytest.raises(ServerError, match="no SGLang server"):
        discover([server.url], "sglang", Access(), 20)
    assert all(b"accept-encoding: identity" in head.lower() for head in server.heads)


def test_a_page_without_an_end_is_of_no_server_of_models():
    page = {"/model_info": lambda head: [document(b" " * (2 << 20))]}
    said = "answered more than 1048576 bytes, as no server of models does; correct --server-url"
    with hostile(lambda head: [], page) as server, pytest.raises(ServerError, match=said):
        discover([server.url], "sglang", Access(), 20)


def test_a_trickled_flush_does_not_hold_up_the_run():
    """httpx counts time for each read: a byte now and then would go on for hours."""
    with answering(lambda: slowly(b"HTTP/1.1 200 OK\r\nx: ", itertools.repeat(b"y"))) as url:
        warnings = flush_caches([ServerInfo(url=url, wire="sglang", engine="x")], Access())
    assert "flush_cache failed" in warnings[0]


UGLY = "gpt-oss-120b\x1b[2J\x1b]0;owned\x07\u202eevil\u2066\r\nVALID\x00<script>alert(1)</script>" + "é" * 400


def assert_legible(text):
    assert all(line.isprintable() for line in text.split("\n"))
    assert max(map(len, text.split("\n"))) <= 2100


def test_names_that_a_server_gives_itself_reach_the_terminal_escaped(tmp_path, capfd):
    """In the plan of a run, and in the error about replicas that differ."""
    dataset, _ = small_dataset(tmp_path)
    ugly = {"/server_info": lambda head: [document(json.dumps({"served_model_name": UGLY}).encode())]}
    with hostile(lambda head: [], ugly) as one, hostile(lambda head: []) as other:
        words = ["--dry-run", "--input-file", dataset, "--server-url"]
        alone = run_here(capfd, tmp_path, *words, one.url)
        both = run_here(capfd, tmp_path, *words, f"{one.url},{other.url}")
    assert alone.code == 0, alone.stderr
    assert "\\x1b[2J" in alone.stdout and "\\u202e" in alone.stdout
    assert both.code == 3 and "\\x1b[2J" in both.stderr
    for text in (alone.stdout, alone.stderr, both.stdout, both.stderr):
        assert_legible(text)
