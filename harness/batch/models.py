"""The models of run_batch.py: gpt-oss-20b and gpt-oss-120b by name, or one by its path."""

import struct
from pathlib import Path
from typing import Annotated

import msgspec

from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.choices import DEFAULT_BENCHMARK, available_models
from harness.config.generation import MOST_NUMBER
from harness.dataset import tokenizer
from harness.errors import ConfigError
from harness.json_files import read_json

_SHORT = {"20b": "gpt-oss-20b", "120b": DEFAULT_BENCHMARK}
GGUF = ".gguf"
# The head of a C++ engine's model file: vocabulary, hidden, experts, experts used, intermediate, layers.
_HEAD = struct.Struct("<6i")
_CONFIG = "config.json"


_Size = Annotated[int, msgspec.Meta(ge=1, le=MOST_NUMBER)]


class _Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model that has no benchmark, read from ``configs/models/<name>.toml``."""

    name: str
    model: str
    vocabulary_size: int
    context_length: int
    embedded_model: str
    tokenizer: str
    model_revision: str | None = None


class _HuggingFace(msgspec.Struct, frozen=True):
    """The fields of a model's config.json that are used here."""

    vocab_size: _Size
    max_position_embeddings: _Size


def model_named(name: str) -> Benchmark:
    """The definition of a model, by its name or its path: facts for the client, no rules.

    Raises ConfigError for what no engine here can serve.
    """
    path = Path(name)
    known = _SHORT.get(name, name.rpartition("/")[2])
    if known in available_models():
        return _of_definition(known)
    if known == DEFAULT_BENCHMARK:
        return _without_rules(model_revision=None)
    if path.is_dir():
        return _of_folder(path)
    if path.is_file():
        return _of_file(path)
    raise ConfigError(
        f"--model {name}: expected {', '.join(_SHORT)}, a folder with {_CONFIG}, or a {GGUF} file; "
        f"{'no such file' if '/' in name else 'no such model'}"
    )


def _of_definition(name: str) -> Benchmark:
    file = available_models()[name]
    try:
        known = msgspec.toml.decode(file.read_bytes(), type=_Definition)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file}: {error}") from error
    return _without_rules(**msgspec.structs.asdict(known))


def _without_rules(**changes: object) -> Benchmark:
    """The definition of gpt-oss-120b, changed, without what makes it a benchmark."""
    benchmark = load_benchmark(DEFAULT_BENCHMARK)
    return msgspec.structs.replace(benchmark, official=False, accuracy={}, compliance={}, **changes)


def _of_folder(path: Path) -> Benchmark:
    config = path / _CONFIG
    expected = "expected a model's folder in Hugging Face's format"
    known = read_json(config, _HuggingFace, expected, f"--model {path}: {config}")
    return _without_rules(
        name=path.name,
        model=str(path),
        model_revision=None,
        vocabulary_size=known.vocab_size,
        context_length=known.max_position_embeddings,
        embedded_model=None,
    )


def _of_file(path: Path) -> Benchmark:
    if path.suffix == GGUF:
        return _without_rules(
            name=path.stem,
            model=path.stem,
            model_revision=None,
            embedded_model=str(path.absolute()),
        )
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
    except OSError as error:
        raise ConfigError(f"--model {path}: {error.strerror}") from error
    what = "its format is not known"
    if len(head) == _HEAD.size:
        vocabulary, _, experts, _, _, layers = _HEAD.unpack(head)
        if vocabulary == tokenizer.VOCABULARY_SIZE and 0 < layers < 1000:
            what = f"a model file of a C++ engine ({layers} layers, {experts} experts)"
    raise ConfigError(
        f"--model {path}: {what}, which no engine here reads; start a server with the Hugging Face folder "
        f"and give --model 20b or 120b, or give a {GGUF} file with --backend embedded"
    )
