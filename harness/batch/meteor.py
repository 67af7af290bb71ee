"""METEOR as nltk computes it: words split at white space, alpha 0.9, beta 3, gamma 0.5, Porter, WordNet."""

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

from harness.cli.processes import computing
from harness.errors import ConfigError, RunError
from harness.files import ROOT
from harness.lean_nltk import load_nltk
from harness.machine import usable_cores
from harness.text import one_line

if TYPE_CHECKING:
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

_WORDS = "data.noun"  # a file of every WordNet
_FOLDERS = ("", "wordnet", "corpora/wordnet")
_ARCHIVES = ("wordnet.zip", "corpora/wordnet.zip")
_FEW = 32  # pairs for which starting processes takes longer than scoring
_AT_A_TIME = 4  # pairs that a process takes: seconds where texts are long

TextPair = tuple[str, str]  # the text of a submission, the text of the reference


def find_wordnet(path: Path | None) -> Path:
    """WordNet's folder, or the archive of it, below ``path`` or where nltk looks. Raises ConfigError."""
    if importlib.util.find_spec("nltk") is None:
        raise ConfigError("nltk is not installed; run ./setup.sh")
    roots = _nltk_folders() if path is None else [path]
    for root in roots:
        for folder in _FOLDERS:
            if (root / folder / _WORDS).is_file():
                return root / folder
        for archive in ("", *_ARCHIVES):
            if (root / archive).suffix == ".zip" and (root / archive).is_file():
                return root / archive
    if path is not None:
        raise ConfigError(
            f"--wordnet {path}: no {_WORDS} there, expected nltk's WordNet or the folder of its data"
        )
    raise ConfigError(
        "no WordNet in nltk's search path; run datasets/download.sh --benchmark gpt-oss-20b --what wordnet, "
        "or name its folder with --wordnet"
    )


def meteor_scores(
    pairs: Sequence[TextPair], wordnet: Path, jobs: int | None, on_done: Callable[[int], None]
) -> list[float]:
    """The score of every pair; ``jobs`` processes, by default as many as there are cores.

    ``on_done`` gets the number of pairs that are done. Raises ConfigError for a WordNet that cannot be read,
    RunError if a process was killed.
    """
    jobs = jobs or usable_cores()
    processes = 0 if jobs == 1 or len(pairs) <= _FEW else jobs
    scores: list[float] = []
    killed = RunError(
        "a process that computed METEOR was killed, perhaps for lack of memory; run it again, with fewer "
        "processes (--num-workers 1)"
    )
    with computing(partial(_score, wordnet), pairs, processes, _AT_A_TIME, killed) as results:
        for score in results:
            scores.append(score)
            on_done(len(scores))
    return scores


def _nltk_folders() -> list[Path]:
    load_nltk()
    import nltk.data

    return [*map(Path, nltk.data.path), ROOT / "data"]  # where datasets/download.sh puts it


@cache
def _open(wordnet: Path) -> "WordNetCorpusReader":
    load_nltk()
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.data import FileSystemPathPointer, ZipFilePathPointer

    class English(WordNetCorpusReader):  # type: ignore[misc]
        """Without the map to other languages, for which nltk needs a second WordNet in another folder."""

        def map_wn(self, version: str = "wordnet") -> None:
            """No map."""

    try:
        is_archive = wordnet.suffix == ".zip"
        root = (
            ZipFilePathPointer(str(wordnet), "wordnet/")
            if is_archive
            else FileSystemPathPointer(str(wordnet))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no WordNet of other languages
            return English(root, None)
    except (OSError, ValueError, LookupError, AssertionError, BadZipFile) as error:
        raise ConfigError(f"{wordnet}: cannot be read as WordNet: {one_line(error)}") from error


def _score(wordnet: Path, pair: TextPair) -> float:
    reader = _open(wordnet)
    from nltk.translate.meteor_score import meteor_score

    hypothesis, reference = pair
    return float(meteor_score([reference.split()], hypothesis.split(), wordnet=reader))
