"""What the times of failures show."""

import pytest

from harness.record.failure_details import time_limit_text, with_times

S = 1_000_000_000
CLOSED = "the connection closed inside the answer, after 29 tokens"


@pytest.mark.parametrize(
    ("detail", "age_s", "silent_s", "said"),
    [
        (CLOSED, 4.0, 1.06, f"{CLOSED}, 4.0 s after its request, 1.1 s after the last bytes"),
        (CLOSED, 4.0, 0.1, f"{CLOSED}, 4.0 s after its request"),
        (CLOSED, 0.9, 0.1, CLOSED),
        ("HTTP 504: stream timeout", 60.01, 0, "HTTP 504, 60.0 s after its request: stream timeout"),
    ],
)
def test_a_failure_tells_when_it_came(detail, age_s, silent_s, said):
    assert with_times(detail, int(age_s * S), int(silent_s * S)) == said


def failures(detail, ages_s, apart_s):
    return [(with_times(detail, int(age * S), 0), int(i * apart_s * S)) for i, age in enumerate(ages_s)]


# Seen through the proxies: ages of failures in s, and the time between two requests.
@pytest.mark.parametrize(
    ("detail", "ages_s", "apart_s", "said"),
    [
        (CLOSED, [4.0] * 20, 0.05, "20 failures came 4.0 s after their requests"),  # Envoy, timeout: 3s
        (CLOSED, [3.0] * 10 + [1.7], 0.2, "10 failures came 3.0 s"),  # Traefik, writeTimeout, and another
        ("HTTP 504: Gateway Time-out", [3.0] * 64, 0.0, "64 failures came 3.0 s"),  # HAProxy, Offline
        ("HTTP 502: Bad Gateway", [3.3] * 32, 0.0, ""),  # its server died, Offline
        (CLOSED, [3.4, 3.2, 2.7, 2.5, 2.3, 2.0], 0.05, ""),  # its server died
        (CLOSED, [4.2, 4.1, 4.1, 4.0, 4.0, 3.9], 0.1, ""),  # they differ by as much as they lie apart
        (CLOSED, [60.0] * 2, 5.0, ""),
        (CLOSED, [], 0.0, ""),
    ],
)
def test_failures_after_equal_times_are_of_a_limit(detail, ages_s, apart_s, said):
    text = time_limit_text(failures(detail, ages_s, apart_s))
    assert text.startswith(said) if said else not text
    assert ("proxy_read_timeout" in text) == bool(said)


def test_silences_of_equal_length_are_of_a_limit():
    """nginx counts from the last bytes."""
    found = [(with_times(CLOSED, (70 + 9 * i) * S, 60 * S), 9 * i * S) for i in range(5)]
    assert time_limit_text(found).startswith("5 failures came 60.0 s after the last bytes: a limit of time")
