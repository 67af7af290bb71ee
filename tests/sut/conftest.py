"""Fixtures of the request path's tests."""

import ssl
import subprocess

import pytest

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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", "/CN=stub", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
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
        rig.thread.join(90)
