"""A complete search through the real program, LoadGen and client, on a server whose peak is known."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peak.on_stub import conf_rows, knobs, write_dataset
from benchmarks.peak.server_model import Server
from benchmarks.peak.truth import true_peak
from benchmarks.peak.workload import Workload, lengths
from harness.peak.search.search_state import read_state
from tests.benchmarks.test_stub_server import binary, running  # noqa: F401
from tests.kit import free_ports
from tests.runs import ROOT

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the stub needs a C compiler")

PORTS = 4
SERVER = Server(step_s=0.010, stream_s=3e-3, slots=64, prefill_s=0.001, replicas=PORTS)
WORKLOAD = Workload(lengths(700, mean=20.0), min_duration_s=10.0)


@pytest.mark.engine
def test_a_search_finds_the_peak_of_the_stub(binary, tmp_path):  # noqa: F811
    """A busy machine is slower than the model: what is found may be lower, but not much higher.

    Where the client was a bottleneck, the stub's even pace had pauses, or a rate had both verdicts,
    another end than FOUND is right.
    """
    peak = true_peak(SERVER, WORKLOAD)
    dataset = write_dataset(tmp_path / "prompts.parquet", WORKLOAD)
    conf = tmp_path / "user.conf"
    conf.write_text(conf_rows(WORKLOAD, 1.0))
    port = free_ports(PORTS)
    flags = [word for name, value in knobs(SERVER).items() for word in (f"--{name}", str(value))]
    urls = ",".join(f"http://127.0.0.1:{port + index}" for index in range(PORTS))
    words = ["search", "--input-file", dataset, "--user-conf", conf, "--server-url", urls]
    words += ["--output-dir", tmp_path, "--max-new-tokens", 1000, "--tolerance", "10%", "--ladder-seconds", 2]
    command = [sys.executable, str(ROOT / "find_peak.py"), *map(str, words)]
    with running(binary, port, *flags):
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    state = read_state(tmp_path / "peak/server/search")
    found, probes = state.conclusion, state.history.probes
    assert done.returncode in (0, 4), done.stdout + done.stderr
    assert all(probe.queries % len(WORKLOAD.tokens) == 0 for probe in probes)
    steps = state.history.steps
    paused = any(one.tpot is not None and one.tpot.p99_ns > 2 * one.tpot.p50_ns for one in steps)
    disturbed = any(one.client_bound for one in (*steps, *probes)) or found.remarks or paused
    assert found.outcome == "FOUND" or disturbed, done.stdout
    if found.rate is None:
        return
    assert 0 < found.rate < 1.1 * peak
    verdicts = [one.verdict for one in probes if one.rate == found.rate]
    assert verdicts.count("VALID") == found.valid > len(verdicts) / 2
    assert Path(tmp_path / "peak/server/search" / found.folder).is_dir()
