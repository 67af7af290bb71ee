"""What a tree has is read once, in whatever copy of it a file lies."""

import pytest

from harness.endpoints import official_files
from harness.endpoints.checks import log_rules
from harness.endpoints.checks.request_log import read_log
from harness.yaml_files import read_yaml
from tests.memo import once_a_content

_READ_ONCE = [
    (official_files, "read_yaml", once_a_content(read_yaml)),
    (log_rules, "read_log", once_a_content(read_log)),
]


@pytest.fixture(autouse=True)
def read_once(monkeypatch):
    """A file that a test has written anew is read anew."""
    for patch in _READ_ONCE:
        monkeypatch.setattr(*patch)
