"""A real engine that dies or stops in mid-run: llama.cpp with the tiny gpt-oss."""

import os
import re
import signal
import subprocess
from contextlib import contextmanager

import psutil
import pytest

from tests.faults.going import Going, alive, clear, in_setting
from tests.faults.matrix import OFFLINE, SERVER_ACCURACY
from tests.kit import any_written, wait_until
from tests.runs import ACCURACY, PERFORMANCE, command

pytestmark = pytest.mark.engine


@contextmanager
def going(tmp_path, setting, *arguments):
    """A run on the embedded engine, some of whose queries are answered."""
    dataset = ACCURACY if setting.accuracy else PERFORMANCE
    words = command(
        tmp_path,
        *(*in_setting(setting, tmp_path, rate=10), "--backend", "embedded"),
        *("--input-file", dataset, "--max-new-tokens", 64),
        *arguments,
    )
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    run = Going(process, setting, (), tmp_path / setting.scenario / setting.mode)
    try:
        wait_until(lambda: any_written(run.log_dir, "journal/queries-*.bin"))
        yield run
    finally:
        clear(run)


def engine(run: Going) -> psutil.Process:
    return next(child for child in run.family() if "sut.servers.embedded.serve" in " ".join(child.cmdline()))


@pytest.mark.parametrize("setting", [OFFLINE, SERVER_ACCURACY], ids=str)
def test_killed(setting, tmp_path):
    with going(tmp_path, setting) as run:
        engine(run).kill()
        ended = run.end()
        wait_until(lambda: not alive(run.seen))
    assert (ended.code, ended.result) == (4, "INVALID"), ended.stdout + ended.stderr
    reason = ended.record["verdict"]["reasons"][0]
    named = ("ended early: ", "embedded engine", "SIGKILL")
    assert [part for part in named if part not in reason] == []
    assert re.search(r"embedded_engine(_\d+)?\.log", reason)  # other tests run engines, too
    assert ended.failures.keys() & {"truncated", "connect", "no_response"}
    assert "Traceback" not in ended.stderr


def test_stopped(tmp_path):
    """Its sockets stay open and silent: only a deadline tells."""
    with going(tmp_path, OFFLINE, "--timeout", 20) as run:
        os.kill(engine(run).pid, signal.SIGSTOP)
        ended = run.end()
        wait_until(lambda: not alive(run.seen))
    assert (ended.code, ended.result) == (4, "INVALID"), ended.stdout + ended.stderr
    assert "timeout" in ended.failures
    assert any("within 20 s" in (row["failure_detail"] or "") for row in ended.requests)
