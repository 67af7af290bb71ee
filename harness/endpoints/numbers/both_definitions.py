"""A point's numbers in this project's definitions and in Endpoints', with the reason of each difference."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from harness.endpoints.official_files import percentile_of, table, user_tps
from harness.endpoints.point_run import OwnNumbers
from harness.peak.ladder.steps import Latency

_MS = 1e6  # ns

_TOKENS = (
    "ours counts the ids that the server made, special tokens among them; Endpoints applies the reference "
    "tokenizer and chat template to the text of the answer"
)
_RATE = f"{_TOKENS}. Both from the first request to the last completion"
_TTFT = "ours is the first token; Endpoints' is the first fragment with visible, reasoning or tool text"
_TPOT = (
    "ours is the time after the first token by the server's ids but one; Endpoints' is the time after the "
    "first fragment by the reference tokenizer's tokens of the text after it"
)
_RANK = "of n sorted values ours takes number floor(p * n), counted from 0, Endpoints int(p * (n - 1))"


class DefinitionRow(NamedTuple):
    """One number in both definitions; None where it was not measured."""

    name: str
    unit: str
    ours: float | None
    endpoints: float | None
    reason: str
    """why they may differ"""


def both_definitions(own: OwnNumbers | None, summary: Mapping[str, Any]) -> Iterator[DefinitionRow]:
    """The rows, from PointRun.own and a result_summary.json of any client."""
    total = table(summary, "output_sequence_lengths").get("total")
    yield DefinitionRow("output tokens", "tokens", own.tokens if own else None, total, _TOKENS)
    yield DefinitionRow("tokens/s", "tokens/s", own.tokens_per_s if own else None, summary.get("tps"), _RATE)
    yield DefinitionRow(
        "requests/s", "requests/s", own.queries_per_s if own else None, summary.get("qps"), ""
    )
    for name, reason in (("ttft", _TTFT), ("tpot", _TPOT), ("latency", "")):
        ours: Latency | None = getattr(own, name, None)
        mine = {90: ours.p90_ns, 99: ours.p99_ns} if ours else {}
        for percent in (90, 99):
            title = f"{name.upper() if name != 'latency' else 'latency'} p{percent}"
            theirs = percentile_of(summary, name, percent)
            both = f"{reason}; {_RANK}" if reason else _RANK
            yield DefinitionRow(title, "ms", _ms(mine.get(percent)), _ms(theirs), both)
    users = percentile_of(summary, "tpot", 90)
    tpot_ns = own.tpot.p90_ns if own and own.tpot else None
    yield DefinitionRow(
        "tokens/s per user", "tokens/s", user_tps(tpot_ns), user_tps(users), "1000 / TPOT p90 in ms"
    )


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / _MS
