"""Standard streams that are closed, full or without a reader: the program continues."""

import subprocess
import sys

import pytest

from tests.runs import ROOT

ENVIRONMENT = {"PYTHONPATH": str(ROOT)}
PROGRAM = """
import os, sys
from harness.cli.streams import secure_standard_streams
secure_standard_streams()
opened = os.open("/dev/null", os.O_RDONLY)
for _ in range(3):
    print("x" * 100_000, flush=True)
    print("y", file=sys.stderr)
os.write(3, repr((opened > 2, [os.path.exists(f"/proc/self/fd/{i}") for i in range(3)])).encode())
"""


@pytest.mark.parametrize(
    ("redirection", "reader"),
    [(">&-", ""), ("<&- >&- 2>&-", ""), (">/dev/full", ""), ("2>/dev/full", ""), ("", "| true")],
)
def test_whatever_becomes_of_them(redirection, reader, tmp_path):
    """It runs to its end, and what it opens later does not become a standard stream."""
    script = f'exec 3>told; {{ "$@" {redirection}; echo $? >code; }} {reader}'
    words = ["bash", "-c", script, "bash", sys.executable, "-c", PROGRAM]
    subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, timeout=120)
    assert (tmp_path / "code").read_text() == "0\n"
    assert (tmp_path / "told").read_text() == "(True, [True, True, True])"


def test_what_a_terminal_cannot_show_is_escaped():
    program = "from harness.cli.streams import *\nsecure_standard_streams()\nprint('\\u2028 \\u00e9 \\ud800')"
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=environment, capture_output=True, timeout=120)
    assert done.stdout == b"\\u2028 \\xe9 \\ud800\n"


def test_nothing_that_is_printed_controls_the_terminal_but_what_means_to():
    program = (
        "import sys, logging\nfrom harness.cli.streams import *\nsecure_standard_streams()\n"
        "print('a\\x1b[31m\\r\\u202eb\\tc'); sys.stdout.flush()\n"
        "control(sys.stdout, '\\r\\x1b[K'); sys.stdout.flush()\n"
        "print('d\\x9b', file=sys.stderr)\nlogging.basicConfig()\nlogging.warning('e\\x07')"
    )
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, timeout=120)
    assert done.stdout == b"a\\x1b[31m\\r\\u202eb\tc\n\r\x1b[K"
    assert done.stderr == b"d\\x9b\nWARNING:root:e\\x07\n"


def test_a_full_pipe_that_nobody_reads_is_waited_for_and_dropped():
    """A non-blocking stdout, as some terminals and supervisors leave it."""
    program = (
        "import os\nfrom harness.cli import streams\nstreams._WAIT_S = 0.01\nos.set_blocking(1, False)\n"
        "streams.secure_standard_streams()\nprint('x' * 200_000, flush=True)\nos.write(2, b'through')"
    )
    words, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(words, env=ENVIRONMENT, stdout=pipe, stderr=pipe) as process:
        assert process.wait(120) == 0
        assert process.stderr.read() == b"through"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("words", "unharmed"),
    [
        (("prompts", "encode", "-i", "configs/quick.conf"), 0),
        (("report", "list", ".", "--json"), 0),
        (("submit", "system"), 0),
        (("endpoints", "check", str(ROOT / "tests/data/endpoints/official_run"), "--json"), 5),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_a_result_that_is_printed_is_not_lost_without_an_error(words, unharmed, tmp_path):
    """A shell takes the exit code for that of the file. A reader that has left wants no more."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "run.json").write_bytes(b"{}")
    command = [sys.executable, str(ROOT / "mlperf.py"), *words]
    for script, code in (('"$@" >/dev/full', 2), ('"$@" | true; exit ${PIPESTATUS[0]}', unharmed)):
        script = ["bash", "-c", script, "bash", *command]
        done = subprocess.run(script, cwd=tmp_path, capture_output=True, timeout=120)
        assert done.returncode == code, done.stderr
        assert (b"stdout: cannot be written: No space left on device" in done.stderr) is (code == 2)
