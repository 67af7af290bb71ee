"""run.json is strict JSON, written whole."""

import json
import math
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from harness.loadgen_logs.summary_and_detail import parse_summary
from harness.record.journal import QUERY_ROW
from harness.record.outcome import FailureKind
from harness.record.run_record import RunRecord, plain, read_clocks, write_json, write_run_record
from harness.record.verdict import Verdict
from harness.report.statistics import statistics

STARTED = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Plan:
    scenario: str
    output: Path
    limits: tuple[int, ...]


PLAN = Plan("server", Path("out"), (3000, 80))


def strict(path):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_a_running_record_has_no_verdict(tmp_path):
    path = tmp_path / "run.json"
    write_run_record(path, RunRecord(PLAN, {"git": None}, [{"version": "0.5.23"}], STARTED))
    found = strict(path)
    assert found["schema"] == 1
    assert found["plan"] == {"scenario": "server", "output": "out", "limits": [3000, 80]}
    assert found["started"] == "2026-11-21T10:00:00+00:00"
    assert found["verdict"] is None


def test_the_clock_pair_ties_two_clocks():
    """Both are of one moment: what another reading of both gives differs by their run, and by little more."""
    first, second = read_clocks(), read_clocks()
    steps = (second.utc - first.utc).total_seconds() * 1e9, second.monotonic_ns - first.monotonic_ns
    assert steps[1] >= 0
    assert first.utc.tzinfo is UTC
    assert plain(first) == {"utc": first.utc.isoformat(), "monotonic_ns": first.monotonic_ns}


def test_a_finished_record(tmp_path):
    rows = np.zeros(2, QUERY_ROW)
    rows["last_byte_ns"], rows["osl"] = 5, [1, 0]
    rows["failure"] = [0, FailureKind.TRUNCATED]
    record = RunRecord(
        PLAN,
        {},
        [],
        STARTED,
        ended=STARTED,
        verdict=Verdict("INVALID", ("1 of 2 queries failed",)),
        statistics=statistics(rows),
        loadgen=parse_summary("Samples per second: -nan\nTokens per second: inf\nNo errors encountered"),
    )
    path = tmp_path / "run.json"
    write_run_record(path, record)
    found = strict(path)
    assert found["verdict"] == {"result": "INVALID", "reasons": ["1 of 2 queries failed"], "complete": False}
    assert found["statistics"]["failures"] == {"truncated": 1}
    assert list(found["statistics"]["latency"]["percentiles"]) == ["50", "90", "95", "97", "99", "99.9"]
    assert found["loadgen"]["figures"] == {"Samples per second": None, "Tokens per second": None}


def test_documented_fields_are_the_written_ones(tmp_path):
    path = tmp_path / "run.json"
    write_run_record(path, RunRecord(PLAN, {}, [], STARTED))
    text = (Path(__file__).parents[3] / "docs/reference/run_json.md").read_text()
    documented = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert [name for name in documented if "." not in name] == list(strict(path))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (np.float64("inf"), None),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.array([1, 2]), [1, 2]),
        ({99.0: 1, 99.9: 2, FailureKind.CONNECT: 3}, {"99": 1, "99.9": 2, "connect": 3}),
        (FailureKind.HTTP_STATUS, "http_status"),
        ({3, 1, 2}, [1, 2, 3]),
        (np.bool_(True), True),
    ],
)
def test_plain_values(value, expected):
    assert plain(value) == expected


def test_an_unknown_type_is_an_error():
    with pytest.raises(TypeError, match="got a object"):
        plain({"x": object()})


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "run.json"
    write_json(path, {"old": 1})
    with pytest.raises(TypeError):
        write_json(path, {"new": object()})
    assert strict(path) == {"old": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(("umask", "mode"), [(0o000, 0o644), (0o077, 0o600)])
def test_permissions(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_json(tmp_path / "run.json", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == mode


def test_hostile_text_stays_inside_its_string(tmp_path):
    write_json(tmp_path / "run.json", {"detail": "\x1b[2J\ud800\u2028</script>"})
    assert (tmp_path / "run.json").read_bytes().isascii()
    assert "\x1b" not in (tmp_path / "run.json").read_text()
