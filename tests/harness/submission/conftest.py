"""A made-up submission, and runs and a TOML to build one from."""

from pathlib import Path

import pytest

from harness.submission import command, source_code
from tests.harness.submission.building import write_info
from tests.harness.submission.trees import copied, results_of, unpack


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The made-up tree."""
    return unpack(tmp_path_factory.mktemp("made_up"))


@pytest.fixture
def tree(original, tmp_path):
    """A copy of it to damage."""
    return copied(original, tmp_path / "submission")


@pytest.fixture(scope="module")
def runs(original):
    return results_of(original, original.parent / "results")


@pytest.fixture
def results(runs, tmp_path):
    copy = copied(runs, tmp_path / "results")
    for path in copy.rglob("run.json"):
        path.write_text(path.read_text().replace(str(runs), str(copy)))
    return copy


@pytest.fixture
def info(tmp_path, monkeypatch):
    """Of the source only two files: to copy and search all takes half a second."""
    monkeypatch.setattr(source_code, "_tracked", lambda root: iter((Path("README.md"), Path("setup.sh"))))
    monkeypatch.setattr(command, "machine_fields", lambda: {"host_memory_capacity": "2048 GiB"})
    return write_info(tmp_path)
