"""The made-up tree, and a copy of it to damage."""

import pytest

from tests.harness.submission.trees import copied, unpack


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("made_up"))


@pytest.fixture
def tree(original, tmp_path):
    return copied(original, tmp_path / "submission")
