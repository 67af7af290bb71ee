"""A signal at any moment from the start to the last line: the exit code and run.json agree."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.going import Scene, alive, going, verdict
from tests.faults.matrix import OFFLINE
from tests.kit import wait_until

LASTS_S = 4.2  # a run on an idle machine, from its start to the last line
MOMENTS = [LASTS_S * i / 28 for i in range(31)]
QUICK = MOMENTS[16]


def moments():
    for i, moment in enumerate(MOMENTS):
        marks = () if moment == QUICK else pytest.mark.engine
        yield pytest.param(moment, (signal.SIGTERM, signal.SIGINT)[i % 2], id=f"{moment:.2f}s", marks=marks)


@pytest.mark.parametrize(("moment", "signum"), list(moments()))
def test_signal(moment, signum, tmp_path):
    with going(tmp_path, OFFLINE, Scene(at_once=True)) as run:
        wait_until(lambda: listens_to(run.process, signum))
        time.sleep(moment)
        run.family()
        if run.process.poll() is None:
            os.killpg(run.process.pid, signum)
        ended = run.end()
        assert "Traceback" not in ended.stderr
        interrupted = 128 + signum
        expected = {(interrupted, "INTERRUPTED"), (interrupted, ""), (0, "VALID")}
        assert (ended.code, verdict(ended.log_dir)) in expected
        assert ended.code == 0 or signum.name in ended.stdout + ended.stderr
        wait_until(lambda: not alive(run.seen))


def listens_to(process: subprocess.Popen[str], signum: signal.Signals) -> bool:
    """Whether the program has put its handler in place of the interpreter's."""
    status = Path(f"/proc/{process.pid}/status")
    lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
    caught = int(lines["SigCgt"], 16)
    return bool(caught >> (signal.SIGTERM - 1) & caught >> (signum - 1) & 1)
