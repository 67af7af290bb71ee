"""Possessive quantifiers match what Python's documentation says, under every interpreter of this machine."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import possessive
from harness.files import ROOT

# From CPython's issues 106052 and 101955: a pattern, a text, and how much of it the pattern matches.
_MATCHES = (
    (r"(?:ab?c)*+", "ab", 0),
    (r"(?:ab?c)*+d", "abcacd", 6),
    (r"((x)|y|z)*+", "xyz", 3),
    (r"\s*+a", "  a", 3),
    (r"(a?){2,3}+b", "aaab", 4),
)
_OTHER_VERSION = 3
_PROGRAM = f"""
import re
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit({_OTHER_VERSION})
import harness
print([re.match(pattern, text).end() for pattern, text, _ in {_MATCHES[:2]}])
"""


def test_atomic_groups_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled as the versions with the fault need it, here as well."""
    re.purge()
    monkeypatch.setattr("re._compiler._compile", possessive._compile_as_atomic)
    found = [re.match(pattern, text) for pattern, text, _ in _MATCHES]
    re.purge()
    assert [match and match.end() for match in found] == [end for _, _, end in _MATCHES]


def _interpreters() -> list[str]:
    named = [sys.executable, *map(shutil.which, ("python3.11", "python3")), "/usr/bin/python3"]
    return [str(path) for path in dict.fromkeys(named) if path and Path(path).exists()]


@pytest.mark.parametrize("python", _interpreters())
def test_patterns_match_what_they_say(python: str) -> None:
    """Debian 12's Python has the fault."""
    run = subprocess.run([python, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True)
    if run.returncode == _OTHER_VERSION:
        pytest.skip(f"{python} is no version that setup.sh takes")
    assert (run.stdout.strip(), run.returncode) == ("[0, 6]", 0), run.stderr
