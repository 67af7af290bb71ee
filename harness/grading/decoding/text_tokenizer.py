"""The benchmark's tokenizer where servers are asked or answer in text: which file it is, and its proof."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.config.benchmark import Benchmark
from harness.dataset import tokenizer as o200k
from harness.dataset.model_tokenizer import harmony_tokenizer, load_tokenizer
from harness.errors import ConfigError
from harness.files import sha256_of
from harness.grading.decoding.output_decoder import BUILT_IN, open_decoder, tokenizer_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TextTokenizer(msgspec.Struct, frozen=True):
    """A tokenizer that every process of the client can open for itself."""

    name: str
    """path of its tokenizer.json; `o200k_harmony` is gpt-oss's, which is built in"""
    sha256: str
    """of that file; of the vocabulary, where it is built in"""

    def open(self) -> "Tokenizer":
        """The tokenizer; names of special tokens in a text become their ids. Raises ConfigError."""
        return harmony_tokenizer() if self.name == BUILT_IN else load_tokenizer(Path(self.name))


def text_tokenizer(benchmark: Benchmark, dataset: Path, asked: str | None = None) -> TextTokenizer:
    """The tokenizer of a benchmark: the given one, that beside its dataset, or the model's.

    Raises ConfigError where there is none, and for one of another model.
    """
    file = tokenizer_file(benchmark, dataset, asked)
    if file is None:
        return TextTokenizer(BUILT_IN, o200k.RANKS_SHA256)
    open_decoder(benchmark, str(file), 1)  # compares its special tokens with the benchmark's
    words = load_tokenizer(file).get_vocab_size(with_added_tokens=True)
    if words > benchmark.vocabulary_size:
        raise ConfigError(
            f"{file}: {words} tokens, {benchmark.model} has {benchmark.vocabulary_size}; pass --tokenizer "
            "with that model's folder"
        )
    return TextTokenizer(str(file.absolute()), sha256_of(file))


def tokenizer_sha256(
    benchmark: Benchmark, dataset: Path, asked: str | None, of_file: Callable[[Path], str]
) -> str:
    """`TextTokenizer.sha256` of that tokenizer, without its proof. Raises ConfigError and OSError."""
    file = tokenizer_file(benchmark, dataset, asked)
    return o200k.RANKS_SHA256 if file is None else of_file(file)
