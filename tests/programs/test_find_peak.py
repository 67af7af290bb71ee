"""find_peak.py ladder as a user calls it, against stub servers."""

import re
import signal
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

import find_peak
from harness.peak.ladder.ladder_files import read_ladder
from harness.peak.ladder.steps import NOT_A_RESULT
from tests.kit import wait_until
from tests.runs import ROOT, main_here, small_dataset
from tests.stub import Facts, Fault, StubServer, every

TOKENS = 30
KNOBS = {"event_delay_s": 0.008, "first_delay_s": 0.02}  # far from the limits, also on a busy machine


FOLDER = "peak/server/ladder"
# find_peak.py where the machine leaves its client all the time that it wants: on a starved one a ladder ends
# with its first step.
UNSTARVED = """
import find_peak
from harness.cli.main import run_main
from harness.peak.ladder.measurement import Measurement
Measurement._client_bound = lambda *_: ()
run_main(find_peak.main)
"""


def ladder_of(folder, stubs, *arguments):
    """The words behind the program's name."""
    dataset, _ = small_dataset(folder)
    words = ("ladder", "--input-file", dataset, "--output-dir", folder, "--max-new-tokens", TOKENS)
    urls = ",".join(stub.url for stub in stubs)
    return [str(word) for word in (*words, "--log-level", "warning", "--server-url", urls, *arguments)]


def held(stubs, begin, end):
    """Requests at the servers at many moments, by their own times."""
    times = [(one.received_ns, one.last_sent_ns or 1 << 62) for stub in stubs for one in stub.requests]
    received, sent = np.sort(np.array(times).T, axis=1)
    moments = np.linspace(begin, end, 500)
    return np.searchsorted(received, moments, "right") - np.searchsorted(sent, moments, "right")


@pytest.mark.engine
def test_a_ladder_over_two_replicas(tmp_path, capfd):
    info = {"disable_radix_cache": True}

    def gate(request):
        info["disable_radix_cache"] &= request.index < 3
        return True

    with StubServer(**KNOBS) as one, StubServer(**KNOBS, facts=Facts(info=info), gate=gate) as other:
        stubs, folder = (one, other), tmp_path / FOLDER
        words = ladder_of(tmp_path, stubs, "--concurrency", "2,6", "--seconds", 1)
        code, stdout, stderr = main_here(capfd, find_peak.main, words)
    assert code == 0, stdout + stderr
    ladder = read_ladder(folder)
    assert (ladder.complete, ladder.exit_code, ladder.label) == (True, 0, NOT_A_RESULT)
    assert ladder.deviations[-1].startswith(f"asked again: {other.url} keeps a KV cache across queries")
    measured = [step.concurrency for step in ladder.steps]
    assert measured == [2, 6] or ladder.steps[-1].client_bound  # on a starved machine
    table = pq.read_table(folder / "requests.parquet")
    rows = table.to_pylist()
    assert [row["query_id"] for row in rows] == sorted({row["query_id"] for row in rows})
    assert all(row["sample_index"] == row["query_id"] % 12 for row in rows)
    for step in ladder.steps:
        of_step = [row for row in rows if row["concurrency"] == step.concurrency]
        counted = [row for row in of_step if row["in_window"]]
        assert len(counted) == step.queries > 0
        ends = [row["last_byte_ns"] for row in of_step]
        at_servers = held(stubs, min(ends), max(ends))
        assert at_servers.max() == step.concurrency or step.client_bound
        assert at_servers.max() <= step.concurrency
        assert [one.url for one in step.replicas] == [stub.url for stub in stubs]
        assert {row["osl"] for row in counted} == {TOKENS}
        # A first token that is read late, with later ones, shortens the rest of its answer.
        assert step.ttft.p50_ns > 2e7 and step.tpot.p50_ns > 4e6
    assert NOT_A_RESULT in stdout
    for name in ("ladder.parquet", "ladder_replicas.parquet", "requests.parquet"):
        metadata = pq.read_schema(folder / name).metadata
        assert metadata[b"label"].decode() == NOT_A_RESULT
    assert pq.read_table(folder / "ladder.parquet")["concurrency"].to_pylist() == measured
    assert len(pq.read_table(folder / "ladder_replicas.parquet")) == 2 * len(measured)
    assert NOT_A_RESULT in (folder / "ladder.html").read_text()


