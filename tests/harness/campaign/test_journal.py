"""The lock of a campaign's folder where its file system has no locks."""

import errno
import fcntl
import os

import pytest

from harness.campaign.journal import is_open, opened
from harness.errors import ConfigError


def test_a_second_campaign_without_locks(tmp_path, monkeypatch):
    """As Lustre without its mount option flock answers: the process that the file names is looked for."""

    def flock(file, how):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    with opened(tmp_path):
        assert is_open(tmp_path)
        with pytest.raises(ConfigError, match=f"the campaign of process {os.getpid()} works there"):
            opened(tmp_path).__enter__()
    (tmp_path / ".lock").write_text("1 0 elsewhere\n")  # of a campaign that has ended
    assert not is_open(tmp_path)
    with opened(tmp_path):
        assert is_open(tmp_path)
