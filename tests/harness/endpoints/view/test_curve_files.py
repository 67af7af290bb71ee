"""Points of a curve, read from a rehearsal, from run folders of either client and from a tree."""

import json
import math
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from harness.endpoints.accuracy import PointMetric
from harness.endpoints.checks.checked_point import point_of_run
from harness.endpoints.numbers.count_cache import COUNTS, counted_samples
from harness.endpoints.planning.rules import is_same_model
from harness.endpoints.run_folder import (
    CONFIG,
    EVENTS,
    POINT_RUN,
    REHEARSAL,
    RUNS,
    SUMMARY,
    SYSTEM_POWER,
    point_folders,
)
from harness.endpoints.steady.super_passes import super_passes
from harness.endpoints.tree.build_tree import build_tree
from harness.endpoints.tree.run_facts import read_runs
from harness.endpoints.tree.system_file import read_system
from harness.endpoints.view.curve_files import read_curve
from harness.endpoints.view.shortfalls import shortfalls
from harness.errors import ConfigError
from tests import endpoints_folders as made
from tests import endpoints_kit as kit
from tests.kit import DATA

FIXED = [1, 8, 32, 64, 256, 512, 1024]
BANDS = ["ultra_low", "low", "med", "med", "high", "high", "high"]


@pytest.mark.parametrize("folder", [made.rehearsal, made.run_folders, made.tree])
def test_the_same_points_from_every_kind_of_folder(folder, tmp_path):
    curve = read_curve(folder(tmp_path))
    *fixed, offline = curve.points
    assert [one.concurrency for one in fixed] == FIXED
    assert [one.band for one in fixed] == BANDS
    assert offline.offline == "dedicated"
    assert offline.tps_per_user is None
    assert curve.c_max == 1024
    assert curve.problems == ()
    for one in fixed:
        plan = next(point for point in kit.curve().points if point.concurrency == one.concurrency)
        found = kit.summary(kit.point_run(plan))
        tokens, seconds = found["output_sequence_lengths"]["total"], found["duration_ns"] / 1e9
        assert one.system_tps == pytest.approx(tokens / seconds)
        assert one.tps_per_user == pytest.approx(1e9 / one.tpot_ns[90])
        assert (one.issued, one.failed, one.problems) == (found["n_samples_issued"], 0, ())
        assert (one.steady.status, one.steady.verdict) == ("windowable", "STEADY STATE")


def test_the_points_of_a_tree_are_in_order_of_their_concurrency(tmp_path):
    for name in ("r1024", "r8", "r16", "rx", "r", "r1a"):
        (tmp_path / name).mkdir()
    (tmp_path / "r4").touch()
    assert [one.name for one in point_folders(tmp_path)] == ["r8", "r16", "r1024"]


@pytest.mark.parametrize(
    ("stated", "kilowatts"),
    [
        ({"provisioned_power_kw": 11, "computed": {"total_system_power_w": 10200}}, 11),
        ({"computed": {"total_system_power_w": 10200}}, 10.2),
        ({}, None),
    ],
)
def test_the_power_of_a_system_is_the_provisioned_one_or_the_computed(stated, kilowatts, tmp_path):
    """In kW and in W, as system_power.json has them."""
    tree = made.tree(tmp_path)
    (power,) = tree.rglob(SYSTEM_POWER)
    power.write_text(json.dumps(stated))
    assert read_curve(tree).kilowatts == kilowatts


def test_run_folders_of_this_client_have_the_bands_of_their_plan(tmp_path):
    """As the tree of them has; the highest of a part is not C_max."""
    folder = made.rehearsal(tmp_path, points=("r1", "r8", "r64"))
    (folder / REHEARSAL).unlink()
    (folder / RUNS / "r64").rename(folder / RUNS / "the second run")
    curve = read_curve(folder / RUNS)
    assert (curve.kind, curve.c_max) == ("run folders", 1024)
    assert [one.band for one in curve.points] == ["ultra_low", "low", "med"]
    (line,) = (one for one in build_tree([folder], None, tmp_path / "tree").missing if "were not run" in one)
    assert line in shortfalls(curve)


