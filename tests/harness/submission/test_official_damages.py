"""MLCommons's own checker on every damage: for each one that it refuses, ours has an issue.

``HARNESS_OFFICIAL_CHECKER`` names a folder ``tools/submission`` of MLCommons's inference repository,
``HARNESS_OFFICIAL_PYTHON`` an interpreter with numpy, pandas and pyyaml.
"""

import os
import shutil
import subprocess
import sys

import pytest

from harness.submission.checks.check import check_tree
from tests.harness.submission.damages import DAMAGES
from tests.harness.submission.trees import unpack

CHECKER = os.environ.get("HARNESS_OFFICIAL_CHECKER")
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(CHECKER is None, reason="HARNESS_OFFICIAL_CHECKER is not set"),
]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("made_up"))


@pytest.fixture
def tree(original, tmp_path):
    return shutil.copytree(original, tmp_path / "submission")


def official(tree):
    """Whether MLCommons's checker accepts the tree; a traceback is no acceptance."""
    words = [
        "-m",
        "submission_checker.main",
        "--version",
        "v6.1",
        "--input",
        tree,
        "--csv",
        tree.parent / "csv",
    ]
    done = subprocess.run(
        [os.environ.get("HARNESS_OFFICIAL_PYTHON", sys.executable), *words],
        capture_output=True,
        text=True,
        cwd=CHECKER,
    )
    return done.returncode == 0


def test_the_right_tree(tree):
    assert official(tree)


@pytest.mark.parametrize("change", [d[1] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_what_it_refuses_is_an_issue(tree, change):
    change(tree)
    if not official(tree):
        assert any(not found.is_warning for found in check_tree(tree))
