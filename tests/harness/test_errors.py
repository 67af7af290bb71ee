"""What the machine refuses, as one line with a remedy."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from harness.errors import EXIT_INVALID, EXIT_USAGE, explained, machine_failure, refused, unwritten
from harness.files import not_written
from tests.harness.cli.test_main import PROGRAMS
from tests.runs import ROOT


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/d/run.json"),
            "/d/run.json: No space left on device; free space there or choose another folder",
        ),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "Too many open files; allow more open files (ulimit -n)",
        ),
        (
            OSError(errno.ENOENT, "No such file or directory", "/proc/self/fd"),
            "/proc/self/fd: No such file or directory; mount it (mount -t proc proc /proc)",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/d/run.json"),
            "/d/run.json: Read-only file system; the file system is mounted read-only, or has become so: see "
            "dmesg for errors of the disk",
        ),
        (OSError(errno.EXDEV, "Cross-device"), "Cross-device; check the machine's limits and disks"),
        (OSError("no number"), "no number; check the machine's limits and disks"),
        (MemoryError(), "out of memory; free memory, or lift the limit on it (ulimit -v)"),
    ],
)
def test_one_line(error, line):
    failure = machine_failure(error)
    assert str(failure) == line
    assert failure.exit_code == EXIT_INVALID


@pytest.mark.parametrize(
    ("of", "named"), [(None, ""), ("/d/run.json", ""), ("/d/run.json.partial", "/d/run.json.partial: ")]
)
def test_a_file_that_could_not_be_written_is_named_once(of, named):
    line = unwritten(Path("/d/run.json"), OSError(errno.EROFS, "Read-only file system", of))
    assert line.startswith(f"/d/run.json could not be written: {named}Read-only file system; the file sys")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.EACCES, "Permission denied"), "Permission denied; choose another --output"),
        (OSError(errno.ENOSPC, "No space"), "No space; free space there or choose another --output"),
        (
            OSError(errno.EFBIG, "File too large"),
            "File too large; lift the limit on the size of files (ulimit -f)",
        ),
    ],
)
def test_another_place_is_no_remedy_for_what_the_machine_refuses_everywhere(error, line):
    assert str(not_written(Path("f"), error, "--output")) == f"f: cannot be written: {line}"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),  # Python's, under ulimit -u 8
        RuntimeError("Resource temporarily unavailable"),  # LoadGen's, under ulimit -u 9
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
    ],
)
def test_no_thread_is_not_no_memory(error):
    assert "ulimit -u" in str(explained(error))


# Of glibc's loader, which gives no cause.
NOT_MAPPED = "/c/.venv/lib/python3.11/msgspec/_core.so: failed to map segment from shared object"


@pytest.mark.parametrize(("flags", "words"), [(os.ST_NOEXEC, "mounted noexec"), (0, "out of memory")])
def test_a_library_that_cannot_be_loaded(flags, words, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    assert words in str(explained(ImportError(NOT_MAPPED)))


# Recorded with an empty libstdc++.so.6 in LD_LIBRARY_PATH, and an older numpy in PYTHONPATH.
NOT_LINKED = "/c/.venv/mlperf_loadgen.so: undefined symbol: _ZTVN10__cxxabiv117__class_type_infoE"
SHADOWED = "No module named 'numpy.typing'"


@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_LIBRARY_PATH"])
@pytest.mark.parametrize(
    "error", [ImportError(NOT_LINKED), ModuleNotFoundError(SHADOWED, name="numpy.typing")], ids=type
)
def test_what_comes_before_the_packages_is_the_remedy(error, name, monkeypatch):
    for other in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(other, raising=False)
    assert "unset" not in str(explained(error))
    monkeypatch.setenv(name, "/opt/old")
    assert f"{error}; unset {name}, or run ./setup.sh" in str(explained(error))


def test_the_page_before_the_loaders_message_is_left_out():
    page = ImportError("advice")
    page.__cause__ = ImportError(NOT_LINKED)
    assert f"cannot run this: {NOT_LINKED}; " in str(explained(page))


def test_an_import_that_this_program_got_wrong_is_a_defect():
    assert (
        explained(ImportError("cannot import name 'x' from 'harness.errors'", name="harness.errors")) is None
    )


EVERY_PROGRAM = """
import json, runpy, sys
import harness.cli.main

mains, codes = [], []
harness.cli.main.run_main = mains.append
for program, *words in json.load(sys.stdin):
    runpy.run_path(program, run_name="__main__")
    codes.append(mains[-1](words))
    try:
        mains[-1](["--help"])
    except SystemExit as end:
        codes.append(end.code)
print(*codes)
"""


def test_the_wrong_interpreter_is_named_in_one_line_and_help_works_there():
    """With an interpreter that has the standard library alone."""
    command, asked = [sys.executable, "-S", "-c", EVERY_PROGRAM], json.dumps(PROGRAMS)
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=120, cwd=ROOT)
    for (program, *_), line in zip(PROGRAMS, done.stderr.splitlines(), strict=True):
        assert line.startswith(program)
        assert f": error: {sys.executable} cannot run this: " in line
        assert "./setup.sh" in line
        assert "./mlperf" in line
    assert done.stdout.splitlines()[-1].split() == [str(EXIT_USAGE), "0"] * len(PROGRAMS)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "Permission denied; let this user reach it, or name another place"),
        (errno.ENAMETOOLONG, "File name too long; choose a shorter name"),
    ],
)
def test_a_place_that_cannot_be_reached_is_an_error_of_usage(number, reason):
    """As Path.is_file() raises it, for a dataset in the home of another user among others."""
    found = explained(OSError(number, os.strerror(number), "/home/other/perf.parquet"))
    assert found is not None
    assert (found.exit_code, str(found)) == (EXIT_USAGE, f"/home/other/perf.parquet: {reason}")


def test_a_refusal_without_a_number_has_its_own_words(tmp_path):
    """As of a copy of several files."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from/link").symlink_to(tmp_path / "absent")
    with pytest.raises(OSError, match="from/link") as raised:
        shutil.copytree(tmp_path / "from", tmp_path / "to")
    assert f"{tmp_path}/from/link" in refused(raised.value, "choose another folder")


@pytest.mark.parametrize("error", [ImportError("cannot import name x"), ModuleNotFoundError(name="sut.gone")])
def test_a_mistake_of_the_program_is_not_explained_away(error):
    assert explained(error) is None


def test_a_working_directory_that_was_removed_is_named(tmp_path, monkeypatch):
    """As by another terminal, which makes the checkout or the folder of results anew."""
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(FileNotFoundError) as raised:
        Path("user.conf").absolute()
    found = explained(raised.value)
    assert found is not None
    assert (found.exit_code, "the working directory was removed" in str(found)) == (2, True)
