"""The text of an answer's ids in parts, as a server with OpenAI's protocol gives it to its client."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.dataset import tokenizer as o200k
from harness.dataset.model_tokenizer import load_tokenizer
from harness.endpoints.numbers.event_record import Answer
from harness.endpoints.numbers.reference_tokenizer import is_gpt_oss
from harness.grading.decoding.harmony import CHANNEL, MESSAGE
from harness.loadgen_logs.accuracy_log import TokenIds

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Text = Callable[[TokenIds], str]
AnswerOf = Callable[[TokenIds, int], Answer]
"""the answer of ids, its first fragment of this many of them, or of more until they show a character; 0: it
was not streamed"""

_FIRST_SPECIAL = min(o200k.SPECIAL.values())
START = o200k.SPECIAL["<|start|>"]
_THOUGHT = "analysis"
_MOST_HELD = 64  # ids after which a beginning without a character is no longer looked for
_INCOMPLETE = "\ufffd"  # for bytes that are not yet a character: servers hold them back


@cache
def open_text(tokenizer: Path | None) -> AnswerOf:
    """The text of a model's answers, by its folder or tokenizer.json; None is gpt-oss. Raises ConfigError.

    A process loads each once.
    """
    if tokenizer is None:
        return harmony_answer
    loaded = load_tokenizer(tokenizer)
    return harmony_answer if is_gpt_oss(loaded) else partial(_plain_answer, loaded)


def _plain_answer(tokenizer: "Tokenizer", ids: TokenIds, first: int) -> Answer:
    """Everything but special tokens is output; a thought stands in it as the model writes it."""
    return Answer(_parts(lambda some: tokenizer.decode(some.tolist(), skip_special_tokens=True), ids, first))


def harmony_answer(ids: TokenIds, first: int) -> Answer:
    """The analysis channel is reasoning, the others are output; text without a channel is output."""
    parts = _channels(ids, first)
    # A first event may hold nothing but markers.
    if len(parts.thought):
        thought = _parts(o200k.decode, parts.thought, first and max(parts.first_thought, 1))
        return Answer(o200k.decode(parts.output), thought)
    return Answer(_parts(o200k.decode, parts.output, first and max(parts.first_output, 1)))


class _Channels(NamedTuple):
    """Ids of the thought and of the output without markers, and how many of each are among the first ones."""

    thought: TokenIds
    output: TokenIds
    first_thought: int
    first_output: int


def _channels(ids: TokenIds, first: int) -> _Channels:
    specials = np.flatnonzero(ids >= _FIRST_SPECIAL)
    kinds = ids[specials].tolist()
    is_output, is_thought = np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.bool_)
    if MESSAGE not in kinds:
        is_output = ids < _FIRST_SPECIAL
    thinks = False
    for kind, begin, end in zip(kinds, specials + 1, np.append(specials, len(ids))[1:], strict=True):
        if kind == CHANNEL:
            thinks = o200k.decode(ids[begin:end]).startswith(_THOUGHT)
        elif kind == START:
            thinks = False
        elif kind == MESSAGE:
            (is_thought if thinks else is_output)[begin:end] = True
    early = int(is_thought[:first].sum()), int(is_output[:first].sum())
    return _Channels(ids[is_thought], ids[is_output], *early)


def _parts(text: Text, ids: TokenIds, first: int) -> str | tuple[str, ...]:
    """The text of the first ids, or of more until they show a character, and the rest.

    One text where 0 are first.
    """
    complete = text(ids)
    if not first:
        return complete
    for count in range(first, min(len(ids), first + _MOST_HELD)):
        begin = text(ids[:count]).rstrip(_INCOMPLETE)
        if begin and complete.startswith(begin):
            return (begin, complete[len(begin) :]) if len(complete) > len(begin) else (complete,)
    return (complete,) if complete else ()
