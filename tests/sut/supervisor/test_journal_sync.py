"""The journal is on the disk, or it is known that it is not."""

import errno
import os

import pytest

from sut.supervisor.journal_sync import JournalSync


def test_what_the_disk_refuses_is_known(tmp_path, monkeypatch):
    """The kernel names such an error once, and takes further writes."""
    for name in ("answers-0.bin", "queries-0.bin"):
        (tmp_path / name).write_bytes(b"row")
    errors, synced = [OSError(errno.EIO, os.strerror(errno.EIO))], []

    def fdatasync(descriptor):
        synced.append(descriptor)
        if errors:
            raise errors.pop()

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    syncing = JournalSync(tmp_path, enabled=True)
    with syncing:
        pass
    assert len(synced) == 2  # the other file has its turn, too
    assert syncing.fault == "Input/output error; the disk reports errors: see dmesg"


def test_a_file_system_that_cannot_sync_is_no_full_disk(tmp_path):
    """As proc cannot: the kernel's answer is that of others without fsync."""
    (tmp_path / "answers-0.bin").symlink_to("/proc/self/comm")
    with pytest.raises(OSError, match="Invalid argument"), (tmp_path / "answers-0.bin").open("wb") as file:
        os.fdatasync(file.fileno())
    syncing = JournalSync(tmp_path, enabled=True)
    with syncing:
        pass
    assert syncing.fault == ""


def test_a_removed_folder_is_no_fault_of_the_disk(tmp_path):
    syncing = JournalSync(tmp_path / "gone", enabled=True)
    with syncing:
        pass
    assert syncing.fault == ""
