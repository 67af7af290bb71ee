"""The binomial distribution where numbers are large: its cumulative probabilities as logarithms."""

import math

import numpy as np
import numpy.typing as npt


def log_cumulative(n: int, share: float, top: int) -> npt.NDArray[np.float64]:
    """log P(X <= t) for t from 0 to ``top`` when each of ``n`` counts with the probability ``share``."""
    counted = np.arange(top)
    # log P(X = 0), then the ratios of neighbours: nothing underflows.
    steps = np.log((n - counted) / (counted + 1)) + math.log(share / (1 - share))
    logs = n * math.log1p(-share) + np.concatenate([[0.0], np.cumsum(steps)])
    cumulative: npt.NDArray[np.float64] = np.logaddexp.accumulate(logs)
    return cumulative
