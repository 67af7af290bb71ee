"""The one edge of all programs: errors of one line without secrets and escapes, signals, exit codes."""

import os
import runpy
import signal
import subprocess
import sys

import pytest

from harness.cli import main
from tests.runs import ROOT, main_here

KEY = "sk-very-secret"
# A path as a user may have it, with the key and an escape sequence in it.
PATH = f"no-{KEY}-\x1b[31m.parquet"
PROGRAMS = [
    ("run_mlperf.py", "--input-file", PATH),
    ("run_compliance.py", "--test", "TEST07", "--input-file", PATH),
    ("run_eval.py", "--input-file", PATH),
    ("find_peak.py", "ladder", "--input-file", PATH),
    ("run_batch.py", "encode", "--input", PATH),
    ("eval_accuracy.py", "--input-file", PATH, "--dataset-file", PATH),
    ("eval_mlperf_accuracy.py", "--mlperf-log", PATH, "--reference-data", PATH),
    ("prepare_submission.py", "check", PATH),
    ("report.py", "show", PATH),
]


@pytest.mark.parametrize("words", PROGRAMS, ids=lambda words: words[0])
def test_an_error_is_one_line_without_key_and_escapes(words, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    mains = []
    monkeypatch.setattr(main, "run_main", mains.append)
    runpy.run_path(str(ROOT / words[0]), run_name="__main__")
    code, stdout, stderr = main_here(capfd, mains[0], list(words[1:]))
    assert (code, stdout) == (2, "")
    (line,) = stderr.splitlines()
    assert line.startswith((f"{words[0]}: error: ", f"{words[0]} {words[1]}: error: "))
    assert KEY not in line
    assert "\x1b" not in line


WAITING = """
import os, sys, time
from harness.cli.main import exit_code_of, run_main
from harness.cli.signals import InterruptedRun, interruptible

def work():
    with interruptible():
        try:
            print("umask", oct(os.umask(0o777)), flush=True)
            while True:
                time.sleep(0.1)  # a signal just before a sleep does not end it
        except InterruptedRun as interruption:
            interruption.add_note("what is kept")
            raise
    return 0

run_main(lambda argv: exit_code_of("program.py", "info", work))
"""


def test_a_signal_is_one_line_with_what_is_kept():
    words, pipe = [sys.executable, "-c", WAITING], subprocess.PIPE
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, umask=0)
    assert process.stdout.readline() == "umask 0o2\n"
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 143
    assert stderr == "program.py: ended by SIGTERM; what is kept\n"


ERRORS_ALONE = """
import logging, sys
from harness.cli.main import exit_code_of

def work():
    log, other = logging.getLogger("mlperf"), logging.StreamHandler(sys.stdout)
    log.addHandler(other)
    log.info("the trial took 2 s")
    log.warning("replica out of use")
    log.error("no page")
    return 0

sys.exit(exit_code_of("program.py", "error", work))
"""


def test_a_level_is_that_of_stderr_and_progress_jsonl_has_warnings_all_the_same():
    words = [sys.executable, "-c", ERRORS_ALONE]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr == "no page\n"
    assert done.stdout == "replica out of use\nno page\n"


def test_a_reader_that_leaves_ends_help_without_a_traceback(monkeypatch):
    """Of a help that stays in the buffer until the program ends; argparse ignores what goes wrong before."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, ROOT / "report.py", "--help"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_numpy_starts_no_threads_for_linear_algebra(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    look = "__import__('numpy') and print(len(os.listdir('/proc/self/task')))"
    code = f"import os; from harness.cli.main import run_main; run_main(lambda argv: {look} or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert (done.returncode, done.stdout) == (0, "1\n")
