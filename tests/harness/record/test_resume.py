"""Whether an earlier attempt can be resumed, from what its folder holds."""

import json

import pytest

from harness.errors import EXIT_USAGE, ConfigError
from harness.record.resume import check_resumable, earlier_answers, set_aside, version_changes

PARAMETERS = {"max_new_tokens": 32, "temperature": 1.0, "top_p": 1.0, "extra": {"stop": [1, 2]}}
PLAN = {
    "scenario": "offline",
    "mode": "accuracy",
    "model_key": "gpt-oss-120b",
    "samples": 96,
    "dataset_sha256": "ab" * 32,
    "parameters": PARAMETERS,
}
RECORD = {"schema": 1, "plan": PLAN, "servers": [{"model": "m", "url": "http://a"}], "verdict": None}


def refusal(log_dir, record, plan=PLAN):
    text = record if isinstance(record, bytes) else json.dumps(record).encode()
    (log_dir / "run.json").write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        check_resumable(log_dir, plan, "m")
    assert caught.value.exit_code == EXIT_USAGE
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_same_run(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(RECORD))
    check_resumable(tmp_path, PLAN, "m")


def test_another_version_of_the_server_is_named(tmp_path):
    """Whichever of the attempts had it; what cannot be read is not the newest record."""
    for number, version in ((1, "0.5.21"), (2, None), (3, "0.5.23")):
        (tmp_path / f"attempt.{number}").mkdir()
        record = RECORD | {"servers": [{"model": "m", "version": version}]}
        (tmp_path / f"attempt.{number}" / "run.json").write_text(json.dumps(record))
    (tmp_path / "attempt.4").mkdir()
    (tmp_path / "attempt.4" / "run.json").write_text("{")
    (warning,) = version_changes(tmp_path, "0.5.23")
    assert "0.5.21" in warning and "0.5.23" in warning
    (warning,) = version_changes(tmp_path, None)
    assert "0.5.21, 0.5.23" in warning
    (tmp_path / "attempt.1" / "run.json").unlink()
    assert list(version_changes(tmp_path, "0.5.23")) == []


@pytest.mark.parametrize(
    "record",
    [
        {"plan": "x"},
        {"plan": 3},
        {"plan": None},
        {},
        [],
        "a string",
        7,
        None,
        {**RECORD, "servers": [1]},
        {**RECORD, "servers": {"model": "m"}},
        {**RECORD, "servers": [{"model": 1}]},
        {**RECORD, "verdict": "VALID"},
        {**RECORD, "verdict": 1},
        {**RECORD, "verdict": {}},
        b"",
        b'{"plan": {',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"plan": ' * 100_000,
    ],
    ids=lambda record: str(record)[:40],
)
def test_a_damaged_record_is_refused(tmp_path, record):
    assert str(tmp_path / "run.json") in refusal(tmp_path, record)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"samples": 95}, ["samples 96", "95"]),
        ({"parameters": {**PARAMETERS, "temperature": 0.5}}, ["parameters.temperature 1.0", "0.5"]),
        ({"parameters": {**PARAMETERS, "extra": {"stop": [1]}}}, ["parameters.extra.stop [1, 2]", "[1]"]),
        (
            {"parameters": {"max_new_tokens": 9, "temperature": 1.0, "top_p": 1.0, "extra": {}, "seed": 4}},
            ["parameters.max_new_tokens 32", "parameters.seed None", "parameters.extra.stop"],
        ),
    ],
)
def test_another_run_is_refused_by_what_differs(tmp_path, change, named):
    said = refusal(tmp_path, RECORD, {**PLAN, **change})
    assert [part for part in named if part not in said] == []
    assert "top_p" not in said


@pytest.mark.parametrize("name", ["attempt.²", "attempt.x", "attempt.", "attempt.0", "attempt." + "9" * 200])
def test_a_folder_that_is_no_attempt_is_left_alone(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / "run.json").write_text(json.dumps(RECORD))
    check_resumable(tmp_path, PLAN, "m")
    assert set_aside(tmp_path) == tmp_path / "attempt.1"
    assert earlier_answers(tmp_path, 96) == {}
    assert (tmp_path / name).is_dir()


def test_attempts_are_counted_by_number(tmp_path):
    for name in ("attempt.2", "attempt.10"):
        (tmp_path / name).mkdir()
    (tmp_path / "attempt.10" / "run.json").write_text(json.dumps(RECORD))
    check_resumable(tmp_path, PLAN, "m")
    assert set_aside(tmp_path) == tmp_path / "attempt.11"
