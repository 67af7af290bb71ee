"""The options of run_batch.py's commands as frozen values. Imports stay light."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.run_options import DEFAULT_BACKEND, Backend, ClientOptions, LogLevel

DEFAULT_ENCODING = "o200k_harmony"
DEFAULT_POSITIONS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions(ClientOptions):
    """``run``. ``positions``: of a prompt with its answer, 0 for the model's context."""

    output: Path
    model: str = "20b"
    positions: int = DEFAULT_POSITIONS
    temperature: float = 0.0
    top_p: float = 0.9
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkOptions:
    """``generate`` and, with ``chat``, ``chat``: prompts at a terminal. ``prompt`` None: asked for."""

    chat: bool
    prompt: str | None = None
    system: str | None = None
    reasoning: str = "medium"
    model: str = "20b"
    positions: int = DEFAULT_POSITIONS
    temperature: float = 0.0
    top_p: float = 0.9
    seed: int | None = None
    backend: Backend = DEFAULT_BACKEND
    server_url: Sequence[str] = ()
    ca_file: Path | None = None
    log_level: LogLevel = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeOptions:
    """``encode`` and ``decode``. ``output`` None: stdout; ``line``: of the file, from 0, -1 for all.

    ``json``: each text is a JSON string in one line.
    """

    input: Path
    output: Path | None = None
    encoding: str = DEFAULT_ENCODING
    json: bool = False
    line: int | None = None
    log_level: LogLevel = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions:
    """``score``. ``device`` and ``jobs`` None: what the machine has; ``output``: scores by line."""

    submission: Path
    references: Path
    encoding: str = DEFAULT_ENCODING
    thresholds: Path | None = None
    output: Path | None = None
    wordnet: Path | None = None
    jobs: int | None = None
    bert_model: Path | None = None
    num_layers: int = 24
    device: str | None = None
    batch_size: int = 64
    log_level: LogLevel = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions(CodeOptions):
    """``encode``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions(CodeOptions):
    """``decode``."""
