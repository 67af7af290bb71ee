"""The model that the embedded engine serves without an account or a GPU."""

import fcntl
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from harness.dataset.tokenizer import VOCABULARY_SIZE
from harness.errors import ConfigError

# Raise the version with every change of what tiny_model.py writes.
_TINY_GPT_OSS = "tiny-gpt-oss-v1.gguf"


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A GGUF file and the number of token ids that it knows."""

    name: str
    path: Path
    vocabulary_size: int


def tiny_gpt_oss(cache_dir: Path) -> EmbeddedModel:
    """The tiny gpt-oss with random weights, written to ``cache_dir`` by whoever comes first.

    Safe for several runs at once. Raises ConfigError where the file cannot be written.
    """
    path = cache_dir.absolute() / _TINY_GPT_OSS
    if missing := [name for name in ("xllamacpp", "gguf") if find_spec(name) is None]:
        raise ConfigError(
            f"--backend embedded: {sys.executable} has no {' and no '.join(missing)}; "
            "run ./setup.sh without --no-embedded, and start the program with .venv/bin/python"
        )
    try:
        if not path.exists():
            _write_once(path)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot write the tiny gpt-oss model (65 MB): {error.strerror or error}; free some space"
        ) from error
    return EmbeddedModel("tiny-gpt-oss", path, VOCABULARY_SIZE)


def _write_once(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_suffix(".lock")):
        if path.exists():
            return
        logging.getLogger("gguf").setLevel(logging.WARNING)
        from sut.servers.embedded import tiny_model

        partial = path.with_suffix(f".partial-{os.getpid()}")
        try:
            tiny_model.write(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
