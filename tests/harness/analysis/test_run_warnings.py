"""Warnings of a run that follow from what its servers did."""

import pytest
from msgspec.structs import replace

from harness.analysis.run_warnings import rule_warnings
from harness.config.benchmark import load_benchmark
from harness.config.scenario import Scenario
from harness.record.run_record import ServerLoad
from tests.records import ENDED, with_plan

# What vLLM 0.33.0's front end in Rust counted in 64 greedy queries by ngram. Before the first draft its page
# is that of a server without speculative decoding.
COUNTS = {"draft_tokens": 704.0, "accepted_tokens": 420.0}


@pytest.mark.parametrize(
    ("scenario", "counts", "settings", "warned"),
    [
        (Scenario.OFFLINE, COUNTS, {}, True),
        (Scenario.OFFLINE, COUNTS, {"speculative_algorithm": "EAGLE3"}, False),  # a deviation before the run
        (Scenario.INTERACTIVE, COUNTS, {}, False),  # allowed
        (Scenario.OFFLINE, COUNTS | {"draft_tokens": 0.0}, {}, False),
    ],
)
def test_drafted_tokens_of_a_server_that_does_not_report_its_options(scenario, counts, settings, warned):
    load = ServerLoad(rounds=13, servers=1, counts=counts)
    record = replace(
        with_plan(ENDED, scenario=scenario, benchmark=load_benchmark("gpt-oss-120b")),
        servers=tuple(replace(server, settings=settings) for server in ENDED.servers),
        server_load=load,
    )
    found = list(rule_warnings(record))
    assert len(found) == warned
    assert all("drafted 704 tokens" in line and "gpt-oss-120b in interactive" in line for line in found)
