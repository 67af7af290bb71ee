"""scripts/compare_checkers.py: its classes, and its reading of the official checker's log."""

from pathlib import Path

import pytest

from harness.submission.checks.issue import Issue
from harness.submission.tree.layout import ScenarioDir
from scripts import compare_checkers as script

RESULT = "closed/MyOrg/results/made_up/gpt-oss-120b/Offline"
OTHER = "closed/MyOrg/results/made_up/whisper/Offline"
INTEL = "closed/Intel/results/1-node-4x-BMG-B60/gpt-oss-120b/Server/TEST07/accuracy/accuracy.txt"
REFUSED = script.OfficialLine(RESULT, "NoResults: seeds")
# Lines of the official checker of August 2026.
STDERR = """\
[2026-11-21 22:01:53,600 base.py:50 INFO] Starting performance checks for: /view/{result}/{detail}
[2026-11-21 22:01:53,639 performance_check.py:228 ERROR] /view/{result}/{detail} qsl_rng_seed is wrong, \
expected=2465351861681999779, found=0
[2026-11-21 22:01:53,640 base.py:58 ERROR] Some performance checks Checks failed for: /view/{result}/{detail}
[2026-11-21 22:01:53,644 main.py:236 ERROR] NoResults /view/{result}/{detail}
[2026-11-21 22:01:53,644 main.py:361 ERROR] SUMMARY: submission has errors
""".format(result=RESULT, detail="performance/run_1/mlperf_log_detail.txt")


def issue(where, code="seeds", is_warning=False):
    return Issue(code, where, "is wrong", is_warning)


CASES = [
    ([issue(f"{RESULT}/performance/run_1/mlperf_log_detail.txt")], [REFUSED], ["same"]),
    ([issue("closed/MyOrg/systems/made_up.json", "system")], [REFUSED], ["same"]),
    ([issue("closed/MyOrg/results/made_up/gpt-oss-120b", "scenarios")], [REFUSED], ["same"]),
    ([issue("closed/MyOrg/x.swp", "files")], [script.OfficialLine("closed/MyOrg/x.swp", "named")], ["same"]),
    ([issue("closed/MyOrg/x y", "files")], [REFUSED], ["false alarm", "missed"]),
    ([issue(RESULT)], [], ["false alarm"]),
    ([issue(RESULT, is_warning=True)], [REFUSED], ["missed"]),
    ([issue(INTEL, "missing-file")], [], ["ours right"]),
    ([issue(INTEL, "hash")], [], ["false alarm"]),
    ([], [REFUSED], ["missed"]),
    ([], [script.OfficialLine(OTHER, "NoResults: ")], ["not checked"]),
    ([], [script.OfficialLine("closed/MyOrg", "TypeError: ")], ["missed"]),
]


@pytest.mark.parametrize(("mine", "theirs", "kinds"), CASES)
def test_classes(mine, theirs, kinds):
    names = ("gpt-oss-120b", "whisper")
    inside = [ScenarioDir(Path("/tree"), "closed", "MyOrg", "made_up", name, "Offline") for name in names]
    assert [one.kind for one in script._classify(mine, theirs, inside, "v6.0")] == kinds


def test_lines_of_the_official_checker():
    (line,) = script._checker_lines(STDERR, Path("/view"))
    assert line.key == RESULT
    assert "qsl_rng_seed is wrong" in line.text
