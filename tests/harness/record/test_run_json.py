"""The form of run.json, and a record of a run in it."""

import json
import math

import pytest

from harness.config.plans import ClientPlan, RunPlan
from harness.errors import ConfigError
from harness.record import provenance
from harness.record.run_record import RunRecord
from harness.record.settled import Settled
from tests.records import PATH


def test_a_recorded_file_is_written_again_as_it_was(tmp_path):
    record, again = RunRecord.read(PATH), tmp_path / "run.json"
    record.write(again)
    assert RunRecord.read(again) == record
    assert json.loads(again.read_text()) == json.loads(PATH.read_text())
    older = json.loads(PATH.read_text())
    del older["provenance"]["folder"]
    again.write_text(json.dumps(older))
    assert RunRecord.read(again) == record
    rules = record.plan.client.benchmark.accuracy
    assert rules["exact_match"].bounds == (0.99 * 83.13, math.inf)  # null in JSON


@pytest.mark.parametrize("damage", [{"passing": 7}, {"passing": [None]}, {"reference": "x"}, 7])
def test_a_damaged_rule_is_one_line(tmp_path, damage):
    path = tmp_path / "run.json"
    fields = json.loads(PATH.read_text())
    rules = fields["plan"]["benchmark"]["accuracy"]
    rules["exact_match"] = rules["exact_match"] | damage if isinstance(damage, dict) else damage
    path.write_text(json.dumps(fields))
    with pytest.raises(ConfigError) as caught:
        RunRecord.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["ca_file", "scenario", "samples"])
def test_what_is_missing_is_named_where_the_file_has_it(tmp_path, name):
    path = tmp_path / "run.json"
    fields = json.loads(PATH.read_text())
    del fields["plan"][name]
    path.write_text(json.dumps(fields))
    with pytest.raises(ConfigError, match=rf"{name}. - at .\$\.plan.(;|$)"):
        RunRecord.read(path)


def test_the_version_that_reads_a_file_of_another_form_is_named(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    fields = json.loads(PATH.read_text())
    commit = fields["provenance"]["git"]["commit"]
    path.write_text(json.dumps(fields | {"schema": 2}))
    monkeypatch.setattr(provenance, "head_of", lambda root: ("0" * 40, "tree"))
    with pytest.raises(ConfigError, match=rf"schema 2, .*; .*: git .*checkout {commit}$"):
        RunRecord.read(path)
    monkeypatch.setattr(provenance, "head_of", lambda root: (commit, "tree"))  # this version wrote it
    with pytest.raises(ConfigError, match=r"reads schema 1$"):
        RunRecord.read(path)


def test_no_field_of_the_plan_has_two_homes():
    """They stand side by side in the file."""
    parts = [set(kind.__struct_fields__) for kind in (ClientPlan, RunPlan, Settled)]
    assert len(set.union(*parts)) == sum(map(len, parts))
