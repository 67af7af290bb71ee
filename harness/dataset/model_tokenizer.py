"""tokenizer.json of the package tokenizers: a model's own, and that of gpt-oss from its vocabulary."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.dataset import tokenizer as o200k
from harness.errors import ConfigError
from harness.text import one_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_FILE = "tokenizer.json"

# GPT-2's stand-ins for the 256 bytes.
_PRINTS = {*range(33, 127), *range(161, 173), *range(174, 256)}
_PRINTABLE = {byte: 256 + rank for rank, byte in enumerate(sorted(set(range(256)) - _PRINTS))}
_BYTES = {character: byte for byte, character in _PRINTABLE.items()}


def load_tokenizer(path: Path) -> "Tokenizer":
    """The tokenizer of a model's folder, or of its tokenizer.json; nothing is cut or padded.

    Raises ConfigError.
    """
    from tokenizers import Tokenizer

    file = path / TOKENIZER_FILE if path.is_dir() else path
    try:
        tokenizer = Tokenizer.from_buffer(file.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{file}: {error.strerror}; pass the folder of the model, or the {TOKENIZER_FILE} in it"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"{file}: no tokenizer: {one_line(error)}; expected the model's {TOKENIZER_FILE}"
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@cache
def harmony_tokenizer() -> "Tokenizer":
    """gpt-oss-120b's tokenizer.json: it encodes batches, and knows special tokens by name.

    A process builds it once, in 1.5 s.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    names = list(map(spell, o200k.ranks()))
    vocabulary = {name: rank for rank, name in enumerate(names)}
    merges = [(names[left], names[right]) for left, right in o200k.merges()]
    built = Tokenizer(models.BPE(vocabulary, merges, fuse_unk=False, byte_fallback=False, ignore_merges=True))
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)
    built.pre_tokenizer = pre_tokenizers.Sequence([o200k.word_splitter(), to_bytes])
    built.decoder = decoders.ByteLevel()
    built.post_processor = processors.ByteLevel(trim_offsets=False)
    listed = [name for name, token in o200k.SPECIAL.items() if token < o200k.FIRST_UNLISTED]
    built.add_special_tokens([AddedToken(name, normalized=False) for name in listed])
    return built


def spell(token: bytes) -> str:
    """The token as GPT-2's vocabularies write it: one printable character for each byte."""
    return token.decode("latin-1").translate(_PRINTABLE)


def unspell(name: str) -> bytes:
    """The inverse of ``spell``."""
    return name.translate(_BYTES).encode("latin-1")
