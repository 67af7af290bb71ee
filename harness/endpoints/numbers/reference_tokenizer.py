"""The reference tokenizer: the tokens of answers as MLPerf Endpoints counts them.

An answer with reasoning or tool calls counts through the model's chat template, another one as plain text; so
does what came after its first fragment. Nothing counts twice: where the tokens of an answer are those of its
first fragment and of the rest, which pre-tokenization decides, the answer itself is not tokenized.
"""

import re
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from harness.dataset import tokenizer as o200k
from harness.dataset.model_tokenizer import harmony_tokenizer, load_tokenizer
from harness.endpoints.numbers.chat_template import ChatTemplate, HarmonyTemplate, Rendered, open_template
from harness.endpoints.numbers.event_record import Answer, Message, after_first, whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Counts = npt.NDArray[np.int64]

_WINDOW = 64  # characters after the first fragment in which a token must end
_LONGEST_FRAGMENT = 2048  # a longer one is tokenized with the rest
_SPLITTERS = {"Split", "ByteLevel", "Digits"}  # they only cut, from left to right, and look ahead at most


def is_gpt_oss(tokenizer: "Tokenizer") -> bool:
    """Whether its special tokens are those of the harmony format."""
    return o200k.NAMED_SPECIAL.items() <= _special_of(tokenizer).items()


class ReferenceTokenizer:
    """Counts tokens of answers."""

    def __init__(self, tokenizer: "Tokenizer", template: ChatTemplate) -> None:
        self._tokenizer, self._template = tokenizer, template

    def count_answers(self, answers: Sequence[Answer]) -> tuple[Counts, Counts]:
        """Of each answer: its tokens, and those after its first fragment."""
        work = _Work()
        totals, suffixes = [], []
        for answer in answers:
            suffix = self._add(work, after_first(answer))
            totals.append(self._add_whole(work, answer, suffix))
            suffixes.append(suffix)
        lengths = np.array(_lengths(self._tokenizer, list(work.places)), np.int64)
        return _sums(totals, lengths), _sums(suffixes, lengths)

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of plain texts."""
        return _lengths(self._tokenizer, texts)

    def _add(self, work: "_Work", message: Message) -> "_Sum":
        if message.reasoning or message.tool_calls:
            return work.add(self._template.render(message))
        return work.add(Rendered((message.content,), 0)) if message.content else _Sum((), 0)

    def _add_whole(self, work: "_Work", answer: Answer, suffix: "_Sum") -> "_Sum":
        streamed = answer.output
        plain = not answer.reasoning and not answer.tool_calls
        if plain and isinstance(streamed, tuple) and len(streamed) > 1:
            first, rest = streamed[0], "".join(streamed[1:])
            if self._is_cut(first, rest):
                return _Sum((*work.add(Rendered((first,), 0)).places, *suffix.places), 0)
        return self._add(work, whole(answer))

    def _is_cut(self, first: str, rest: str) -> bool:
        """Whether tokens end between these texts, and are the same ones as of each text alone."""
        if not self._only_splits or not 0 < len(first) <= _LONGEST_FRAGMENT:
            return False
        window = first + rest[:_WINDOW]
        if self._added.search(window):
            return False
        split = self._tokenizer.pre_tokenizer.pre_tokenize_str
        pieces = [place for _, place in split(window)]
        place = next((number for number, (start, _) in enumerate(pieces) if start == len(first)), None)
        if place is None or (pieces[place][1] == len(window) and len(rest) > _WINDOW):
            return False
        return pieces[:place] == [place for _, place in split(first)]

    @cached_property
    def _only_splits(self) -> bool:
        """Whether the tokenizer is of bytes, and prepares text in no other way than by cutting it."""
        cutter, normalizer = map(_settings, (self._tokenizer.pre_tokenizer, self._tokenizer.normalizer))
        cuts = cutter.get("pretokenizers") or [cutter]
        added = self._tokenizer.get_added_tokens_decoder().values()
        shifts = any(each.lstrip or each.rstrip or each.single_word for each in added)
        normalized = normalizer and normalizer.get("normalizers", True)
        prefixed = any(cut.get("add_prefix_space") for cut in cuts)
        return not (normalized or shifts or prefixed) and {cut.get("type") for cut in cuts} <= _SPLITTERS

    @cached_property
    def _added(self) -> re.Pattern[str]:
        words = map(re.escape, _special_of(self._tokenizer).values())
        return re.compile("|".join(words) or r"(?!)")


@cache
def open_reference(tokenizer: Path | None) -> ReferenceTokenizer:
    """The one of a model's folder or tokenizer.json; None is gpt-oss's, built in. Raises ConfigError.

    A process loads each once. The chat template of gpt-oss is built in, too.
    """
    if tokenizer is None:
        return ReferenceTokenizer(harmony_tokenizer(), HarmonyTemplate())
    loaded = load_tokenizer(tokenizer)
    if is_gpt_oss(loaded):
        return ReferenceTokenizer(loaded, HarmonyTemplate())
    folder = tokenizer if tokenizer.is_dir() else tokenizer.parent
    return ReferenceTokenizer(loaded, open_template(folder, lambda texts: _lengths(loaded, texts)))


def _settings(part: Any) -> dict[str, Any]:
    """Of a part of a tokenizer, as in tokenizer.json, which with its merges takes 0.4 s of CPU to write."""
    return {} if part is None else msgspec.json.decode(part.__getstate__(), type=dict[str, Any])


class _Sum(NamedTuple):
    """Places of texts whose tokens are added up, and a number that is added to them."""

    places: tuple[int, ...]
    constant: int


class _Work:
    """The different texts to tokenize."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def add(self, rendered: Rendered) -> _Sum:
        places = tuple(self.places.setdefault(text, len(self.places)) for text in rendered.texts)
        return _Sum(places, rendered.constant)


def _sums(sums: Sequence[_Sum], lengths: Counts) -> Counts:
    found = [int(lengths[list(places)].sum()) + constant for places, constant in sums]
    return np.maximum(np.array(found, np.int64), 0)


def _lengths(tokenizer: "Tokenizer", texts: Sequence[str]) -> list[int]:
    encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [len(each) for each in encoded]


def _special_of(tokenizer: "Tokenizer") -> dict[int, str]:
    return {token: added.content for token, added in tokenizer.get_added_tokens_decoder().items()}
