"""What a search knows before its first measurement."""

from msgspec.structs import replace

from harness.peak.peak_options import SearchOptions
from sut.peak import search
from sut.processes.machine_limits import SPARE_DESCRIPTORS, MachineLimits
from sut.supervisor.placement import Machine
from tests.records import ENDED
from tests.runs import small_dataset

FILES = 1024  # of one process


def test_the_client_holds_what_the_workers_for_full_servers_hold(monkeypatch, tmp_path):
    """Not those for the conf file's rate, which is not used."""
    monkeypatch.setattr(search, "machine_limits", lambda: MachineLimits(FILES, None))
    machine = Machine(tuple((core,) for core in range(64)), None, FILES)
    monkeypatch.setattr(search, "this_machine", lambda: machine)
    dataset, _ = small_dataset(tmp_path)
    options = SearchOptions(input_file=dataset, output_dir=tmp_path)
    (server,) = ENDED.servers
    base = replace(ENDED, servers=(replace(server, max_running_requests=8192),))
    settings = search.search_settings(options, base)
    assert base.limits_ns["TPOT"] == 80_000_000
    # 8192 tokens in 80 ms are 102,400 events/s, of which a worker takes 25,000.
    assert settings.connections == settings.most_in_flight == 5 * (FILES - SPARE_DESCRIPTORS)