def test_a_run_that_was_moved_aside_is_no_point(tmp_path):
    """As in the check of the same folder."""
    folder = made.run_folders(tmp_path)
    shutil.copytree(folder / "r64", folder / "r64.20261123-130000")
    assert [one.concurrency for one in read_curve(folder).points[:-1]] == FIXED
    shutil.copytree(folder, tmp_path / "curves/now")
    shutil.copytree(folder, tmp_path / "curves/now.20261123-130000")
    assert [one.concurrency for one in read_curve(tmp_path / "curves").points[:-1]] == FIXED


def test_a_declared_c_min_begins_the_bands(tmp_path):
    """So the checker has them; below it alone the lowest band has accuracy runs (section 5.4)."""
    folder = made.rehearsal(tmp_path)
    text = kit.SYSTEM.replace("# c_min_override = 1 ", "c_min_override = 8 ")
    tree = build_tree([folder], read_system(kit.write_system(tmp_path, text)), tmp_path / "tree")
    (tree.curve / "r1/accuracy_results.json").unlink()
    curve = read_curve(tree.submission)
    assert (curve.regions.ultra_low.end, curve.points[1].band) == (8, "ultra_low")
    assert "no accuracy run (section 5.3): Low" in shortfalls(curve)


def test_a_folder_that_the_official_client_left(tmp_path):
    """Recorded: 12 requests with 4 in flight."""
    curve = read_curve(DATA / "endpoints/official_run")
    (point,) = curve.points
    recorded = json.loads((DATA / "endpoints/official_run" / SUMMARY).read_text())
    assert (point.concurrency, point.issued, point.failed) == (4, 12, 0)
    assert point.system_tps == pytest.approx(recorded["tps"])
    assert point.tps_per_user == pytest.approx(1e9 / recorded["tpot"]["percentiles"]["90.0"])
    assert point.ttft_ns[90] == recorded["ttft"]["percentiles"]["90.0"]
    assert point.problems == ()
    assert point.settings["model"] == "gpt-oss-120b"


def test_what_only_this_client_knows(tmp_path):
    r64 = next(one for one in read_curve(made.rehearsal(tmp_path)).points if one.name == "r64")
    assert r64.run.warm_up.requests_issued == 64
    assert r64.settings["salt"] == "128 bits"
    assert r64.accuracy.metrics["exact_match"] == PointMetric(value=83.5, lowest=82.2987, highest=math.inf)


def test_a_tree_tells_power_and_what_was_declared(tmp_path):
    curve = read_curve(made.tree(tmp_path))
    assert curve.kind == "published tree"
    ours = read_curve(tmp_path / "rehearsed").settings
    for name, value in (("seed set", "A"), ("target cohort", "2026-12-C0")):
        assert curve.settings[name] == ours[name] == value
    # 2 CPUs of 350 W, 8 accelerators of 700 W and 4 switches of 100 W, with the share for air cooling
    assert curve.kilowatts == pytest.approx((2 * 350 + 8 * 700 + 4 * 100) * 1.5 / 1000)
    assert curve.settings["system"] == "8x NVIDIA H200"
    assert curve.settings["model precision"] == "MXFP4"
    assert curve.settings["parallelism"] == "TP 1, DP 8"
    assert curve.settings["accelerators of a node"] == "8 x NVIDIA H200"


def test_the_nodes_that_one_point_uses(tmp_path):
    folder = made.tree(tmp_path)
    (path,) = folder.rglob("r8/point.yaml")
    stated = yaml.safe_load(path.read_text())
    nodes = [{"system_node_ensemble_id": number, "nodes": number} for number in (1, 2)]
    path.write_text(yaml.safe_dump(stated | {"nodes_used": nodes}))
    used = {one.name: one.settings.get("nodes used") for one in read_curve(folder).points}
    assert used.pop("r8") == "1 + 2" and set(used.values()) == {None}


def test_the_folder_of_one_curve_is_taken_too(tmp_path):
    (model,) = made.tree(tmp_path).glob("results/*/*/")
    assert len(read_curve(model).points) == 8


def test_an_unfinished_rehearsal_has_the_points_that_are_there(tmp_path):
    curve = read_curve(made.rehearsal(tmp_path, points=("r1", "offline")))
    assert [one.name for one in curve.points] == ["r1", "offline"]
    assert len(curve.plan.points) == 8


