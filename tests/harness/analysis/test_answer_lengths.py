"""The lengths of the replicas' answers, at the end of a run and while it lasts."""

import numpy as np
import pytest

from harness.analysis.answer_lengths import Lengths, LengthWatch, length_warnings
from harness.record.journal import QUERY_ROW
from harness.record.outcome import FailureKind
from tests.records import rows_with

SECOND = 10**9
URLS = [f"http://node{number}:30000" for number in range(8)]


def spread(count, seed=2):
    """Lengths spread like gpt-oss-120b's: their deviation is nearly their mean."""
    return np.random.default_rng(seed).gamma(1.3, 1300 / 1.3, count)


@pytest.mark.parametrize(
    ("count", "replicas", "share", "named"),
    [
        (19188, 8, 0.7, [URLS[1]]),  # of three passes over the dataset of gpt-oss-120b
        (6396, 2, 0.8, [URLS[0]]),  # of two the longer one is named
        (19188, 8, 1.0, []),
        (200_000, 2, 0.98, []),  # certainly other ones, and of no account
        (190, 2, 0.1, []),  # too few answers of each
    ],
)
def test_a_replica_with_answers_of_another_length(count, replicas, share, named):
    rows = np.zeros(count, QUERY_ROW)
    rows["replica"] = np.arange(count) % replicas
    lengths = spread(count) * np.where(rows["replica"] == 1, share, 1.0)
    rows["osl"] = lengths.clip(1, 10240)
    rows["failure"][rows["osl"] < 30] = FailureKind.TIMEOUT
    found = list(length_warnings(Lengths.of(rows, replicas), URLS[:replicas]))
    assert [line.partition("(")[2].partition(" ")[0] for line in found] == named


class Run:
    """A run in passes of a hundred seconds, each of 200 requests to each replica."""

    def __init__(self, replicas):
        self.replicas, self.sent, self.number = replicas, 0, 0
        self.judged = []  # numbers of answers
        self.refused = ""
        self.watch = LengthWatch(URLS[:replicas], self.refuse)

    def refuse(self, mean, answers):
        self.judged.append(answers)
        return self.refused

    def pass_of(self, share=1.0, failed=0):
        """The queries of the next pass; answers of the last replica have this share of their length."""
        count = 200 * self.replicas
        made = rows_with(count, sent_ns=(100 * self.number + 1) * SECOND)
        made["replica"] = np.arange(count) % self.replicas
        lengths = spread(count, self.number)
        lengths[made["replica"] == self.replicas - 1] *= share
        made["osl"] = lengths.clip(1, 10240)
        made["failure"][:failed] = FailureKind.TIMEOUT
        self.number, self.sent = self.number + 1, self.sent + count
        return made[np.argsort(made["osl"])]

    def end(self, made, second):
        """Queries that end in this second of the pass; returns the warnings."""
        now_s = 100 * (self.number - 1) + second
        self.watch.add(made, now_s * SECOND)
        return list(self.watch.look(self.sent, float(now_s), now_s * SECOND))

    def send(self, share=1.0, failed=0):
        """A pass of which all have ended, and a minute without more."""
        return self.end(self.pass_of(share, failed), 5) + self.end(rows_with(0), 70)


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_replica_whose_answers_change_is_told_once(replicas):
    run = Run(replicas)
    assert [run.send() for _ in range(5)] == [[]] * 5
    (line,) = run.send(share=0.4)
    assert line.startswith(
        f"1 of {replicas} replicas give answers of other lengths than before ({URLS[replicas - 1]} "
    )
    assert "requests sent from 6:45 to 8:25" in line
    assert [run.send(share=0.4) for _ in range(5)] == [[]] * 5
    assert run.watch.changes == [line]


@pytest.mark.parametrize("share", [1.0, 0.97])
def test_answers_that_do_not_change_are_no_warning(share):
    run = Run(4)
    assert [run.send(share=share) for _ in range(300)] == [[]] * 300


def test_a_replica_that_differs_from_the_beginning_is_told_once_and_has_not_changed():
    run = Run(4)
    lines = [line for _ in range(20) for line in run.send(share=0.6)]
    assert len(lines) == 1 and "than the others" in lines[0] and lines[0].startswith("by the first ")
    assert run.watch.changes == []


def test_a_pass_is_judged_when_its_longest_answer_has_ended():
    """The number sent is counted a little late: one more may come within a minute after the last."""
    run = Run(1)
    made = run.pass_of()
    run.end(made[:-2], 5)
    run.end(made[-2:-1], 170)
    run.end(rows_with(0), 250)
    assert run.judged == []
    run.end(made[-1:], 300)
    run.end(rows_with(0), 359)
    assert run.judged == []
    run.end(rows_with(0), 360)
    assert run.judged == [200]


def test_a_failed_query_holds_up_no_pass():
    run = Run(1)
    run.send(failed=3)
    assert run.judged == [197]


def test_a_count_that_was_one_too_many_holds_up_no_later_pass():
    run = Run(1)
    run.sent = 1
    run.send()
    run.sent -= 1
    run.send()
    assert run.judged == []
    run.send()
    assert run.judged == [600]


def test_a_refused_mean_is_told_once():
    run = Run(1)
    assert run.send() == []
    run.refused = "too short"
    assert [run.send() for _ in range(3)] == [["by the first 400 answers: too short"], [], []]
