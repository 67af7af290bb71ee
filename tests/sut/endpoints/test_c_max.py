"""C_max of a ladder, and the rates of an earlier one for the hours that a plan expects."""

import pytest
from msgspec.structs import replace

from harness.cli.signals import InterruptedRun
from harness.errors import ConfigError, RunError
from harness.peak.ladder.ladder_files import LADDER_STATE, write_state
from sut.endpoints import c_max
from sut.endpoints.c_max import find_c_max, measured_rates
from tests.harness.peak.ladder.made import ladder, step
from tests.records import ENDED


@pytest.fixture
def found(tmp_path, monkeypatch):
    """C_max of servers with this ladder, for a dataset with one more sample than ``most``."""

    def found(made, most=6395):
        plans = []
        monkeypatch.setattr(c_max, "climb", lambda plan, console: plans.append(plan) or made)
        best = find_c_max(ENDED.plan.client, tmp_path, most)
        (plan,) = plans
        assert plan.client.log_dir == tmp_path and not plan.limits_ns  # Endpoints has no limit
        return best

    return found


def test_c_max_is_the_step_of_most_tokens(found, tmp_path):
    assert found(ladder(limits_ns={})) == (128, f"found by the ladder in {tmp_path}")
    most, how = found(ladder(limits_ns={}), most=63)
    assert most == 63 and how.startswith("128 found") and how.endswith("the dataset is smaller")


REFUSED = {
    "one that ended early": (ladder(complete=False, stopped="ended early: no server"), RunError, "no server"),
    "no step that counts": (
        ladder(step(64, 900, failures={"timeout": 3}), stopped="3 requests failed"),
        RunError,
        "3 req",
    ),
    "too low": (ladder(step(16, 700), step(32, 690)), ConfigError, "with 16 in flight"),
    "a signal": (ladder(complete=False, interrupted_by="SIGTERM"), InterruptedRun, "SIGTERM"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_ladder_without_c_max_is_one_line(found, name):
    made, kind, said = REFUSED[name]
    with pytest.raises(kind, match=said) as refused:
        found(made)
    assert kind is InterruptedRun or str(refused.value).endswith("; give --c-max")


def test_the_rates_of_a_ladder(tmp_path):
    made = ladder()
    assert measured_rates(tmp_path, made.parameters, made.servers) == {}
    write_state(tmp_path, made)
    rates = {step.concurrency: step.queries_per_s for step in made.steps}
    assert measured_rates(tmp_path, made.parameters, made.servers) == rates
    (tmp_path / LADDER_STATE).write_bytes(b'{"benchmark": "\xff"}')  # damaged
    assert measured_rates(tmp_path, made.parameters, made.servers) == {}


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
