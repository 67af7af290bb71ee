"""A point's numbers in this project's definitions and in Endpoints', with the reason of each difference."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from harness.endpoints.official_files import at, number, percentile_of
from harness.endpoints.point_run import OwnNumbers

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


def both_definitions(own: OwnNumbers, summary: Mapping[str, Any]) -> Iterator[DefinitionRow]:
    """The rows, from PointRun.own and a result_summary.json of any client: enough to see where they part."""
    tokens = number(at(summary, "output_sequence_lengths", "total"))
    rate = number(summary.get("tps"))
    yield DefinitionRow("output tokens", "tokens", own.tokens, tokens, _TOKENS)
    yield DefinitionRow("tokens/s", "tokens/s", own.tokens_per_s, rate, _RATE)
    for name, ours, reason in (("ttft", own.ttft, _TTFT), ("tpot", own.tpot, _TPOT)):
        mine, theirs = ours.p90_ns if ours else None, percentile_of(summary, name, 90)
        yield DefinitionRow(f"{name.upper()} p90", "ms", _ms(mine), _ms(theirs), f"{reason}; {_RANK}")


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / _MS
