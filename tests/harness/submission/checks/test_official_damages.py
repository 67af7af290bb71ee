"""MLCommons's own checker on every damage: for each one that it refuses, ours has an issue.

``HARNESS_OFFICIAL_CHECKER`` names a folder ``tools/submission`` of MLCommons's inference repository,
``HARNESS_OFFICIAL_PYTHON`` an interpreter with numpy, pandas and pyyaml.
"""

import pytest

from harness.submission.checks.check import check_tree
from tests.harness.submission.checks.damages import DAMAGES
from tests.harness.submission.checks.official_checker import CHECKER, accepts
from tests.harness.submission.trees import RESULTS

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(CHECKER is None, reason="HARNESS_OFFICIAL_CHECKER is not set"),
]


def test_the_right_tree(tree):
    assert accepts(tree)


@pytest.mark.parametrize("change", [d[1] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_what_it_refuses_is_an_issue(tree, change):
    change(tree / RESULTS)
    if not accepts(tree):
        assert any(not found.is_warning for found in check_tree(tree))
