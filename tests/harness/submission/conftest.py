"""Runs and a TOML to build a submission from."""

import shutil

import pytest

from harness.submission import command
from tests.harness.submission.building import write_info
from tests.harness.submission.trees import results_of, unpack


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return results_of(unpack(folder), folder / "results")


@pytest.fixture
def results(runs, tmp_path):
    copy = shutil.copytree(runs, tmp_path / "results")
    for path in copy.rglob("run.json"):
        path.write_text(path.read_text().replace(str(runs), str(copy)))
    return copy


@pytest.fixture
def info(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "machine_fields", lambda: {"host_memory_capacity": "2048 GiB"})
    return write_info(tmp_path)
