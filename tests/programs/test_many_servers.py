"""Runs with many servers, some of which are not there."""

import signal
import subprocess

import pytest

from harness.errors import EXIT_SERVER
from tests.runs import command, run_mlperf, small_dataset
from tests.stub import Fault, StubServer, refused_url


@pytest.mark.engine
def test_an_accuracy_run_does_without_some_replicas(tmp_path):
    dataset, prompts = small_dataset(tmp_path)
    urls = tmp_path / "urls.txt"
    with (
        StubServer() as a,
        StubServer() as b,
        StubServer(faults=Fault.HTTP_500) as sick,
        refused_url() as dead,
    ):
        urls.write_text(f"# two that work\n{a.url}\n{b.url}\n{sick.url}\n{dead}\n")
        flags = ("--input-file", dataset, "--server-url", f"@{urls}", "--max-new-tokens", 5, "--accuracy")
        run = run_mlperf(tmp_path, *flags, "--min-replicas", 2)
        few = run_mlperf(tmp_path, *flags, "--min-replicas", 3)
    assert (run.code, run.result) == (0, "VALID")
    assert run.accuracy_log.keys() == set(range(len(prompts)))
    record = run.record
    assert [server["url"] for server in record["servers"]] == [a.url, b.url]
    assert all(server["trial_s"] > 0 for server in record["servers"])
    assert record["plan"]["preflight"]["min_replicas"] == 2
    assert record["left_out"].keys() == {sick.url, dead}
    assert "HTTP 500" in record["left_out"][sick.url]
    assert "not reachable" in record["left_out"][dead]
    left_out = [text for text in record["warnings"] if "left out" in text]
    assert [url in text for url, text in zip((dead, sick.url), left_out, strict=True)] == [True, True]
    assert "left out" in run.stdout
    assert few.code == EXIT_SERVER


def test_ctrl_c_while_servers_are_waited_for(tmp_path):
    dataset, _ = small_dataset(tmp_path)
    with refused_url() as url:
        words = command(tmp_path, "--input-file", dataset, "--server-url", url, "--wait-for-servers", "30m")
        program = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        line = program.stderr.readline()
        program.send_signal(signal.SIGINT)
        _, rest = program.communicate(timeout=120)
    assert line.startswith("waiting for 1 of 1 servers") and url in line
    assert program.returncode == 128 + signal.SIGINT
    assert rest.splitlines()[-1] == "run_mlperf.py: ended by SIGINT"
    assert "Traceback" not in rest
    assert not any(tmp_path.rglob("run.json"))
