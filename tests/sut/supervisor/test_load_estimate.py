"""What a plan is expected to ask of the client."""

import socket

import pytest

from harness.cli.run_flags import parse_options
from harness.config.plan import resolve_plan
from sut.supervisor.load_estimate import expected_load, is_own_host, server_is_here
from sut.supervisor.placement import Load

QPS = {"target_qps": 83.0}


def plan(*flags):
    return resolve_plan(parse_options([*flags, "--input-file", "x.parquet"]))


@pytest.mark.parametrize(
    ("flags", "settings", "load"),
    [
        (["--scenario", "offline"], {}, Load()),
        (["--scenario", "offline", "--max-concurrency", "512"], {}, Load(512)),
        (["--scenario", "single-stream"], {}, Load(1)),
        # 83/s of 1 278.2 tokens within TTFT 3 s and TPOT 80 ms: a submitted system had 7 982 in flight.
        (["--scenario", "server"], QPS, Load(None, 8736, 83.0, 83 * 1278.2)),
        (["--scenario", "server", "--max-new-tokens", "100"], QPS, Load(None, 913, 83.0, 8300.0)),
        (["--scenario", "server", "--max-concurrency", "64"], QPS, Load(64, 8736, 83.0, 83 * 1278.2)),
        (["--scenario", "interactive"], QPS, Load(None, 1757, 83.0, 83 * 1278.2)),
        (["--scenario", "server"], {}, Load(None, 105, 1.0, 1278.2)),  # LoadGen's own target_qps
    ],
)
def test_loads(flags, settings, load):
    assert expected_load(plan(*flags), settings) == load


def test_accuracy_answers_are_as_long_as_they_may_be():
    assert expected_load(plan("--scenario", "server", "--accuracy"), QPS).events_per_s == 83 * 32768


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        (socket.gethostname(), True),
        ("192.0.2.1", False),  # TEST-NET-1: nobody's
        ("no-such-host.invalid", False),
    ],
)
def test_own_hosts(host, own):
    assert is_own_host(host) == own


def test_whether_a_server_is_here():
    assert server_is_here(plan("--server-url", "http://192.0.2.1:1,http://localhost:2"))
    assert not server_is_here(plan("--server-url", "http://192.0.2.1:1"))
    assert server_is_here(plan("--backend", "embedded"))
