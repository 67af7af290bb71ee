"""src/, the published code: what git tracked when the runs were made, without the tests."""

import io
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from harness.cli.door import called
from harness.errors import ConfigError
from harness.files import ROOT
from harness.git import GIT, ask_git, head_of
from harness.record.provenance import GitState, git_state
from harness.staging import set_mode, write_file
from harness.submission.tree.secrets import find_secrets

_LEFT_OUT = ("tests", "benchmarks")
_TIMEOUT_S = 60
_SHORT = 12  # letters of a hash in a folder's name


class SourceCode(msgspec.Struct, frozen=True):
    """Code in git."""

    tree: str
    """git's hash of the files"""
    state: GitState | None
    """the checkout as the runs recorded it; None: they did not"""

    @property
    def short(self) -> str:
        """A name for it that differs from that of other code."""
        clean = self.state is not None and not self.state.dirty
        return (self.state.commit if self.state and clean else self.tree)[:_SHORT]


class WrittenSource(msgspec.Struct, frozen=True):
    """Code in a folder of src/."""

    source: SourceCode
    folder: str
    """its name in src/"""
    links: tuple[str, ...] = ()
    """symbolic links, which were left out"""
    local: tuple[str, ...] = ()
    """files in which the runs differed from their commit"""
    changed: tuple[str, ...] = ()
    """files that had a secret in the runs, and have none here"""


def without_git() -> str:
    """Why no folder can be built from this checkout; "" where it can be."""
    if head_of(ROOT) is not None:
        return ""
    return (
        f"src/ holds the files that git tracks, and {ROOT} is no checkout in which git works; "
        f"run {called('prepare_submission.py')} in a git checkout of this harness"
    )


def source_of(states: Iterable[GitState | None]) -> SourceCode:
    """The code of runs with these states, which are equal or None.

    Runs that recorded no commit, or changes without their content, get the files of this checkout as they
    are now. Raises ConfigError without git, and where git does not have the code of the runs.
    """
    state = next(filter(None, states), None)
    tree = None if state is None else _tree_of(state)
    if tree is not None and ask_git(ROOT, "cat-file", "-e", f"{tree}^{{tree}}") is not None:
        return SourceCode(tree, state)
    if problem := without_git():
        raise ConfigError(problem)
    if tree is not None:
        raise ConfigError(
            f"src/ would not be the code of the runs: git in {ROOT} does not have commit {state}; "
            f"fetch it (git fetch --all), or run {called('prepare_submission.py')} in the checkout that made "
            "the runs"
        )
    now = git_state(ROOT)
    if now is None or now.tree is None:
        raise ConfigError(f"{ROOT} has local changes, and git cannot store them there; commit them")
    return SourceCode(now.tree, None)


def _tree_of(state: GitState) -> str | None:
    """The tree of a recorded state, empty for a commit that git does not have; None for unknown changes."""
    if state.tree is not None or state.dirty:
        return state.tree
    return (ask_git(ROOT, "rev-parse", "--verify", "--quiet", f"{state.commit}:./") or "").strip()


def copy_source(source: SourceCode, target: Path) -> WrittenSource:
    """Write the files out of git. Raises ConfigError.

    A link is never followed: it may lead to a file outside of the checkout. Only a file with a secret comes
    from the working tree, if it has none there: what was committed cannot be changed.
    """
    folder = (ask_git(ROOT, "rev-parse", "--absolute-git-dir") or "").strip()
    command = [*GIT, "-C", folder, "archive", "--format=tar", source.tree]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"git archive {source.tree} failed in {folder} ({error})") from error
    links = []
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            path = Path(member.name)
            if not _belongs(path) or member.isdir():
                continue
            content = archive.extractfile(member) if member.isfile() else None
            if content is None:
                links.append(member.name)
                continue
            write_file(target / path, content.read())
            set_mode(target / path, 0o755 if member.mode & 0o100 else 0o644)  # setup.sh must stay executable
    changed = tuple(_without_secrets(target))
    return WrittenSource(source, target.name, tuple(links), _local_changes(source), changed)


def _local_changes(source: SourceCode) -> tuple[str, ...]:
    """The files in which the runs differed from their commit."""
    if source.state is None or not source.state.dirty:
        return ()
    names = ask_git(ROOT, "diff", "--name-only", f"{source.state.commit}:./", source.tree) or ""
    return tuple(name for name in names.splitlines() if _belongs(Path(name)))


def _without_secrets(target: Path) -> Iterator[str]:
    """Replace files with secrets by those of the working tree without; the names of these files."""
    for path in dict.fromkeys(secret.path for secret in find_secrets(sorted(target.rglob("*")))):
        now = ROOT / path.relative_to(target)
        if not now.exists():
            path.unlink()
        elif now.is_symlink() or any(find_secrets([now])):
            continue  # the search through the complete tree reports it
        else:
            path.write_bytes(now.read_bytes())
        yield path.relative_to(target).as_posix()


def _belongs(path: Path) -> bool:
    """Whether a file is published: no tests, no hidden files, no names that the submission rules refuse."""
    return path.parts[0] not in _LEFT_OUT and not any(
        part.startswith(".") or " " in part for part in path.parts
    )
