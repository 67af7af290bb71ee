"""The decoder of a benchmark's outputs, and the settings of the run that made them."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from harness.config.benchmark import Benchmark
from harness.dataset import tokenizer
from harness.dataset.model_tokenizer import TOKENIZER_FILE
from harness.errors import ConfigError
from harness.files import RUN_RECORD
from harness.grading.decoding.harmony import HarmonyOutput, was_truncated
from harness.grading.decoding.model_decoder import DEEPSEEK_R1, LLAMA_3_1, find_tokenizer, opener
from harness.grading.decoding.output import Output, SampleTokens, known_ids
from harness.json_files import read_json
from harness.loadgen_logs.accuracy_log import TokenIds
from harness.record.run_record import RunRecord
from harness.text import one_line

BUILT_IN = "o200k_harmony"
_SAME_VOCABULARY = (BUILT_IN, "openai/gpt-oss-120b", "openai/gpt-oss-20b")


class SourceSettings(msgspec.Struct, frozen=True):
    """The settings under which outputs were made, as far as their source records them (None: it does not)."""

    benchmark: str | None = None
    max_new_tokens: int | None = None
    round: str | None = None


def settings_of_run(log: Path) -> SourceSettings:
    """The settings in run.json beside a log; empty where another harness ran or it cannot be read."""
    try:
        client = RunRecord.read(log.parent / RUN_RECORD).plan.client
    except (FileNotFoundError, ConfigError):
        return SourceSettings()
    return SourceSettings(client.benchmark.name, client.parameters.max_new_tokens, client.benchmark.round)


def tokenizer_beside(dataset: Path, benchmark: Benchmark) -> str | None:
    """A dataset's own tokenizer beside it, as the samples have, or the model's where download.sh puts it.

    It stands in place of a --tokenizer that is not given. None where there is neither, or where the
    benchmark's tokenizer is built in.
    """
    if benchmark.tokenizer == BUILT_IN:
        return None
    own = dataset.with_name(f"{dataset.stem}_{TOKENIZER_FILE}")
    downloaded = dataset.with_name("models") / benchmark.model.rpartition("/")[2]
    return next((str(path) for path in (own, downloaded) if path.exists()), None)


def tokenizer_file(benchmark: Benchmark, dataset: Path | None, asked: str | None) -> Path | None:
    """The tokenizer.json of a benchmark: the given one, that beside its dataset, or the model's.

    None is gpt-oss's, which is built in. Raises ConfigError where there is none.
    """
    if asked is None and benchmark.tokenizer == BUILT_IN:
        return None
    beside = None if dataset is None else tokenizer_beside(dataset, benchmark)
    found = find_tokenizer(benchmark, asked or beside)
    return found / TOKENIZER_FILE if found.is_dir() else found


class OutputDecoder(Protocol):
    """Turns answers into outputs, with the tokenizer of one benchmark."""

    def output(self, entry: SampleTokens) -> Output:
        """The output of an entry. Raises GradingError for ids that the vocabulary does not have."""

    def decode(self, ids: TokenIds) -> str:
        """The text of token ids, special tokens by name."""


def open_decoder(benchmark: Benchmark, asked: str | None, max_new_tokens: int) -> OutputDecoder:
    """The decoder of a benchmark's logs; ``asked`` is the name or folder of a given tokenizer.

    Raises ConfigError where the benchmark's tokenizer is not there, and for one of another model.
    """
    opened = DECODERS.get(benchmark.tokenizer or "")
    if opened is None:
        raise ConfigError(
            f"--benchmark {benchmark.name}: no tokenizer of {benchmark.model} here, only "
            f"{', '.join(DECODERS)}; its logs cannot be graded yet"
        )
    return opened(benchmark, asked, max_new_tokens)


def _open_harmony(benchmark: Benchmark, name: str | None, max_new_tokens: int) -> OutputDecoder:
    if name is not None and name not in _SAME_VOCABULARY:
        _require_same_words(name, benchmark)
    return HarmonyDecoder(max_new_tokens)


def _require_same_words(name: str, benchmark: Benchmark) -> None:
    """Models differ in their special tokens: only gpt-oss has these ids and names of the harmony format."""
    file = Path(name) if Path(name).is_file() else Path(name) / TOKENIZER_FILE
    word = _words_in(file) or _words_by_transformers(name)
    for token, expected in tokenizer.NAMED_SPECIAL.items():
        if (got := word(token)) != expected:
            raise ConfigError(
                f"--tokenizer {name}: token {token} is {got!r}, in the tokenizer of {benchmark.name} it is "
                f"{expected!r}; omit --tokenizer, {BUILT_IN} is built in"
            )


def _words_in(file: Path) -> Callable[[int], str | None] | None:
    """Id -> text of the special tokens in a model's tokenizer.json; None where there is no such file."""
    if not file.is_file():
        return None
    known = read_json(file, _TokenizerFile, "omit --tokenizer", f"{file}: not a tokenizer")
    return {token.id: token.content for token in known.added_tokens}.get


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _TokenizerFile(msgspec.Struct):
    added_tokens: list[_AddedToken]


def _words_by_transformers(name: str) -> Callable[[int], str | None]:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError(
            f"--tokenizer {name}: no folder with {TOKENIZER_FILE}, and names need the package transformers; "
            f"omit --tokenizer, {BUILT_IN} is built in and the tokenizer of gpt-oss"
        ) from error
    try:
        model = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--tokenizer {name}: cannot be loaded ({one_line(error)}); omit it, {BUILT_IN} is built in"
        ) from error
    return lambda token: str(model.decode([token], skip_special_tokens=False))


class HarmonyDecoder:
    """Decodes with the built-in tokenizer of gpt-oss, and only the parts that are read."""

    def __init__(self, max_new_tokens: int) -> None:
        self._limit = max_new_tokens

    def output(self, entry: SampleTokens) -> HarmonyOutput:
        """As OutputDecoder."""
        ids = known_ids(entry, BUILT_IN, tokenizer.VOCABULARY_SIZE)
        listed, is_truncated = _listed(ids), bool(len(ids)) and was_truncated(ids, self._limit)
        return HarmonyOutput(listed, truncated=is_truncated, unknown=len(ids) - len(listed))

    def decode(self, ids: TokenIds) -> str:
        """As OutputDecoder."""
        return tokenizer.decode(_listed(ids))


def _listed(ids: TokenIds) -> TokenIds:
    """Those that are text in the official evaluator."""
    return ids[ids < tokenizer.FIRST_UNLISTED]


# By the name of the tokenizer in a benchmark's definition.
Open = Callable[[Benchmark, str | None, int], OutputDecoder]
DECODERS: dict[str, Open] = {
    BUILT_IN: _open_harmony,
    "llama-3.1": opener(LLAMA_3_1),
    "deepseek-r1": opener(DEEPSEEK_R1),
}
