"""Two runs into one folder: the second is refused and the first loses nothing."""

import subprocess

from tests.runs import FinishedRun, command, quick_conf, run_mlperf, small_dataset
from tests.stub import StubServer


def test_the_second_is_refused(tmp_path):
    dataset, _ = small_dataset(tmp_path)
    with StubServer(event_delay_s=0.2) as stub:
        words = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", 10)
        first = subprocess.Popen(
            command(tmp_path, "--user-conf", quick_conf(tmp_path), *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while len(stub.requests) < 3:
            assert first.poll() is None
        second = run_mlperf(tmp_path, *words)
        out, err = first.communicate(timeout=60)
    assert second.code == 2
    assert "another run is writing there" in second.stderr
    finished = FinishedRun(first.returncode, out, err, tmp_path / "offline" / "performance")
    assert finished.code == 0, err
    assert finished.result == "VALID"
    with StubServer() as stub:
        again = run_mlperf(
            tmp_path, "--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", 10
        )
    assert again.code == 0, again.stderr