@pytest.mark.engine
@pytest.mark.parametrize(("end", "code", "interrupted_by"), [("signal", 130, "SIGINT"), ("server", 4, None)])
def test_an_end_in_the_second_step_leaves_the_first(end, code, interrupted_by, tmp_path):
    """A signal, or a server that dies."""
    folder = tmp_path / FOLDER
    with StubServer(**KNOBS) as stub:
        words = ladder_of(tmp_path, [stub], "--concurrency", "2,4", "--seconds", 12)
        program = [sys.executable, "-c", UNSTARVED, *words]
        process = subprocess.Popen(
            program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_until(lambda: (folder / "ladder.json").is_file())  # the first step has ended
        before = len(stub.requests)
        wait_until(lambda: len(stub.requests) > before + 12)  # answers of the second step have ended
        process.send_signal(signal.SIGINT) if end == "signal" else stub.stop()
        stdout, _ = process.communicate(timeout=120)
    assert process.returncode == code, stdout
    ladder = read_ladder(folder)
    assert [step.concurrency for step in ladder.steps] == [2]
    assert (ladder.complete, ladder.interrupted_by) == (False, interrupted_by)
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    assert {row["in_window"] for row in rows if row["concurrency"] == 4} == {False}
    assert ("SIGINT" in stdout) is (end == "signal")
    again = "Repeat it with: " if end == "signal" else "Mend the cause, then repeat it with: "
    assert stdout.splitlines()[-1].startswith(again)
    assert bool(ladder.errors) is (end == "server")


@pytest.mark.engine
@pytest.mark.parametrize(("flags", "steps"), [((), [2]), (("--no-fail-fast",), [2, 4])])
def test_failed_requests_mark_the_step_and_end_the_ladder(flags, steps, tmp_path, capfd):
    with StubServer(faults=every(9, Fault.CUT_CHUNKED, first=4), **KNOBS) as stub:
        words = ladder_of(tmp_path, [stub], "--concurrency", "2,4", "--seconds", 2, *flags)
        code, stdout, stderr = main_here(capfd, find_peak.main, words)
    assert code == 4, stdout + stderr
    ladder = read_ladder(tmp_path / FOLDER)
    assert [step.concurrency for step in ladder.steps] == steps or ladder.steps[0].client_bound
    assert ladder.steps[0].failed and ladder.best is None
    assert "FAILED" in stdout


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--stream", "off"), "WARNING   the answers are not streamed: no times of tokens are measured"),
        (("--max-new-tokens", 1), "WARNING   answers of one token have no TPOT"),
        ((), None),
    ],
)
def test_a_limit_that_nothing_is_compared_with_is_named_in_the_plan(flags, said, tmp_path, capfd):
    """A ladder of one token said 'inside the limits' as if its TPOT were."""
    with StubServer() as stub:
        words = ladder_of(tmp_path, [stub], "--dry-run", "--concurrency", "1,2", *flags)
        code, stdout, _ = main_here(capfd, find_peak.main, words)
    assert code == 0
    limits = [line for line in stdout.splitlines() if "WARNING" in line and "limit" in line]
    assert [line.startswith(said) for line in limits] == [True] if said else limits == []


def test_a_prefix_cache_is_told_before_the_steps(tmp_path, capfd):
    """Samples repeat, and a server with one looks faster than it is."""
    with StubServer(facts=Facts(info={"disable_radix_cache": False})) as stub:
        code, stdout, _ = main_here(capfd, find_peak.main, ladder_of(tmp_path, [stub], "--dry-run"))
    assert code == 0
    assert re.search(f"DEVIATION {stub.url} keeps a KV cache across queries", stdout), stdout
