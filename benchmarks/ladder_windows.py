#!/usr/bin/env python3
"""A ladder's window over closed loops whose true rates are known: errors, steadiness, time taken.

usage: .venv/bin/python -m benchmarks.ladder_windows
"""

import argparse
from collections.abc import Callable

import numpy as np

from tests.harness.peak.loops import ClosedLoop

TPOT_S, TTFT_S, MEAN = 0.02, 0.1, 500  # an answer takes 10.1 s on average
REPEATS = 10
LENGTHS: dict[str, Callable[[np.random.Generator], int]] = {
    "exponential": lambda random: 1 + int(random.exponential(MEAN - 0.5)),
    "all alike": lambda random: MEAN,
}


def main() -> None:
    """Print a row for each kind of lengths, number in flight and length of the window."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    latency = TTFT_S + (MEAN - 1) * TPOT_S
    print("| lengths | in flight | window, latencies | steady | error of tokens/s | times of | took, s |")
    print("|---|---|---|---|---|---|---|")
    for name, lengths in LENGTHS.items():
        for in_flight in (1, 16, 256):
            for latencies in (1, 3, 6):
                steps, seconds = [], []
                for repeat in range(REPEATS):
                    loop = ClosedLoop(lengths=lengths)
                    loop.random = np.random.default_rng(repeat)
                    steps.append(loop.measure(in_flight, latencies * latency, rise_s=latency).step())
                    seconds.append(loop.now)
                truth = in_flight * MEAN / latency
                errors = [abs(step.tokens_per_s / truth - 1) for step in steps]
                counted = sum(step.tpot.count if step.tpot else 0 for step in steps)
                share = counted / sum(step.queries for step in steps)
                steady = sum(step.steady for step in steps) / len(steps)
                print(
                    f"| {name} | {in_flight} | {latencies} | {steady:.0%} | {max(errors):.1%} at most | "
                    f"{share:.0%} of what ended | {np.mean(seconds):.0f} |"
                )


if __name__ == "__main__":
    main()
