"""MLCommons's submission checker.

``HARNESS_OFFICIAL_CHECKER`` names the folder ``tools/submission`` of its inference repository,
``HARNESS_OFFICIAL_PYTHON`` an interpreter with numpy, pandas and pyyaml.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKER = os.environ.get("HARNESS_OFFICIAL_CHECKER")
needs_official = pytest.mark.skipif(CHECKER is None, reason="HARNESS_OFFICIAL_CHECKER is not set")


def ask(tree: Path) -> subprocess.CompletedProcess[str]:
    """What it says of the tree."""
    python = os.environ.get("HARNESS_OFFICIAL_PYTHON", sys.executable)
    words = ["--version", "v6.1", "--input", str(tree), "--csv", f"{tree}.csv"]
    command = [python, "-m", "submission_checker.main", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=CHECKER)


def accepts(tree: Path) -> bool:
    """Whether it accepts the tree; a traceback is no acceptance."""
    return ask(tree).returncode == 0
