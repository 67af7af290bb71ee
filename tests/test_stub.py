"""The stub against foreign readers: http.client, the openai package and bare sockets."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager

import openai
import pytest

from tests.stub import Facts, Fault, StubServer, every, expected_ids, first_time, refused_url

PROMPT = [200006, 17360, 200008, 5]


@contextmanager
def connection(stub):
    conn = http.client.HTTPConnection("127.0.0.1", stub.port, timeout=60)
    try:
        yield conn
    finally:
        conn.close()


def post(conn, prompt=PROMPT, asked=8, stream=True):
    body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": asked}, "stream": stream}
    conn.request("POST", "/generate", json.dumps(body))
    return conn.getresponse()


def events(body):
    assert body.endswith(b"data: [DONE]\n\n")
    return [json.loads(part.removeprefix(b"data: ")) for part in body.split(b"\n\n")[:-2]]


def ids_of(event):
    return event["output_ids"]


def raw_answer(stub, asked=8, stream=True):
    """All bytes until the server closes or resets."""
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": asked}, "stream": stream}
    text = json.dumps(body).encode()
    head = b"POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(
        text
    )
    received = b""
    with socket.create_connection(("127.0.0.1", stub.port), timeout=60) as sock:
        sock.sendall(head + text)
        while data := sock.recv(1 << 20):
            received += data
    return received


# The published check value: CRC-32 of "123456789" is 0xCBF43926 = 3421780262.
def test_expected_ids_are_the_documented_rule():
    assert expected_ids([123456789], 4) == [81262, 89181, 97100, 5019]


def test_cumulative_stream():
    with StubServer(tokens_per_event=3) as stub, connection(stub) as conn:
        response = post(conn)
        assert response.getheader("transfer-encoding") == "chunked"
        got = events(response.read())
        assert [len(ids_of(event)) for event in got] == [1, 4, 7, 8]
        assert ids_of(got[-1]) == expected_ids(PROMPT, 8)
        assert [event["meta_info"]["finish_reason"] for event in got[:-1]] == [None] * 3
        assert got[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 8}
        assert got[-1]["meta_info"]["prompt_tokens"] == 4
    assert stub.requests[0].prompt_ids == PROMPT
    assert stub.requests[0].answered


def test_incremental_stream():
    with StubServer(cumulative=False, tokens=5) as stub, connection(stub) as conn:
        got = events(post(conn).read())
        assert [len(ids_of(event)) for event in got] == [1] * 5
        assert [i for event in got for i in ids_of(event)] == expected_ids(PROMPT, 5)
        assert got[-1]["meta_info"]["finish_reason"]["type"] == "stop"
        assert got[-1]["meta_info"]["completion_tokens"] == 5


def test_plain_document_and_keep_alive():
    with StubServer(tokens=lambda prompt: len(prompt)) as stub, connection(stub) as conn:
        for _ in range(3):
            document = json.loads(post(conn, stream=False).read())
            assert document["output_ids"] == expected_ids(PROMPT, 4)
        assert (stub.connections, len(stub.requests)) == (1, 3)


@pytest.mark.parametrize("announce", [True, False])
def test_close_after_response(announce):
    with StubServer(close_after_response=True, announce_close=announce) as stub, connection(stub) as conn:
        assert post(conn).getheader("connection") == ("close" if announce else None)


def test_openai_client_reads_completions():
    with StubServer() as stub:
        with openai.OpenAI(base_url=stub.url + "/v1", api_key="none", max_retries=0) as client:
            stream = client.completions.create(
                model="gpt-oss-120b",
                prompt=PROMPT,
                max_tokens=6,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"return_token_ids": True},
            )
            chunks = list(stream)
        ids = [i for chunk in chunks if chunk.choices for i in chunk.choices[0].model_extra["token_ids"]]
        assert ids == expected_ids(PROMPT, 6)
        assert chunks[-1].usage.completion_tokens == 6
        assert chunks[-2].choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("/get_model_info", "model_path", "openai/gpt-oss-120b"),
        ("/model_info", "is_generation", True),
        ("/get_server_info", "dp_size", 4),
        ("/server_info", "context_length", 131072),
    ],
)
def test_information(path, key, value):
    with StubServer(facts=Facts(dp_size=4)) as stub, connection(stub) as conn:
        conn.request("GET", path)
        assert json.loads(conn.getresponse().read())[key] == value


def test_health_models_and_unknown_path():
    with StubServer(healthy=False) as stub, connection(stub) as conn:
        for path, status in (("/health", 503), ("/v1/models", 200), ("/nowhere", 404)):
            conn.request("GET", path)
            response = conn.getresponse()
            response.read()
            assert response.status == status
        assert stub.requests == []


def test_api_key():
    with StubServer(api_key="secret") as stub, connection(stub) as conn:
        assert post(conn).status == 401


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault.HTTP_500, 500),
        (Fault.HTTP_500_HTML, 500),
        (Fault.HTTP_404, 404),
        (Fault.HTTP_503, 503),
        (Fault.REDIRECT, 302),
    ],
)
def test_status_faults_keep_the_connection(fault, status):
    with StubServer(faults=[fault]) as stub, connection(stub) as conn:
        first = post(conn)
        first.read()
        assert first.status == status
        assert events(post(conn).read())
        assert stub.connections == 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", [Fault.RESET_AT_ONCE, Fault.RESET_MIDDLE])
def test_reset(fault, stream):
    with StubServer(faults=fault) as stub, pytest.raises(ConnectionResetError):
        raw_answer(stub, stream=stream)


@pytest.mark.parametrize(
    ("fault", "has_head", "terminated"),
    [
        (Fault.CLOSE_AT_ONCE, False, False),
        (Fault.CLOSE_AFTER_HEADERS, True, False),
        (Fault.CUT_CHUNKED, True, False),
        (Fault.CUT_UNFRAMED, True, False),
        (Fault.CRLF, True, True),
        (Fault.BYTEWISE, True, True),
    ],
)
def test_cuts_and_framing(fault, has_head, terminated):
    with StubServer(faults=fault) as stub:
        received = raw_answer(stub)
    assert received.startswith(b"HTTP/1.1 200 OK\r\n") == has_head
    assert received.endswith(b"0\r\n\r\n") == terminated
    assert (b"[DONE]" in received) == terminated
    assert (b"data: " in received) == (fault not in (Fault.CLOSE_AT_ONCE, Fault.CLOSE_AFTER_HEADERS))


def test_not_http():
    with StubServer(faults=Fault.NOT_HTTP) as stub:
        assert b"HTTP/1.1" not in raw_answer(stub)


def last_event(fault, **knobs):
    with StubServer(faults=fault, **knobs) as stub, connection(stub) as conn:
        return events(post(conn).read())[-1]


@pytest.mark.parametrize(
    ("fault", "ids", "count", "finish"),
    [
        (Fault.ABORT, 8, 8, "abort"),
        (Fault.NO_FINISH, 8, 8, None),
        (Fault.WRONG_COUNT, 8, 9, "length"),
        (Fault.SHRINKING_IDS, 6, 6, "length"),
        (Fault.ZERO_TOKENS, 0, 0, "stop"),
        (Fault.ONE_TOKEN, 1, 1, "stop"),
        (Fault.TOO_MANY_TOKENS, 13, 13, "length"),
    ],
)
def test_counts(fault, ids, count, finish):
    event = last_event(fault)
    meta = event["meta_info"]
    assert (len(ids_of(event)), meta["completion_tokens"]) == (ids, count)
    assert (meta["finish_reason"] or {}).get("type") == finish


@pytest.mark.parametrize(
    ("fault", "last"), [(Fault.NEGATIVE_ID, -1), (Fault.HUGE_ID, 2**40), (Fault.FLOAT_ID, 1000.5)]
)
def test_values(fault, last):
    assert ids_of(last_event(fault))[-1] == last


def test_nan_and_changed_ids():
    assert ids_of(last_event(Fault.NAN_ID))[-1] != ids_of(last_event(Fault.NAN_ID))[-1]
    assert ids_of(last_event(Fault.CHANGED_IDS))[0] == expected_ids(PROMPT, 1)[0] + 1


@pytest.mark.parametrize(("fault", "position"), [(Fault.ERROR_AT_START, 0), (Fault.ERROR_MIDDLE, 4)])
def test_in_band_errors(fault, position):
    with StubServer(faults=fault) as stub, connection(stub) as conn:
        response = post(conn)
        got = events(response.read())
    assert response.status == 200
    assert len(got) == position + 1
    assert "message" in got[position]["error"]


def test_malformed_json():
    with StubServer(faults=Fault.MALFORMED_JSON) as stub, connection(stub) as conn:
        body = post(conn).read()
    with pytest.raises(json.JSONDecodeError):
        events(body)


@pytest.mark.parametrize(("fault", "count"), [(Fault.REPEATED_EVENT, 9), (Fault.SKIPPED_EVENT, 7)])
def test_repeated_and_skipped_events(fault, count):
    with StubServer(faults=fault, cumulative=False) as stub, connection(stub) as conn:
        assert len(events(post(conn).read())) == count


def test_huge_event():
    with StubServer(faults=Fault.HUGE_EVENT) as stub, connection(stub) as conn:
        got = events(post(conn).read())
    assert len(got[0]["text"]) == 5_000_000


@pytest.mark.parametrize(("fault", "heard"), [(Fault.SILENT, b""), (Fault.SILENT_AFTER_FIRST, b"data: ")])
def test_silence_lasts_until_the_client_leaves(fault, heard):
    with StubServer(faults=fault) as stub:
        received = b""
        with socket.create_connection(("127.0.0.1", stub.port), timeout=60) as sock:
            sock.sendall(b'POST /generate HTTP/1.1\r\nContent-Length: 15\r\n\r\n{"stream":true')
            sock.sendall(b"}")
            while heard not in received:
                data = sock.recv(1 << 16)
                assert data
                received += data
            sock.settimeout(0.2)
            with pytest.raises(TimeoutError):
                while sock.recv(1 << 16):
                    pass


def test_slow_headers_arrive_in_the_end():
    with StubServer(faults=Fault.SLOW_HEADERS, drip_s=0.001) as stub, connection(stub) as conn:
        start = time.monotonic()
        assert events(post(conn).read())
        assert time.monotonic() - start > 0.1


def test_schedules():
    with StubServer(faults=every(3, Fault.HTTP_500, first=1)) as stub, connection(stub) as conn:
        assert statuses(conn, [[1]] * 6) == [200, 500, 200, 200, 500, 200]
    with StubServer(faults=first_time(Fault.HTTP_503)) as stub, connection(stub) as conn:
        assert statuses(conn, [[1], [1], [2], [2]]) == [503, 200, 503, 200]


def statuses(conn, prompts):
    found = []
    for prompt in prompts:
        response = post(conn, prompt)
        response.read()
        found.append(response.status)
    return found


def test_restart_on_the_same_port():
    with StubServer() as stub, connection(stub) as conn:
        assert events(post(conn).read())
        stub.stop()
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", stub.port)):
            pass
        with StubServer(port=stub.port) as again, connection(again) as fresh:
            assert events(post(fresh).read())


def test_refused():
    with refused_url() as url, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))


def test_pacing_and_true_times():
    with StubServer(tokens=5, first_delay_s=0.05, event_delay_s=0.02) as stub, connection(stub) as conn:
        post(conn).read()
    seen = stub.requests[0]
    assert seen.first_sent_ns - seen.received_ns >= 50_000_000
    assert seen.last_sent_ns - seen.first_sent_ns >= 80_000_000


def test_three_hundred_open_streams():
    with StubServer(tokens=3, event_delay_s=0.3) as stub:
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(raw_answer(stub))) for _ in range(300)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(b"[DONE]" in answer for answer in answers) == 300
    seen = stub.requests
    lasted = max(r.last_sent_ns for r in seen) - min(r.received_ns for r in seen)
    assert sum(r.last_sent_ns - r.received_ns for r in seen) > 10 * lasted  # side by side
