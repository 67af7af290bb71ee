"""The design power of a system: the official checker's own example, and what it cannot add up."""

import json
import re

import pytest

from harness.errors import ConfigError
from harness.submission.building.descriptions import read_submitter_info
from harness.submission.tree.system_description import NameplateError, design_watts
from tests.harness.submission.building import build, write_info
from tests.harness.submission.trees import SYSTEM

# The shape of the template in submission_structure.md; each component has more supplies than it needs.
RACK = """
My System:
- Rack 1:
  - Server 1:
    - Description: "2 of 4"
      Min PSUs Needed: 2
      PSUs:
      - {Name: PSU 1, PowerCapacityWatts: 1200}
      - {Name: PSU 2, PowerCapacityWatts: 1300}
      - {Name: PSU 3, PowerCapacityWatts: 1300.5}
      - {Name: PSU 4, PowerCapacityWatts: 1200}
  - Switch 1:
    - Min PSUs needed: 1
      PSUs: [{PowerCapacityWatts: 800}, {PowerCapacityWatts: 800}]
- Rack 2: {psus: [{PowerCapacityWatts: 5}], min psus needed: 1}
"""


def test_the_largest_supplies_that_are_needed_count(tmp_path):
    (tmp_path / "x_power.yaml").write_text(RACK)
    assert design_watts(tmp_path / "x_power.yaml") == 1300.5 + 1300 + 800 + 5


@pytest.mark.parametrize(
    "text",
    [
        "a: [1",
        "PSUs: 3\nMin PSUs Needed: 1",
        "PSUs: [{}]\nMin PSUs Needed: 1",
        "PSUs: [{PowerCapacityWatts: 1 kW}]\nMin PSUs Needed: 1",
        "PSUs: [{PowerCapacityWatts: -5}]\nMin PSUs Needed: 1",
        "PSUs: [{PowerCapacityWatts: .inf}]\nMin PSUs Needed: 1",
        "PSUs: [{PowerCapacityWatts: 5}]\nMin PSUs Needed: 2",
        "PSUs: [{PowerCapacityWatts: 5}]\nMin PSUs Needed: one",
        "PSUs: [{PowerCapacityWatts: 5}]\nMin PSUs Needed:",
    ],
)
def test_what_cannot_be_added_up(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(NameplateError):
        design_watts(tmp_path / "x.yaml")


def test_what_is_no_yaml_has_its_place_in_the_message(tmp_path):
    (tmp_path / "x.yaml").write_text("PSUs: [1\nb: 2")
    with pytest.raises(NameplateError, match="line 2, column 2"):
        design_watts(tmp_path / "x.yaml")


def test_build_puts_it_beside_the_system(results, info, tmp_path):
    path = write_info(tmp_path, system_power_capacity=12000)
    path.write_text('nameplate = "power.yaml"\n' + path.read_text())
    (tmp_path / "power.yaml").write_text(RACK)
    assert build(results) == 0
    system = tmp_path / "tree" / SYSTEM
    assert system.with_name(f"{system.stem}_power.yaml").read_text() == RACK
    assert json.loads(system.read_text())["system_power_capacity"] == 12000


@pytest.mark.parametrize(
    ("found", "typo", "meant"),
    [
        ('"cooling" =', '"coolling" =', "[system]: unknown key 'coolling'; did you mean 'cooling'?"),
        ('"cooling" =', '"Cooling" =', "did you mean 'cooling'?"),
        (
            "\nweight_data_types",
            "\nweight_data_type",
            "[measurements]: unknown key 'weight_data_type'; did",
        ),
        (
            '"none"',
            '"none"\n[measurements."llama3.1-8b"]\nretrainning = "No"',
            "8b']: unknown key 'retrainning'",
        ),
    ],
)
def test_a_field_in_place_of_one_of_the_rules_is_a_typo(tmp_path, found, typo, meant):
    path = write_info(tmp_path)
    path.write_text(path.read_text().replace(found, typo))
    with pytest.raises(ConfigError, match=re.escape(meant)):
        read_submitter_info(path)


def test_fields_that_published_descriptions_add_are_no_typos(tmp_path):
    more = {"host_processor_vcpu_count": 224, "filesystem": "ext4", "system_power_only": "", "coolings": "x"}
    path = write_info(tmp_path, ["host_processor_core_count"], **more)  # which this machine fills in
    assert read_submitter_info(path).system.keys() > more.keys()
