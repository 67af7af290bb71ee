"""JSON files: values of ours, and those of others, read as the one object that a file should hold."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.files import atomic_write, read_decoded

_Value = TypeVar("_Value")

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>u[dD][89a-fA-F]..)|.)", re.DOTALL)

Json = dict[str, Any]
"""an object of a JSON file"""


def read_json(path: Path, kind: type[_Value], remedy: str, source: str = "") -> _Value:
    """The value in a file. Raises ConfigError with the remedy and ``source``, the path unless it is given."""
    return read_decoded(source or str(path), path, msgspec.json.Decoder(kind).decode, remedy)


def write_json(path: Path, value: object) -> None:
    """Write a value, complete or not at all. Raises OSError."""
    with atomic_write(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def intact_lines(path: Path, kind: type[_Value]) -> Iterator[_Value]:
    """The values of a file with one a line, without lines that a crash has damaged. Raises OSError."""
    for line in path.read_bytes().splitlines():
        try:
            yield msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue


def read_kept(path: Path) -> dict[str, str]:
    """Texts by name that an earlier process has kept; none where they cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, ValueError, RecursionError):
        return {}


def read_fields(path: Path) -> dict[str, Any] | str:
    """The object in a JSON file, or the reason why there is none, such as ``is missing``.

    Half of a surrogate pair is U+FFFD: JSON may have one, and no text that is written from it can.
    """
    text = ""
    try:
        if not path.is_file():
            return "is missing"
        text = path.read_text(encoding="utf-8")
        fields = json.loads(_without_halves(text))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        return "is not UTF-8"
    except json.JSONDecodeError as error:
        if text.startswith("\ufeff"):
            return "begins with a byte order mark, which JSON does not allow: save it as UTF-8 without one"
        return f"is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return fields if isinstance(fields, dict) else "is not a JSON object"


def _without_halves(text: str) -> str:
    """The text of JSON, as long as it was, with U+FFFD for each half of a surrogate pair."""
    if not _SURROGATE.search(text):  # all escapes of answers are looked at below
        return text
    return _ESCAPE.sub(lambda found: r"\ufffd" if found["half"] else found[0], text)
