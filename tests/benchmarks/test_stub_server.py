"""The compiled stub (benchmarks/stub) against foreign readers: the openai package and http.client."""

import csv
import http.client
import io
import json
import shutil
import socket
import subprocess
import time
import urllib.request
import zlib
from contextlib import contextmanager

import pytest

from tests.kit import free_ports, wait_until
from tests.runs import ROOT
from tests.stub import expected_ids

PROMPT = [200006, 17360, 200008, 5, 6, 7, 8, 9, 10, 11]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the stub needs a C compiler")


class Server:
    def __init__(self, port, host="127.0.0.1"):
        self.port, self.url = port, f"http://{host}:{port}"

    def get(self, path, **body):
        sent = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(self.url + path, sent, timeout=60) as response:
            return response.read()

    def stats(self):
        return json.loads(self.get("/_stats"))

    def rows(self):
        return list(csv.DictReader(io.StringIO(self.get("/_log").decode())))

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def generate(self, asked=8, separators=(",", ":")):
        with self.connect() as sock:
            sock.sendall(request(asked, separators))
            return answer(sock)


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    path = tmp_path_factory.mktemp("stub") / "stub_server"
    subprocess.run([ROOT / "benchmarks/stub/build.sh", path, "-Og", "-fno-lto"], check=True)
    return path


@pytest.fixture
def server(binary):
    port = free_ports(1)
    with running(binary, port):
        yield Server(port)


@contextmanager
def running(binary, port, *flags):
    """The stub on this port and those after it."""
    process = subprocess.Popen([binary, "--port", str(port), *flags], stderr=subprocess.PIPE)
    try:
        process.stderr.readline()  # it says when it listens
        yield
    finally:
        process.kill()
        process.communicate()


def request(asked=8, separators=(",", ":")):
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": asked}, "stream": True}
    text = json.dumps(body, separators=separators).encode()
    return b"POST /generate HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(text) + text


def answer(sock):
    response = http.client.HTTPResponse(sock)
    response.begin()
    return events(response.read())


def events(body):
    assert body.endswith(b"data: [DONE]\n\n")
    return [json.loads(part.removeprefix(b"data: ")) for part in body.split(b"\n\n")[:-2]]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize(
    ("knobs", "sizes"),
    [
        ("cumulative=1&tokens_per_event=3", [1, 4, 7, 8]),
        ("cumulative=0&tokens_per_event=3", [1, 3, 3, 1]),
        ("cumulative=0&tokens_per_event=3&first_one=0", [3, 3, 2]),
        ("cumulative=0&first_us=3000&gap_us=1000&jitter_us=100", [1] * 8),
        ("cumulative=1&gap_us=1000&step=1&tokens_per_event=8", [1, 8]),
        ("cumulative=0&events_per_send=3", [1] * 8),
        ("cumulative=1&events_per_send=1000&tokens_per_event=3", [1, 4, 7, 8]),
    ],
)
def test_streams(server, knobs, sizes, separators):
    server.get("/_config?" + knobs)
    got = server.generate(separators=separators)
    assert [len(event["output_ids"]) for event in got] == sizes
    ids = [i for event in got for i in event["output_ids"]]
    assert (got[-1]["output_ids"] if "cumulative=1" in knobs else ids) == expected_ids(PROMPT, 8)
    meta = got[-1]["meta_info"]
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (10, 8)
    assert meta["finish_reason"] == {"type": "length", "length": 8}
    assert {event["meta_info"]["finish_reason"] for event in got[:-1]} == {None}


@pytest.mark.parametrize(
    ("knobs", "sends"), [("", 8), ("events_per_send=3", 3), ("events_per_send=3&gap_us=10", 8)]
)
def test_what_leaves_together_has_one_stamp(server, knobs, sends):
    server.get("/_config?stamps=1&" + knobs)
    assert len({event["t_ns"] for event in server.generate()}) == sends


MS = 1_000_000


@pytest.mark.parametrize(
    ("knobs", "overlapping", "least_ms"),
    [
        ("batch_us=2000", 3, 9 * 2),
        ("stream_ns=1000000", 3, 9 * 1),  # of each running request
        ("batch_us=2000&slots=2", 2, 9 * 2),
        ("batch_us=2000&slots=1&slow_permille=1000", 1, 9 * 4),
        ("batch_us=2000&slots=1&noise_permille=1&drift_permille=1&square_ps=1", 1, 9),
    ],
)
def test_a_batch_decodes_its_slots_together_and_queues_the_others(server, knobs, overlapping, least_ms):
    server.get("/_config?prefill_us=1000&" + knobs)
    socks = [server.connect() for _ in range(3)]
    for sock in socks:
        sock.sendall(request(asked=10))
    for sock in socks:
        assert answer(sock)[-1]["output_ids"] == expected_ids(PROMPT, 10)
        sock.close()
    rows = server.rows()
    assert all(int(row["t_last_event"]) - int(row["t_request"]) >= (1 + least_ms) * MS for row in rows)
    spans = sorted((int(row["t_first_event"]), int(row["t_last_event"])) for row in rows)
    assert all(b[0] >= a[1] for a, b in zip(spans, spans[overlapping:], strict=False))
    assert len({row["events"] for row in rows}) == 1


