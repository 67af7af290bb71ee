"""run.json: the record as strict JSON, read back as the same value."""

import json
import math
import os
import stat
import time
from datetime import UTC, timedelta

import numpy as np
import pytest
from msgspec.structs import replace

from harness.config.loadgen_settings import SERVER_PERCENTILE
from harness.config.scenario import Scenario
from harness.errors import EXIT_INVALID, EXIT_VALID, ConfigError
from harness.loadgen_logs.summary_and_detail import parse_summary
from harness.record.run_events import RunEvent
from harness.record.run_record import RunRecord, RunVerdict, read_clocks
from sut.run import validity_rules
from tests.records import ENDED, PATH, started, with_plan


def strict(path):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def written(record, folder):
    record.write(folder / "run.json")
    return strict(folder / "run.json")


def test_a_running_record_has_no_verdict(tmp_path):
    found = written(started(), tmp_path)
    assert found["started"].endswith("+00:00")
    assert found["verdict"] is found["statistics"] is found["ended"] is None
    assert RunRecord.read(tmp_path / "run.json") == started()


def test_numbers_that_are_not_finite_are_null(tmp_path):
    record = replace(
        ENDED,
        loadgen=parse_summary("Samples per second: -nan\nTokens per second: inf\nNo errors encountered"),
        client_cpu_s=math.nan,
        schedule_lag_mean_ns=np.float64("inf"),
        settings_in_force={"rate": math.inf, "seed": 2**64 - 1},
    )
    found = written(record, tmp_path)
    assert found["loadgen"]["figures"] == {"Samples per second": None, "Tokens per second": None}
    assert found["client_cpu_s"] is found["schedule_lag_mean_ns"] is None
    assert found["settings_in_force"] == {"rate": None, "seed": 2**64 - 1}
    RunRecord.read(tmp_path / "run.json")


CLOCK_SET = RunEvent(at_s=1.0, kind="clock_set", text="the wall clock was stepped")


@pytest.mark.parametrize(
    ("changes", "lasted"),
    [
        ({"ended": ENDED.started + timedelta(seconds=90)}, 90),
        ({"ended": ENDED.started + timedelta(seconds=0.5)}, 0.5),
        ({"ended": ENDED.started}, 0),
        ({"ended": ENDED.started - timedelta(seconds=1)}, None),  # set back, by too little for an event
        ({"ended": ENDED.started + timedelta(hours=2), "events": (CLOCK_SET,)}, None),
        ({"ended": None}, None),
    ],
)
def test_a_wall_clock_that_was_set_gives_no_duration(changes, lasted):
    assert replace(ENDED, **changes).lasted_s == lasted


def test_the_clock_pair_is_of_utc_and_of_the_monotonic_clock():
    before, pair = time.monotonic_ns(), read_clocks()
    assert before <= pair.monotonic_ns <= time.monotonic_ns()
    assert pair.utc.tzinfo is UTC


@pytest.mark.parametrize(
    ("result", "signal", "code"),
    [
        ("VALID", None, EXIT_VALID),
        ("INVALID", None, EXIT_INVALID),
        (None, None, EXIT_INVALID),
        ("INTERRUPTED", "SIGINT", 130),
        ("INTERRUPTED", "SIGTERM", 143),
        ("INTERRUPTED", "SIGHUP", 129),
    ],
)
def test_exit_codes(result, signal, code):
    verdict = None if result is None else RunVerdict(result)
    assert replace(ENDED, verdict=verdict, interrupted_by=signal).exit_code == code


@pytest.mark.parametrize("percentile", [0.0, 1e-302, 1.0])
def test_a_percentile_of_server_has_no_part_in_an_offline_run(percentile):
    """LoadGen reads the row of Server for every scenario: such a run ended with a traceback."""
    settings = ENDED.settled.loadgen_settings | {"server_target_latency_percentile": percentile}
    record = with_plan(ENDED, scenario=Scenario.OFFLINE, loadgen_settings=settings)
    assert record.latency_percentile == SERVER_PERCENTILE
    assert validity_rules(record) == validity_rules(with_plan(record, loadgen_settings={}))


