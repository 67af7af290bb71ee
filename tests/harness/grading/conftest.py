"""What tests on programs share: the strongest sandbox of this machine, the sample problems' index."""

from pathlib import Path

import pytest

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


def quiet(*_: object) -> None:
    """No progress bar."""
