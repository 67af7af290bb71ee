"""The folder of a run's logs: earlier results are kept, a little space is reserved for the verdict."""

import errno
import fcntl
import io
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness import files
from harness.errors import ConfigError
from harness.record.output_dir import (
    check_free,
    free_reserve,
    locked,
    move_aside_existing,
    require_unlocked,
)
from tests.runs import ROOT


def test_space_is_kept_and_given_back(tmp_path):
    assert move_aside_existing(tmp_path / "a" / "b") is None
    assert sum(path.stat().st_size for path in (tmp_path / "a" / "b").iterdir()) >= 1 << 16
    free_reserve(tmp_path / "a" / "b")
    free_reserve(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("take", [check_free, move_aside_existing])
def test_files_that_appear_when_they_are_closed_are_refused(tmp_path, monkeypatch, take):
    """As in a mount by rclone without a cache of writes: a run that was killed had left no journal."""

    class Hidden(io.BytesIO):
        name = str(tmp_path / "logs" / "not there yet")

    monkeypatch.setattr(Path, "open", lambda path, mode: Hidden())
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", lambda **where: Hidden())
    with pytest.raises(ConfigError, match="0 of 65536 bytes until it is closed"):
        take(tmp_path / "logs")
    assert not list(tmp_path.rglob("*.*"))


def test_what_is_there_is_moved_aside(tmp_path):
    folders = []
    for number in range(3):
        folders.append(move_aside_existing(tmp_path / "logs"))
        (tmp_path / "logs" / "run.json").write_text(str(number))
    assert [(folder / "run.json").read_text() for folder in folders[1:]] == ["0", "1"]


def test_no_folder_can_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=os.strerror(errno.ENOTDIR)):
        move_aside_existing(tmp_path / "file" / "logs")


def test_a_dry_run_leaves_nothing(tmp_path):
    (tmp_path / "old").mkdir()
    check_free(tmp_path / "new" / "deep" / "logs")
    check_free(tmp_path / "old" / "logs")
    with locked(tmp_path / "old" / "logs"):
        pass
    check_free(tmp_path / "old" / "logs")
    assert [path.name for path in tmp_path.rglob("*")] == ["old", ".logs.lock"]


def test_what_a_dry_run_refuses(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "logs", Path("/proc/x/logs"), Path("/sys/x")):
        with pytest.raises(ConfigError, match=re.escape(f"--results {folder}: ")):
            check_free(folder)
    with locked(tmp_path / "logs"), pytest.raises(ConfigError, match=re.escape(str(tmp_path / "logs"))):
        check_free(tmp_path / "logs")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path / "open"))):
        check_free(tmp_path / "open" / "logs")


@pytest.mark.parametrize("take", [check_free, lambda one: locked(one).__enter__()])
def test_a_link_to_what_is_not_mounted_is_named(tmp_path, take):
    (tmp_path / "results").symlink_to("/scratch/of nobody")
    with pytest.raises(ConfigError, match="results is a link to /scratch/of nobody, which is not there"):
        take(tmp_path / "results/server/performance")


def test_a_look_at_a_lock_does_not_take_it(tmp_path):
    """A campaign looks, and then starts the program that writes there."""
    with locked(tmp_path / "logs"):
        pass
    require_unlocked(tmp_path / "logs")
    with locked(tmp_path / "logs"):
        pass


@pytest.mark.parametrize("fault", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_and_used(tmp_path, monkeypatch, capfd, fault):
    """Lustre without its mount option flock says ENOSYS, NFS without a lock service ENOLCK."""

    def flock(file, how):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(fcntl, "flock", flock)
    files._warn_of_no_locks.cache_clear()
    with locked(tmp_path / "accuracy"), locked(tmp_path / "accuracy"):
        pass
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"note: this file system has no locks ({os.strerror(fault)})")


def test_without_locks_a_second_run_on_this_machine_is_refused(tmp_path, monkeypatch):
    """Its process is named in the lock file; one of another machine, or that has ended, is not waited for."""

    def flock(file, how):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    folder, lock = tmp_path / "performance", tmp_path / ".performance.lock"
    for _ in range(2):  # the same process again, as that of a search
        with locked(folder):
            assert lock.read_text() == f"{os.getpid()} {files._born(os.getpid())} {platform.node()}\n"
    other = f"{os.getppid()} {files._born(os.getppid())}"
    lock.write_text(f"{other} {platform.node()}")
    for refused in (check_free, lambda one: locked(one).__enter__()):
        with pytest.raises(ConfigError, match="another run is writing there"):
            refused(folder)
    for free in (f"{other} elsewhere", f"{other}1 {platform.node()}", "", "a b c"):
        lock.write_text(free)
        with locked(folder):
            pass


_OVERLAY = """
mount -t tmpfs none /mnt && cd /mnt && mkdir -p image/logs/journal new work root &&
echo 1 > image/logs/run.json && echo 2 > image/logs/journal/rows && chmod 700 image/logs &&
mount -t overlay -o userxattr,lowerdir=image,upperdir=new,workdir=work none root
"""
_MOVING = """
import sys
from pathlib import Path
from harness.record.output_dir import move_aside_existing
logs = Path("/mnt/root/logs")
for text in "34":
    aside = move_aside_existing(logs)
    assert text == "4" or aside.stat().st_mode & 0o777 == 0o700
    print([(file.name, file.read_text()) for file in sorted(aside.rglob("[a-z]*[a-z]")) if file.is_file()])
    (logs / "run.json").write_text(text)
"""


def test_a_folder_of_a_containers_image_is_moved(tmp_path):
    """overlayfs cannot rename it."""
    probe = f"{_OVERLAY.rstrip()} && rm -r root/logs && mkdir root/logs"
    if subprocess.run(["unshare", "-rm", "sh", "-c", probe], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount an overlay (unshare -rm)")
    script = f'{_OVERLAY} exec "$0" -c "$1"'
    words = ["unshare", "-rm", "sh", "-c", script, sys.executable, _MOVING]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    first, second = "[('rows', '2\\n'), ('run.json', '1\\n')]", "[('run.json', '3')]"
    assert done.stdout.splitlines() == [first, second], done.stderr


def test_a_folder_that_is_moved_in_part_is_put_back(tmp_path, monkeypatch):
    rename = os.rename

    def of_an_image(source, target):
        if os.fspath(source).endswith("z"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(source))
        if Path(source).is_dir() and "logs" in Path(source).parts:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fspath(source))
        rename(source, target)

    (tmp_path / "logs/journal").mkdir(parents=True)
    for name in ("a", "journal/b", "z"):
        (tmp_path / "logs" / name).write_text(name)
    monkeypatch.setattr(os, "rename", of_an_image)
    with pytest.raises(OSError, match="No space"):
        files.move_path(tmp_path / "logs", tmp_path / "aside")
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["logs", "a", "journal", "b", "z"]
