"""What is plain in the course of a run: a simulated server of a fixed capacity, and one with room."""

import numpy as np
import pytest

from harness.analysis.diagnosis import diagnoses, diagnosis_text, waiting_part
from tests.records import START, rows, rows_with

TOKENS, SECOND = 100, 10**9


def served(rate, capacity, seconds=60.0, seed=1):
    """Queries at ``rate`` a second, answered in order by a server of ``capacity`` answers a second."""
    random = np.random.default_rng(seed)
    issued = np.cumsum(random.exponential(1 / rate, int(rate * seconds)))
    ended, free = np.empty(len(issued)), 0.0
    for number, moment in enumerate(issued):
        free = max(free, moment) + 1 / capacity
        ended[number] = free + 1.0
    made = rows_with(len(issued), query_id=np.arange(len(issued)), osl=TOKENS)
    made["issued_ns"] = made["sent_ns"] = START + (issued * SECOND).astype(np.int64)
    made["last_byte_ns"] = START + (ended * SECOND).astype(np.int64)
    made["first_token_ns"] = made["last_byte_ns"] - SECOND
    return made


@pytest.mark.parametrize("rate", [26.0, 40.0])
def test_a_server_that_falls_behind_is_saturated(rate):
    (found,) = diagnoses(served(rate, capacity=20.0))
    assert found.from_s < 20
    numbers = [float(part.replace(",", "")) for part in found.text.split() if part.replace(",", "").isdigit()]
    assert numbers[-2] == pytest.approx((rate - 20) * 60, rel=0.25)  # in flight at the end
    assert numbers[-1] == pytest.approx(20 * TOKENS, rel=0.05)
    assert diagnosis_text(found).startswith(f"from 0:{int(found.from_s):02} on saturated")


def with_room(rate, answer_s, seconds=600.0, slower_from_s=np.inf):
    """Queries at ``rate`` a second, answered in this time, give or take a tenth; later in 1.5 times that."""
    random = np.random.default_rng(1)
    issued = np.cumsum(random.exponential(1 / rate, int(rate * seconds)))
    times = answer_s * random.gamma(100, 0.01, len(issued)) * np.where(issued > slower_from_s, 1.5, 1.0)
    made = rows_with(len(issued), query_id=np.arange(len(issued)), osl=TOKENS)
    made["issued_ns"] = made["sent_ns"] = made["first_token_ns"] = START + (issued * SECOND).astype(np.int64)
    made["last_byte_ns"] = made["issued_ns"] + (times * SECOND).astype(np.int64)
    return made


@pytest.mark.parametrize("answer_s", [60.0, 90.0, 105.0])
def test_queries_that_are_in_flight_before_the_first_answers_end_are_no_saturation(answer_s):
    """Answers of 1,250 tokens take so long in official runs; servers with room were called saturated."""
    assert list(diagnoses(with_room(20.0, answer_s))) == []


def test_a_server_that_becomes_slower_and_answers_all_is_not_saturated():
    """A run had 6 queries in flight, and 10 after one of its two servers had become slower."""
    assert list(diagnoses(with_room(20.0, 0.35, 150.0, slower_from_s=40.0))) == []


@pytest.mark.parametrize(
    "made",
    [
        served(15.0, capacity=20.0),  # with room
        served(20.0, capacity=200.0),
        served(40.0, capacity=20.0, seconds=4.0),  # too short
        rows(),
        rows_with(900, issued_ns=START, sent_ns=START, last_byte_ns=START + SECOND, osl=9),  # Offline
        rows_with(0),
    ],
)
def test_what_is_not_plain_is_not_said(made):
    assert list(diagnoses(made)) == []


def test_a_load_that_grows_with_its_work_is_no_saturation():
    slow, fast = served(5.0, capacity=200.0, seconds=30), served(40.0, capacity=200.0, seconds=30)
    fast["query_id"] += 10**6
    for name in ("issued_ns", "sent_ns", "first_token_ns", "last_byte_ns"):
        fast[name] += 30 * SECOND
    assert list(diagnoses(np.concatenate([slow, fast]))) == []


@pytest.mark.parametrize(
    ("sent_s", "part"), [([0, 0, 0, 0], 0.0), ([0, 0, 3, 6], 0.6), ([0, 0, 0.05, 0.09], 0.0)]
)
def test_the_part_of_a_run_in_which_queries_wait_to_be_sent(sent_s, part):
    sent = START + (np.array(sent_s) * SECOND).astype(np.int64)
    made = rows_with(4, issued_ns=START, sent_ns=sent, last_byte_ns=START + 10 * SECOND)
    assert waiting_part(made) == part
