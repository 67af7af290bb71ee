"""A Python with bert-score for tests: the packages of requirements/score.txt, most of them linked."""

import functools
import os
import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from tests.engines import sglang_server as sglang
from tests.runs import ROOT

VENV = ROOT / ".cache/score-cpu"
# Not installed: CUDA, and torch itself, which SGLang on the CPU has.
_LEFT_OUT = re.compile(r"(torch|triton|setuptools|cuda-\w+|nvidia-[\w-]+)==")
_TORCH = ("torch", "torchgen", "functorch", "torch-*.dist-info")


@functools.cache
def interpreter() -> Path:
    """HARNESS_SCORE_PYTHON, or one that is set up now, beside SGLang's."""
    if named := os.environ.get("HARNESS_SCORE_PYTHON"):
        return Path(named)
    stamp = VENV / "installed"
    lock = (ROOT / "requirements/score.txt").read_text()
    if not stamp.exists() or stamp.read_text() != lock:
        _install(lock)
        stamp.write_text(lock)
    return VENV / "bin/python"


def _install(lock: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
    kept = VENV / "requirements.txt"
    blocks = re.split(r"\n(?=[a-z])", lock.replace(" \\\n", " "))
    kept.write_text(
        "\n".join(block for block in blocks if not _LEFT_OUT.match(block) and not _is_here(block))
    )
    flags = ["--quiet", "--no-compile", "--no-deps", "--require-hashes", "--disable-pip-version-check"]
    subprocess.run([VENV / "bin/python", "-m", "pip", "install", *flags, "--requirement", kept], check=True)
    (site,) = VENV.glob("lib/python*/site-packages")
    (torchs,) = sglang.VENV.glob("lib/python*/site-packages")
    for pattern in _TORCH:
        for source in torchs.glob(pattern):
            (site / source.name).symlink_to(source)
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")


def _is_here(block: str) -> bool:
    """Whether the tests' own environment has this version, which is found behind what is installed."""
    name, _, version = block.split(" ")[0].partition("==")
    try:
        return metadata.version(name) == version
    except metadata.PackageNotFoundError:
        return False
