"""Workers and cores: what is chosen for which machine and load, and that processes stay there."""

import multiprocessing
import os
import threading

import pytest

from harness.config.protocol import own_protocol
from harness.config.run_options import parse_options
from harness.config.run_plan import resolve_plan
from harness.dataset.samples import load_samples
from harness.record.settled import Placement
from sut.client.endpoint import Access, resolve_endpoint
from sut.ipc.request_store import render_requests
from sut.issuers.rows import RowsInOrder
from sut.processes.spawn import pin
from sut.supervisor.placement import (
    Load,
    Machine,
    choose,
    cpu_list,
    load_of_test,
    physical_cores,
    server_is_here,
    this_machine,
)
from sut.supervisor.session import QuerySession, _shares
from sut.wire import Wires
from sut.wire.fields import AnswersSeen
from sut.worker.worker import Destination
from tests.kit import wait_until
from tests.runs import small_dataset
from tests.stub import StubServer


def machine(cores, threads=1, quota=None, descriptors=1_048_576):
    """``threads`` of a core are numbered as x86 servers do: siblings half of the CPUs apart."""
    return Machine(
        tuple(tuple(range(core, cores * threads, cores)) for core in range(cores)), quota, descriptors
    )


SERVER_8_GPUS = Load(open_expected=8_700, queries_per_s=83, events_per_s=106_000)
SERVER_512_GPUS = Load(open_expected=419_000, queries_per_s=3956, events_per_s=5_060_000)


@pytest.mark.parametrize(
    ("cores", "load", "asked", "here", "workers", "reason"),
    [
        (1, Load(), None, False, 1, "as many as the cores allow"),
        (2, Load(), None, False, 1, "as many as the cores allow"),
        (16, Load(), None, False, 15, "as many as the cores allow"),
        (16, Load(), None, True, 7, "as many as the cores allow"),
        (128, Load(), None, False, 32, "as many as the cores allow"),
        (16, Load(open_at_most=512), None, False, 2, "for 512 requests in flight"),
        (16, Load(open_at_most=1), None, False, 1, "for 1 request in flight"),
        (2, Load(open_at_most=512), None, False, 1, "as many as the cores allow"),
        (16, SERVER_8_GPUS, None, False, 5, "for 106,000 events/s"),
        (4, SERVER_8_GPUS, None, False, 3, "as many as the cores allow"),
        (64, SERVER_512_GPUS, None, False, 32, "as many as the cores allow"),
        (64, Load(queries_per_s=45_000, events_per_s=45_000), None, False, 5, "for 45,000 queries/s"),
        (2, SERVER_512_GPUS, 6, False, 6, "as asked"),
        # a worker without a share would have no limit
        (2, Load(open_at_most=3), 6, False, 3, "for 3 requests in flight"),
    ],
)
def test_how_many_workers(cores, load, asked, here, workers, reason):
    chosen = choose(machine(cores), load, asked, server_here=here)
    assert (chosen.workers, chosen.reason) == (workers, reason)


@pytest.mark.parametrize(("in_flight", "workers"), [(19_936, 1), (19_937, 2), (190_000, 10)])
def test_open_files_can_ask_for_more_workers_than_cores(in_flight, workers):
    chosen = choose(machine(2, descriptors=20_000), Load(open_at_most=in_flight), None, server_here=False)
    assert chosen.workers == workers


def test_a_containers_quota_counts_rather_than_the_hosts_cores():
    chosen = choose(machine(128, quota=4.0), Load(), None, server_here=False)
    assert (chosen.workers, chosen.loadgen_cores, chosen.worker_cores) == (3, (), ())


@pytest.mark.parametrize(
    ("cores", "threads", "workers", "here", "loadgen", "others"),
    [
        (3, 1, 2, False, (), ()),  # too few cores
        (4, 1, 3, False, (3,), ((2,), (1,), (0,))),
        (4, 1, 4, False, (), ()),  # LoadGen's core is nobody else's
        (4, 2, 2, False, (3, 7), ((2, 6), (1, 5))),  # a whole physical core for each
        (8, 1, 2, True, (7,), ((6,), (5,))),
        (8, 1, 4, True, (), ()),  # the server keeps half
    ],
)
def test_who_gets_which_cores(cores, threads, workers, here, loadgen, others):
    chosen = choose(machine(cores, threads), Load(), workers, server_here=here)
    assert (chosen.loadgen_cores, chosen.worker_cores) == (loadgen, others)
    assert [chosen.cores_of(index) for index in range(workers)] == list(others or [()] * workers)
    assert ("core of its own" in str(chosen)) == bool(others)


