"""LoadGen's early stopping: how many queries of a Server run may be over a latency limit.

LoadGen (early_stopping.cc) accepts t queries over the limit among n when, with the true share of such queries
at 1 - percentile, t or fewer would be seen with a probability below 1 - confidence.
"""

import math

import numpy as np

from harness.report.binomial import log_cumulative

PERCENTILE, CONFIDENCE = 0.99, 0.99  # of the Server scenario
_SPREADS = 10  # standard deviations around the mean that are looked through


def most_over_limit(queries: int, percentile: float = PERCENTILE, confidence: float = CONFIDENCE) -> int:
    """The largest t that passes among ``queries``; -1 where there are too few queries to pass at all."""
    mean, spread = queries * (1 - percentile), math.sqrt(queries * percentile * (1 - percentile))
    top = min(queries, int(mean + _SPREADS * spread) + 1)
    cumulative = log_cumulative(queries, 1 - percentile, top)
    return int(np.searchsorted(cumulative, math.log1p(-confidence), side="left")) - 1
