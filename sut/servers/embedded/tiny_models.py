"""The models that the embedded engine serves without an account or a GPU."""

import errno
import fcntl
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec

from harness.config.benchmark import Benchmark
from harness.errors import ConfigError
from harness.files import lock_file


class EmbeddedModel(msgspec.Struct, frozen=True):
    """A GGUF file."""

    name: str
    path: Path


class _Recipe(msgspec.Struct, frozen=True):
    """The writer of a model's file. Raise its version with every change of the content."""

    version: int
    megabytes: int
    write: Callable[[Path], None]


def _write_tiny_gpt_oss(path: Path) -> None:
    from sut.servers.embedded import tiny_gpt_oss

    tiny_gpt_oss.write(path)


def _write_tiny_llama(path: Path) -> None:
    from sut.servers.embedded import tiny_llama

    tiny_llama.write(path)


def _write_tiny_deepseek(path: Path) -> None:
    from sut.servers.embedded import tiny_deepseek

    tiny_deepseek.write(path)


# The keys are a benchmark definition's ``embedded_model``.
_RECIPES: Mapping[str, _Recipe] = {
    "tiny-gpt-oss": _Recipe(3, 47, _write_tiny_gpt_oss),
    "tiny-llama": _Recipe(3, 25, _write_tiny_llama),
    "tiny-deepseek": _Recipe(2, 37, _write_tiny_deepseek),
}
ENDING = ("tiny-deepseek",)  # its answers end after some 20 tokens, whatever their limit


def model_for(benchmark: Benchmark, cache_dir: Path) -> EmbeddedModel:
    """The benchmark's tiny model. Raises ConfigError if it has none, or it cannot be written."""
    name = benchmark.embedded_model
    if name is None:
        raise ConfigError(
            f"--backend embedded: there is no tiny model for {benchmark.name}; start a server and name it "
            "with --server-url"
        )
    if name.endswith(".gguf"):  # a user's own file
        _require_packages()
        return EmbeddedModel(Path(name).stem, Path(name))
    if name not in _RECIPES:
        raise ConfigError(f"{benchmark.name}: embedded_model is {name!r}, expected {', '.join(_RECIPES)}")
    return tiny_model(name, cache_dir)


def tiny_model(name: str, cache_dir: Path) -> EmbeddedModel:
    """A model with random weights, written to ``cache_dir`` at its first use.

    Safe for several runs at once. Raises ConfigError if the file cannot be written, or not read.
    """
    recipe = _RECIPES[name]
    path = cache_dir.absolute() / f"{name}-v{recipe.version}.gguf"
    _require_packages()
    try:
        if not path.exists():
            _write_once(path, recipe.write)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ConfigError(
            f"{path}: cannot write the model {name} ({recipe.megabytes} MB): {error.strerror or error}; "
            + ("free some space" if full else "let this user write there, or export XDG_CACHE_HOME=FOLDER")
        ) from error
    if not os.access(path, os.R_OK):
        raise ConfigError(
            f"{path}: another user wrote this model, and this one may not read it; let the owner run "
            f"chmod a+r {shlex.quote(str(path))}"
        )
    return EmbeddedModel(name, path)


def _require_packages() -> None:
    if missing := [package for package in ("xllamacpp", "gguf") if find_spec(package) is None]:
        raise ConfigError(
            f"--backend embedded: {sys.executable} has no {' and no '.join(missing)}; "
            "run ./setup.sh without --no-embedded, and start the program with ./mlperf"
        )


def _write_once(path: Path, write: Callable[[Path], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_suffix(".lock")):
        if path.exists():
            return
        logging.getLogger("gguf").setLevel(logging.WARNING)
        partial = path.with_suffix(f".partial-{os.getpid()}")
        try:
            write(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        lock_file(lock, fcntl.LOCK_EX)
        yield
