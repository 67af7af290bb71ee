"""MLCommons's own checker on every damage: for each one that it refuses, ours has an issue.

``HARNESS_OFFICIAL_CHECKER`` names a folder ``tools/submission`` of MLCommons's inference repository,
``HARNESS_OFFICIAL_PYTHON`` an interpreter with numpy, pandas and pyyaml.
"""

import json
import os
import subprocess
import sys

import pytest

from harness.submission.checks.check import check_tree
from tests.harness.submission.checks.damages import DAMAGES
from tests.harness.submission.checks.official_checker import CHECKER, accepts
from tests.harness.submission.checks.test_check import LENGTHS

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(CHECKER is None, reason="HARNESS_OFFICIAL_CHECKER is not set"),
]


def test_the_right_tree(tree):
    assert accepts(tree)


@pytest.mark.parametrize("change", [d[1] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_what_it_refuses_is_an_issue(tree, change):
    change(tree)
    if not accepts(tree):
        assert any(not found.is_warning for found in check_tree(tree))


# Its own check of an accuracy.txt, without the submission around it.
ACCURACY_CHECK = """
import json, logging, sys, types
from submission_checker.checks.accuracy_check import AccuracyCheck
from submission_checker.configuration.configuration import Config

verdicts = []
for model, text in json.load(sys.stdin):
    check = AccuracyCheck.__new__(AccuracyCheck)
    check.log, check.path, check.is_endpoints = logging.getLogger(), "", False
    check.config, check.model = Config("v6.1", {}), model
    check.scenario_fixed, check.division = "Offline", "closed"
    check.accuracy_result, check.submission_logs = text.splitlines(), types.SimpleNamespace(loader_data={})
    verdicts.append(bool(check.accuracy_result_check()))
print(json.dumps(verdicts))
"""


def test_scores_and_lengths_are_read_alike():
    texts = [(name, f"{printed}\nhash={'0' * 64}\n") for name, printed, _ in LENGTHS]
    done = subprocess.run(
        [os.environ.get("HARNESS_OFFICIAL_PYTHON", sys.executable), "-c", ACCURACY_CHECK],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        cwd=CHECKER,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [issues == 0 for _, _, issues in LENGTHS]
