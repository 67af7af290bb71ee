"""Whether a text may match, decided on its token ids: an output without an answer need not be decoded.

A screen errs on the side of yes. Its stems are looked for in the bytes of every token and across the borders
of tokens; only the surroundings of what was found are decoded and searched.
"""

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from harness.dataset import tokenizer
from harness.loadgen_logs.accuracy_log import TokenIds

_FIRST_SPECIAL = min(tokenizer.SPECIAL.values())
_LONGEST_STEM = 8  # bytes
_BEFORE, _BEHIND = 32, 64  # tokens decoded around a stem; each has at least one byte
_INSIDE = 1  # the bit of tokens that hold a stem; the others are for a border within a stem, one for each

Flags = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Screen:
    """``stems``: every match holds one of these, in any case. ``near``: and this matches around it.

    ``near`` must match text that ends, or turns into U+FFFD, before it is decided. It must begin within 32
    bytes before a stem.
    """

    stems: tuple[str, ...]
    near: re.Pattern[str] | None = None

    def may_match(self, ids: TokenIds) -> bool:
        """False only where no text in ordinary tokens matches; special tokens are no part of a stem."""
        found = _where(ids, self.stems)
        if self.near is None:
            return bool(len(found))
        return any(_matches_around(self.near, ids, int(place)) for place in found)


def _matches_around(near: re.Pattern[str], ids: TokenIds, place: int) -> bool:
    """Whether it matches from before the end of one token on; a later stem has its own surroundings."""
    start = max(0, place - _BEFORE)
    found = near.search(tokenizer.decode(ids[start : place + _BEHIND]))
    return found is not None and found.start() < len(tokenizer.decode(ids[start : place + 1]))


def _where(ids: TokenIds, stems: tuple[str, ...]) -> npt.NDArray[np.intp]:
    """The tokens in which a stem may begin."""
    ends, begins = _flags(stems)
    following = np.full(len(ids), _INSIDE, np.uint32)
    following[:-1] = np.take(begins, ids[1:])
    return np.flatnonzero(np.take(ends, ids) & following)


@cache
def _flags(stems: tuple[str, ...]) -> tuple[Flags, Flags]:
    """Per token: which beginnings of stems it ends with, and which remainders it begins with or lies in."""
    words = _words()
    ends = np.zeros(tokenizer.VOCABULARY_SIZE, np.uint32)
    begins = np.full(tokenizer.VOCABULARY_SIZE, _INSIDE, np.uint32)
    bit = _INSIDE
    for stem in (stem.encode() for stem in stems):
        ends[words.holding(stem)] |= np.uint32(_INSIDE)
        for cut in range(1, len(stem)):
            bit <<= 1
            ends[:_FIRST_SPECIAL] |= words.end_with(stem[:cut]) * np.uint32(bit)
            begins[:_FIRST_SPECIAL] |= words.begin_with(stem[cut:]) * np.uint32(bit)
    return ends, begins


@dataclass(frozen=True, slots=True)
class _Words:
    """The ordinary tokens in lower case: all bytes in a row, and the outermost eight of each by column."""

    joined: bytes
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    first: npt.NDArray[np.uint8]
    last: npt.NDArray[np.uint8]  # last[0] has the last bytes

    def holding(self, stem: bytes) -> list[int]:
        """The tokens that contain it."""
        found, place = [], self.joined.find(stem)
        while place >= 0:
            found.append(place)
            place = self.joined.find(stem, place + 1)
        places = np.array(found, np.int64)
        tokens = np.searchsorted(self.starts, places, side="right") - 1
        inside = places + len(stem) <= self.starts[tokens] + self.lengths[tokens]
        return [int(token) for token in tokens[inside]]

    def end_with(self, text: bytes) -> npt.NDArray[np.bool_]:
        """Whether each token ends with ``text``."""
        same = self.lengths >= len(text)
        for column, byte in enumerate(reversed(text)):
            same &= self.last[column] == byte
        return same

    def begin_with(self, text: bytes) -> npt.NDArray[np.bool_]:
        """Whether each token begins with ``text``, or is a beginning of it."""
        same = np.ones(len(self.lengths), np.bool_)
        for column, byte in enumerate(text):
            same &= (self.first[column] == byte) | (self.lengths <= column)
        return same


@cache
def _words() -> _Words:
    words = tokenizer.vocabulary()[:_FIRST_SPECIAL]
    joined = b"".join(words).lower()
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    starts = np.cumsum(lengths) - lengths
    padded = np.frombuffer(joined + bytes(_LONGEST_STEM), np.uint8)
    first = np.stack([padded[starts + column] for column in range(_LONGEST_STEM)])
    last = np.stack([padded[starts + lengths - 1 - column] for column in range(_LONGEST_STEM)])
    return _Words(joined, starts, lengths, first, last)
