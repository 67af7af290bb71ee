"""TLS: the request path, and a run whose server has a certificate of its own."""

import select
import socket
import threading
import time

import pytest
from msgspec.structs import replace

from harness.record.outcome import Completion, Failure, FailureKind
from sut.client.connections import ReplicaPool
from sut.client.endpoint import Access, resolve_endpoint
from tests.kit import PATIENCE_S, assert_failed, listening, read_request, scripted, wait_until
from tests.runs import run_mlperf, small_dataset
from tests.stub import Fault, StubServer
from tests.sut.driver import KINDS, TIMES, answer, assert_completed


def test_tls(drive, tls, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with StubServer(tls=tls) as stub:
        driver = drive(stub.url)
        for i in range(5):
            assert_completed(driver.ask([9, i]), [9, i])
        assert stub.connections == 1


def test_replicas_share_their_certificates(certificate, monkeypatch):
    """Each would take 0.9 MB in each worker; other certificates of the environment are other ones."""
    access = Access(ca_file=certificate[0])
    pools = [ReplicaPool(n, resolve_endpoint(f"https://127.0.0.{n + 1}", "/", access)) for n in range(2)]
    assert pools[0]._context is pools[1]._context
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert access.tls_context() is not pools[0]._context


def test_a_gateway_with_http_2_is_asked_for_http_1(drive, tls, certificate):
    tls.set_alpn_protocols(["h2", "http/1.1"])
    chosen = []

    def gateway(connection):
        with tls.wrap_socket(connection, server_side=True) as secure:
            chosen.append(secure.selected_alpn_protocol())

    with listening(gateway) as url:
        assert isinstance(drive(url.replace("http:", "https:"), ca_file=certificate[0]).ask(), Failure)
    assert chosen == ["http/1.1"]


def test_tls_with_a_large_request_and_a_large_answer(drive, tls, certificate):
    prompt = list(range(150_000))
    with StubServer(tls=tls, faults=[Fault.BYTEWISE]) as stub:
        driver = drive(stub.url, ca_file=certificate[0])
        assert_completed(driver.ask(prompt), prompt)
        assert_completed(driver.ask(prompt), prompt)
        assert stub.requests[1].prompt_ids == prompt


def test_tls_with_an_unknown_certificate(drive, tls):
    with StubServer(tls=tls) as stub:
        assert_failed(drive(stub.url).ask(), FailureKind.CONNECT, "certificate")
        assert not stub.requests


def test_tls_for_another_host(drive, tls, certificate):
    with StubServer(tls=tls) as stub:
        driver = drive(stub.url.replace("127.0.0.1", "localhost"), ca_file=certificate[0])
        assert_failed(driver.ask(), FailureKind.CONNECT, "certificate")


def test_tls_to_a_plain_server(drive):
    def plain(connection):
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with scripted(plain) as (url, _):
        assert_failed(drive(url.replace("http:", "https:")).ask(), FailureKind.CONNECT)


def test_plain_to_a_tls_server(drive, tls):
    with StubServer(tls=tls) as stub:
        assert isinstance(drive(stub.url.replace("https:", "http:")).ask(), Failure)


@pytest.mark.parametrize(
    "fault", [Fault.CUT_CHUNKED, Fault.CUT_UNFRAMED, Fault.CLOSE_AT_ONCE, Fault.RESET_MIDDLE]
)
def test_tls_connections_that_break(drive, tls, certificate, fault):
    with StubServer(tls=tls, faults=[fault, None]) as stub:
        driver = drive(stub.url, ca_file=certificate[0])
        assert_failed(driver.ask(), KINDS[fault])
        assert_completed(driver.ask())


@pytest.mark.parametrize("notice", [True, False])
def test_an_idle_tls_connection_that_the_server_closed_is_not_used(drive, tls, certificate, notice):
    """Also when its end is still unread while the next query comes."""

    def once(connection):
        with tls.wrap_socket(connection, server_side=True) as secure:
            secure.sendall(answer(to=read_request(secure)))
            ended.wait(PATIENCE_S)
            (secure.unwrap if notice else secure.close)()

    def again(connection):
        with tls.wrap_socket(connection, server_side=True) as secure:
            while request := read_request(secure):
                secure.sendall(answer(to=request))

    ended = threading.Event()
    with scripted(once, again) as (url, _):
        driver = drive(url.replace("http:", "https:"), ca_file=certificate[0])
        assert isinstance(driver.ask(), Completion)
        (idle,) = driver.client._replicas[0].idle
        ended.set()
        wait_until(lambda: select.select([idle.fd], [], [], 0)[0])
        assert isinstance(driver.ask(), Completion)
        assert driver.client.opened == 2


def test_a_reset_behind_a_complete_answer_is_the_same_over_tls(drive, tls, certificate):
    """A body without framing whose end mark has come."""
    outcomes = []
    for secure in (tls, None):
        with StubServer(tls=secure, faults=[Fault.RESET_AFTER_ALL, Fault.CUT_UNFRAMED_BETWEEN]) as stub:
            driver = drive(stub.url, ca_file=certificate[0])
            outcomes.append([driver.ask(), driver.ask()])
    for complete, cut in outcomes:
        assert_completed(complete)
        assert isinstance(cut, Failure)


def test_a_handshake_that_never_ends_fails(drive):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        times = replace(TIMES, connect_ns=200_000_000)
        driver = drive(f"https://127.0.0.1:{silent.getsockname()[1]}", times=times)
        assert_failed(driver.ask(), FailureKind.CONNECT, "no TLS handshake within 0.2 s")


def test_waiting_for_a_handshake_costs_no_cpu(drive):
    """The poll sleeps while a TLS server takes its time."""

    def silent(connection):
        time.sleep(1)

    with scripted(silent) as (url, _):
        driver = drive(url.replace("http:", "https:"))
        driver.start()
        rounds, until = 0, time.monotonic() + 0.3
        while time.monotonic() < until:
            driver.client.poll(0.1)
            rounds += 1
        assert rounds < 30


@pytest.mark.engine
def test_a_run_with_a_ca_file(tmp_path, capfd, certificate, tls):
    dataset, _ = small_dataset(tmp_path)
    with StubServer(tls=tls) as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--ca-file", certificate[0])
        run = run_mlperf(tmp_path, *where, "--max-new-tokens", 4, here=capfd)
    assert (run.code, run.failures) == (0, {}), run.stderr
