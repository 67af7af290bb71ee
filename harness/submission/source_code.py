"""src/: the code that made the result, as the rules ask for it: what git tracks, without the tests."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.errors import ConfigError
from harness.submission.staging import copy_file

ROOT = Path(__file__).resolve().parents[2]
_LEFT_OUT = ("tests", "benchmarks")
_MOST_BYTES = 1 << 20  # code, settings and samples; nothing else is in git
_TIMEOUT_S = 30


def copy_source(target: Path, root: Path = ROOT) -> int:
    """Copy the tracked files as they are on disk; returns their number. Raises ConfigError without git.

    A file that git does not know is never copied: it may be a note, a key or somebody's data.
    """
    wanted = [path for path in _tracked(root) if _belongs(path) and (root / path).is_file()]
    for path in wanted:
        if (root / path).stat().st_size <= _MOST_BYTES:
            copy_file(root / path, target / path)
            shutil.copymode(root / path, target / path)  # setup.sh is started by its name
    return len(wanted)


def _tracked(root: Path) -> Iterator[Path]:
    command = ["git", "-C", str(root), "ls-files", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"src/ is made of the files that git knows in {root}, and git ls-files failed there ({error}); "
            "run prepare_submission.py in a git checkout of this harness"
        ) from error
    for name in done.stdout.split(b"\0"):
        if name:
            yield Path(name.decode(errors="surrogateescape"))


def _belongs(path: Path) -> bool:
    """No tests, nothing hidden, no name that the submission rules refuse."""
    return path.parts[0] not in _LEFT_OUT and not any(
        part.startswith(".") or " " in part for part in path.parts
    )
