"""Runs over bad networks: none hangs, none is VALID that should not be, and their times are the wire's."""

import numpy as np
import pytest

from sut.client.transport import LATE_NS
from tests.faults.matrix import NOTHING, VALID
from tests.network.crossing import Crossing, cross
from tests.network.link import why_no_link
from tests.network.networks import NETWORKS, BadNetwork
from tests.runs import ROOT

TOLERANCE_NS = 1_000_000  # between two clocks: kernel stamps are CLOCK_REALTIME's


@pytest.fixture
def link_possible():
    if why := why_no_link():
        pytest.skip(why)


@pytest.mark.engine
@pytest.mark.usefixtures("link_possible")
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.key)
def test_a_run_over(network, tmp_path):
    crossing = cross(network, tmp_path)
    run, said = crossing.run, crossing.said
    assert run.code == network.code, said
    assert network.words in " ".join(said.split())
    assert "Traceback" not in said
    if network.verdict == NOTHING:
        assert not (run.log_dir / "run.json").exists()
        return
    assert run.result == network.verdict, said
    assert set(crossing.network) == set(network.urls)
    if network.verdict == VALID:
        check_times(network, crossing)
        assert crossing.total("retransmitted") >= crossing.lost_to_server >= network.lossy_to_server


def check_times(network: BadNetwork, crossing: Crossing) -> None:
    """No first token is earlier than its bytes, and most have a time at which the kernel got bytes: of those
    that are read together the last have it."""
    pairs = crossing.times
    completed = crossing.run.record["statistics"]["completed"]
    assert sum(map(len, crossing.exchanges.values())) == completed >= len(pairs) > completed / 2
    first = np.array([row["first_token_ns"] for row, _ in pairs])
    assert (first - [one.handed_ns for _, one in pairs]).min() >= -LATE_NS - TOLERANCE_NS
    stamped = [
        any(
            handed - TOLERANCE_NS <= row["first_token_ns"] <= taken + TOLERANCE_NS
            for handed, taken in one.data
        )
        for row, one in pairs
    ]
    assert np.mean(stamped) > 0.5  # after a gap it may be the time of the read
    wire_ns = 1e9 * (network.up.delay_s + network.down.delay_s)
    for row, one in pairs:
        assert (
            row["first_token_ns"] - row["issued_ns"]
            >= wire_ns + one.answered_ns - one.arrived_ns - TOLERANCE_NS
        )
    for one in crossing.network.values():
        assert one["rtt_min_ns"] >= wire_ns - TOLERANCE_NS
        assert one["connect_mean_ns"] >= wire_ns


def test_the_page_has_every_network():
    page = (ROOT / "docs/reference/faults.md").read_text()
    for network in NETWORKS:
        result = "no run" if network.verdict == NOTHING else network.verdict
        assert f"| {network.what} | {result}, {network.code}" in page, "see tests.network.crossing"
