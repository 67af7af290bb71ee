"""Answers driven as the response reader drives them, and token ids that no model has."""

import math

from harness.record.outcome import Completion, FailureKind
from tests.kit import VOCABULARY, wire_of

BAD_IDS = {
    "negative": (-1, FailureKind.TOKEN_VALUE),
    "the vocabulary's size": (VOCABULARY, FailureKind.TOKEN_VALUE),
    "beyond int32": (2**31, FailureKind.TOKEN_VALUE),
    "beyond uint32": (2**32, FailureKind.TOKEN_VALUE),
    "beyond int64": (2**63, FailureKind.TOKEN_VALUE),
    "beyond uint64": (2**64, FailureKind.TOKEN_VALUE),
    "far beyond": (2**70, FailureKind.TOKEN_VALUE),
    "far below int64": (-(2**70), FailureKind.TOKEN_VALUE),
    "fraction": (1000.5, FailureKind.MALFORMED),
    "float": (1000.0, FailureKind.MALFORMED),
    "NaN": (math.nan, FailureKind.MALFORMED),
    "infinite": (math.inf, FailureKind.MALFORMED),
    "null": (None, FailureKind.MALFORMED),
    "true": (True, FailureKind.MALFORMED),
    "string": ("7", FailureKind.MALFORMED),
    "list": ([7], FailureKind.MALFORMED),
}
# The worker passes the first id on as four bytes as soon as it is known.
BAD_FIRST_IDS = [-1, VOCABULARY, 2**32, -(2**70)]


def judge(protocol, events, asked=20):
    """The outcome of an answer."""
    answer = wire_of(protocol, max_new_tokens=asked).answer()
    for event in events:
        if (failure := answer.feed(event)) is not None:
            return failure
    return answer.finish()


def assert_completed(outcome, ids, reason="stop", prompt=4):
    assert isinstance(outcome, Completion), outcome
    assert outcome.output_ids.tolist() == ids
    assert outcome.output_ids.dtype == "int32"
    assert (outcome.finish_reason, outcome.prompt_tokens) == (reason, prompt)
