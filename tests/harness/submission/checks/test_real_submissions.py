"""Published submissions of MLPerf v6.0. They passed the official checker.

docs/design/validation.md explains the remaining issues.
"""

import re

import pytest

from harness.compliance.registry import find_test
from harness.config.benchmark import load_benchmark
from harness.config.scenario import Scenario
from harness.loadgen_logs.summary_and_detail import read_detail, read_summary
from harness.submission.checks.check import check_tree
from harness.submission.tree.accuracy_files import parse_accuracy
from tests.harness.grading.shared import SHARED_DATA

ROUND = SHARED_DATA / "mlperf_v6.0"
CLOSED = ROUND / "closed"
pytestmark = pytest.mark.skipif(not CLOSED.is_dir(), reason="the published logs are no part of the project")

AMD = "AMD/results/8xMI355X_2xEPYC_9575F/gpt-oss-120b"
NEBIUS = "Nebius/results/nebius_b200_n1/gpt-oss-120b"
REDHAT = "RedHat/results/8xB200-LLM-D-Openshift/gpt-oss-120b"
DETAIL = "performance/run_1/mlperf_log_detail.txt"

# Read off the files.
ACCURACY = {
    f"{AMD}/Offline": 83.396,
    f"{AMD}/Server": 83.813,
    f"{NEBIUS}/Interactive": 83.295,
    f"{NEBIUS}/Offline": 83.750,
    f"{NEBIUS}/Server": 83.833,
    f"{REDHAT}/Offline": 84.028,
    f"{REDHAT}/Server": 83.724,
}
# Files that the available excerpt lacks: it has no system descriptions, and some files were left out.
LEFT_OUT = re.compile(
    r"closed/\w+/(src|systems/.*|.*/(user\.conf|README\.md|measurements\.json)"
    r"|.*/TEST07/accuracy/mlperf_log_accuracy\.json)|closed/Nebius/.*/TEST07/verify_accuracy\.txt"
)


def test_only_two_issues_are_about_the_submissions():
    """The others are about files that were left out of the excerpt."""
    issues, absent = check_tree(ROUND, round_name="v6.0"), ("missing-file", "test-missing")
    error, seed = (one for one in issues if one.code not in absent)
    assert (error.where, error.code) == (f"closed/{AMD}/Server/TEST07/{DETAIL}", "loadgen-errors")
    assert "Max query count reached. query_count 990" in error.what
    assert (seed.where, seed.code) == (f"closed/{REDHAT}/Offline/TEST07/{DETAIL}", "seeds")
    assert seed.what.startswith("qsl_rng_seed is 0, expected 2465351861681999779")
    missing = [one.where for one in issues if one.code in absent]
    assert len(missing) == 37
    assert [where for where in missing if not LEFT_OUT.fullmatch(where)] == []


def test_under_the_current_round_all_seeds_are_wrong():
    seeds = [c for c in check_tree(ROUND) if c.code == "seeds"]
    assert len(seeds) == 28
    said = [one for one in seeds if one.what == "the seeds are those of v6.0"]
    assert len(said) == 27 and all("--round v6.0" in one.remedy for one in said)


def test_accuracy_texts():
    for folder, score in ACCURACY.items():
        text = (CLOSED / folder / "accuracy/accuracy.txt").read_text()
        found = parse_accuracy(text, ("exact_match",))
        assert (found.scores, found.samples) == ({"exact_match": (score,)}, 4395)
        assert [len(digits) for digits in found.hashes] == [64]


def test_verify_files_say_what_their_lines_say():
    paths = sorted(CLOSED.rglob("verify_*.txt"))
    assert len(paths) == 11
    benchmark = load_benchmark("gpt-oss-120b")
    for path in paths:
        text, test = path.read_text(), find_test(benchmark, path.parent.name)
        found = test.read(text)
        scenario = Scenario.parse(path.parents[1].name).loadgen
        assert (found.passed, list(test.recheck(text, scenario))) == (True, [])
        assert re.search(rf"(Accuracy score|Mean output tokens): 0*{found.figure}0*$", text, re.MULTILINE)
        assert found.samples == test.dataset.samples


def test_every_figure_of_every_log_is_the_files():
    """Each number of a summary and each value of a detail log is found again in the file's text."""
    for path in CLOSED.rglob("mlperf_log_summary.txt"):
        stated = {
            (name.strip(), float(value))
            for name, value in re.findall(r"^(.*?): *([\d.e+]+) *$", path.read_text(), re.MULTILINE)
        }
        assert read_summary(path).figures.items() <= stated, path
    for path in CLOSED.rglob("mlperf_log_detail.txt"):
        text = path.read_text()
        for key, value in read_detail(path).values.items():
            if type(value) is int:
                assert f'"key": "{key}", "value": {value}, ' in text, (path, key)
