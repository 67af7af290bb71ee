"""A closed loop of known truth: requests in flight, their rows, the counters; no clock and no sockets."""

import heapq

import numpy as np

from harness.peak.ladder.measurement import Look, Measurement, StepSettings
from harness.record.journal import QUERY_ROW
from harness.record.outcome import FailureKind

NS = 10**9
LIMITS = {"TTFT": 3 * NS, "TPOT": 80 * 10**6}
REPLICAS = ("http://a:1", "http://b:1")


class ClosedLoop:
    """``in_flight`` requests of ``lengths(random)`` tokens each; TPOT in seconds is ``tpot(time)``.

    Every ``fails``-th request fails. The loop runs on from one step to the next.
    """

    def __init__(self, lengths=lambda random: 1 + int(random.exponential(200)), tpot=lambda t: 0.02,
                 ttft_s=0.1, fails=0, held=1.0, late_s=0.0):  # fmt: skip
        self.lengths, self.tpot, self.ttft_s, self.fails, self.held = lengths, tpot, ttft_s, fails, held
        self.late_s = late_s
        self.random = np.random.default_rng(7)
        self.now = 0.0
        self.next = 0
        self.open = []  # ends, in order: (end, id, issued, first, tokens)
        self.ended = []  # the same of what has ended

    def measure(self, in_flight, seconds, rise_s=0.0, most_s=3000.0, cpu=lambda t: (0, 0)):
        """Measure a step; returns the Measurement."""
        settings = StepSettings(in_flight, seconds, REPLICAS, LIMITS)
        began = self.now
        found = Measurement(settings, ns(began), ns(began + rise_s))
        while not found.done:
            self.now += 1.0
            assert self.now - began < most_s
            target = in_flight if self.now >= began + rise_s else int(in_flight * (self.now - began) / rise_s)
            rows = self._run_until(self.now, target)
            tokens = sum(one[4] for one in self.ended) + sum(map(self._partly, self.open))
            look = Look(ns(self.now), tokens, int(len(self.open) * self.held), cpu(self.now))
            found.look(look, rows)
        return found

    def _run_until(self, end, target):
        new = []
        while len(self.open) < target:
            self._issue(end - self.random.random())
        while self.open and self.open[0][0] <= end:
            one = heapq.heappop(self.open)
            new.append(one)
            if len(self.open) < target:
                self._issue(one[0])
        self.ended += new
        return self._rows(new)

    def _issue(self, at):
        tokens = self.lengths(self.random)
        first = at + self.ttft_s
        heapq.heappush(self.open, (first + (tokens - 1) * self.tpot(at), self.next, at, first, tokens))
        self.next += 1

    def _partly(self, one):
        end, _, _, first, tokens = one
        return int(min(max(0, 1 + (self.now - first) / max(end - first, 1e-9) * (tokens - 1)), tokens)) * (
            self.now >= first
        )

    def _rows(self, ended):
        rows = np.zeros(len(ended), QUERY_ROW)
        for row, (end, number, issued, first, tokens) in zip(rows, ended, strict=True):
            row["query_id"] = row["sample_index"] = number
            row["replica"] = number % len(REPLICAS)
            row["issued_ns"], row["sent_ns"] = ns(issued), ns(issued + self.late_s)
            row["first_token_ns"], row["last_byte_ns"], row["osl"] = ns(first), ns(end), tokens
            if self.fails and number % self.fails == 0:
                row["failure"], row["last_byte_ns"] = FailureKind.TIMEOUT, 0
        return rows


def ns(seconds):
    return int(seconds * 1e9) + 10**15
