"""LiveCodeBench release files: JSON lines with public tests in JSON and private ones packed.

Private tests are JSON, or base64 of zlib of a pickled str of JSON. The pickle is read by an unpickler
that refuses classes, so a release file cannot run code.
"""

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from harness.config.official_data import downloaded
from harness.errors import DatasetError
from harness.files import ROOT

_FOLDER = "livecodebench"  # where datasets/download.sh puts a release, below its --to
_SAMPLE = "code_sample.jsonl"  # the problems beside the sample dataset
DEFAULT_RELEASE = ROOT / "data" / _FOLDER  # where a download without --to lies
_MAX_UNPACKED = 4 << 30  # bytes of one problem's tests; release_v6 stays far below


class Example(msgspec.Struct, frozen=True):
    """The input and the expected output of one test, as text."""

    input: str
    expected: str = msgspec.field(name="output")


_Examples = tuple[Example, ...]


class Problem(msgspec.Struct, frozen=True):
    """A problem with its tests."""

    question_id: str
    function: str
    """The function that tests call; empty for a stdin program."""
    tests: _Examples
    """In the official order, public ones first."""
    difficulty: str = ""
    """Empty where the release does not state it."""


def find_release(reference: Path) -> Path | None:
    """The release that belongs to a reference file; None where there is none.

    It is looked for in the download that holds the reference, beside a sample dataset, and in the default
    download of the working folder and of this checkout.
    """
    folder = reference.absolute().parent
    beside = (folder.parent / _FOLDER, folder / _FOLDER, folder / _SAMPLE)
    places = (*beside, downloaded(_FOLDER, Path()))
    return next((place for place in places if place.exists()), None)


def only_file(path: Path, name: str | None) -> Path:
    """The file of a release's folder that alone counts; the path itself where none does, or it is a file.

    DatasetError where the folder lacks it.
    """
    if name is None or not path.is_dir():
        return path
    if not (path / name).is_file():
        raise DatasetError(f"{path}: expected {name}, the benchmark's tests; pass that file as --lcb-data")
    return path / name


def release_files(path: Path) -> list[Path]:
    """The JSON-lines files of a release: the file itself, or those of a folder; DatasetError if none."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise DatasetError(
            f"{path}: no LiveCodeBench release found; expected a .jsonl file or a folder of them,"
            " which datasets/download.sh --what livecodebench fetches (of deepseek-r1 with its --benchmark)"
        )
    return files


def read_problems(file: Path) -> Iterator[Problem]:
    """Problems in file order, one in memory at a time; DatasetError with the line for a malformed one."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _problem(line, f"{file}:{number}")


def _problem(line: bytes, where: str) -> Problem:
    try:
        row = json.loads(line)
        metadata = json.loads(row.get("metadata") or "{}")
        tests = (json.loads(row["public_test_cases"]), _private(row["private_test_cases"]))
        public, private = msgspec.convert(tests, tuple[_Examples, _Examples])
        names = (str(row["question_id"]), metadata.get("func_name") or "")
        difficulty = _difficulty(row)
        "".join((*names, difficulty)).encode()  # the index takes no half of a character
        return Problem(*names, (*public, *private), difficulty)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(
            f"{where}: not a LiveCodeBench problem ({type(error).__name__}: {error});"
            " expected question_id, metadata, public_test_cases, private_test_cases; pass a release as "
            "--lcb-data, or delete this file and download it again"
        ) from error


def _difficulty(row: dict[str, Any]) -> str:
    word = row.get("difficulty")
    return word if isinstance(word, str) else ""


def _private(packed: str) -> Any:
    try:
        return json.loads(packed)
    except ValueError:
        return json.loads(_unpacked(packed))


def _unpacked(packed: str) -> str:
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(packed), _MAX_UNPACKED)
        text = _Strings(io.BytesIO(data)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"private tests cannot be unpacked: {error}") from error
    if inflater.unconsumed_tail or not isinstance(text, str):
        raise ValueError(f"private tests hold {type(text).__name__}, expected a str of at most 4 GiB")
    return text


class _Strings(pickle.Unpickler):
    """An unpickler that refuses every class and function."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"a pickled {module}.{name} where a str was expected")
