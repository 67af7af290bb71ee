"""Decode by a model's own tokenizer.json, without special tokens, as the official evaluators do."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from harness.config.benchmark import Benchmark
from harness.dataset.model_tokenizer import TOKENIZER_FILE, load_tokenizer
from harness.errors import ConfigError
from harness.files import cache_home
from harness.grading.decoding.output import (
    THOUGHT_END,
    SampleTokens,
    TextOutput,
    ThinkingText,
    known_ids,
    repeats_itself,
)
from harness.grading.scoring.grade import Reason
from harness.loadgen_logs.accuracy_log import TokenIds

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The replacements of transformers 4.46 (clean_up_tokenization), in its order; Llama 3.1's
# tokenizer_config.json asks for them.
_CLEANED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


class ModelTokens(msgspec.Struct, frozen=True):
    """The facts of a model's tokenizer that decoding depends on."""

    special: Mapping[int, str]
    """The ids and names of tokens that distinguish it from other models' tokenizers."""
    ends: frozenset[int]
    """The tokens that end an output."""
    cleaned_up: bool = False
    """Whether spaces are removed after decoding, as transformers does."""
    thinks: bool = False
    """Whether an output is a thought, ``</think>`` and the answer."""


LLAMA_3_1 = ModelTokens(
    {128000: "<|begin_of_text|>", 128001: "<|end_of_text|>", 128009: "<|eot_id|>"},
    frozenset({128001, 128008, 128009}),
    cleaned_up=True,
)
# DeepSeek-V3 has other names for the thought's ids.
DEEPSEEK_R1 = ModelTokens(
    {
        0: "<｜begin▁of▁sentence｜>",
        1: "<｜end▁of▁sentence｜>",
        128798: "<think>",
        128799: THOUGHT_END,
        128803: "<｜User｜>",
        128804: "<｜Assistant｜>",
    },
    frozenset({1}),
    thinks=True,
)


def opener(tokens: ModelTokens) -> Callable[[Benchmark, str | None, int], "ModelDecoder"]:
    """The function that opens the decoder of a benchmark whose model has these tokens."""

    def open_decoder(benchmark: Benchmark, asked: str | None, max_new_tokens: int) -> ModelDecoder:
        file = find_tokenizer(benchmark, asked)
        tokenizer = load_tokenizer(file)
        for token, name in tokens.special.items():
            if (got := tokenizer.id_to_token(token)) != name:
                raise ConfigError(
                    f"{file}: token {token} is {got!r}, in the tokenizer of {benchmark.model} it is "
                    f"{name!r}; pass --tokenizer with that model's folder"
                )
        return ModelDecoder(tokenizer, tokens, benchmark, max_new_tokens)

    return open_decoder


def find_tokenizer(benchmark: Benchmark, asked: str | None) -> Path:
    """The given file, by path or by name in the Hugging Face cache; else the model's in it.

    Raises ConfigError where there is none.
    """
    if asked is not None and Path(asked).exists():
        return Path(asked)
    name = asked or benchmark.model
    found = next(_cached(name, benchmark.model_revision), None)
    if found is None:
        sought = f"--tokenizer {asked}: no such file or folder, and" if asked else f"{benchmark.model}:"
        raise ConfigError(
            f"{sought} no {TOKENIZER_FILE} of {name} in {_cache_folder()}; pass --tokenizer with the folder "
            f"of {benchmark.model} (datasets/download.sh --benchmark {benchmark.name} --what model)"
        )
    return found


def _cached(name: str, revision: str | None) -> Iterator[Path]:
    """Copies in the cache, the benchmark's revision first. An earlier name was Meta-Llama-3.1-..."""
    owner, _, model = name.rpartition("/")
    for each in dict.fromkeys((model, f"Meta-{model}")):
        snapshots = _cache_folder() / f"models--{owner}--{each}" / "snapshots"
        files = sorted(snapshots.glob(f"*/{TOKENIZER_FILE}"))
        yield from sorted(files, key=lambda file: file.parent.name != revision)


def _cache_folder() -> Path:
    """The folder of huggingface_hub's downloads."""
    if folder := os.environ.get("HF_HUB_CACHE"):
        return Path(folder)
    home = os.environ.get("HF_HOME") or cache_home() / "huggingface"
    return Path(home) / "hub"


class ModelDecoder:
    """Decodes outputs with a model's tokenizer."""

    def __init__(
        self, tokenizer: "Tokenizer", tokens: ModelTokens, benchmark: Benchmark, max_new_tokens: int
    ) -> None:
        self._tokenizer, self._benchmark = tokenizer, benchmark
        self._ends, self._limit = np.array(sorted(tokens.ends), np.int32), max_new_tokens
        self._tokens = tokens
        self._known = np.zeros(benchmark.vocabulary_size, np.bool_)
        ids = np.fromiter(tokenizer.get_vocab(with_added_tokens=True).values(), np.int64)
        self._known[ids[ids < benchmark.vocabulary_size]] = True

    def output(self, entry: SampleTokens) -> TextOutput:
        """As OutputDecoder."""
        ids = known_ids(entry, self._benchmark.model, self._benchmark.vocabulary_size)
        unknown = int(np.count_nonzero(~self._known[ids]))
        kind, defect = ThinkingText if self._tokens.thinks else TextOutput, None
        if len(ids) >= self._limit and not np.isin(ids, self._ends).any():
            loops = self._tokens.thinks and repeats_itself(ids)
            defect = Reason.LOOPING if loops else Reason.TRUNCATED
        return kind(self._text(ids), len(ids), defect=defect, unknown=unknown)

    def decode(self, ids: TokenIds) -> str:
        """As OutputDecoder."""
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False))

    def _text(self, ids: TokenIds) -> str:
        text = self._tokenizer.decode(ids.tolist(), skip_special_tokens=True)
        return cleaned_up(text) if self._tokens.cleaned_up else text


def cleaned_up(text: str) -> str:
    """The text without the spaces that transformers removes after decoding."""
    for old, new in _CLEANED:
        text = text.replace(old, new)
    return text
