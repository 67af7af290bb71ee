"""Fixtures of the request path's tests."""

import ssl
import subprocess
import time
from types import SimpleNamespace

import pytest

from tests.kit import PATIENCE_S
from tests.sut.driver import Driver
from tests.sut.rig import Rig


@pytest.fixture
def drive():
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
    monkeypatch.setattr("sut.client.client.time", clock)

    def move(seconds):
        ahead_ns[0] += int(seconds * 1e9)

    return move


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and the name llm.test, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=stub"
    )
    command += " -addext subjectAltName=IP:127.0.0.1,DNS:llm.test -keyout key.pem -out cert.pem"
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