def test_only_allowed_cpus_form_cores():
    siblings = {0: "0,4", 1: "1,5", 2: "2,6", 4: "0,4", 5: "1,5"}.__getitem__
    assert physical_cores([0, 1, 2, 4, 5], siblings) == ((0, 4), (1, 5), (2,))
    assert physical_cores([0, 1, 2], lambda cpu: "") == ((0,), (1,), (2,))


def test_the_kernels_lists():
    assert cpu_list("0\n") == {0}
    assert cpu_list("0,64") == {0, 64}
    assert cpu_list("0-1,8-9\n") == {0, 1, 8, 9}
    assert cpu_list("") == cpu_list("not known") == set()


def test_this_machines_cores_are_those_that_the_process_may_use():
    found = this_machine()
    assert sorted(cpu for core in found.cores for cpu in core) == sorted(os.sched_getaffinity(0))


def test_a_pinned_process_and_its_later_threads_stay_there():
    before = os.sched_getaffinity(0)
    last, found = {max(before)}, []
    try:
        pin(tuple(last))
        thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        pin(())
        pin((4000,))  # no such core
        found.append(os.sched_getaffinity(0))
    finally:
        os.sched_setaffinity(0, before)
    assert found == [last, last]


def test_a_session_pins_the_issuer_and_workers(tmp_path):
    ours = os.sched_getaffinity(0)
    last = max(ours)
    dataset, _ = small_dataset(tmp_path)
    with StubServer() as server:
        flags = ["--input-file", str(dataset), "--server-url", server.url, "--output-dir", str(tmp_path)]
        plan = resolve_plan(parse_options(flags)).client
        samples = load_samples(dataset, vocabulary_size=plan.benchmark.vocabulary_size)
        wires = Wires(own_protocol("sglang"), plan.parameters, plan.benchmark.vocabulary_size, "m")
        endpoint = resolve_endpoint(server.url, wires.of(0).path, Access())
        destination = Destination((endpoint,), own_protocol("sglang"), "m", AnswersSeen())
        placement = Placement(1, "", (last,), ((last,),))
        with QuerySession(plan, RowsInOrder(range(len(samples))), placement) as session:
            session.start_workers(destination, render_requests(samples, wires), placement.workers, None)
            children = multiprocessing.active_children()
            assert len(children) == 2
            wait_until(lambda: all(os.sched_getaffinity(child.pid) == {last} for child in children))
    assert os.sched_getaffinity(0) == ours


QPS = {"target_qps": 83.0}


def plan(*flags):
    return resolve_plan(parse_options([*flags, "--input-file", "x.parquet"]))


@pytest.mark.parametrize(
    ("flags", "settings", "load"),
    [
        (["--scenario", "offline"], {}, Load(all_at_once=True)),
        (["--scenario", "offline", "--max-concurrency", "512"], {}, Load(512, all_at_once=True)),
        (["--scenario", "single-stream"], {}, Load(1)),
        # 83/s of 1 278.2 tokens within TTFT 3 s and TPOT 80 ms: a submitted system had 7 982 in flight.
        (["--scenario", "server"], QPS, Load(None, 8736, 83.0, 83 * 1278.2)),
        (["--scenario", "server", "--max-new-tokens", "100"], QPS, Load(None, 913, 83.0, 8300.0)),
        (["--scenario", "server", "--max-concurrency", "64"], QPS, Load(64, 8736, 83.0, 83 * 1278.2)),
        # An accuracy run's answers are as long as they may be.
        (["--scenario", "server", "--accuracy"], QPS, Load(None, 217829, 83.0, 83 * 32768.0)),
        (["--scenario", "interactive"], QPS, Load(None, 1757, 83.0, 83 * 1278.2)),
        (["--scenario", "server"], {}, Load(None, 105, 1.0, 1278.2)),  # LoadGen's own target_qps
    ],
)
def test_loads(flags, settings, load):
    assert load_of_test(plan(*flags), settings) == load


def test_whether_a_server_is_here():
    assert server_is_here(plan("--server-url", "http://192.0.2.1:1,http://localhost:2").client)
    assert not server_is_here(plan("--server-url", "http://192.0.2.1:1").client)
    assert server_is_here(plan("--backend", "embedded").client)


@pytest.mark.parametrize(("limit", "workers"), [(7, 1), (7, 3), (64, 8), (3, 3)])
def test_workers_share_the_requests_in_flight(limit, workers):
    shares = _shares(limit, workers)
    assert (sum(shares), len(shares)) == (limit, workers)
    assert max(shares) - min(shares) <= 1
