"""The made-up tree, and a copy of it to damage."""

import shutil

import pytest

from tests.harness.submission.trees import unpack


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("made_up"))


@pytest.fixture
def tree(original, tmp_path):
    return shutil.copytree(original, tmp_path / "submission")
