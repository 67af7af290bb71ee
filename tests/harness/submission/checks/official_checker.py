"""MLCommons's submission checker, where ``HARNESS_OFFICIAL_CHECKER`` names its folder."""

import os
import subprocess
import sys
from pathlib import Path

CHECKER = os.environ.get("HARNESS_OFFICIAL_CHECKER")


def ask(tree: Path) -> subprocess.CompletedProcess[str]:
    """What it says of the tree."""
    words = ["-m", "submission_checker.main", "--version", "v6.1", "--input", tree, "--csv", f"{tree}.csv"]
    command = [os.environ.get("HARNESS_OFFICIAL_PYTHON", sys.executable), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=CHECKER)


def accepts(tree: Path) -> bool:
    """Whether it accepts the tree; a traceback is no acceptance."""
    return ask(tree).returncode == 0
