"""The concurrencies of a climb, from the steps before."""

import pytest

from harness.peak.search.climb_order import next_concurrency
from tests.harness.peak.ladder.made import LIMITS, step

OVER = {"ttft": 2700}  # of which p99 is over the limit


@pytest.mark.parametrize(
    ("steps", "replicas", "slots", "most", "expected"),
    [
        # The first, by what the servers run at once and by what this machine holds.
        ([], 1, 512, None, 32),
        ([], 2, 8192, None, 128),
        ([], 8, 64, None, 8),
        ([], 2, None, None, 32),
        ([], 2, 512, 5, 5),
        # Up, as far as there are slots.
        ([step(32, 1000)], 1, 512, None, 128),
        ([step(32, 1000)], 1, 64, None, 64),
        ([step(32, 1000), step(128, 1030)], 1, 512, None, 512),
        # Once between the last two, where the last shows nothing more.
        ([step(8, 900), step(32, 1000), step(128, 1010)], 1, 512, None, 64),
        ([step(8, 239), step(32, 229), step(16, 159)], 1, 128, None, None),  # slow, as on a busy machine
        ([step(32, 1000), step(128, 2000)], 1, 128, None, 64),
        ([step(32, 1000), step(128, 2000, **OVER)], 1, 512, None, 64),
        ([step(32, 1000), step(128, 2000, failures={"timeout": 1})], 1, 512, None, 64),
        ([step(128, 2000, **OVER), step(64, 1500), step(32, 1000)], 1, 512, None, None),
        # Two steps in a row that the client bounds are the end, one is not.
        ([step(32, 1000), step(128, 2000, client_bound=True)], 1, 512, None, 512),
        ([step(32, 1000, client_bound=True)], 1, 512, None, 128),
        ([step(32, 1000, client_bound=True), step(128, 2000)], 1, 512, None, 512),
        ([step(each, each, client_bound=True) for each in (32, 128)], 1, 512, None, 64),
        # Down, to one for each replica.
        ([step(32, 1000, **OVER)], 1, 512, None, 8),
        ([step(8, 1000, **OVER)], 4, 512, None, 4),
        ([step(4, 1000, **OVER)], 4, 512, None, None),
        ([step(8, 1000), step(32, 2000, **OVER)], 1, 512, None, 16),
        ([step(8, 1000), *(step(each, 2000, **OVER) for each in (32, 128))], 1, 512, None, 16),
    ],
)
def test_the_next_step_of_a_climb(steps, replicas, slots, most, expected):
    found = next_concurrency(steps, LIMITS, replicas=replicas, slots=slots, most_in_flight=most)
    assert found == expected
