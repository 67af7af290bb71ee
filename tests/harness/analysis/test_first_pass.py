"""The first answers of a run are judged when all of them have ended, and not by the short ones before."""

import numpy as np
import pytest

from harness.analysis.first_pass import FirstPass
from tests.records import rows_with

SECOND = 10**9


def answers(*sent_s, osl=10):
    """Answers to requests that were sent at these seconds."""
    return rows_with(len(sent_s), sent_ns=np.array(sent_s) * SECOND, osl=osl)


@pytest.fixture
def judged():
    return []


@pytest.fixture
def first_pass(judged):
    """At second 5 four requests have been sent, where three were enough, and three have ended."""

    def judge(rows):
        judged.append(rows["osl"].tolist())
        return ("too short",)

    made = FirstPass(3, judge)
    made.add(answers(1), 4 * SECOND)
    assert made.look(2, 4 * SECOND) == ()
    made.add(answers(2, 2), 5 * SECOND)
    assert made.look(4, 5 * SECOND) == ()
    return made


def test_the_longest_of_the_first_answers_counts(first_pass, judged):
    first_pass.add(answers(6, 6, 6), 100 * SECOND)  # of later requests
    assert first_pass.look(9, 200 * SECOND) == ()
    first_pass.add(answers(3, osl=4000), 300 * SECOND)
    assert first_pass.look(9, 359 * SECOND) == ()  # one may be missing, as the number sent is counted late
    first_pass.add(answers(5, osl=9000), 359 * SECOND)
    assert first_pass.look(9, 418 * SECOND) == () and judged == []
    assert first_pass.look(9, 420 * SECOND) == ("too short",)
    assert judged == [[10, 10, 10, 4000, 9000]]


def test_they_are_judged_once(first_pass, judged):
    first_pass.add(answers(3), 10 * SECOND)
    assert first_pass.look(9, 80 * SECOND) == ("too short",)
    first_pass.add(answers(4), 90 * SECOND)
    assert first_pass.look(9, 200 * SECOND) == () and len(judged) == 1
