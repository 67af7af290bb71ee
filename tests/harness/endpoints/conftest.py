"""The YAML of a tree is read once, in whatever copy of it a file lies."""

import pytest

from harness.endpoints import official_files
from harness.yaml_files import read_yaml
from tests.memo import once_a_content

_read_yaml = once_a_content(read_yaml)


@pytest.fixture(autouse=True)
def read_yaml_once(monkeypatch):
    """A file that a test has written anew is read anew."""
    monkeypatch.setattr(official_files, "read_yaml", _read_yaml)