def test_percentiles_as_older_and_newer_clients_write_them(tmp_path):
    folder = made.run_folders(tmp_path)
    made.change(folder / "r8", lambda found: found["tpot"].update(percentiles={"90": 2e6, "99.9": 5e6}))
    made.change(folder / "r64", lambda found: found["tpot"].update(percentiles={"90.0": 2e6, "50.0": None}))
    by_name = {one.name: one for one in read_curve(folder).points}
    assert dict(by_name["r8"].tpot_ns) == dict(by_name["r64"].tpot_ns) == {90: 2e6}


def test_the_headline_of_the_official_detector(tmp_path):
    """result_summary.json has it in another form than point.yaml."""
    headline = {
        "found": True,
        "window": {
            "sp_lo": 1,
            "sp_hi": 7,
            "n_samples": 900,
            "n_super_passes": 6,
            "plateau_index": 0,
            "n_plateaus": 1,
            "skipped_short": 0,
        },
        "short_window": {
            "is_short": False,
            "window_duration_s": 1300.0,
            "min_duration_s": 600.0,
            "dominant": "floor",
        },
        "global_trend": {"tpot_p50": "steady", "tpot_p90": "steady"},
        "superpass_size": 150,
        "n_super_passes": 8,
    }
    folder = made.run_folders(tmp_path)
    made.change(folder / "r64", lambda found: found.update(steady_state=headline))
    (r64,) = (one for one in read_curve(folder).points if one.name == "r64")
    assert (r64.steady.status, r64.steady.window.super_passes) == ("windowable", 6)
    made.change(folder / "r64", lambda found: found.update(steady_state={"found": "perhaps"}))
    (r64,) = (one for one in read_curve(folder).points if one.name == "r64")
    assert r64.steady is None


BROKEN = {
    "cut off": (SUMMARY, '{"n_samples_issued": 1'),
    "a list for a table": (SUMMARY, "[]"),
    "nested": (SUMMARY, '{"x":' * 100_000),
    "a list": (CONFIG, "- 1\n"),
    "YAML with aliases": (CONFIG, "a: &a [1]\nb: *a\n"),
    "YAML of 10 MB of nesting": (CONFIG, "[" * 10_000_000),
    "another form": (POINT_RUN, '{"label": 1}'),
}


@pytest.mark.parametrize(("name", "text"), BROKEN.values(), ids=BROKEN)
def test_a_damaged_file_is_one_line_and_the_other_points_stay(name, text, tmp_path):
    folder = made.rehearsal(tmp_path)
    (folder / RUNS / "r64" / name).write_text(text)
    by_name = {one.name: one for one in read_curve(folder).points}
    (line,) = by_name["r64"].problems
    assert str(folder / RUNS / "r64" / name) in line
    assert "\n" not in line
    assert len(line) < 1000
    assert len(by_name) == 8
    assert by_name["r8"].system_tps


def test_a_value_of_another_kind_is_unknown_and_the_others_of_its_file_stay(tmp_path):
    folder = made.run_folders(tmp_path)
    wrong = {"n_samples_failed": "many", "ttft": {"percentiles": {"most": 1, "50": [], "90": 3}}}
    before = read_curve(folder / "r64").points[0]
    made.change(folder / "r64", lambda found: found.update(wrong))
    (r64,) = read_curve(folder / "r64").points
    assert (before.failed, r64.failed, r64.ttft_ns, r64.problems) == (0, None, {90: 3}, ())
    assert (r64.system_tps, r64.tpot_ns, r64.issued) == (before.system_tps, before.tpot_ns, before.issued)


@pytest.mark.parametrize("name", ["concurrency", "max_supported_concurrency"])
def test_a_count_of_400_digits_is_unknown(name, tmp_path):
    folder = made.tree(tmp_path)
    (path,) = folder.rglob("r8/point.yaml")
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {name: 10**400}))
    curve = read_curve(folder)
    assert (curve.c_max, [one.concurrency for one in curve.steps]) == (1024, FIXED)


