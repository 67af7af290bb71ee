"""A server none of whose answers is complete."""

import pytest

from tests.runs import run_mlperf, small_dataset
from tests.stub import Fault, StubServer

TOKENS = 5


def run_against(stub, tmp_path, dataset, *arguments, **settings):
    where = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", TOKENS)
    return run_mlperf(tmp_path, *where, *arguments, **settings)


@pytest.mark.parametrize(
    ("scenario", "fault", "timeout", "kind", "least"),
    [
        ("single-stream", Fault.SILENT, 0.5, "timeout", 3),
        pytest.param("server", Fault.NO_FINISH, 60, "unfinished", 10, marks=pytest.mark.engine),
    ],
)
def test_a_server_that_fails_every_query_ends_the_run(tmp_path, scenario, fault, timeout, kind, least):
    """Not one answer completes, although some have tokens: the run ends early and names the reason."""
    dataset, _ = small_dataset(tmp_path, rows=80)
    with StubServer(faults=lambda request: fault if request.index else None, event_delay_s=0.01) as stub:
        run = run_against(
            stub, tmp_path, dataset, "--timeout", timeout, scenario=scenario, qps=10, duration_ms=3_600_000
        )
    assert (run.code, run.result) == (4, "INVALID"), run.stdout + run.stderr
    assert least <= run.failures[kind] < 80
    assert f"all failed: {kind} " in run.record["verdict"]["reasons"][0]
