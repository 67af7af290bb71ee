"""A made-up submission, and runs and a TOML to build one from."""

import shutil

import pytest

from harness.submission import submission_command
from harness.submission.building import source_code
from harness.submission.checks import context
from harness.submission.tree import secrets
from tests.harness.submission.building import commit, git, write_info
from tests.harness.submission.trees import COMMIT, copied, results_of, unpack
from tests.memo import once_a_content
from tests.runs import ROOT

_READ_ONCE = [
    (module, name, once_a_content(getattr(module, name)))
    for module, name in ((context, "read_detail"), (context, "read_summary"), (secrets, "_scan"))
]


@pytest.fixture(autouse=True)
def read_once(monkeypatch):
    """Each log is read, and each file searched for secrets, in one of the many copies of a tree."""
    for patch in _READ_ONCE:
        monkeypatch.setattr(*patch)


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


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """A git checkout, whose commit goes by the name that the recorded runs have."""
    root = tmp_path_factory.mktemp("repository")
    for name in ("README.md", "setup.sh"):
        shutil.copy(ROOT / name, root / name)
    git(root, "init", "-q", "--template=")  # without sample hooks
    commit(root)
    git(root, "tag", COMMIT)
    return root


@pytest.fixture
def checkout(repository, tmp_path_factory):
    """A copy of it to change."""
    return shutil.copytree(repository, tmp_path_factory.mktemp("checkout"), dirs_exist_ok=True)


@pytest.fixture
def info(tmp_path, monkeypatch, checkout):
    """The code of the runs is a checkout of two files: to copy and search all takes half a second."""
    monkeypatch.setattr(source_code, "ROOT", checkout)
    fields = {"host_memory_capacity": "2048 GiB", "operating_system": "not the one that is stated"}
    monkeypatch.setattr(submission_command, "machine_fields", lambda: fields)
    return write_info(tmp_path)