def changed(**fields):
    return json.dumps(strict(PATH) | fields).encode()


def planned(**fields):
    return changed(plan=strict(PATH)["plan"] | fields)


def set_of_loadgen(**settings):
    return planned(loadgen_settings=strict(PATH)["plan"]["loadgen_settings"] | settings)


def of_benchmark(**fields):
    return planned(benchmark=strict(PATH)["plan"]["benchmark"] | fields)


LATENCY = strict(PATH)["statistics"]["latency"]
DAMAGED = {
    "empty": b"",
    "cut": PATH.read_bytes()[:900],
    "no UTF-8": b"\xff\xfe",
    "too deep": b"[" * 100_000,
    "no object": b"[]",
    "no fields": b'{"schema": 1}',
    "no schema": changed(schema=None),
    "a later schema": changed(schema=2),
    "a model that is a number": changed(servers=[strict(PATH)["servers"][0] | {"model": 1}]),
    "a verdict without result": changed(verdict={}),
    "an unknown result": changed(verdict={"result": "valid"}),
    "a signal that ends no run": changed(interrupted_by="SIGSEGV"),
    "a number of 400 digits": changed(
        statistics=strict(PATH)["statistics"] | {"latency": LATENCY | {"max": 10**400}}
    ),
    "an infinite number": changed(client_cpu_s=1).replace(b'"client_cpu_s": 1', b'"client_cpu_s": 1e400'),
    "a number that is none": changed(client_cpu_s=math.nan),
    "no dataset": of_benchmark(datasets={}),
    "a test without its mean": of_benchmark(compliance={"TEST09": {"tolerance": 0.1}}),
    "a mean that is text": of_benchmark(
        compliance={"TEST09": {"tolerance": 0.1, "reference_mean_output_tokens": "x"}}
    ),
    "no percentile": set_of_loadgen(server_target_latency_percentile=-1.0),
    "impossible parameters": planned(parameters=strict(PATH)["plan"]["parameters"] | {"top_p": 7.0}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_one_line(name, tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(ConfigError) as caught:
        RunRecord.read(path)
    assert str(caught.value).startswith(f"{path} is not ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        RunRecord.read(tmp_path / "run.json")


def test_fields_of_other_versions(tmp_path):
    """Unknown ones are ignored, missing ones get their defaults."""
    fields = strict(PATH) | {"later": 1}
    fields["plan"] |= {"later": {}}
    fields["plan"]["benchmark"] |= {"later": [1]}
    del fields["client_load"], fields["plan"]["conf_warnings"], fields["plan"]["benchmark"]["compliance"]
    del fields["plan"]["loadgen_settings"]["ttft_latency"]
    (tmp_path / "run.json").write_text(json.dumps(fields))
    found = RunRecord.read(tmp_path / "run.json")
    assert found.client_load is None
    assert (found.plan.scenario, found.limits_ns) == (Scenario.SERVER, {})
    assert found.plan.client.benchmark.compliance == {}


def test_an_unknown_type_keeps_the_old_file(tmp_path):
    ENDED.write(tmp_path / "run.json")
    with pytest.raises(TypeError, match="got a object"):
        replace(ENDED, settings_in_force={"x": object()}).write(tmp_path / "run.json")
    assert RunRecord.read(tmp_path / "run.json") == ENDED
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(("umask", "mode"), [(0o000, 0o644), (0o077, 0o600)])
def test_permissions(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        ENDED.write(tmp_path / "run.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == mode


def test_hostile_text_stays_inside_its_string(tmp_path):
    path, hostile = tmp_path / "run.json", "\x1b[2J\ud800\u2028</script>"
    record = replace(with_plan(ENDED, audit_text=hostile), warnings=(hostile,))
    record.write(path)
    assert path.read_bytes().isascii() and b"\x1b" not in path.read_bytes()
    assert RunRecord.read(path) == record