def test_a_batch_goes_on_without_those_who_left(server):
    server.get("/_config?batch_us=1000&slots=2")
    leaving = [server.connect() for _ in range(200)]
    for sock in leaving:
        sock.sendall(request(asked=100_000))
    wait_until(lambda: server.stats()["active"] == 200)
    for sock in leaving:
        sock.close()
    assert len(server.generate(asked=5)) == 5
    wait_until(lambda: server.stats()["active"] == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_the_first_id_can_be_the_number_of_tokens(server, stream):
    server.get("/_config?first_id_tokens=1&batch_us=10")
    body = server.get("/generate", input_ids=[7, 1], sampling_params={"max_new_tokens": 50}, stream=stream)
    last = events(body)[-1] if stream else json.loads(body)
    assert last["output_ids"] == expected_ids([7, 1], 7)


def test_document_and_stop(server):
    server.get("/_config?tokens=5&text=1")
    document = json.loads(server.get("/generate", input_ids=PROMPT, sampling_params={"max_new_tokens": 8}))
    assert document["output_ids"] == expected_ids(PROMPT, 5)
    assert document["text"] == " tok" * 5
    assert document["meta_info"]["finish_reason"] == {"type": "stop", "matched": 200002}


@pytest.mark.engine
def test_openai_client(server):
    import openai  # slow: only where it is used

    options = {"model": "stub", "max_tokens": 6}
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        asked = {"stream_options": {"include_usage": True}, "extra_body": {"return_token_ids": True}}
        chunks = list(client.completions.create(prompt=PROMPT, stream=True, **asked, **options))
        whole = client.completions.create(prompt=PROMPT, **options)
        messages = [{"role": "user", "content": "hi"}]
        chat = list(client.chat.completions.create(messages=messages, stream=True, **options))
        assert [model.id for model in client.models.list()] == ["stub"]
    ids = [i for chunk in chunks if chunk.choices for i in chunk.choices[0].model_extra["token_ids"]]
    assert ids == expected_ids(PROMPT, 6)
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 6
    assert "".join(chunk.choices[0].delta.content for chunk in chat) == " tok" * 6


def test_the_log_names_the_prompt_and_the_true_times(server):
    server.get("/_config?first_us=20000&gap_us=5000&stamps=1")
    before = time.monotonic_ns()
    got = server.generate(asked=3)
    (row,) = server.rows()
    assert int(row["seed"]) == zlib.crc32(",".join(map(str, PROMPT)).encode())
    names = ("prompt_tokens", "tokens", "events", "protocol")
    assert [row[name] for name in names] == ["10", "3", "3", "generate"]
    assert before < int(row["t_request"]) < int(row["t_first_event"]) - 19_000_000
    assert [got[0]["t_ns"], got[-1]["t_ns"]] == [int(row["t_first_event"]), int(row["t_last_event"])]
    assert int(row["t_last_event"]) - int(row["t_request"]) >= 30_000_000  # each event was due on its own
    server.get("/_reset")
    assert len(server.get("/_log").splitlines()) == 1


def test_pipelined_and_bytewise_requests(server):
    with server.connect() as sock:
        sock.sendall(request() * 3)
        received = b""
        while received.count(b"\r\n0\r\n\r\n") < 3:
            received += sock.recv(65536)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request():
            sock.sendall(bytes([byte]))
        assert answer(sock)[-1]["output_ids"] == expected_ids(PROMPT, 8)


def test_a_reader_that_sleeps_loses_nothing(server):
    """10 MB do not fit the socket buffers: the stream must stop and go on."""
    with server.connect() as sock:
        sock.sendall(request(asked=1800))
        wait_until(lambda: server.stats()["blocked_writes"] > 0)
        got = answer(sock)
    assert len(got) == 1800
    assert got[-1]["output_ids"] == expected_ids(PROMPT, 1800)


def test_a_client_that_leaves_is_counted(server):
    server.get("/_config?gap_us=100000")
    with server.connect() as sock:
        sock.sendall(request())
        sock.recv(10)
    wait_until(lambda: server.stats()["aborted"] == 1)
    wait_until(lambda: server.stats()["active"] == 0)


def test_what_is_not_http_is_dropped(server):
    with server.connect() as sock:
        sock.sendall(b"nonsense\r\n\r\n")
        assert sock.recv(10) == b""


def test_several_ports_and_information(binary):
    port = free_ports(3)
    with running(binary, port, "--ports", "3", "--any", "1", "--dp_size", "4"):
        for number in range(port, port + 3):
            page = Server(number, "127.0.0.9").get("/server_info")
            assert json.loads(page)["dp_size"] == 4


def test_unknown_option(binary):
    done = subprocess.run([binary, "--nonsense", "1"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--nonsense" in done.stderr
