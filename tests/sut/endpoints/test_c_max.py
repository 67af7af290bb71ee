"""Rates of an earlier ladder, for the hours that a plan expects."""

import pytest
from msgspec.structs import replace

from harness.peak.ladder.ladder_files import write_state
from sut.endpoints.c_max import measured_rates
from tests.harness.peak.ladder.made import ladder


def test_the_rates_of_a_ladder(tmp_path):
    made = ladder()
    assert measured_rates(tmp_path, made.parameters, made.servers) == {}
    write_state(tmp_path, made)
    rates = {step.concurrency: step.queries_per_s for step in made.steps}
    assert measured_rates(tmp_path, made.parameters, made.servers) == rates


OTHERS = {
    "another model": lambda one: {"servers": tuple(replace(s, model="other") for s in one.servers)},
    "two servers more": lambda one: {"servers": one.servers * 3},
    "longer answers": lambda one: {"parameters": replace(one.parameters, max_new_tokens=32_768)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_servers_and_answers_have_other_rates(tmp_path, name):
    made = ladder()
    write_state(tmp_path, made)
    given = {"parameters": made.parameters, "servers": made.servers} | OTHERS[name](made)
    assert measured_rates(tmp_path, **given) == {}
