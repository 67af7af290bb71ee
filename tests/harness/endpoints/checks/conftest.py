"""A log of requests is read once, in whatever copy of a rehearsal it lies."""

import pytest

from harness.endpoints.checks import log_rules
from harness.endpoints.checks.request_log import read_log
from tests.memo import once_a_content

_read_log = once_a_content(read_log)


@pytest.fixture(autouse=True)
def read_once(monkeypatch):
    """A log that a test has written anew is read anew."""
    monkeypatch.setattr(log_rules, "read_log", _read_log)
