"""Two curves side by side: points, step functions, settings, and curves that cannot be compared."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from harness.endpoints.point_run import read_point_run, write_point_run
from harness.endpoints.run_folder import RUNS
from harness.endpoints.view.compare_curves import (
    compare,
    compare_lines,
    compare_page,
    comparison,
    point_rows,
    user_rows,
)
from harness.errors import ConfigError
from harness.report.html.page import render
from run_endpoints import main
from tests import endpoints_folders as made
from tests import endpoints_kit as kit

NAMES = [f"r{level}" for level, *_ in kit.LEVELS]


def faster(folder, part):
    """The same tokens in a part of the time, at the same speed for a user."""
    for name in (*NAMES, "offline"):
        run = folder / RUNS / name
        made.change(run, lambda found: found.update(duration_ns=found["duration_ns"] * part))


def lines(left, right):
    return list(compare_lines(comparison(left, right)))


def test_a_curve_and_itself(tmp_path):
    folder = made.rehearsal(tmp_path)
    first, second, *_ = found = lines(folder, folder)
    assert first.startswith("comparable: ")
    assert second.endswith("+0.0% in the mean; the curves are equal there.")
    assert not any("Settings" in line for line in found)


def test_a_rehearsal_that_has_become_faster(tmp_path):
    left, right = made.rehearsal(tmp_path / "left"), made.rehearsal(tmp_path / "right")
    faster(right, 0.8)
    both = comparison(left, right)
    _, summary, *_ = compare_lines(both)
    assert "+25.0% in the mean; nowhere below the base." in summary
    changes = {row[0]: row[3] for row in point_rows(both)}
    assert changes == dict.fromkeys([f"{level:,}" for level, *_ in kit.LEVELS] + ["Offline"], "+25.0%")
    assert {row[3] for row in user_rows(both)} == {"+25.0%"}


def test_a_rehearsal_and_the_tree_of_another(tmp_path):
    """The tree says model and dataset in the rules' words, the rehearsal in its own: they are the same."""
    both = comparison(made.rehearsal(tmp_path / "left"), made.tree(tmp_path / "right"))
    assert both.reasons == ()
    assert [row[0] for row in point_rows(both)][:3] == ["1", "8", "32"]


def test_points_at_other_concurrencies_meet_on_the_step_function(tmp_path):
    left = made.rehearsal(tmp_path / "left", points=("r1", "r64", "r1024"))
    right = made.rehearsal(tmp_path / "right", points=("r8", "r256"))
    both = comparison(left, right)
    assert point_rows(both) == []
    # From 256 in flight to 8: the base holds what r1 reached until r64 is as fast as that.
    rates = {one.name: one.system_tps for one in (*both.left.points, *both.right.points)}
    assert [row[1:3] for row in user_rows(both)] == [
        (f"{rates['r64']:,.1f}", f"{rates['r256']:,.1f}"),
        (f"{rates['r64']:,.1f}", f"{rates['r8']:,.1f}"),
        (f"{rates['r1']:,.1f}", f"{rates['r8']:,.1f}"),
    ]


def test_a_small_part_of_the_range_is_no_0_percent(tmp_path):
    """The points have 0.78, 1.42, 2.55, 9.06, 13.6, 36.2 and 145 tokens/s of a user."""
    left = made.rehearsal(tmp_path / "left", samples=40)
    right = made.rehearsal(tmp_path / "right", points=("r1", "r64", "r1024"), samples=40)
    _, summary, *_ = lines(left, right)
    above, below = (1.42 - 0.78) / (145 - 0.78), (2.55 - 1.42 + 36.2 - 9.06) / (145 - 0.78)
    assert f"above the base over {above:.1%} of that range, below it over {below:.1%}." in summary


