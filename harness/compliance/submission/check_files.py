"""What is asked of all files of a tree: plain, small, with harmless names, and not the same run twice."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.compliance.submission.accuracy_text import parse_accuracy, parse_verify
from harness.compliance.submission.complaint import Complaint
from harness.compliance.submission.tree import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    DETAIL,
    DIVISIONS,
    VERIFY_FILE,
    Place,
)
from harness.compliance.submission.truncate import digest

_EMPTY_LOG_BYTES = 16


def check_files(root: Path, most_bytes: int) -> Iterator[Complaint]:
    """Names, kinds and sizes of everything below the divisions."""
    for path in sorted(path for name in DIVISIONS for path in (root / name).rglob("*")):
        what = _trouble(path, most_bytes)
        if what:
            yield Complaint("files", path.relative_to(root).as_posix(), what)


def _trouble(path: Path, most_bytes: int) -> str:
    if path.is_symlink():
        return "is a symbolic link"
    if path.name.startswith("."):
        return "has a name with a leading dot"
    if " " in path.name:
        return "has a name with a space"
    if path.is_file() and path.stat().st_size > most_bytes:
        return f"has {path.stat().st_size} bytes, expected {most_bytes} or less"
    return ""


def check_repeats(root: Path, places: Sequence[Place]) -> Iterator[Complaint]:
    """Runs that say the same to the last digit are hardly two runs."""
    yield from _same_files(root, places)
    for name, figure in (("exact_match", _accuracy), ("TEST07 score", _score), ("TEST09 mean tokens", _mean)):
        seen: dict[tuple[str, str, str, float], Place] = {}
        for place in places:
            value = figure(place)
            if value is None:
                continue
            first = seen.setdefault((place.org, place.system, place.benchmark, value), place)
            if first is not place:
                text = f"{name} is {value}, the same as in {first.folder}"
                yield Complaint("repeat", place.name(place.path), text)


def _same_files(root: Path, places: Sequence[Place]) -> Iterator[Complaint]:
    """Detail logs and accuracy logs hold times and tokens: no two are alike."""
    seen: dict[str, Path] = {}
    for place in places:
        for path in sorted([*place.path.rglob(DETAIL), *place.path.rglob(ACCURACY_LOG)]):
            if path.stat().st_size <= _EMPTY_LOG_BYTES:
                continue
            first = seen.setdefault(digest(path), path)
            if first is not path:
                text = f"is the same file as {first.relative_to(root).as_posix()}"
                yield Complaint("repeat", place.name(path), text)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _accuracy(place: Place) -> float | None:
    text = _text(place.path / ACCURACY / ACCURACY_TEXT)
    return parse_accuracy(text, ("exact_match",)).scores.get("exact_match")


def _score(place: Place) -> float | None:
    return parse_verify(_text(place.path / "TEST07" / VERIFY_FILE["TEST07"])).score


def _mean(place: Place) -> float | None:
    return parse_verify(_text(place.path / "TEST09" / VERIFY_FILE["TEST09"])).mean_tokens
