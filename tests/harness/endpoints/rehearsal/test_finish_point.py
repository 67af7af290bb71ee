"""When a point of a rehearsal is finished."""

import pytest

from harness.endpoints.rehearsal.finish_point import finished_point, unfinished_point
from harness.endpoints.run_folder import CONFIG, EVENTS, POINT_RUN, SUMMARY
from harness.errors import ConfigError
from tests.endpoints_kit import curve, point_run, write_run


def finished(folder):
    """Which files are there is the question, not what the log holds."""
    run = write_run(folder, point_run(curve().points[3]))
    (run / EVENTS).touch()
    return run


@pytest.mark.parametrize("name", [CONFIG, EVENTS, SUMMARY])
def test_a_point_that_lacks_a_file_is_finished_again_and_not_run(tmp_path, name):
    """Without its config.yaml the tree was refused at each call, after all points were done."""
    run = finished(tmp_path / "r64")
    assert finished_point(run) is not None
    (run / name).unlink()
    assert finished_point(run) is None
    assert unfinished_point(run) is not None


@pytest.mark.parametrize(("name", "remedy"), [(SUMMARY, "remove it"), (POINT_RUN, "remove the run folder")])
def test_a_damaged_file_costs_no_more_than_it_must(tmp_path, name, remedy):
    run = finished(tmp_path / "r64")
    (run / name).write_text((run / name).read_text()[:-40])
    with pytest.raises(ConfigError, match=f"{name}: .*{remedy}"):
        finished_point(run)
