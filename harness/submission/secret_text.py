"""Text that looks like a key or a password: nothing of the kind may be published."""

import re
from collections.abc import Iterator
from pathlib import Path

from harness.errors import ConfigError

_MOST_BYTES = 4 << 20  # logs are larger, and LoadGen's
_LISTED = 5
# Each with the name of what it looks like. The last two ask for digits: a word is no key.
_KINDS = (
    ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{20,}"),
    ("an OpenAI key", r"\bsk-[A-Za-z0-9_-]{20,}"),
    ("an AWS key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a GitHub token", r"\b(?:gh[oprsu]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    ("a GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("an NVIDIA key", r"\bnvapi-[A-Za-z0-9_-]{20,}"),
    ("a Google key", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("a private key", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    ("a password in a URL", r"\b[a-z][a-z0-9+.-]*://[^/\s:@\"'<>{}$]+:[^/\s:@\"'<>{}$]+@[\w.-]"),
    (
        "a key or password",
        r"(?i)(?:api[_-]?key|access[_-]?key|secret|passw(?:or)?d|token)[\"']?\s*[:=]\s*[\"'](?=[^\"']*\d)"
        r"[A-Za-z0-9/+_.=-]{20,}[\"']",
    ),
    (
        "a key or password",
        r"\b[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|API_KEY)\s*=\s*(?=[A-Za-z/+_.=-]*\d)[A-Za-z0-9/+_.=-]{16,}",
    ),
)
_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)


def refuse_secrets(tree: Path) -> None:
    """Look at every text file below ``tree``. Raises ConfigError with file, line and kind, never the text."""
    found = [where for path in sorted(tree.rglob("*")) if path.is_file() for where in _secrets(path, tree)]
    if found:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise ConfigError(
            f"this would publish what looks like a secret: {', '.join(found[:_LISTED])}{more}; "
            "remove it from the file, and withdraw the key"
        )


def _secrets(path: Path, tree: Path) -> Iterator[str]:
    if path.stat().st_size > _MOST_BYTES:
        return
    content = path.read_bytes()
    if b"\0" in content:
        return
    for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
        kind = next((kind for kind, pattern in _PATTERNS if pattern.search(line)), None)
        if kind is not None:
            yield f"{path.relative_to(tree).as_posix()}:{number} {kind}"
