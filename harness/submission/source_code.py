"""src/, the published code: what git tracks, without the tests. And the search for secrets in the tree."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.errors import ConfigError
from harness.files import ROOT
from harness.submission.staging import copy_file

_LEFT_OUT = ("tests", "benchmarks")
_MOST_SOURCE_BYTES = 1 << 20  # code, settings and samples; nothing else is in git
_TIMEOUT_S = 30


def copy_source(target: Path, root: Path = ROOT) -> int:
    """Copy the tracked files as they are on disk. Returns their number; raises ConfigError without git.

    Untracked files are never copied: they may be notes, keys or private data.
    """
    wanted = [path for path in _tracked(root) if _belongs(path) and (root / path).is_file()]
    for path in wanted:
        if (root / path).stat().st_size <= _MOST_SOURCE_BYTES:
            copy_file(root / path, target / path)
            shutil.copymode(root / path, target / path)  # setup.sh must stay executable
    return len(wanted)


def _tracked(root: Path) -> Iterator[Path]:
    command = ["git", "-C", str(root), "ls-files", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"src/ holds the files that git tracks in {root}, and git ls-files failed there ({error}); "
            "run prepare_submission.py in a git checkout of this harness"
        ) from error
    for name in done.stdout.split(b"\0"):
        if name:
            yield Path(name.decode(errors="surrogateescape"))


def _belongs(path: Path) -> bool:
    """Whether a file is published: no tests, no hidden files, no names that the submission rules refuse."""
    return path.parts[0] not in _LEFT_OUT and not any(
        part.startswith(".") or " " in part for part in path.parts
    )


_MOST_TEXT_BYTES = 4 << 20  # logs are larger, and LoadGen's
_LISTED = 5
# Kind, pattern, and texts of which every match has one: to find none takes much less time than to search.
# The last two require a digit, so that plain words do not match.
_KINDS = (
    ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{20,}", ("hf_",)),
    ("an OpenAI key", r"\bsk-[A-Za-z0-9_-]{20,}", ("sk-",)),
    ("an AWS key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", ("AKIA", "ASIA")),
    ("a GitHub token", r"\b(?:gh[oprsu]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})", ("gh",)),
    ("a GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}", ("glpat-",)),
    ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}", ("xox",)),
    ("an NVIDIA key", r"\bnvapi-[A-Za-z0-9_-]{20,}", ("nvapi-",)),
    ("a Google key", r"\bAIza[A-Za-z0-9_-]{35}", ("AIza",)),
    ("a private key", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----", ("-----BEGIN ",)),
    (
        "a password in a URL",
        r"\b[a-z][a-z0-9+.-]*://[^/\s:@\"'<>{}$]+:[^/\s:@\"'<>{}$]+@[\w.-]",
        ("://",),
    ),
    (
        "a key or password",
        r"(?i)(?:api[_-]?key|access[_-]?key|secret|passw(?:or)?d|token)[\"']?\s*[:=]\s*[\"'](?=[^\"']*\d)"
        r"[A-Za-z0-9/+_.=-]{20,}[\"']",
        ('"', "'"),
    ),
    (
        "a key or password",
        r"\b[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|API_KEY)\s*=\s*(?=[A-Za-z/+_.=-]*\d)[A-Za-z0-9/+_.=-]{16,}",
        ("TOKEN", "SECRET", "PASSWORD", "API_KEY"),
    ),
)
_PATTERNS = tuple((kind, re.compile(pattern), parts) for kind, pattern, parts in _KINDS)


def refuse_secrets(tree: Path) -> None:
    """Search all text files below ``tree``. Raises ConfigError with file, line and kind, not the text."""
    found = [where for path in sorted(tree.rglob("*")) if path.is_file() for where in _secrets(path, tree)]
    if found:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise ConfigError(
            f"text that looks like a secret would be published: {', '.join(found[:_LISTED])}{more}; "
            "remove it from the file, and revoke the key"
        )


def _secrets(path: Path, tree: Path) -> Iterator[str]:
    if path.stat().st_size > _MOST_TEXT_BYTES:
        return
    content = path.read_bytes()
    if b"\0" in content:
        return
    text = content.decode(errors="replace")
    likely = [
        (kind, pattern)
        for kind, pattern, parts in _PATTERNS
        if any(part in text for part in parts) and pattern.search(text)
    ]
    if not likely:  # nearly every file
        return
    for number, line in enumerate(text.splitlines(), start=1):
        kind = next((kind for kind, pattern in likely if pattern.search(line)), None)
        if kind is not None:
            yield f"{path.relative_to(tree).as_posix()}:{number} {kind}"
