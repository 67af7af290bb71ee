"""The ladder and the runs of a search, against a stub server."""

import math
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from harness.analysis.outages import what_stood
from harness.errors import RunError, ServerError
from harness.peak.ladder.ladder_files import read_ladder
from harness.peak.peak_options import SearchOptions
from harness.peak.search.search_console import SearchConsole
from sut.peak import prober as prober_module
from sut.peak.prober import RunProber, search_run
from sut.run import run
from sut.supervisor import monitor
from tests.kit import wait_until
from tests.runs import small_dataset
from tests.stub import Facts, StubServer

CONF = """
*.Server.target_qps = 1
*.Server.min_duration = 6000
*.Server.min_query_count = 480
*.Server.ttft_latency = 6000
*.Server.tpot_latency = 60000
"""


@contextmanager
def prober_of(folder, stub, *, conf=CONF, most_in_flight=1, **flags):
    """A prober of small runs, in a folder; its dry run has been made."""
    (folder / "given.conf").write_text(conf)
    options = SearchOptions(
        input_file=small_dataset(folder)[0],
        server_url=(stub.url,),
        output_dir=folder,
        user_conf=folder / "given.conf",
        max_new_tokens=8,
        **flags,
    )
    base = run(search_run(options, folder, options.user_conf, dry_run=True), rate_follows=True)
    console = SearchConsole(lambda record: None)
    with closing(RunProber(options, folder, base, console, most_in_flight=most_in_flight)) as prober:
        yield prober


@pytest.mark.engine
def test_ascending_steps_are_of_one_session(tmp_path, monkeypatch):
    """A step that is not higher, or higher than the session was prepared for, begins a session of its own,
    on empty servers; each one's folder is complete."""
    emptied = []
    monkeypatch.setattr(prober_module, "empty_servers", lambda *asked: emptied.append(asked) or ())
    known = {"most_in_flight": 8, "ladder_seconds": 1.0}
    with StubServer(event_delay_s=0.01) as stub, prober_of(tmp_path, stub, **known) as prober:
        steps = [prober.ladder(concurrency) for concurrency in (2, 6, 3, 9)]
    assert [step.concurrency for step in steps] == [2, 6, 3, 9]
    assert len(emptied) == 2
    ladders = {path.parent: read_ladder(path.parent) for path in tmp_path.glob("ladder/*/ladder.json")}
    measured = [(folder.name, [step.concurrency for step in one.steps]) for folder, one in ladders.items()]
    assert sorted(measured) == [("000002", [2, 6]), ("000003", [3]), ("000009", [9])]
    for folder, one in ladders.items():
        assert one.ended and not one.errors
        assert (folder / "requests.parquet").is_file()


@pytest.mark.engine
def test_a_server_that_dies_in_a_step_is_known_to_have_stood(tmp_path, monkeypatch):
    """A campaign whose search it ends twice is to be called again."""
    monkeypatch.setattr(monitor, "_DEAD_S", 0.5)
    with StubServer(event_delay_s=0.01, gate=lambda request: request.index < 20) as stub:
        dies = threading.Thread(target=lambda: (wait_until(lambda: len(stub.requests) > 20), stub.stop()))
        with prober_of(tmp_path, stub) as prober:
            dies.start()
            with pytest.raises(RunError, match="no server has answered"):
                prober.ladder(2)
            dies.join()
    assert what_stood(prober.events).startswith(f"{stub.url}: not reachable")


@pytest.mark.engine
def test_a_step_of_other_weights_is_not_kept_and_no_run_follows(tmp_path):
    """Also: a run's folder is the next one where that of an earlier run was removed."""
    (tmp_path / "probe-02").mkdir()
    known = {"most_in_flight": 8, "ladder_seconds": 1.0}
    with StubServer(event_delay_s=0.01) as stub, prober_of(tmp_path, stub, **known) as prober:
        prober.ladder(2)
        stub.options = replace(stub.options, facts=Facts(weight_version="v2"))
        for measure, error in (
            (prober.ladder, RunError),
            (prober.ladder, ServerError),
            (prober.probe, ServerError),
        ):
            sent = len(stub.requests)
            with pytest.raises(error, match="weight version default is now v2"):
                measure(4)
        assert len(stub.requests) == sent
    assert sorted(path.name for path in tmp_path.glob("probe-*")) == ["probe-02", "probe-03"]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("stands", "pause_s", "verdict"), [(1, math.inf, "VALID"), (2, math.inf, "INVALID"), (1, 7.0, "VALID")]
)
def test_a_run_in_which_the_server_stood_is_made_again_once(tmp_path, caplog, stands, pause_s, verdict):
    """A pause of seconds made its rate INVALID for good, and the search went on below it."""
    run_of: dict[int, int] = {}  # the number of its run by each request's index
    first_of: dict[int, int] = {}
    stood: dict[int, float] = {}

    def gate(request):
        run_number = len(list(tmp_path.glob("probe-*")))
        own = run_of.setdefault(request.index, run_number)
        if run_number > stands or request.index < first_of.setdefault(own, request.index) + 100:
            return True
        return time.monotonic() - stood.setdefault(own, time.monotonic()) > pause_s

    with StubServer(gate=gate) as stub, prober_of(tmp_path, stub) as prober:
        probe = prober.probe(100)
    assert (probe.verdict, probe.folder) == (verdict, "probe-02/server/performance")
    (said,) = [one.getMessage() for one in caplog.records if "made again" in one.getMessage()]
    assert "probe-01" in said and stub.url in said


@pytest.mark.engine
def test_a_run_without_a_stream_is_not_cut_by_times_of_tokens(tmp_path):
    """No query has a first token before its end: all counted as over the limit of TTFT, on any server."""
    conf = CONF.replace("ttft_latency = 6000", "ttft_latency = 1500")
    with StubServer() as stub, prober_of(tmp_path, stub, conf=conf, stream="off") as prober:
        assert prober.probe(100).cut_after_s is None
