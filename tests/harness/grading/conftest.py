"""The strongest sandbox of this machine, the sample problems' index, an evaluator in this process."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from eval_mlperf_accuracy import main
from harness.grading.livecodebench.index import build
from harness.grading.sandbox.tiers import Tier
from tests.harness.grading.samples import RELEASE
from tests.harness.grading.sandbox.tiers import TIERS, obstacle


@pytest.fixture(scope="module")
def tier() -> Tier:
    for found in TIERS:
        if not obstacle(found):
            return found
    pytest.skip("; ".join(f"{found}: {obstacle(found)}" for found in TIERS))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    build([RELEASE], tmp_path / "i.sqlite")
    return tmp_path / "i.sqlite"


class Result(NamedTuple):
    """An ended evaluator."""

    code: int
    stdout: str
    stderr: str


def evaluated(*words: object, program: Callable[[list[str]], int] = main) -> Result:
    """The evaluator's main, in this process: its imports take longer than these logs."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            code = program(list(map(str, words)))
        except SystemExit as end:  # argparse's
            code = int(end.code or 0)
    return Result(code, stdout.getvalue(), stderr.getvalue())


def quiet(*_: object) -> None:
    """No progress bar."""
