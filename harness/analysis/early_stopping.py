"""LoadGen's early stopping: how many queries of a Server run may be over a latency limit.

LoadGen (early_stopping.cc) accepts t queries over the limit among n when, with the true share of such queries
at 1 - percentile, t or fewer would be seen with a probability below 1 - confidence. SingleStream has no
limit: its result is an estimate of the percentile, for which t is at least 1 (results.cc).
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from harness.analysis.statistics import completed, has_tpot
from harness.config.loadgen_settings import SERVER_PERCENTILE, Setting
from harness.config.plans import RunPlan
from harness.config.scenario import Scenario
from harness.record.journal import Rows
from harness.text import counted

_TRIAL_PERCENT = 50
_CONFIDENCE = 0.99  # LoadGen's
# LoadGen takes the time of a first token when it is called, at most this long after the bytes arrived. Its
# TPOT of an answer can be smaller than ours by this, divided by the tokens.
LATE_REPORT_NS = 100_000_000
_MOST_NEEDED = 1 << 40  # above the queries that the largest percentile needs


def most_over_limit(queries: int, percentile: float = SERVER_PERCENTILE) -> int:
    """The largest t with which a run of ``queries`` passes; -1 where there are too few queries to pass."""
    share = 1 - percentile
    cumulative = log_cumulative(queries, share, math.ceil(queries * share))  # the median is not beyond
    return int(np.searchsorted(cumulative, math.log1p(-_CONFIDENCE), side="left")) - 1


def least_queries(percentile: float) -> int:
    """The fewest queries with which a run can pass."""
    return math.ceil(math.log1p(-_CONFIDENCE) / math.log(percentile))


def least_in_single_stream(percentile: float) -> int:
    """The fewest queries of which LoadGen estimates SingleStream's percentile: one may be beyond it."""

    def is_enough(queries: int) -> bool:
        none_and_one = percentile + queries * (1 - percentile)  # over percentile ** (queries - 1)
        return (queries - 1) * math.log(percentile) + math.log(none_and_one) < math.log1p(-_CONFIDENCE)

    return bisect_left(range(_MOST_NEEDED), True, key=is_enough)


def target_percentile(scenario: Scenario, settings: Mapping[str, Setting]) -> float:
    """The part of the queries of a Server or SingleStream run that its result is about."""
    name = "single_stream" if scenario.one_at_a_time else "server"
    return float(settings[f"{name}_target_latency_percentile"])


def fewest_queries(plan: RunPlan, settings: Mapping[str, Setting]) -> int:
    """The fewest queries of a run that can be VALID; ``settings`` are by TestSettings' names."""
    if plan.scenario.one_query or plan.accuracy or plan.audit_text is not None:
        return 1  # a compliance test counts whether LoadGen reports VALID or not
    return _least_of(plan)(target_percentile(plan.scenario, settings))


def _least_of(plan: RunPlan) -> Callable[[float], int]:
    return least_in_single_stream if plan.scenario.one_at_a_time else least_queries


def too_few_queries(queries: int, plan: RunPlan, settings: Mapping[str, Setting]) -> str:
    """Why no run of ``queries`` can be VALID, with the conf row that mends it; "" where one can.

    ``settings`` are by TestSettings' names.
    """
    needed = fewest_queries(plan, settings)
    if queries >= needed:
        return ""
    least = _least_of(plan)
    key = f"{plan.model_key}.{plan.scenario.loadgen}"
    short = f"{key}.target_latency_percentile = {_TRIAL_PERCENT}"
    given = counted(queries, "query")
    most, rows = int(settings["max_query_count"]), []
    if is_capped := 0 < most < needed:
        source = plan.conf_with("max_query_count")
        where = "" if source == str(plan.user_conf) else f", from {source}"
        rows.append(f"remove the row of max_query_count, which is {most}{where}")
    if not is_capped or queries < most:
        rows.append(f"write a row {key}.min_query_count = {needed}")
    return (
        f"the settings of {plan.user_conf} give only {given}, and with fewer than {needed} no run is "
        f"VALID by LoadGen's early stopping; {' and '.join(rows)}, or, for a trial that is no result, write "
        f"{short}, which needs {least(_TRIAL_PERCENT / 100)}"
    )


def over_limit_text(name: str, count: int, most: int) -> str:
    """``30 queries over the TTFT limit, at most 1 may be``; "" where that is not too many."""
    if count <= max(most, 0):
        return ""
    return f"{counted(count, 'query')} over the {name} limit, {at_most_text(most)}"


def at_most_text(most: int) -> str:
    """``at most 3 may be`` over a limit."""
    return f"at most {most:,} may be" if most > 0 else "none may be"


def late_first_tokens(rows: Rows, limit_ns: int) -> Rows:
    """Completed queries whose first token came later than its limit."""
    good = completed(rows)
    late: Rows = good[good["first_token_ns"] - good["issued_ns"] > limit_ns]
    return late


def surely_slow(rows: Rows, limit_ns: int) -> Rows:
    """Completed queries whose TPOT is over its limit even when their first token was reported late."""
    good = completed(rows)
    good = good[has_tpot(good)]
    gaps = good["osl"].astype("i8") - 1
    slow: Rows = good[good["last_byte_ns"] - good["first_token_ns"] - LATE_REPORT_NS > limit_ns * gaps]
    return slow


def log_cumulative(n: int, share: float, top: int) -> npt.NDArray[np.float64]:
    """log P(X <= t) for t from 0 to ``top`` when each of ``n`` counts with the probability ``share``."""
    counted = np.arange(top)
    # log P(X = 0), then the ratios of neighbours: nothing underflows.
    steps = np.log((n - counted) / (counted + 1)) + math.log(share / (1 - share))
    logs = n * math.log1p(-share) + np.concatenate([[0.0], np.cumsum(steps)])
    cumulative: npt.NDArray[np.float64] = np.logaddexp.accumulate(logs)
    return cumulative
