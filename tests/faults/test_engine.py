"""A real engine that dies or stops in mid-run: llama.cpp with the tiny gpt-oss."""

import os
import signal
import subprocess

import psutil
import pytest

from tests.faults.going import OFFLINE_CONF, SERVER_CONF, Going, alive
from tests.faults.matrix import OFFLINE, SERVER_ACCURACY
from tests.kit import wait_until
from tests.runs import ACCURACY, PERFORMANCE, command

pytestmark = pytest.mark.engine


def start(tmp_path, setting, *arguments):
    """A run on the embedded engine, some of whose queries are answered."""
    conf = tmp_path / "engine.conf"
    conf.write_text(OFFLINE_CONF if setting.scenario == "offline" else SERVER_CONF.replace("= 40", "= 10"))
    dataset = ACCURACY if setting.accuracy else PERFORMANCE
    words = command(
        tmp_path,
        *("--scenario", setting.scenario, *(["--accuracy"] if setting.accuracy else [])),
        *("--backend", "embedded", "--user-conf", conf, "--input-file", dataset, "--max-new-tokens", 64),
        *arguments,
    )
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    run = Going(process, setting, (), tmp_path / setting.scenario / setting.mode)
    journal = run.log_dir / "journal"
    wait_until(lambda: any(path.stat().st_size for path in journal.glob("queries-*.bin")))
    return run


def engine(run: Going) -> psutil.Process:
    return next(child for child in run.family() if "sut.servers.embedded.serve" in " ".join(child.cmdline()))


@pytest.fixture
def killed_at_the_end():
    runs = []
    yield runs.append
    for run in runs:
        for survivor in alive([*run.seen, *run.family()]):
            survivor.kill()
        run.process.kill()
        run.process.wait()


@pytest.mark.parametrize("setting", [OFFLINE, SERVER_ACCURACY], ids=str)
def test_killed(setting, tmp_path, killed_at_the_end):
    run = start(tmp_path, setting)
    killed_at_the_end(run)
    engine(run).kill()
    ended = run.end()
    assert (ended.code, ended.result) == (4, "INVALID"), ended.stdout + ended.stderr
    reason = ended.record["verdict"]["reasons"][0]
    assert all(
        part in reason for part in ("ended early: ", "embedded engine", "SIGKILL", "embedded_engine.log")
    )
    assert ended.failures.keys() & {"truncated", "connect", "no_response"}
    assert "Traceback" not in ended.stderr
    wait_until(lambda: not alive(run.seen))


def test_stopped(tmp_path, killed_at_the_end):
    """Its sockets stay open and silent: only a deadline tells."""
    run = start(tmp_path, OFFLINE, "--timeout", 20)
    killed_at_the_end(run)
    os.kill(engine(run).pid, signal.SIGSTOP)
    ended = run.end()
    assert (ended.code, ended.result) == (4, "INVALID"), ended.stdout + ended.stderr
    assert ended.failures.keys() & {"timeout"}
    assert any("within 20 s" in (row["failure_detail"] or "") for row in ended.requests)
    wait_until(lambda: not alive(run.seen))
