"""Two runs into one folder: the second is refused and the first loses nothing."""

import signal
import subprocess
import time

import pytest

from tests.runs import FinishedRun, command, quick_conf, run_mlperf, small_dataset
from tests.stub import Fault, StubServer


def silent_run(request):
    """All but the trial request."""
    return Fault.SILENT if request.index else None


@pytest.mark.engine
def test_the_second_is_refused(tmp_path):
    dataset, _ = small_dataset(tmp_path)
    with StubServer(faults=silent_run) as stub, StubServer() as other:
        words = ("--input-file", dataset, "--max-new-tokens", 10)
        first = subprocess.Popen(
            command(tmp_path, "--user-conf", quick_conf(tmp_path), "--server-url", stub.url, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while len(stub.requests) < 3:
            assert first.poll() is None
            time.sleep(0.02)
        second = run_mlperf(tmp_path, *words, "--server-url", other.url)
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=120)
        assert second.code == 2
        assert "another run is writing there" in second.stderr
        finished = FinishedRun(first.returncode, out, err, tmp_path / "offline" / "performance")
        assert finished.code == 130, err
        assert finished.result == "INTERRUPTED"
        assert not list((tmp_path / "offline").glob("performance.*"))
        third = run_mlperf(tmp_path, *words, "--server-url", other.url)
    assert third.code == 0, third.stderr
