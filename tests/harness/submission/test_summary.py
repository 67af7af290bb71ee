"""The table of results, compared with the files' figures and the official checker's results."""

import csv
import shutil

import pytest

from harness.submission.checks.check import check_contexts
from harness.submission.cli import main
from harness.submission.summary import compare, summarize
from tests.harness.grading.shared import SHARED_DATA
from tests.harness.submission.trees import RESULTS, SYSTEM, edit_json, edit_rows, unpack

DETAIL = "performance/run_1/mlperf_log_detail.txt"
ROUND = SHARED_DATA / "mlperf_v6.0"


@pytest.fixture
def tree(tmp_path):
    return unpack(tmp_path)


def test_rows_of_a_tree(tree):
    rows = summarize(check_contexts(tree))
    assert [(row.scenario, row.result, row.unit, row.valid) for row in rows] == [
        ("Interactive", 13665.1, "tokens/s", True),
        ("Offline", 12750.5, "tokens/s", True),
    ]
    interactive, offline = rows
    assert (interactive.ttft_p99_ms, interactive.tpot_p99_ms) == (30.444972, 0.002427)
    assert (offline.ttft_p99_ms, offline.tpot_p99_ms) == (None, None)
    assert offline.accuracy == "exact_match 83.601"
    assert offline.tests == "TEST07 PASS 65.556, TEST09 PASS 1278"
    assert offline.accelerators == 8


@pytest.mark.skipif(not ROUND.is_dir(), reason="the published logs are no part of the project")
def test_published_results():
    """The official checker's CSV has these results."""
    found = {(row.system, row.scenario): row.result for row in summarize(check_contexts(ROUND))}
    assert len(found) == 7
    assert found["8xMI355X_2xEPYC_9575F", "Offline"] == 95004.0
    assert found["nebius_b200_n1", "Server"] == 87444.2
    assert found["8xB200-LLM-D-Openshift", "Server"] == 71588.1


def test_csv(tree, tmp_path, capsys):
    assert main(["check", str(tree), "--csv", str(tmp_path / "results.csv")]) == 0
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["scenario"], row["result"], row["accelerators"]) for row in rows] == [
        ("Interactive", "13665.1", "8"),
        ("Offline", "12750.5", "8"),
    ]
    assert main(["check", str(tree), "--csv", str(tmp_path / "no/folder.csv")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_against_an_earlier_tree_of_the_same_system(tree, tmp_path, capsys):
    earlier = shutil.copytree(tree, tmp_path / "earlier")
    edit_rows(earlier / RESULTS / "Offline" / DETAIL, result_tokens_per_second=10200.4)
    assert main(["check", str(tree), "--against", str(earlier)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("made_up")] == ["+0.0%", "+25.0%"]


def test_against_another_system_of_the_same_accelerator(tree, tmp_path):
    """Per accelerator, and the best of them: a round has many systems."""
    earlier = shutil.copytree(tree, tmp_path / "earlier")
    system = earlier / SYSTEM
    edit_json(system, accelerators_per_node=4)
    system.rename(system.with_name("another.json"))
    (earlier / RESULTS.parent).rename(earlier / RESULTS.parent.parent / "another")
    found = compare(summarize(check_contexts(tree)), summarize(check_contexts(earlier)))
    assert [(one.share, one.by) for one in found] == [(0.5, "result per accelerator")] * 2


def test_against_nothing_alike(tree, tmp_path):
    earlier = shutil.copytree(tree, tmp_path / "earlier")
    edit_json(earlier / SYSTEM, accelerator_model_name="another card")
    (earlier / SYSTEM).rename((earlier / SYSTEM).with_name("another.json"))
    (earlier / RESULTS.parent).rename(earlier / RESULTS.parent.parent / "another")
    found = compare(summarize(check_contexts(tree)), summarize(check_contexts(earlier)))
    assert [one.earlier for one in found] == [None, None]
