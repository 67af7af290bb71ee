"""What the machine refuses, as one line with a remedy."""

import errno

import pytest

from harness.errors import EXIT_INVALID, machine_failure


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/d/run.json"),
            "/d/run.json: No space left on device; free space there or choose another --output-dir",
        ),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "Too many open files; allow more open files (ulimit -n)",
        ),
        (OSError(errno.EXDEV, "Cross-device"), "Cross-device; look at the machine's limits and disks"),
        (OSError("no number"), "no number; look at the machine's limits and disks"),
        (MemoryError(), "out of memory; free memory, or lift the limit on it (ulimit -v)"),
    ],
)
def test_one_line(error, line):
    failure = machine_failure(error)
    assert str(failure) == line
    assert failure.exit_code == EXIT_INVALID
