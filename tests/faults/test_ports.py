"""Local ports that run out: refused before the run where it is known, a named failure where it is not."""

import functools
import subprocess
import sys

import pytest

from tests.faults.going import HANG_S, ROWS, TOKENS, in_setting
from tests.faults.matrix import FIVE, OFFLINE, OFFLINE_ACCURACY, TWO
from tests.runs import ROOT, FinishedRun, command, small_dataset

# The client uses half of them. A port of the preflight stays taken for a second: of few, over half may be.
FIRST, LAST, LAST_OF_MORE = 40000, 40023, 40063
OWN_NETWORK = ["unshare", "-rn", sys.executable, str(ROOT / "tests/documents/own_network.py")]


@functools.cache
def may_unshare() -> bool:
    return subprocess.run([*OWN_NETWORK, "true"], capture_output=True).returncode == 0


@pytest.fixture(autouse=True)
def own_network():
    if not may_unshare():
        pytest.skip("this machine lets nobody make a network of his own (unshare -rn)")


def run_with_few_ports(tmp_path, setting, *arguments, last=LAST):
    dataset, _ = small_dataset(tmp_path, rows=ROWS)
    words = command(
        tmp_path,
        *(*in_setting(setting, tmp_path), "--input-file", dataset),
        *("--server-url", "{url}", "--max-new-tokens", TOKENS),
        *arguments,
    )
    few = [sys.executable, "-m", "tests.faults.few_ports", str(FIRST), str(last), "--"]
    done = subprocess.run(
        [*OWN_NETWORK, *few, *words], capture_output=True, text=True, timeout=HANG_S, cwd=ROOT
    )
    log_dir = tmp_path / setting.scenario / setting.mode
    return FinishedRun(done.returncode, done.stdout, done.stderr, log_dir)


@pytest.mark.engine
@pytest.mark.parametrize("setting", [TWO[1], pytest.param(TWO[0], marks=pytest.mark.engine)], ids=str)
def test_too_many_are_asked_for(setting, tmp_path):
    run = run_with_few_ports(tmp_path, setting, "--max-concurrency", 50)
    assert run.code == 2
    assert "need as many local ports, the system has 12" in run.stderr
    assert "ip_local_port_range" in run.stderr


@pytest.mark.engine
@pytest.mark.parametrize("setting", [OFFLINE, OFFLINE_ACCURACY], ids=str)
def test_offline_takes_what_fits(setting, tmp_path):
    run = run_with_few_ports(tmp_path, setting, "--max-samples", ROWS, last=LAST_OF_MORE)
    assert (run.code, run.result) == (0, "VALID"), run.stdout + run.stderr
    assert run.record["plan"]["concurrency"] == (LAST_OF_MORE - FIRST + 1) / 2


@pytest.mark.engine
@pytest.mark.parametrize("setting", FIVE[2:], ids=str)
def test_ports_run_out(setting, tmp_path):
    """LoadGen alone decides how many are in flight: the server is not blamed for what is missing here."""
    run = run_with_few_ports(tmp_path, setting)
    assert (run.code, run.result) == (4, "INVALID"), run.stdout + run.stderr
    assert run.failures.keys() == {"local_limit"}
    details = [row["failure_detail"] for row in run.requests if row["failure"]]
    assert all("Cannot assign requested address; allow more local ports" in detail for detail in details)
