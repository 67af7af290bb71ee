"""Whether an earlier attempt can be resumed, from what its folder holds."""

import pytest
from msgspec import structs

from harness.errors import EXIT_USAGE, ConfigError
from harness.record.resume import archive_attempt, check_resumable, saved_answers, version_changes
from harness.record.run_record import RunVerdict
from tests.records import ENDED, with_plan

PARAMETERS = structs.replace(ENDED.plan.client.parameters, extra={"stop": [1, 2]})
RECORD = with_plan(structs.replace(ENDED, verdict=None), mode="accuracy", samples=96, parameters=PARAMETERS)
SERVER = RECORD.servers[0]


def served_by(server):
    return structs.replace(RECORD, servers=(server,))


def refusal(log_dir, record=RECORD):
    with pytest.raises(ConfigError) as caught:
        check_resumable(log_dir, record)
    assert caught.value.exit_code == EXIT_USAGE
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("changed", [{"model": "another"}, {"vocabulary_size": 7}])
def test_another_model_or_a_valid_run_is_refused(tmp_path, changed):
    RECORD.write(tmp_path / "run.json")
    said = refusal(tmp_path, served_by(structs.replace(SERVER, **changed)))
    assert all(str(value) in said for value in changed.values())
    check_resumable(
        tmp_path, served_by(structs.replace(SERVER, context_length=1 << 20, model_path="/elsewhere"))
    )
    structs.replace(RECORD, verdict=RunVerdict("VALID")).write(tmp_path / "run.json")
    assert "VALID" in refusal(tmp_path)


def test_another_version_of_the_server_is_named(tmp_path):
    """Whichever of the attempts had it; what cannot be read is not the newest record."""
    for number, version in ((1, "0.5.21"), (2, None), (3, "0.5.23")):
        (tmp_path / f"attempt.{number}").mkdir()
        server = structs.replace(RECORD.servers[0], version=version)
        structs.replace(RECORD, servers=(server,)).write(tmp_path / f"attempt.{number}" / "run.json")
    (tmp_path / "attempt.4").mkdir()
    (tmp_path / "attempt.4" / "run.json").write_text("{")
    (warning,) = version_changes(tmp_path, "0.5.23")
    assert "0.5.21" in warning and "0.5.23" in warning
    (warning,) = version_changes(tmp_path, None)
    assert "0.5.21, 0.5.23" in warning
    (tmp_path / "attempt.1" / "run.json").unlink()
    assert list(version_changes(tmp_path, "0.5.23")) == []


def test_a_damaged_record_and_none_are_refused(tmp_path):
    assert "holds no run to resume" in refusal(tmp_path)
    (tmp_path / "run.json").write_text('{"plan": {')
    assert str(tmp_path / "run.json") in refusal(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"samples": 95}, ["samples 96", "95"]),
        ({"parameters": structs.replace(PARAMETERS, temperature=0.5)}, ["parameters.temperature 1.0", "0.5"]),
        (
            {"parameters": structs.replace(PARAMETERS, extra={"stop": [1]})},
            ["parameters.extra.stop [1, 2]", "[1]"],
        ),
        (
            {"parameters": structs.replace(PARAMETERS, max_new_tokens=9, extra={"seed": 4})},
            ["parameters.max_new_tokens 8", "parameters.extra.seed None", "parameters.extra.stop"],
        ),
    ],
)
def test_another_run_is_refused_by_what_differs(tmp_path, change, named):
    RECORD.write(tmp_path / "run.json")
    said = refusal(tmp_path, with_plan(RECORD, **change))
    assert [part for part in named if part not in said] == []
    assert "top_p" not in said


@pytest.mark.parametrize("name", ["attempt.²", "attempt.x", "attempt.", "attempt.0", "attempt." + "9" * 200])
def test_a_folder_that_is_no_attempt_is_left_alone(tmp_path, name):
    (tmp_path / name).mkdir()
    RECORD.write(tmp_path / "run.json")
    check_resumable(tmp_path, RECORD)
    assert archive_attempt(tmp_path) == tmp_path / "attempt.1"
    assert saved_answers(tmp_path, 96) == {}
    assert (tmp_path / name).is_dir()


def test_attempts_are_counted_by_number(tmp_path):
    for name in ("attempt.2", "attempt.10"):
        (tmp_path / name).mkdir()
    RECORD.write(tmp_path / "attempt.10" / "run.json")
    check_resumable(tmp_path, RECORD)
    assert archive_attempt(tmp_path) == tmp_path / "attempt.11"
