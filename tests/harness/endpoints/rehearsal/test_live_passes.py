"""The sentence about a point while it lasts."""

import numpy as np

from harness.endpoints.point_run import WARM_UP
from harness.endpoints.rehearsal.live_passes import LivePasses
from harness.record.journal import QUERY_ROW

SIZE, S = 10, 10**9


def rows(first, last, tpot_s=0.02, tokens=51):
    """Requests of these numbers, a minute for each pass, in a mixed order of their ends."""
    found = np.zeros(last - first, QUERY_ROW)
    number = np.arange(first, last)
    found["query_id"], found["osl"], found["first_event_tokens"] = number, tokens, 1
    found["issued_ns"] = S + number * 60 * S // SIZE
    found["first_token_ns"] = found["issued_ns"] + S // 10
    level = tpot_s * (1 + 0.01 * (number % SIZE))
    found["last_byte_ns"] = found["first_token_ns"] + (level * S * (tokens - 1)).astype(np.int64)
    return found[::-1]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_sentence_for_each_complete_pass_once_a_minute():
    clock = Clock()
    live = LivePasses(SIZE, 600.0, clock)
    assert live.add(rows(WARM_UP, WARM_UP + SIZE)) == ""  # the warm-up is no pass
    clock.now = 61
    assert live.add(rows(0, SIZE - 1)) == ""  # one answer is missing
    assert "pass 1" in live.add(rows(SIZE - 1, SIZE))
    assert live.add(rows(SIZE, 2 * SIZE)) == ""  # a minute has not passed
    clock.now = 122
    assert "pass 2" in live.add(rows(0, 0))
    assert live.add(rows(0, 0)) == ""


def test_it_says_whether_the_passes_are_steady():
    clock = Clock()
    steady, rising = LivePasses(SIZE, 600.0, clock), LivePasses(SIZE, 600.0, clock)
    clock.now = 61
    assert steady.add(rows(0, 9 * SIZE)).startswith("steady since pass 2")
    parts = [rows(one * SIZE, (one + 1) * SIZE, 0.02 * (1 + 0.2 * one)) for one in range(9)]
    assert "drifts up" in rising.add(np.concatenate(parts))
