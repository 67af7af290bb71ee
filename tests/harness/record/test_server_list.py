"""Many servers in run.json: written short, read in full."""

import json

import pytest
from msgspec import structs

from harness.errors import ConfigError
from harness.record.resolved_plan import ServerInfo
from harness.record.run_record import RunRecord
from harness.record.server_list import indented
from tests.records import started

SETTINGS = {f"a_setting_of_sglang_{number}": number for number in range(20)}


def server(number, **more):
    given = {"model": "m", "settings": SETTINGS, "context_length": 131072, "trial_s": number / 8}
    return ServerInfo(url=f"http://n{number}:30000", wire="sglang", engine="SGLang", **given | more)


ODD = {
    7: {"context_length": None, "revision": "abc"},
    8: {"settings": {}, "differs": {"x": 1}},
    9: {"settings": SETTINGS | {"a_setting_of_sglang_3": True, "other": "y"}},
}


def record_of(count):
    return structs.replace(started(), servers=tuple(server(n, **ODD.get(n, {})) for n in range(count)))


@pytest.mark.parametrize("count", [1, 16, 17, 512])
def test_many_servers_are_read_as_they_were(tmp_path, count):
    path, record = tmp_path / "run.json", record_of(count)
    record.write(path)
    assert RunRecord.read(path) == record
    written = json.loads(path.read_text())["servers"]
    assert [one["url"] for one in written] == [one.url for one in record.servers]
    assert sum("like" in one for one in written) == (count - 1 if count > 16 else 0)


def test_the_file_of_512_servers_is_small(tmp_path):
    sizes = {}
    for count in (1, 512):
        record_of(count).write(tmp_path / "run.json")
        sizes[count] = (tmp_path / "run.json").stat().st_size
    assert sizes[512] - sizes[1] < 512 * 120


@pytest.mark.parametrize(
    "value", [{}, [], [1, 2], {"a": {"b": []}, "c": [{"d": None}]}, "\u00e9", 1.5, {"x": [True, {"y": {}}]}]
)
def test_small_values_are_indented_as_json_does_it(value):
    assert indented(value) == json.dumps(value, indent=2)


def test_one_of_many_flat_values_is_a_line():
    value = {"few": [{"a": 1}], "many": {str(n): {"a": n, "b": None} for n in range(17)}, "deep": [[{}]] * 17}
    text = indented(value)
    assert json.loads(text) == value
    assert '\n    "3": {"a": 3, "b": null},\n' in text


@pytest.mark.parametrize("like", [1, -1, "0", None])
def test_a_server_like_another_that_is_not_there(tmp_path, like):
    path = tmp_path / "run.json"
    record_of(17).write(path)
    fields = json.loads(path.read_text())
    fields["servers"][3]["like"] = like
    path.write_text(json.dumps(fields))
    with pytest.raises(ConfigError, match="not the record of a run"):
        RunRecord.read(path)
