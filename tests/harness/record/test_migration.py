"""run.json of earlier versions, each recorded by a run of that version, whose commit names the file."""

import json
import math

import pytest

from harness.config.plans import ClientPlan, RunPlan
from harness.errors import ConfigError
from harness.record.run_record import RunRecord
from harness.record.settled import Settled
from tests.records import PATH

RUNS = PATH.parent
ONE_RULE = {
    ".doubts",
    *(f".plan.benchmark.accuracy.{name}" for name in ("bounds", "published", "ratio", "reference")),
}
CPU_TIME = {
    f".plan.benchmark.datasets.{name}.program_cpu_s" for name in ("accuracy", "compliance", "performance")
}
# Places of a file that this version writes under other names, or not.
MOVED = {
    "server.json": ONE_RULE,
    "c4c97b2.json": ONE_RULE,
    "37e21a2.json": CPU_TIME,
    "2c7ffe8.json": CPU_TIME,
    "c27e5c7_17_servers.json": {f".servers[{number}].like" for number in range(1, 17)},
}


def moved(before, after, place=""):
    """Places of ``before`` that have another value; fields may have been added."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            yield from moved(value, after.get(name, "(gone)"), f"{place}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from moved(one, other, f"{place}[{number}]")
    elif before != after:
        yield place


@pytest.mark.parametrize("path", sorted(RUNS.glob("*.json")), ids=lambda path: path.name)
def test_a_recorded_file_is_read_and_written_again(path, tmp_path):
    record, again = RunRecord.read(path), tmp_path / "run.json"
    record.write(again)
    assert RunRecord.read(again) == record
    found = set(moved(json.loads(path.read_text()), json.loads(again.read_text())))
    assert found == MOVED.get(path.name, set())


@pytest.mark.parametrize("name", ["server.json", "c4c97b2.json"])
def test_a_benchmark_with_one_rule_for_all_metrics(name):
    record = RunRecord.read(RUNS / name)
    assert len(record.warnings) == len(json.loads((RUNS / name).read_text())["doubts"])
    rules = record.plan.client.benchmark.accuracy
    assert {metric: rule.bounds for metric, rule in rules.items()} == {
        "exact_match": (0.99 * 83.13, math.inf),
        "tokens_per_sample": (0.0, 10998.9),
    }
    assert record.plan.client.benchmark.round == ""


@pytest.mark.parametrize("named", [{}, {"round": None}])
def test_a_benchmark_without_a_round(tmp_path, named):
    """An early version had none; a later one that read such a file wrote null."""
    fields = json.loads(PATH.read_text())
    rules = {name: value for name, value in fields["plan"]["benchmark"].items() if name != "round"}
    fields["plan"]["benchmark"] = rules | named
    (tmp_path / "run.json").write_text(json.dumps(fields))
    assert RunRecord.read(tmp_path / "run.json").plan.client.benchmark.round == ""


def test_equal_values_of_many_servers_were_written_once():
    recorded = json.loads((RUNS / "c27e5c7_17_servers.json").read_text())["servers"]
    first, *others = RunRecord.read(RUNS / "c27e5c7_17_servers.json").servers
    assert [one.url for one in others] == [one["url"] for one in recorded[1:]]
    assert [one.trial_s for one in others] == [one["trial_s"] for one in recorded[1:]]
    assert {(one.model, one.version, one.settings == first.settings) for one in others} == {
        (first.model, first.version, True)
    }


@pytest.mark.parametrize("like", [1, -1, "0", None])
def test_a_server_like_another_that_is_not_there(tmp_path, like):
    path = tmp_path / "run.json"
    fields = json.loads((RUNS / "c27e5c7_17_servers.json").read_text())
    fields["servers"][3]["like"] = like
    path.write_text(json.dumps(fields))
    with pytest.raises(ConfigError, match="not the record of a run"):
        RunRecord.read(path)


@pytest.mark.parametrize(
    "damage", [{"reference": 7}, {"ratio": "x"}, {"bounds": {"a": [0]}}, {"bounds": {"a": [0, 0]}}]
)
def test_a_damaged_rule_ends_in_one_line_or_is_read(tmp_path, damage):
    path = tmp_path / "run.json"
    fields = json.loads(PATH.read_text())
    fields["plan"]["benchmark"]["accuracy"] |= damage
    path.write_text(json.dumps(fields))
    try:
        RunRecord.read(path)
    except ConfigError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("name", ["ca_file", "scenario", "samples"])
def test_what_is_missing_is_named_where_the_file_has_it(tmp_path, name):
    path = tmp_path / "run.json"
    fields = json.loads(PATH.read_text())
    del fields["plan"][name]
    path.write_text(json.dumps(fields))
    with pytest.raises(ConfigError, match=rf"{name}. - at .\$\.plan.$"):
        RunRecord.read(path)


def test_no_field_of_the_plan_has_two_homes():
    """They stand side by side in the file."""
    parts = [set(kind.__struct_fields__) for kind in (ClientPlan, RunPlan, Settled)]
    assert len(set.union(*parts)) == sum(map(len, parts))
