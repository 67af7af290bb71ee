"""Where this user's caches are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.files import ROOT, cache_home

NOBODY = 12345  # without an entry in /etc/passwd


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"XDG_CACHE_HOME": "/caches", "HOME": "/home/me"}, "/caches"),
        ({"HOME": "/home/me"}, "/home/me/.cache"),
    ],
)
def test_a_user_with_a_home(monkeypatch, variables, found):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_home() == Path(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a home")
def test_a_user_without_a_home():
    """As a container's may be."""
    program = """
import os, sys
from harness.errors import ConfigError
from harness.files import cache_home
os.setuid(int(sys.argv[1]))
try:
    cache_home()
except ConfigError as error:
    print(error)
"""
    command = [sys.executable, "-c", program, str(NOBODY)]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"user {NOBODY} has no home folder")
    assert "export XDG_CACHE_HOME=" in done.stdout
