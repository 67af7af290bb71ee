"""Fixtures of the request path's tests."""

import socket
import ssl
import subprocess
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from sut.client import client
from sut.client.transport import _SO_TIMESTAMPNS, _TIMESPEC
from sut.servers import info_client
from tests.kit import PATIENCE_S, wait_until
from tests.sut.driver import Driver
from tests.sut.rig import Rig


@pytest.fixture(scope="session", autouse=True)
def kernel_stamps():
    """The kernel turns its stamps on in the background, for the first socket that asks; this one stays."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        own.bind(("127.0.0.1", 0))
        own.connect(own.getsockname())

        def stamped_on_arrival():
            own.send(b"x")
            time.sleep(0.001)
            before_ns = time.time_ns()
            (_, _, stamp), *_ = own.recvmsg(1, 100)[1]
            seconds, nanoseconds = _TIMESPEC.unpack(stamp)
            return seconds * 10**9 + nanoseconds < before_ns

        # A machine without such stamps fails the tests that need them, not all.
        with suppress(ValueError, AssertionError):
            wait_until(stamped_on_arrival, 20.0)
        yield


@pytest.fixture
def drive():
    """Make drivers."""
    made = []

    def make(*urls, **options):
        made.append(Driver(*urls, **options))
        return made[-1]

    yield make
    for driver in made:
        driver.client.close()


@pytest.fixture
def pass_time(monkeypatch):
    """Move the client's clock on, but not the times of arrivals: no test waits for a deadline or races it."""
    ahead_ns, now = [0], time.monotonic_ns
    clock = SimpleNamespace(monotonic_ns=lambda: now() + ahead_ns[0])
    monkeypatch.setattr(client, "time", clock)

    def move(seconds):
        ahead_ns[0] += int(seconds * 1e9)

    return move


@pytest.fixture
def notices_at_once(monkeypatch):
    """A wait is reported from its beginning, and again whenever it can be."""
    monkeypatch.setattr(info_client, "_FIRST_NOTICE_S", 0.0)
    monkeypatch.setattr(info_client, "_NOTICE_EVERY_S", 0.0)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and the name llm.test, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=stub"
        " -addext subjectAltName=IP:127.0.0.1,DNS:llm.test -keyout key.pem -out cert.pem"
    )
    try:
        subprocess.run(command.split(), check=True, capture_output=True, timeout=120, cwd=folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no certificate without the openssl command: {error}")
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def start(tmp_path):
    """Start workers; all end with the test."""
    made = []

    def make(*urls, **options):
        made.append(Rig(tmp_path, *urls, **options))
        return made[-1]

    yield make
    for rig in made:
        rig.channel.close()
        rig.thread.join(PATIENCE_S)
