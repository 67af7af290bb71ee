"""The phase of a point in words."""

import pytest

from harness.endpoints.point_progress import PointPhase
from harness.progress.progress_line import ProgressSnapshot
from tests.harness.endpoints.test_salting import CURVE
from tests.sut.endpoints.rehearsing import point_of

WARM_UP = 20


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def phase():
    clock = Clock()
    made = PointPhase(CURVE, point_of(10, passes=2, issue_s=100.0), WARM_UP, clock)

    def at(now, issued, completed, failed=0, **facts):
        clock.now = now
        rate = facts.pop("tokens_per_s", 512.4)
        return made(ProgressSnapshot(now, issued, completed, failed, None, rate, **facts))

    return at


def test_a_point_from_its_warm_up_to_its_drain(phase):
    assert phase(1, 12, 2) == "warm-up: 2 of 20 requests have ended, 10 in flight, 512 tokens/s"
    assert phase(2, 20 + 5, 15) == (
        "pass 1 of at least 2, issuing for 0 of at least 100 s, 10 in flight, 512 tokens/s"
    )
    assert phase(52, 20 + 65, 75, tokens_per_s=None) == (
        "pass 2 of at least 2, issuing for 50 of at least 100 s, 10 in flight"
    )
    # The passes are done, the time is not: another pass.
    assert phase(62, 20 + 128, 138).startswith("pass 2 of at least 2, issuing for 60 of")
    assert phase(63, 20 + 129, 139).startswith("pass 3 of at least 2")
    assert phase(103, 20 + 192, 202).startswith("pass 3 of at least 2, issuing for 101 of")
    assert phase(104, 20 + 192, 203) == "drain after pass 3, 9 in flight, 512 tokens/s"
    assert phase(105, 20 + 192, 212).startswith("drain after pass 3, 0 in flight")


def test_what_goes_wrong_comes_first(phase):
    failures = {"timeout": 2, "truncated": 5}
    text = phase(50, 40, 23, 7, failures=failures, silent_s=45.0, standing="rank 3 of http://a stands")
    assert text.startswith(
        "7 FAILED (truncated 5, timeout 2), nothing has arrived for 45 s, rank 3 of http://a stands, pass 1"
    )


def test_a_point_that_is_lost_says_so_first():
    phase = PointPhase(CURVE, point_of(10), WARM_UP, Clock())
    text = phase(ProgressSnapshot(9.0, 40, 23, 7), "http://b:1 was out of use")
    assert text.startswith(
        "lost: http://b:1 was out of use (Ctrl-C, then repeat the command), 7 FAILED, pass 1"
    )


def test_everything_at_once():
    phase = PointPhase(CURVE, point_of(128, offline="dedicated"), WARM_UP, Clock())
    assert phase(ProgressSnapshot(1.0, 148, 50, 0, sent=98)) == (
        "all at once: 30 of 128 requests have ended, 98 in flight"
    )
