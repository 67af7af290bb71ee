"""The abort policy: which counters end a run, and which do not."""

import msgspec
import numpy as np
import pytest

from harness.config.deadlines import FailurePolicy
from harness.errors import RunError
from sut.ipc.counters import Counter
from sut.supervisor import monitor
from sut.supervisor.monitor import AbortPolicy


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr(monitor.time, "monotonic", lambda: Clock.now)
    return Clock


def policy(max_failures=None, give_up=True, progress_s=60.0):
    return FailurePolicy(max_failures=max_failures, give_up=give_up, progress_s=progress_s, retries=0)


def totals(**values):
    counts = np.zeros(len(Counter), dtype=np.int64)
    for name, value in values.items():
        counts[Counter[name.upper()]] = value
    return counts


@pytest.mark.parametrize(("failed", "ends"), [(0, False), (2, False), (3, True), (50, True)])
def test_failures(clock, failed, ends):
    abort_policy = AbortPolicy(policy(max_failures=3))
    if ends:
        with pytest.raises(RunError, match=f"{failed} queries have failed, the limit is 3"):
            abort_policy.check(totals(failed=failed), 0.0, "")
    else:
        abort_policy.check(totals(failed=failed), 0.0, "")


def test_no_server_left(clock):
    AbortPolicy(policy()).check(totals(), 9.0, "refused")
    AbortPolicy(policy(give_up=False)).check(totals(), 99.0, "refused")
    with pytest.raises(RunError, match="no server has answered for 11 s: refused"):
        AbortPolicy(policy()).check(totals(), 11.0, "refused")


def test_hopeless_is_a_hundred_failures_without_a_token(clock):
    abort_policy = AbortPolicy(policy())
    abort_policy.check(totals(first_tokens=5, completed=1, failed=90), 0.0, "")
    abort_policy.check(totals(first_tokens=6, completed=1, failed=150), 0.0, "")  # a token in between
    abort_policy.check(totals(first_tokens=6, completed=1, failed=249), 0.0, "")
    with pytest.raises(RunError, match="the last 100 queries failed without a token"):
        abort_policy.check(totals(first_tokens=6, completed=1, failed=250), 0.0, "")
    AbortPolicy(policy(give_up=False)).check(totals(failed=10_000), 0.0, "")


@pytest.mark.parametrize(("first_failures", "failed"), [(3, 3), (10, 10), (10, 64)])
def test_a_run_whose_first_queries_all_fail_is_given_up(clock, first_failures, failed):
    policy = FailurePolicy(
        max_failures=None, give_up=True, first_failures=first_failures, progress_s=60, retries=0
    )
    abort_policy = AbortPolicy(policy, lambda: f"timeout {failed} (no end within 1 s)")
    abort_policy.check(totals(failed=first_failures - 1, first_tokens=1), 0.0, "")
    with pytest.raises(RunError, match=rf"the first {failed} queries .* timeout {failed} \(no end"):
        abort_policy.check(totals(failed=failed, first_tokens=9), 0.0, "")
    AbortPolicy(policy).check(totals(failed=failed, completed=1, first_tokens=9), 0.0, "")
    AbortPolicy(msgspec.structs.replace(policy, give_up=False)).check(totals(failed=failed), 0.0, "")


def test_progress(clock):
    abort_policy = AbortPolicy(policy(progress_s=60))
    abort_policy.check(totals(issued=8, receptions=4), 0.0, "")
    clock.now += 59
    abort_policy.check(totals(issued=9, receptions=5), 0.0, "")  # bytes have come
    clock.now += 59
    abort_policy.check(totals(issued=10, receptions=5), 0.0, "")  # a new query is no progress
    clock.now += 2
    with pytest.raises(RunError, match=r"nothing has arrived for 61 s, with 10 queries waiting"):
        abort_policy.check(totals(issued=10, receptions=5), 0.0, "")


class ActivityProbe:
    """Servers that are seen at work whenever they are asked, or never."""

    def __init__(self, clock, at_work):
        self.seen_s, self.asked = clock.now, 0
        self._clock, self._at_work = clock, at_work

    def probe(self):
        self.asked += 1
        if self._at_work:
            self.seen_s = self._clock.now


@pytest.mark.parametrize("at_work", [True, False])
def test_silence_of_servers_at_work_is_no_standstill(clock, at_work):
    activity = ActivityProbe(clock, at_work)
    abort_policy = AbortPolicy(policy(progress_s=60), activity=activity)
    abort_policy.check(totals(issued=8, receptions=4), 0.0, "")
    assert activity.asked == 0  # nobody is asked while answers come
    ended = False
    for _ in range(120):
        clock.now += 1
        try:
            abort_policy.check(totals(issued=8, receptions=4), 0.0, "")
        except RunError as error:
            ended = True
            assert "61 s and no server was seen to work" in str(error)
            break
    assert ended is not at_work
    assert 5 <= activity.asked <= 21


def test_a_pause_between_queries_is_no_standstill(clock):
    abort_policy = AbortPolicy(policy(progress_s=60))
    abort_policy.check(totals(issued=8, completed=7, failed=1), 0.0, "")
    clock.now += 1000
    abort_policy.check(totals(issued=8, completed=7, failed=1), 0.0, "")
