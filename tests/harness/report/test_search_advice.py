"""The search's command after a run that missed a limit: one that find_peak.py takes."""

import shlex

import numpy as np
import pytest
from msgspec.structs import replace

from harness.analysis.verdict import run_verdict
from harness.config.scenario import Scenario
from harness.peak.peak_options import parse_options
from harness.record.journal import QUERY_ROW
from harness.record.run_events import RunEvent
from harness.record.server_changes import ServerChange
from harness.report.next_step import next_step
from harness.report.search_advice import advice_in_mid_run, search_command
from tests.records import ENDED, with_plan

COMMON = [
    "--scenario",
    "server",
    "--input-file",
    "p.parquet",
    "--server-url",
    "http://a:1",
    "--timeout",
    "90",
]
OF_A_RUN = ["--max-samples=64", "--dcgm-url", "http://a:9400", "--no-report", "--stop-when-lost"]


def options_of(command):
    words = shlex.split(command)
    return parse_options(words[words.index("search") :])


def test_the_command_is_one_that_the_search_takes():
    found = options_of(str(search_command(["run_mlperf.py", *COMMON, *OF_A_RUN], 17.0)))
    assert (found.start_qps, found.scenario, found.timeout) == (17.0, Scenario.SERVER, 90)
    assert found.server_url == ("http://a:1",) and str(found.input_file) == "p.parquet"


COMMAND = replace(ENDED.provenance, command=("run_mlperf.py", *COMMON))


def with_tpot(ms):
    """LoadGen's summary of the recorded run, which had 536 ms at the p99."""
    found = {"99.00 percentile time to output token (ns)": ms * 1e6}
    return replace(ENDED.loadgen, figures=ENDED.loadgen.figures | found)


def missed(**changes):
    """The recorded run, which missed its limits with every query answered; its TPOT is nearer to 80 ms."""
    verdict = replace(ENDED.verdict, complete=True)
    return replace(
        ENDED, **{"provenance": COMMAND, "verdict": verdict, "loadgen": with_tpot(101.3), **changes}
    )


def reason_of(record):
    """The reason of its verdict that names the rate."""
    reasons = run_verdict(record, np.empty(0, QUERY_ROW), 0).reasons
    (reason,) = [text for text in reasons if text.startswith("target_qps was")]
    return reason


def test_a_missed_limit_ends_with_the_search_from_the_guessed_rate():
    line, guess = next_step(missed()), reason_of(missed()).rpartition("= ")[2]
    assert options_of(line.partition("with: ")[2]).start_qps == float(guess)


@pytest.mark.parametrize(
    "record",
    [
        replace(missed(), verdict=replace(ENDED.verdict, result="VALID", reasons=())),
        replace(missed(), statistics=replace(ENDED.statistics, completed=ENDED.statistics.queries - 1)),
        with_plan(missed(), scenario=Scenario.OFFLINE),
    ],
)
def test_where_another_rate_is_no_remedy(record):
    assert "find_peak" not in next_step(record)


# As of a run at 10 queries/s whose server was stopped for 36 s: TTFT p99 was 35 s, the guess 9 queries/s.
SILENCE = RunEvent(at_s=39.1, kind="silence", server="http://a:1", text="nothing arrives from http://a:1")
SILENCE_ENDS = RunEvent(at_s=74.6, kind="silence_ends", server="http://a:1", text="works again")


# As of a server that sent nothing for 9 s; such a silence is an event of its own after 30 s.
LOST = RunEvent(at_s=9.1, kind="lost", server="http://a:1", text="over; nothing has arrived from http://a:1")


@pytest.mark.parametrize("events", [(SILENCE, SILENCE_ENDS), (LOST,)])
def test_no_rate_follows_from_a_run_whose_servers_stood(events):
    record = missed(events=events)
    assert "find_peak" in next_step(missed()) and next_step(record).startswith("Mend the cause, then repeat")
    for one, guesses in ((missed(), True), (record, False)):
        assert ("a guess for the next try" in reason_of(one)) is guesses
        assert ("repeat the command" in reason_of(one)) is not guesses


def test_no_rate_follows_from_a_run_with_a_changed_server():
    change = ServerChange(
        url="http://a:1", replica=0, was={"model": "a"}, now={"model": "b"}, right_until_ns=0, answers=9
    )
    lost = RunEvent(at_s=5.0, kind="lost", text=change.doubt)
    verdict = replace(ENDED.verdict, complete=False)
    assert "find_peak" in next_step(missed(verdict=verdict, events=(lost,)))
    assert "find_peak" not in next_step(missed(verdict=verdict, events=(lost,), changed=(change,)))


@pytest.mark.parametrize(("issued", "ended", "rate"), [(100, 90, 8.1), (100, 10, None)])
def test_the_rate_of_a_run_that_is_lost(issued, ended, rate):
    """Of few answers nothing follows for the servers' rate: half of the target is tried."""
    target = ENDED.settled.loadgen_settings["server_target_qps"]
    words = str(advice_in_mid_run(missed(), issued, ended, 10.0, None))
    expected = min(rate or target, target) if rate else float(f"{0.45 * target:.2g}")
    assert options_of(words.partition("with: ")[2]).start_qps == pytest.approx(expected, rel=0.02)
    assert advice_in_mid_run(missed(), 100, 0, 10.0, None) is None


def test_tpot_far_over_its_limit_names_no_rate():
    """As of a server of 600 ms a token at any rate: 10.3 samples/s of 20 made it 1.4, which fails as well."""
    limit_ns = missed().limits_ns["TPOT"]
    words = str(advice_in_mid_run(missed(), 100, 90, 10.0, 7.5 * limit_ns))
    assert words.startswith("no rate follows from TPOT of 8 times its limit; search for the highest rate")
    assert options_of(words.partition("with: ")[2]).start_qps is None
    near = str(advice_in_mid_run(missed(), 100, 90, 10.0, 2 * limit_ns))
    assert options_of(near.partition("with: ")[2]).start_qps == pytest.approx(4.5)
    record = missed(loadgen=ENDED.loadgen)
    assert options_of(next_step(record).partition("with: ")[2]).start_qps is None
    assert reason_of(record).endswith("were completed; no rate follows from TPOT of 7 times its limit")


@pytest.mark.parametrize("start", [("/checkout/mlperf", "peak"), ("find_peak.py", "search")])
def test_a_run_of_a_search_names_no_other_search(start):
    """Commands as run.json of such runs has them: pasted, they would be this search again."""
    record = missed(provenance=replace(COMMAND, command=(*start, *COMMON)))
    assert advice_in_mid_run(record, 100, 90, 10.0, None) is None
    assert next_step(record) == ""
