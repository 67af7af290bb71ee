"""``build`` from run folders of the client of MLPerf Endpoints."""

import shutil

import pytest

from harness.submission.checks.check import check_tree
from tests.harness.submission.building import build, files, refused
from tests.harness.submission.checks.endpoints_results import (
    ACCURACY,
    CONFIG,
    SUMMARY,
    accuracy,
    config,
    save,
    summary,
)
from tests.harness.submission.checks.official_checker import accepts, needs_official
from tests.harness.submission.trees import RESULTS

RUN = "gpt-oss-120b/interactive"


@pytest.fixture
def runs(results, info):
    """Interactive was run with that client."""
    shutil.rmtree(results / "interactive")
    folder = results / RUN
    for name, content in {CONFIG: config("Interactive"), SUMMARY: summary(), ACCURACY: accuracy()}.items():
        save(folder / name, content)
    (folder / "events.jsonl").write_text("{}\n")
    return results


def test_a_run_folder_becomes_a_result(runs, tmp_path):
    assert build(runs) == 0
    tree = tmp_path / "tree"
    assert check_tree(tree) == ()
    assert files(tree / RESULTS / "Interactive") == sorted(
        ["README.md", ACCURACY, CONFIG, "measurements.json", SUMMARY]
    )
    assert files(tmp_path / "tree.kept" / RESULTS / "Interactive") == ["events.jsonl"]


@needs_official
@pytest.mark.engine
def test_mlcommons_s_checker_accepts_what_was_built(runs, tmp_path):
    build(runs)
    assert accepts(tmp_path / "tree")


def test_a_run_folder_without_accuracy(runs, tmp_path, capsys):
    (runs / RUN / ACCURACY).unlink()
    build(runs)
    text = refused(capsys)
    assert f"{ACCURACY} is missing" in text and "--mode both" in text and not (tmp_path / "tree").exists()


def test_a_run_folder_with_a_damaged_summary(runs, capsys):
    (runs / RUN / SUMMARY).write_text('{"n_samples')
    build(runs)
    text = refused(capsys)
    assert f"{SUMMARY} is not JSON" in text and text.rstrip().endswith("; copy it again")
