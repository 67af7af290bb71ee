"""What a run shows about its rate."""

import pytest
from msgspec.structs import replace

from harness.errors import RunError
from harness.peak.search.probe_record import probe_of
from harness.peak.search.schedule import ScheduledRun
from harness.progress.progress_line import Over, ProgressSnapshot
from harness.record.run_record import Bottleneck, ClientLoad
from harness.record.server_changes import ServerChange
from tests.records import ENDED

CHANGED = ServerChange(
    url="http://a", replica=0, was={"model": "A"}, now={"model": "B"}, right_until_ns=0, answers=3
)
RUN = ScheduledRun(20.0, 2, 1280, 60.0, 5)


def of(result, cut_after_s=None, failures=(), *, complete=True, failed=None, bound_s=0, changed=()):
    """The probe of a recorded run of 51.8 s with another verdict."""
    stretch = Bottleneck(from_s=1, to_s=1 + bound_s, reason="its worker used 100% of a core")
    record = replace(
        ENDED,
        verdict=replace(ENDED.verdict, result=result, complete=complete),
        statistics=replace(ENDED.statistics, failures=failed or {}),
        client_load=ClientLoad(cores={}, bottlenecks=(stretch,)),
        changed=changed,
    )
    cut = None if cut_after_s is None else ProgressSnapshot(cut_after_s, 9, 9, 0)
    return probe_of(record, RUN, cut, Over(), 70.0, "probe-01", failures)


def test_a_complete_run_has_loadgens_figures():
    for result in ("VALID", "INVALID"):
        probe = of(result)
        assert (probe.verdict, probe.cut_after_s, probe.tokens_per_s) == (result, None, 74.75)
        assert probe.seconds == pytest.approx(51.8, abs=0.1)
        assert probe.ttft_p99_ns == ENDED.loadgen.percentile_ns("TTFT")


def test_a_run_that_was_cut_has_none_of_them():
    probe = of("INTERRUPTED", 9.0, complete=False)
    assert (probe.verdict, probe.tokens_per_s) == ("INVALID", None)
    assert probe.cut_after_s == probe.seconds == 9.0
    assert probe.ttft_p99_ns == ENDED.statistics.ttft.percentiles["99"]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ({"complete": False}, "LoadGen says INVALID"),
        ({"failed": {"timeout": 1}}, "LoadGen says INVALID"),
        ({"failed": {"timeout": 1, "local_limit": 9}, "complete": False}, "LoadGen says INVALID"),
        ({"failed": {"timeout": 1}, "cut_after_s": 9.0}, "LoadGen says INVALID"),
        ({"failures": ("http://a: not reachable",), "cut_after_s": 9.0}, "http://a: not reachable"),
        ({"changed": (CHANGED,)}, "LoadGen says INVALID"),  # its answers may be another model's
    ],
)
def test_what_shows_nothing_about_the_rate(run, why):
    with pytest.raises(RunError, match=f"the run at 20 in .* shows nothing about its rate: {why}"):
        of("INVALID", **run)


def test_a_server_that_changed_before_it_answered_costs_no_run():
    assert of("VALID", changed=(replace(CHANGED, answers=0),)).verdict == "VALID"


@pytest.mark.parametrize(("bound_s", "is_bound"), [(2, False), (3, True)])
def test_a_client_that_was_the_bottleneck_for_a_twentieth(bound_s, is_bound):
    assert of("VALID", bound_s=bound_s).client_bound is is_bound


@pytest.mark.parametrize("cut_after_s", [None, 9.0])
def test_a_client_without_room_for_a_connection_was_the_bottleneck_and_its_times_show_nothing(cut_after_s):
    probe = of("INVALID", cut_after_s, complete=False, failed={"local_limit": 1})
    assert (probe.verdict, probe.client_bound, probe.cut_after_s) == ("INVALID", True, cut_after_s)
    assert probe.ttft_p99_ns is probe.tpot_p99_ns is probe.tokens_per_s is None
