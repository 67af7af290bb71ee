"""The API key reaches the server and nothing else: no file, no stream, no command line, no error."""

import itertools
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from harness.api_key import api_key, masked, masked_text
from harness.errors import ConfigError, ServerError
from harness.grading.sandbox.tier_probe import choose_sandbox
from sut.client.endpoint import Access, resolve_endpoint
from sut.servers.discovery import discover
from sut.servers.info_client import InfoClient
from sut.wire.answer_checks import excerpt
from tests.kit import PATIENCE_S
from tests.runs import command, quick_conf, run_here, small_dataset
from tests.security.hostile import KEY, OK, STREAM, chunk, document, hostile


def in_stream(event):
    return [STREAM, chunk(b"data: " + event), b"0\r\n\r\n"]


def finished(reason):
    meta = b'"meta_info":{"completion_tokens":0,"finish_reason":{%b}}' % reason
    return in_stream(b'{"output_ids":[],' + meta + b"}\n\n")


# Each repeats the request's headers, as error pages of proxies and debug pages of servers do.
BYTES = KEY.encode()
ECHOES = {
    "error page": lambda head: [document(b"<h1>502</h1><pre>" + head + b"</pre>", b"502 Bad Gateway")],
    "key at the end of what is shown": lambda head: [document(b"x" * 230 + BYTES, b"500 Error")],
    "in-band error": lambda head: in_stream(b'{"error":{"message":"bad %b"}}\n\n' % BYTES),
    "malformed event": lambda head: in_stream(b'{"output_ids":"%b"}\n\n' % BYTES),
    "cut event": lambda head: in_stream(b'{"x":"' + BYTES),
    "no HTTP": lambda head: [b"\x15\x03 " + head + b"\r\n\r\n"],
    "cut inside of the key": lambda head: [document(b"Bearer " + BYTES[:20], b"500 Error")],
    "abort": lambda head: finished(b'"type":"abort","message":"%b"' % BYTES),
    "finish reason": lambda head: finished(b'"type":"%b"' % BYTES),
}
TOLD = BYTES[:12]


def command_lines():
    """Those of all processes that this one has started, by their numbers."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(OSError):
            found[child.pid] = Path(f"/proc/{child.pid}/cmdline").read_bytes()
    return found


@pytest.mark.engine
def test_a_whole_run_against_servers_that_repeat_the_key(tmp_path):
    """Every kind of excerpt in turn, at the most talkative level: files, both streams and command lines hold
    no part of the key.
    """
    turn, lines = itertools.cycle(ECHOES.values()), {}

    def echo(head):
        lines.update(command_lines())
        return next(turn)(head)

    dataset, _ = small_dataset(tmp_path, rows=len(ECHOES) + 3)
    words = command(tmp_path, "--user-conf", quick_conf(tmp_path), "--log-level", "debug", "--stream", "on")
    words += ["--input-file", str(dataset), "--max-new-tokens", "4", "--server-url"]
    environment = {**os.environ, "SGLANG_API_KEY": KEY}
    repeats = {"/health": lambda head: [document(b"", extra=b"x-key: " + BYTES + b"\r\n")]}
    with hostile(echo, repeats) as server:
        done = subprocess.run(
            [*words, server.url], capture_output=True, timeout=PATIENCE_S, cwd=tmp_path, env=environment
        )
    assert done.returncode == 4, done.stderr
    assert all(f"Bearer {KEY}".encode() in head for head in server.heads), "the key must reach the server"
    assert TOLD not in done.stdout + done.stderr
    assert len(lines) >= 3 and not any(TOLD in line for line in lines.values())
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"run.json", "requests.parquet", "mlperf_log_detail.txt"} <= {path.name for path in written}
    assert [path.name for path in written if TOLD in path.read_bytes()] == []
    # The excerpt is there, with the key masked: parquet compresses, so look at its values as well.
    details = pq.read_table(next(tmp_path.rglob("requests.parquet")))["failure_detail"].to_pylist()
    assert not any(KEY[:12] in (detail or "") for detail in details)
    assert sum("[API key]" in (detail or "") for detail in details) >= len(ECHOES) - 1


@pytest.mark.parametrize("page", ["/health", "/model_info", "/server_info"])
def test_control_plane_errors(page, monkeypatch):
    """A page that is no HTTP and repeats the key, in a line that the error quotes."""
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    echo = {page: lambda head: [OK + b"Bearer " + BYTES + b"\r\n\r\n"]}
    with (
        hostile(lambda head: [], echo) as server,
        pytest.raises(ServerError, match=r"reachable .*\[API") as caught,
    ):
        discover([server.url], "sglang", Access(KEY), 20)
    assert TOLD.decode() not in str(caught.value)


@pytest.mark.parametrize("key", ["two\nlines", "ümlaut", "qqq\twww", "x\x00y"])
def test_key_that_no_header_can_carry_is_refused_unseen(key, monkeypatch):
    monkeypatch.setattr(os, "environ", {"OPENAI_API_KEY": key})
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as caught:
        api_key()
    assert key not in str(caught.value) and key[:3] not in str(caught.value)


def test_line_break_around_the_key_is_dropped(monkeypatch):
    monkeypatch.setenv("SGLANG_API_KEY", f" {KEY}\n")
    assert api_key() == KEY


def test_a_key_that_was_copied_with_the_word_before_it(monkeypatch):
    """Of a header; the key alone is sent, and masked."""
    monkeypatch.setenv("SGLANG_API_KEY", f"Bearer {KEY}")
    assert Access(api_key()).headers == {"Authorization": f"Bearer {KEY}"}
    assert masked_text(f"got {KEY}") == "got [API key]"


def test_masking(monkeypatch):
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "other-key")
    assert masked(b"a " + KEY.encode() + b" b other-key c") == b"a [API key] b [API key] c"
    assert masked(KEY.encode()[:9]) == b"[API key]"
    assert masked(KEY.encode()[-9:] + b" rest") == b"[API key] rest"
    assert masked_text("nothing to hide é\udcff") == "nothing to hide é\udcff"
    assert KEY[:12] not in excerpt(b"x" * 220 + KEY.encode() + b"y" * 5000)


def test_no_object_shows_the_key():
    endpoint = resolve_endpoint("http://127.0.0.1:1", "/generate", Access(KEY))
    with InfoClient("http://127.0.0.1:1", Access(KEY), 1.0) as control:
        assert KEY not in f"{endpoint!r} {endpoint} {endpoint.access!r} {control!r} {vars(control)}"


@pytest.mark.parametrize(
    "url", ["http://u:secret@h:1", "http://u:secret@h:x", "ftp://u:secret@h", "http://u:secret@h/?#"]
)
def test_credentials_in_a_url_are_refused_unseen(url, tmp_path, capfd):
    dataset, _ = small_dataset(tmp_path)
    done = run_here(capfd, tmp_path, "--input-file", dataset, "--server-url", url)
    assert done.code == 2
    assert done.stderr and "secret" not in done.stdout + done.stderr


def test_model_written_code_does_not_get_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    sandbox = choose_sandbox(False)
    assert KEY not in str(sandbox.environment) and KEY not in str(sandbox.command)
