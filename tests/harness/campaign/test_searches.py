"""A search's result and its run as the performance run: complete or not at all."""

import pytest

from harness.campaign.searches import adopt, found_rate, submitted_run
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.peak.search.conclusion import Conclusion
from harness.peak.search.offline_rate import OFFLINE_RATE
from harness.peak.search.search_state import Identity, SearchState
from harness.record.output_dir import locked
from tests.kit import without_permissions

IDENTITY = Identity(
    benchmark="gpt-oss-120b",
    scenario="server",
    dataset_sha256="",
    samples=64,
    servers=(),
    parameters={},
    loadgen_settings={},
)


def test_a_run_is_adopted_in_spite_of_what_a_killed_campaign_left(tmp_path):
    run, performance = tmp_path / "peak/run", tmp_path / "offline/performance"
    for folder in (run, performance, performance.with_name(".performance.adopted")):
        (folder / "journal").mkdir(parents=True)
        (folder / "run.json").write_text(f"of {folder.name}")
    (performance.with_name(".performance.adopted") / "half").touch()
    for _ in range(2):  # the second finds what the first has made
        adopt(run, performance)
        assert sorted(path.name for path in performance.iterdir()) == ["journal", "run.json"]
        assert (performance / "run.json").read_text() == "of run"
    aside = sorted(path for path in performance.parent.iterdir() if path != performance)
    assert [(path / "run.json").read_text() for path in aside] == ["of performance", "of run"]
    assert (run / "run.json").is_file()


def test_a_run_is_adopted_on_a_file_system_without_permissions(tmp_path, monkeypatch):
    run, performance = tmp_path / "run", tmp_path / "server/performance"
    (run / "journal").mkdir(parents=True)
    (run / "journal/answers").write_text("1")
    without_permissions(monkeypatch)
    adopt(run, performance)
    assert (performance / "journal/answers").read_text() == "1"


def test_a_folder_that_was_only_prepared_is_no_earlier_result(tmp_path):
    run, performance = tmp_path / "run", tmp_path / "offline/performance"
    run.mkdir()
    (run / "run.json").write_text("{}")
    performance.mkdir(parents=True)
    (performance / ".reserve").write_bytes(b"\0")
    adopt(run, performance)
    assert [path.name for path in performance.parent.iterdir()] == ["performance"]
    assert [path.name for path in performance.iterdir()] == ["run.json"]


def test_a_run_by_hand_keeps_its_folder(tmp_path):
    run, performance = tmp_path / "run", tmp_path / "server/performance"
    for folder in (run, performance):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(f"of {folder.name}")
    with locked(performance), pytest.raises(ConfigError, match="another run is writing there"):
        adopt(run, performance)
    assert (performance / "run.json").read_text() == "of performance"


@pytest.mark.parametrize(
    ("outcome", "rate"), [("INTERRUPTED", None), ("ERROR", None), ("BUDGET", 100.0), ("FOUND", 100.0)]
)
def test_a_search_that_was_cut_off_has_found_no_rate_yet(tmp_path, outcome, rate):
    """Its search.json has a rate: after Ctrl-C behind the first VALID run, 100 of 474 queries/s."""
    folder = tmp_path / "search"
    run = folder / "probe-01/server/performance"
    run.mkdir(parents=True)
    (run / "run.json").touch()
    found = Conclusion(outcome=outcome, why="", rate=100.0, folder=str(run.relative_to(folder)))
    SearchState(identity=IDENTITY, limits_ns={}, tolerance=0.01, conclusion=found).write(folder)
    assert found_rate(tmp_path, Scenario.SERVER) == rate
    assert submitted_run(tmp_path) == (run if rate else None)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"conf_row": "\xff"}', b'{"x":' + b"[" * 99_999])
def test_a_damaged_rate_of_offline_is_an_error(tmp_path, content):
    assert found_rate(tmp_path, Scenario.OFFLINE) is None
    (tmp_path / OFFLINE_RATE).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{OFFLINE_RATE}: .*; remove it"):
        found_rate(tmp_path, Scenario.OFFLINE)