def test_curves_that_no_user_compares(tmp_path):
    left, right = (made.rehearsal(tmp_path / name, points=(name,)) for name in ("r1", "r1024"))
    assert "The curves have no tokens/s of a user in common." in lines(left, right)
    assert user_rows(comparison(left, right)) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_name": "llama3_1-8b"}, "model: gpt-oss-120b and llama3_1-8b"),
        ({"samples": 40}, "samples: 6,396 and 40"),  # as --short has
    ],
)
def test_what_does_not_compare_is_said_first_and_the_numbers_stay(change, reason, tmp_path):
    left, right = made.rehearsal(tmp_path / "left"), made.rehearsal(tmp_path / "right", **change)
    first, *rest = lines(left, right)
    assert first.startswith("NOT COMPARABLE: ")
    assert reason in first
    assert "At equal requests in flight, not comparable" in rest
    html = render(compare_page(comparison(left, right)))
    assert html.index("NOT COMPARABLE") < html.index("At equal requests in flight")


def test_answers_of_another_length_do_not_compare(tmp_path):
    left, right = made.rehearsal(tmp_path / "left"), made.rehearsal(tmp_path / "right")
    for run in (right / RUNS).iterdir():
        own = read_point_run(run)
        write_point_run(run, replace(own, parameters=replace(own.parameters, max_new_tokens=8)))
    assert comparison(left, right).reasons == ("most tokens of an answer: 10240 and 8",)


def test_a_base_whose_summaries_count_less_than_no_token(tmp_path):
    """They are damaged: no rate follows from them."""
    left, right = made.rehearsal(tmp_path / "left"), made.rehearsal(tmp_path / "right")
    for name in NAMES:
        made.change(left / RUNS / name, lambda found: found["output_sequence_lengths"].update(total=-1))
    assert lines(left, right)[1] == "The curves have no tokens/s of a user in common."
    assert [row[0] for row in point_rows(comparison(left, right))] == ["Offline"]


def test_another_dataset(tmp_path):
    left, right = made.rehearsal(tmp_path / "left"), made.rehearsal(tmp_path / "right")
    for file in right.glob(f"{RUNS}/*/point_run.json"):
        file.write_text(file.read_text().replace("0" * 64, "1" * 64))
    assert "dataset (sha256): 000000000000 and 111111111111" in lines(left, right)[0]


def test_settings_that_differ(tmp_path):
    left = made.rehearsal(tmp_path / "left")
    right = made.rehearsal(tmp_path / "right", salt_bits=64, replacement=True)
    found = lines(left, right)
    rows = found[found.index("Settings that differ, or that one side does not state") :]
    assert any("128 bits" in row and "64 bits" in row for row in rows)
    assert any("with replacement" in row for row in rows)


@pytest.mark.parametrize("page", ["compare.html", "pages/two curves.html"])
def test_the_command_prints_and_leaves_its_page(page, tmp_path, monkeypatch, capsys):
    left, right = made.rehearsal(tmp_path / "left"), made.run_folders(tmp_path / "right")
    where = () if page == "compare.html" else ("--output", page)
    (tmp_path / "pages").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["compare", str(left), str(right), *where]) == 0
    said = capsys.readouterr().out
    assert "not an MLPerf result" in said and said.endswith(f"\n{page}\n")
    assert [str(found.relative_to(tmp_path)) for found in tmp_path.rglob("*.html")] == [page]
    assert "NOT AN MLPERF RESULT" in (tmp_path / page).read_text()


def test_a_page_that_cannot_be_written_names_its_flag(tmp_path, capsys):
    folder = str(made.rehearsal(tmp_path))
    assert main(["compare", folder, folder, "-o", f"{tmp_path}/none/compare.html"]) == 2
    assert capsys.readouterr().err.endswith("choose another --output\n")


def test_a_side_that_cannot_be_read_is_one_line(tmp_path):
    folder = made.rehearsal(tmp_path / "left")
    with pytest.raises(ConfigError, match="no such folder"):
        compare(SimpleNamespace(left=folder, right=tmp_path / "none"))
    empty = made.rehearsal(tmp_path / "empty", points=())
    with pytest.raises(ConfigError, match="no point has tokens/s yet"):
        compare(SimpleNamespace(left=folder, right=empty))
