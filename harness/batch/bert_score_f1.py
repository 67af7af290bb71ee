"""BERTScore F1 as bert-score 0.3.13 computes it: no idf, no baseline, in chunks, on a GPU or the CPU."""

import importlib.metadata
import importlib.util
import io
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.batch.meteor import TextPair
from harness.errors import ConfigError, RunError
from harness.json_files import read_json
from harness.text import one_line

if TYPE_CHECKING:
    from bert_score import BERTScorer

_CHUNK = 128  # pairs of a call: bert-score sorts the texts of a call by length
_MODELS_ROOT, _BELOW_IT = "MODELS_ROOT", "bs_model/roberta-large-mnli"
_CONFIG = "config.json"
_FIRST_UNLIKE = 5  # transformers' major version
_REMEDY = "run ./setup.sh --with-score, then ./mlperf prompts score"  # which takes .venv-score where it is


class _Config(msgspec.Struct, frozen=True):
    num_hidden_layers: int


def find_model(path: Path | None, layers: int) -> Path:
    """The model's folder, by default below the environment's MODELS_ROOT; checked. Raises ConfigError."""
    if any(importlib.util.find_spec(name) is None for name in ("bert_score", "transformers")):
        raise ConfigError(f"bert-score is not installed here; {_REMEDY}")
    version = importlib.metadata.version("transformers")
    if int(version.partition(".")[0]) >= _FIRST_UNLIKE:
        raise ConfigError(
            f"transformers {version} is installed; from {_FIRST_UNLIKE} on bert-score gives other scores and "
            f"fails for empty texts; {_REMEDY}"
        )
    root = os.environ.get(_MODELS_ROOT)
    if path is None and root is None:
        raise ConfigError(
            f"no model; give its folder with --bert-model (roberta-large-mnli), or set {_MODELS_ROOT}"
        )
    folder = path or Path(root or "") / _BELOW_IT
    source = f"--bert-model {folder}: {_CONFIG}"
    known = read_json(folder / _CONFIG, _Config, "give the model's folder", source)
    if not 1 <= layers <= known.num_hidden_layers:
        raise ConfigError(f"--num-layers is {layers}, the model in {folder} has {known.num_hidden_layers}")
    return folder


def bert_scores(
    pairs: Sequence[TextPair],
    model: Path,
    layers: int,
    device: str | None,
    batch_size: int,
    on_done: Callable[[int], None],
) -> list[float]:
    """F1 of every pair. ``device`` as torch names it, None: a GPU if there is one.

    ``on_done`` gets the number of pairs that are done. Raises ConfigError and RunError.
    """
    scorer = _open(model, layers, device)
    scores: list[float] = []
    for start in range(0, len(pairs), _CHUNK):
        hypotheses, references = map(list, zip(*pairs[start : start + _CHUNK], strict=True))
        try:
            with redirect_stderr(io.StringIO()):  # it warns of empty texts in each chunk; score has notes
                _, _, f1 = scorer.score(hypotheses, references, batch_size=batch_size)
        except (RuntimeError, IndexError) as error:
            raise RunError(
                f"BERTScore failed for lines {start + 1} to {start + len(hypotheses)}: {_line(error)}; "
                "a smaller --batch-size needs less memory"
            ) from error
        scores += f1.tolist()
        on_done(len(scores))
    return scores


def _open(model: Path, layers: int, device: str | None) -> "BERTScorer":
    os.environ["HF_HUB_OFFLINE"] = "1"  # a folder's name is never looked up on the Hub
    from bert_score import BERTScorer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        return BERTScorer(lang="en", model_type=str(model), num_layers=layers, device=device)
    except (OSError, ValueError, RuntimeError, AssertionError, KeyError) as error:
        raise ConfigError(f"--bert-model {model}: cannot be loaded: {_line(error)}") from error


def _line(error: Exception) -> str:
    return one_line(error) or type(error).__name__
