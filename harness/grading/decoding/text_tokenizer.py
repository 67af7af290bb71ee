"""The benchmark's tokenizer where servers are asked or answer in text: which file it is, and its proof."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.config.benchmark import Benchmark
from harness.dataset import tokenizer as o200k
from harness.dataset.model_tokenizer import TOKENIZER_FILE, harmony_tokenizer, load_tokenizer
from harness.errors import ConfigError
from harness.files import sha256_of
from harness.grading.decoding.model_decoder import find_tokenizer
from harness.grading.decoding.output_decoder import BUILT_IN, open_decoder, tokenizer_beside

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
    if asked is None and benchmark.tokenizer == BUILT_IN:
        return TextTokenizer(BUILT_IN, o200k.RANKS_SHA256)
    found = find_tokenizer(benchmark, asked or tokenizer_beside(dataset, benchmark))
    open_decoder(benchmark, str(found), 1)  # compares its special tokens with the benchmark's
    file = found / TOKENIZER_FILE if found.is_dir() else found
    _require_words(load_tokenizer(file).get_vocab_size(with_added_tokens=True), file, benchmark)
    return TextTokenizer(str(file.absolute()), sha256_of(file))


def _require_words(words: int, file: Path, benchmark: Benchmark) -> None:
    """Refuse ids that the benchmark's model does not have."""
    if words > benchmark.vocabulary_size:
        raise ConfigError(
            f"{file}: {words} tokens, {benchmark.model} has {benchmark.vocabulary_size}; pass --tokenizer "
            "with that model's folder"
        )
