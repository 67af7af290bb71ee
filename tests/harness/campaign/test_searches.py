"""A search's run as the performance run: complete or not at all, whatever an interrupted call left."""

from harness.campaign.searches import adopt


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


def test_a_folder_that_was_only_prepared_is_no_earlier_result(tmp_path):
    run, performance = tmp_path / "run", tmp_path / "offline/performance"
    run.mkdir()
    (run / "run.json").write_text("{}")
    performance.mkdir(parents=True)
    (performance / ".reserve").write_bytes(b"\0")
    adopt(run, performance)
    assert [path.name for path in performance.parent.iterdir()] == ["performance"]
    assert [path.name for path in performance.iterdir()] == ["run.json"]
