"""What a search knows before its first measurement."""

from msgspec.structs import replace

from harness.peak.peak_options import SearchOptions
from harness.record.settled import Router
from sut.peak import search
from sut.processes.machine_limits import SPARE_DESCRIPTORS, MachineLimits
from sut.supervisor.placement import Load, Machine, choose, load_of_full
from tests.records import ENDED
from tests.runs import small_dataset

FILES = 1024  # of one process


def test_the_client_holds_what_the_workers_for_full_servers_hold(monkeypatch, tmp_path):
    """Not those for the conf file's rate, which is not used."""
    monkeypatch.setattr(search, "machine_limits", lambda: MachineLimits(FILES, None))
    machine = Machine(tuple((core,) for core in range(64)), None, FILES)
    dataset, _ = small_dataset(tmp_path)
    options = SearchOptions(input_file=dataset, output_dir=tmp_path)
    (server,) = ENDED.servers
    servers = (replace(server, max_running_requests=8192),)
    assert ENDED.limits_ns["TPOT"] == 80_000_000
    full = load_of_full(ENDED.plan, servers, ENDED.settled.loadgen_settings)
    assert full == Load(None, 8192, events_per_s=102_400)
    placement = choose(machine, full, None, server_here=False)
    base = replace(ENDED, servers=servers, settled=replace(ENDED.settled, placement=placement))
    # A worker takes 25,000 events/s.
    settings = search.search_settings(options, base)
    assert settings.connections == settings.most_in_flight == 5 * (FILES - SPARE_DESCRIPTORS)


def test_the_ranks_of_all_servers_behind_a_router_count(tmp_path):
    """Their limit does, too: a first step of 64 for each rank."""
    dataset, _ = small_dataset(tmp_path)
    options = SearchOptions(input_file=dataset, output_dir=tmp_path)
    server = replace(ENDED.servers[0], dp_size=2, max_running_requests=8192, router=Router("SMG", servers=4))
    found = search.search_settings(options, replace(ENDED, servers=(server,)))
    assert (found.replicas, found.slots) == (8, 8192)
