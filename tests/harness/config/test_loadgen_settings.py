"""The table of LoadGen's settings against LoadGen itself and its recorded detail logs."""

from pathlib import Path

from harness.config.loadgen_conf import USER_KEYS, ConfKey, read_conf
from harness.config.loadgen_settings import BY_ATTRIBUTE, SETTINGS, settings_of
from harness.config.scenario import LOADGEN_SCENARIOS
from harness.loadgen_logs.summary_and_detail import read_detail
from tests.harness.config.loadgen import loadgen_binary, loadgen_reads

RECORDED = Path(__file__).parents[2] / "data" / "loadgen"
MODEL = "of-no-model"
# No setting's default; the whole numbers of rows that hold decimals too.
NUMBER = {int: 7, float: 7.5}
# No conf file of ours sets these alone: LoadGen reads the first with infer_token_latencies only.
NOT_ALONE = ("token_latency_scaling_factor",)


def test_a_number_of_a_conf_file_becomes_loadgens_value(tmp_path):
    """Of every setting that a user.conf may hold, in every scenario that has it."""
    empty = tmp_path / "empty.conf"
    empty.touch()
    answers = loadgen_reads([(empty, MODEL, scenario) for scenario in LOADGEN_SCENARIOS])
    without = {scenario: found for scenario, (_, found) in zip(LOADGEN_SCENARIOS, answers, strict=True)}
    assert BY_ATTRIBUTE.keys() <= without["Server"].keys()
    settable = [one for one in SETTINGS if not one.internal and one.attribute not in NOT_ALONE]
    pairs = [(setting, scenario) for setting in settable for scenario in setting.scenarios]
    assert len(pairs) == 73
    cases, expected = [], []
    for setting, scenario in pairs:
        number = NUMBER.get(setting.kind, int(not without[scenario][setting.attribute]))
        tokens = f"*.{scenario}.use_token_latencies = 1\n" if "_latency" in setting.conf_key else ""
        path = tmp_path / f"{setting.attribute}.{scenario}.conf"
        path.write_text(f"{tokens}*.{scenario}.{setting.conf_key} = {number}\n")
        assert read_conf(path, ConfKey(MODEL, scenario)).settings[setting.conf_key] == number
        cases.append((path, MODEL, scenario))
        expected.append(setting.value(number))
    for (setting, scenario), value, (code, settings) in zip(
        pairs, expected, loadgen_reads(cases), strict=True
    ):
        assert (code, settings[setting.attribute]) == (0, value), (setting, scenario)
        assert value != without[scenario][setting.attribute], (setting, scenario)


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
    assert [setting for setting in SETTINGS if setting.detail_key.encode() not in loadgen_binary()] == []
