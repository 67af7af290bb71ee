"""Answers that came as text: their ids beside the servers' counts, and what follows for the run's figures."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from harness.analysis.statistics import distribution
from harness.grading.decoding.text_tokenizer import TextTokenizer
from harness.record.journal import COMPLETE, LOADGEN_CALL_ROW, Rows
from harness.record.outcome import UNSEEN
from harness.record.run_record import EncodedAnswers
from harness.text import milliseconds

# Beyond UNSEEN fewer ids in each answer, or some more, this part of all tokens may differ. Random ids,
# decoded and encoded again, are 3 % more.
_FEW = 2
_LARGEST_PART = 0.05
_NO_CALLS = np.empty(0, LOADGEN_CALL_ROW)


def encoded_with(tokenizer: TextTokenizer | None) -> EncodedAnswers | None:
    """Before the run; None where answers have ids."""
    if tokenizer is None:
        return None
    return EncodedAnswers(tokenizer=tokenizer.name, tokenizer_sha256=tokenizer.sha256)


def with_counts(encoded: EncodedAnswers, counts: Rows, calls: Rows = _NO_CALLS) -> EncodedAnswers:
    """With the figures of a run's COUNT_ROWs and LOADGEN_CALL_ROWs."""
    ids, counted = counts["ids"].astype(np.int64), counts["counted"].astype(np.int64)
    more, done = ids - counted, calls[calls["kind"] == COMPLETE]
    return replace(
        encoded,
        answers=len(counts),
        ids=int(ids.sum()),
        counted=int(counted.sum()),
        equal=int((more == 0).sum()),
        fewest=int(more.min(initial=0)),
        most=int(more.max(initial=0)),
        delay=distribution(done["reported_ns"] - done["arrived_ns"]),
    )


def text_reasons(encoded: EncodedAnswers | None) -> Iterator[str]:
    """Why a run is INVALID whose texts are not what the servers counted."""
    if encoded is None:
        return
    allowed = _LARGEST_PART * encoded.counted
    if encoded.counted - encoded.ids > allowed + UNSEEN * encoded.answers:
        yield f"text of answers is missing: {_sums(encoded)}"
    if encoded.ids - encoded.counted > allowed + _FEW * encoded.answers:
        yield f"LoadGen counted more tokens than the servers: {_sums(encoded)}"


def text_warnings(encoded: EncodedAnswers | None) -> Iterator[str]:
    """The one warning of a run whose answers came as text."""
    if encoded is None:
        return
    figures = f": {_sums(encoded)}{_spread(encoded)}" if encoded.answers else ""
    if encoded.delay is not None:
        figures += (
            f"; LoadGen got the ends {milliseconds(encoded.delay.mean)} ms after their last byte on average, "
            f"{milliseconds(encoded.delay.percentiles['99'])} ms at p99"
        )
    yield (
        f"answers came as text, their ids are those of the text encoded again with {encoded.tokenizer}"
        f"{figures}. Not proved by these ids: which tokens the model produced, their exact number (OSL, "
        "TPOT, tokens/s), the end token that TEST06 looks for, and channels that a server strips"
    )


def _spread(encoded: EncodedAnswers) -> str:
    """How many answers differ, and by how much."""
    differing = encoded.answers - encoded.equal
    if not differing:
        return ", in each answer as many"
    return f"; {differing} of {encoded.answers} answers differ, by {encoded.fewest:+d} to {encoded.most:+d}"


def _sums(encoded: EncodedAnswers) -> str:
    part = (encoded.ids - encoded.counted) / max(encoded.counted, 1)
    return f"{encoded.ids} ids, the servers counted {encoded.counted} ({part:+.2%})"