def test_every_reader_takes_a_dedicated_run_for_one_by_its_load_pattern(tmp_path):
    """Page, check and build; the official client's ``type`` alone does not say how requests were issued."""
    folder = made.run_folders(tmp_path) / "offline"
    config = yaml.safe_load((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(yaml.safe_dump(config | {"type": "online"}))
    assert read_curve(folder).points[0].offline == "dedicated"
    assert point_of_run(folder, folder).is_offline
    assert read_runs([folder])[0].dedicated


def test_a_record_of_a_dataset_without_samples_is_one_line(tmp_path):
    folder = made.rehearsal(tmp_path)
    path = folder / RUNS / "r64" / POINT_RUN
    path.write_text(path.read_text().replace('"samples": 6396', '"samples": 0'))
    (line,) = (text for one in read_curve(folder).points for text in one.problems)
    assert "Expected `int` >= 1" in line


def test_a_damaged_accuracy_file_is_one_line(tmp_path):
    folder = made.rehearsal(tmp_path)
    (folder / RUNS / "r64/accuracy/accuracy_results.json").write_text('{"accuracy_scores": 3}')
    (r64,) = (one for one in read_curve(folder).points if one.name == "r64")
    assert len(r64.problems) == 1
    assert r64.accuracy is None


@pytest.mark.parametrize("text", ["", "{", '{"curve": {}}'])
def test_a_damaged_plan_is_one_line(text, tmp_path):
    made.rehearsal(tmp_path)
    (tmp_path / REHEARSAL).write_text(text)
    with pytest.raises(ConfigError, match=REHEARSAL):
        read_curve(tmp_path)


def test_folders_without_a_curve(tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        read_curve(tmp_path / "none")
    with pytest.raises(ConfigError, match="no run folder"):
        read_curve(tmp_path)


def test_of_several_curves_one_has_to_be_named(tmp_path):
    for model in ("gpt-oss-120b", "llama3_1-8b"):
        point = tmp_path / "MyOrg/one/results/system" / model / "r64"
        point.mkdir(parents=True)
        (point / "result_summary.json").write_text(json.dumps({"n_samples_issued": 1}))
    with pytest.raises(ConfigError, match=r"2 curves .*gpt-oss-120b.*llama3_1-8b"):
        read_curve(tmp_path)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("llama3_1-8b", "meta-llama/Llama-3.1-8B-Instruct", True),
        ("gpt-oss-120b", "openai/gpt-oss-120b", True),
        ("gpt-oss-120b", "openai/gpt-oss-20b", False),
        ("gpt-oss-120b", "/hub/models--openai--gpt-oss-120b/snapshots/abcd/", True),
        ("", "gpt-oss-120b", False),
    ],
)
def test_names_of_one_model(one, other, same):
    assert is_same_model(one, other) is same


def test_counted_requests_have_the_super_passes_that_were_made_up(tmp_path):
    """The helper of the page's tests writes what the page reads."""
    made.count(tmp_path, [10, 20], 40)
    found = [round(one.tpot_p50 / made.MS, 1) for one in super_passes(counted_samples(tmp_path), 40)]
    assert found == pytest.approx([10, 20], rel=0.02)


def test_tokens_that_another_version_counted_are_not_used(tmp_path):
    made.count(tmp_path, [10, 20], 40)
    table = pq.read_table(tmp_path / COUNTS)
    without = pa.nulls(len(table))
    for other in (table.drop_columns("suffix_tokens"), table.set_column(0, table.column_names[0], without)):
        pq.write_table(other, tmp_path / COUNTS)
        assert counted_samples(tmp_path) is None
    facts = table.schema.metadata
    facts[b"key"] = facts[b"key"].replace(b"2 ", b"1 ", 1)
    pq.write_table(table.replace_schema_metadata(facts), tmp_path / COUNTS)
    assert counted_samples(tmp_path) is None


def test_tokens_of_earlier_events_are_not_used(tmp_path):
    made.count(tmp_path, [10, 20], 40)
    (tmp_path / EVENTS).write_text("{}\n")
    os.utime(tmp_path / EVENTS, (0, 0))  # copied from elsewhere
    assert counted_samples(tmp_path) is None
    (tmp_path / EVENTS).unlink()
    assert counted_samples(tmp_path) is None
