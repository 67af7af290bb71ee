"""Questions to git about a checkout."""

import os
import shutil
import subprocess
from pathlib import Path

# Git refuses the checkout of another user, such as one that is mounted into a container. Whoever runs this
# program runs that checkout's code already.
GIT = ("git", "-c", "safe.directory=*")
_TIMEOUT_S = 5


def ask_git(root: Path, *arguments: str, index: Path | None = None) -> str | None:
    """The output of git in ``root``, None when it fails; ``index`` replaces git's own index."""
    if shutil.which("git") is None:
        return None
    command = [*GIT, "-C", str(root), "--no-optional-locks", *arguments]
    environment = os.environ | ({"GIT_INDEX_FILE": str(index)} if index else {})
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def head_of(root: Path) -> tuple[str, str] | None:
    """Commit and tree of a checkout, also of one that is a folder of a repository.

    None where git does not have the folder, as of an archive that was unpacked in another repository.
    """
    found = (ask_git(root, "rev-parse", "HEAD", "HEAD:./") or "").split()
    return (found[0], found[1]) if found else None


def checkout_command(root: Path, commit: str) -> str:
    """What a user types for a checkout of ``commit``, which a shallow clone has to fetch first."""
    fetch = "" if ask_git(root, "cat-file", "-e", commit) is not None else f"git fetch origin {commit} && "
    return f"{fetch}git checkout {commit}"
