"""``build --rehearsal``: the whole path with runs that are not official, and a tree that is no submission."""

import json
import re

import pytest

from harness.submission.checks.check import check_tree
from harness.submission.tree.layout import DIVISIONS
from prepare_submission import main
from tests.harness.submission.building import build, files, one_line, refused, run_program, write_info
from tests.harness.submission.checks.official_checker import ask, needs_official
from tests.harness.submission.edits import both, fields, remove, rename, text
from tests.harness.submission.trees import RESULTS
from tests.runs import ROOT

SAMPLES = ROOT / "datasets/samples"
REHEARSED = "closed.REHEARSAL/MyOrg/results/made_up/gpt-oss-120b"


@pytest.fixture
def rehearsed(results, info):
    """The runs, as if they had been short and their tests not official."""
    for scenario in ("offline", "interactive"):
        for test, name in (("TEST07", "verify_accuracy"), ("TEST09", "verify_output_len")):
            folder = f"{scenario}/{test}"
            text(f"{folder}/{name}.txt", "TEST PASS", "NOT OFFICIAL PASS")(results)
            rename(f"{folder}/{name}.txt", f"{folder}/{name}.NOT_OFFICIAL.txt")(results)
        fields(f"{scenario}/performance/run.json", deviations=["dataset has 64 samples"])(results)
    return results


@pytest.mark.engine
def test_a_rehearsal_is_built_where_a_submission_is_refused(rehearsed, tmp_path, capsys):
    assert build(rehearsed) == 2
    assert refused(capsys).count("NOT_OFFICIAL") == 4
    assert build(rehearsed, "--rehearsal") == 0
    *_, head, _, first, second, counted, count = capsys.readouterr().out.splitlines()
    assert head.startswith("REHEARSAL: ") and count == "REHEARSAL: no issues"
    assert all("TEST07 PASS" in row and "TEST09 PASS" in row for row in (first, second))
    assert "until the runs are made by the rules: deviations 2 (" in counted
    assert {issue.costs.value for issue in check_tree(tmp_path / "tree")} == {"GPU hours"}
    assert main(["check", str(tmp_path / "tree"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rehearsal"] is True
    assert all(issue["is_rehearsed"] for issue in found["issues"])


def test_no_part_of_it_can_be_taken_for_a_submission(rehearsed, tmp_path):
    """No folder of a division; renamed to one, its tests are missing and its system names the rehearsal."""
    build(rehearsed, "--rehearsal")
    tree = tmp_path / "tree"
    assert not {path.name for path in tree.iterdir()} & set(DIVISIONS)
    assert [name for name in files(tree) if "/verify_" in name and ".NOT_OFFICIAL." not in name] == []
    (tree / "closed.REHEARSAL").rename(tree / "closed")
    assert {"test-missing", "system"} <= {issue.code for issue in check_tree(tree) if issue.needs_action}
    assert main(["check", str(tree)]) == 5


@needs_official
@pytest.mark.engine
def test_the_official_checker_takes_nothing_of_it(rehearsed, tmp_path):
    build(rehearsed, "--rehearsal")
    found = ask(tmp_path / "tree")
    assert "made_up" not in found.stdout + found.stderr


def test_what_concerns_no_run_is_an_issue(rehearsed, tmp_path, capsys):
    """An incomplete description is written as it is: nobody needs a GPU to complete it."""
    write_info(tmp_path, without=["cooling"])
    assert build(rehearsed, "--rehearsal") == 5
    *_, issue, count = capsys.readouterr().out.splitlines()
    assert "[system] empty: cooling" in issue and count == "REHEARSAL: 1 issue (a text edit: 1)"


def test_servers_of_another_port_or_version_are_no_error(rehearsed, capsys):
    both(
        text("offline/accuracy/run.json", "localhost:30000", "localhost:30001"),
        text("offline/TEST09/run/run.json", "0.5.23", "0.5.24"),
    )(rehearsed)
    assert build(rehearsed, "--rehearsal") == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if "by the rules: " in one)
    assert "origin " in line


def test_a_run_that_is_missing_is_still_missing(rehearsed, capsys):
    remove("offline/TEST09")(rehearsed)
    assert build(rehearsed, "--rehearsal") == 2
    assert "TEST09" in one_line(capsys)


def test_its_default_folder_is_not_that_of_a_submission(rehearsed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["build", "--results", str(rehearsed), "--submission", "submission.toml"]
    assert main([*words, "--rehearsal"]) == 0
    assert (tmp_path / "rehearsal" / REHEARSED).is_dir() and not (tmp_path / "submission").exists()


def test_a_rehearsal_beside_a_submission_is_an_issue(original, rehearsed, tree):
    words = ["build", "--results", rehearsed, "--submission", rehearsed.parent / "submission.toml"]
    main([*map(str, words), "--output", str(tree), "--rehearsal"])
    assert (tree / RESULTS).is_dir()
    beside = [issue for issue in check_tree(tree) if issue.needs_action]
    assert [(issue.code, issue.where) for issue in beside] == [("files", "closed.REHEARSAL")]


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_the_embedded_engine_is_enough(tmp_path):
    """Every command of a submission, on the sample of deepseek-r1: each run has an engine on another port."""
    sample, tokenizer = SAMPLES / "r1_sample.parquet", SAMPLES / "r1_sample_tokenizer.json"
    benchmark, results = ("--benchmark", "deepseek-r1"), ("--output-dir", tmp_path / "results")
    words = (*benchmark, *results, "--backend", "embedded", "--scenario", "offline", "--max-new-tokens", 8)
    words += ("--user-conf", ROOT / "configs/quick.conf", "--input-file", sample)
    run_program(tmp_path, "run_mlperf.py", *words, codes=(0, 4))  # 64 answers may be too quick to be VALID
    run_program(tmp_path, "run_mlperf.py", *words, "--accuracy")
    folder = tmp_path / "results/offline"
    graded = ("--mlperf-log", folder / "accuracy/mlperf_log_accuracy.json", "--reference-data", sample)
    graded += ("--tokenizer", tokenizer, "--lcb-data", SAMPLES / "code_sample.jsonl")
    (folder / "accuracy/accuracy.txt").write_text(
        run_program(tmp_path, "eval_mlperf_accuracy.py", *benchmark, *graded, codes=(0, 5))
    )
    run_program(tmp_path, "run_compliance.py", *words, "--test", "all", "--rehearsal", codes=(0, 5))
    info = write_info(tmp_path)
    built = ("build", *benchmark, "--results", tmp_path / "results", "--submission", info, "--rehearsal")
    out = run_program(tmp_path, "prepare_submission.py", *built, "--scenario", "offline", codes=(5,))
    assert out.splitlines()[-1] == "REHEARSAL: 1 issue (GPU hours: 1)"  # neither Server nor Interactive
    found = json.loads(
        run_program(tmp_path, "prepare_submission.py", "check", "rehearsal", "--json", codes=(5,))
    )
    assert {issue["code"] for issue in found["issues"] if not issue["is_rehearsed"]} == {"scenarios"}
    assert [re.sub(r"\d.*", "", row["accuracy"]) for row in found["results"]] == ["exact_match "]
