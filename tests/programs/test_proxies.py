"""Runs through proxies that do what real ones were seen to do."""

import select
import socket
import threading
import time
from contextlib import suppress

from tests.kit import listening
from tests.runs import PERFORMANCE, run_mlperf
from tests.stub import StubServer

_END = b"\r\n0\r\n\r\n"
_TRIAL_TOKENS = 4
_HELD_S = 0.2


def _pass_on(source, sink, see=lambda data: None):
    with suppress(OSError):
        while data := source.recv(1 << 16):
            see(data)
            sink.sendall(data)


def _pass_on_late(source, sink):
    """HAProxy 2.6 and 2.8 without ``option http-no-delay``: an answer in chunks is held until its end is
    there, or for 200 ms."""
    held, until = b"", 0.0
    with suppress(OSError):
        while True:
            wait_s = max(0.0, until - time.monotonic()) if held else None
            if select.select([source], [], [], wait_s)[0]:
                if not (data := source.recv(1 << 16)):
                    return
                until = until if held else time.monotonic() + _HELD_S
                held += data
            if (b"chunked" not in held[:300] and held.startswith(b"HTTP/")) or held.endswith(_END):
                until = 0.0
            if held and time.monotonic() >= until:
                sink.sendall(held)
                held = b""


def haproxy(server):
    """The URL of a proxy of one server that holds tokens back."""

    def serve(client):
        with socket.create_connection(("127.0.0.1", server.port)) as upstream:
            back = threading.Thread(target=_pass_on_late, args=(upstream, client), daemon=True)
            back.start()
            _pass_on(client, upstream)
            with suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)
            back.join()  # it selects on what is closed here

    return listening(serve)


def envoy(server, limit_s):
    """The URL of a proxy that closes a connection some time after a POST on it."""

    def serve(client):
        limits = []

        def see(data):
            if data.startswith(b"POST"):
                limits.append(threading.Timer(limit_s, client.shutdown, (socket.SHUT_RDWR,)))
                limits[-1].start()

        with socket.create_connection(("127.0.0.1", server.port)) as upstream:
            threading.Thread(target=_pass_on, args=(upstream, client), daemon=True).start()
            _pass_on(client, upstream, see)
            for limit in limits:
                limit.cancel()
            upstream.shutdown(socket.SHUT_RDWR)

    return listening(serve)


def run(tmp_path, url, **settings):
    return run_mlperf(
        *(tmp_path, "--server-url", url, "--input-file", PERFORMANCE, "--max-new-tokens", 40),
        scenario="server",
        timeout=120,
        **settings,
    )


def test_tokens_that_a_proxy_holds_back_are_a_warning_during_the_run(tmp_path):
    with StubServer(event_delay_s=0.02, first_delay_s=0.1) as stub, haproxy(stub) as url:
        ended = run(tmp_path, url, qps=12, duration_ms=8000)
    assert ended.result == "VALID", ended.stdout
    told = [line for line in ended.stderr.splitlines() if "answers came in pieces" in line]
    assert len(told) == 1 and "option http-no-delay" in told[0], ended.stderr
    assert any("answers came in pieces" in text for text in ended.record["warnings"])


def test_a_proxy_that_ends_answers_after_a_time_is_named(tmp_path):
    def ends(request, number):
        return request.asked_tokens == _TRIAL_TOKENS or number < 3

    with StubServer(event_gate=ends) as stub, envoy(stub, 2.0) as url:
        ended = run(tmp_path, url, qps=5, duration_ms=8000)
    assert ended.code == 4
    (reason,) = [text for text in ended.record["verdict"]["reasons"] if "ended early" in text]
    assert "failures came" in reason and "proxy_read_timeout" in reason
    assert any("a limit of time" in text for text in ended.record["warnings"])
    assert {row["failure"] for row in ended.requests} == {"truncated"}
