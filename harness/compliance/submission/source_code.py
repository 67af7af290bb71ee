"""src/: the code that made the result, as the rules ask for it."""

from pathlib import Path

from harness.compliance.submission.stage import copy_file

ROOT = Path(__file__).resolve().parents[3]
_FOLDERS = ("harness", "sut", "configs", "datasets", "sglang", "scripts", "docs")
_SUFFIXES = (".py", ".sh", ".toml", ".conf", ".config", ".json", ".md", ".tsv")
_MOST_BYTES = 1 << 20  # code and settings; datasets that were downloaded here are not


def copy_source(target: Path, root: Path = ROOT) -> int:
    """Copy the program without its tests and data; returns the number of files."""
    found = [path for path in root.iterdir() if path.is_file()]
    found += [path for name in _FOLDERS for path in (root / name).rglob("*") if path.is_file()]
    wanted = [
        path for path in found if _belongs(path.relative_to(root)) and path.stat().st_size <= _MOST_BYTES
    ]
    for path in wanted:
        copy_file(path, target / path.relative_to(root))
    return len(wanted)


def _belongs(path: Path) -> bool:
    """No caches, nothing hidden, no name that the submission rules refuse."""
    return path.suffix in _SUFFIXES and not any(
        part.startswith((".", "__pycache__")) or " " in part for part in path.parts
    )
