"""The table of LoadGen's settings against LoadGen itself and its recorded detail logs."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.config.loadgen_conf import USER_KEYS
from harness.config.loadgen_settings import BY_ATTRIBUTE, SETTINGS, settings_of
from harness.config.scenario import LOADGEN_SCENARIOS
from harness.loadgen_logs.summary_and_detail import read_detail
from tests.harness.config.loadgen import loadgen_reads

RECORDED = Path(__file__).parents[2] / "data" / "loadgen"
# A number for a conf file that is no setting's default; the whole numbers of rows that hold decimals too.
NUMBER = {bool: 1, int: 7, float: 7.5}
# No conf file of ours sets these alone: LoadGen reads the first with infer_token_latencies only.
NOT_ALONE = ("token_latency_scaling_factor",)


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """LoadGen's value of every setting that a user.conf sets, by attribute and scenario."""
    folder = tmp_path_factory.mktemp("settings")
    asked, cases = [], []
    for setting in SETTINGS:
        if setting.internal or setting.attribute in NOT_ALONE:
            continue
        for scenario in setting.scenarios:
            path = folder / f"{setting.attribute}.{scenario}.conf"
            tokens = f"*.{scenario}.use_token_latencies = 1\n" if "_latency" in setting.conf_key else ""
            path.write_text(f"{tokens}*.{scenario}.{setting.conf_key} = {NUMBER[setting.kind]}\n")
            asked.append((setting, scenario))
            cases.append((path, "of-no-model", scenario))
    return [(*one, settings) for one, (_, settings) in zip(asked, loadgen_reads(cases), strict=True)]


def test_a_number_of_a_conf_file_becomes_loadgens_value(read):
    assert len(read) > 50
    for setting, scenario, settings in read:
        assert settings[setting.attribute] == setting.value(NUMBER[setting.kind]), (setting, scenario)


def test_a_key_sets_one_setting_in_a_scenario():
    for key in USER_KEYS:
        assert all(len(settings_of(key, scenario)) <= 1 for scenario in LOADGEN_SCENARIOS), key
    found = [setting.attribute for setting in settings_of("target_qps")]
    assert found == ["server_target_qps", "offline_expected_qps"]
    assert settings_of("target_qps", "SingleStream") == ()


def test_detail_keys_are_rows_of_the_detail_log():
    """Those of Offline in a recorded log, all in LoadGen's binary, which holds the names of its rows."""
    detail = read_detail(RECORDED / "offline_errors" / "mlperf_log_detail.txt")
    common = {setting.detail_key for setting in SETTINGS if "Offline" in setting.scenarios} - {""}
    assert common - detail.values.keys() == set()
    spec = find_spec("mlperf_loadgen")
    assert spec is not None and spec.origin is not None
    binary = Path(spec.origin).read_bytes()
    assert [setting for setting in SETTINGS if setting.detail_key.encode() not in binary] == []


def test_every_attribute_is_one_of_loadgens(read):
    assert BY_ATTRIBUTE.keys() <= read[0][2].keys()
