"""Where a file or folder that is missing lies instead: under a similar name, or as earlier rounds had it."""

import re
from collections.abc import Iterator
from pathlib import Path

from harness.submission.layout import SystemDir

_OLD_NAMES = {"src": "code"}  # up to v5.1


def absence(folder: SystemDir, path: Path) -> tuple[str, str]:
    """What to say of a path that is no file or folder as expected, and the remedy ("" for the rule's)."""
    if path.is_symlink():
        return f"is a link to {path.readlink()}, which does not lead to a file", "put the file in its place"
    if path.is_dir():
        return ("is a folder, expected a file" if any(path.iterdir()) else "is an empty folder"), ""
    if path.is_file():
        return "is a file, expected a folder", ""
    if path.exists():
        return "is no plain file", "put the file in its place"
    found = next(_instead(folder, path), None)
    if found is None:
        return "is missing", ""
    return f"is missing, found {folder.relative(found)}", f"rename or move it to {folder.relative(path)}"


def _instead(folder: SystemDir, path: Path) -> Iterator[Path]:
    """Entries that may be meant: beside it under a similar name, or in a folder of an earlier round."""
    for parent in (path.parent, *path.parent.parents):
        if parent.is_dir():
            break
    rest = path.relative_to(parent)
    for entry in sorted(parent.iterdir()):
        similar = _letters(entry.name) in (_letters(rest.parts[0]), _OLD_NAMES.get(rest.parts[0]))
        if similar and entry.name != rest.parts[0]:
            yield entry.joinpath(*rest.parts[1:]) if entry.joinpath(*rest.parts[1:]).exists() else entry
    inside = folder.org_path / "results"
    if path.is_relative_to(inside):
        result = path.relative_to(inside)
        for old in ("compliance", "measurements"):
            if (moved := folder.org_path / old / result).exists():
                yield moved
        if path.name == "measurements.json":
            yield from sorted((folder.org_path / "measurements" / result).parent.glob("*.json"))


def _letters(name: str) -> str:
    """TEST7 and test07, Made_up.json and made-up.json are similar."""
    return re.sub(r"0+(?=\d)", "", re.sub(r"[-_ ]", "", name.lower()))
