"""What can be checked, what cannot be read, and what the command prints."""

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.endpoints.checks.check_command import check, finding_lines
from harness.endpoints.checks.checked_point import PointFiles
from harness.endpoints.checks.finding import OFFICIAL, Finding, Severity, finding
from harness.endpoints.checks.official_checker import check_officially, interpreter
from harness.endpoints.checks.request_log import read_log
from harness.endpoints.checks.tree_check import check_tree
from harness.endpoints.curve import Curve, Point, SeedSet
from harness.endpoints.point_run import PointRun, read_point_run, write_point_run
from harness.endpoints.run_folder import ACCURACY, CONFIG, EVENTS, RUNS, SUMMARY, TREE
from harness.errors import EXIT_THRESHOLD, EXIT_VALID, ConfigError
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.yaml_files import read_yaml
from tests import endpoints_folders, endpoints_kit
from tests.harness.endpoints.checks.passing import (
    LOGGED,
    MODEL,
    RESULTS,
    SAMPLES,
    SEEDS,
    accuracy,
    config,
    point,
    write,
    write_log,
    write_passing,
    write_run,
)
from tests.kit import DATA, parameters
from tests.records import ENDED

POINT = RESULTS / f"r{LOGGED}"
TTFT, TPOT = ("ttft", "percentiles", "90.0"), ("tpot", "percentiles", "90.0")
TOKENS = ("output_sequence_lengths", "total")


@dataclass(frozen=True)
class Options:
    tree: Path
    json: bool = False


@pytest.fixture(scope="module")
def passing(tmp_path_factory) -> Path:
    return write_passing(tmp_path_factory.mktemp("passing"))


@pytest.fixture
def rehearsal(passing, tmp_path) -> Path:
    return shutil.copytree(passing, tmp_path / "rehearsal")


def errors(path: Path) -> list[str]:
    return [str(one) for one in check_tree(path, officially=False) if one.severity is Severity.ERROR]


@pytest.mark.parametrize(("given", "read"), [("64", 64), ("64 requests", None), ([64], None), (True, None)])
def test_a_concurrency_that_is_no_number(tmp_path, given, read):
    assert PointFiles(tmp_path, tmp_path / "r64", tmp_path, {"concurrency": given}).concurrency == read


@pytest.mark.parametrize("inside", ["", "tree", "../org"])
def test_a_tree_is_found_from_the_rehearsal_the_tree_and_the_organisation(rehearsal, inside):
    if inside == "../org":
        shutil.copytree(rehearsal / "tree", rehearsal.parent / "org/submission")
    found = check_tree(rehearsal / inside, officially=False)
    assert [str(one) for one in found if one.severity is Severity.ERROR] == []
    logged = sum("events.jsonl" not in one.got for one in found if one.rule == "not-recomputed")
    assert logged == (inside != "../org")  # a tree that was copied away has lost its runs
    assert not any(one.rule == "salt" for one in found)  # it is declared


def test_an_offline_point_that_cannot_be_read_is_not_judged_as_one_with_concurrency(rehearsal):
    """Six more findings said to stream its answers, and to run it again with a concurrency."""
    (rehearsal / RESULTS / f"r{SAMPLES}/point.yaml").write_text("offline: [dedicated")
    (found,) = errors(rehearsal)
    assert "[unreadable " in found


def test_what_lies_beside_the_points_is_none(rehearsal):
    before = [str(one) for one in check_tree(rehearsal, officially=False)]
    model = (rehearsal / POINT).parent
    (model / "remarks").mkdir()
    (model / "r7").write_text("a file")
    assert [str(one) for one in check_tree(rehearsal, officially=False)] == before


@pytest.mark.engine
def test_a_log_that_lies_in_the_point_s_folder(rehearsal):
    (rehearsal / f"runs/r{LOGGED}/events.jsonl").rename(rehearsal / POINT / "events.jsonl")
    write_log(rehearsal / POINT / "events.jsonl", seconds=100.0)
    assert any("issue lasts 100.0 s" in line for line in errors(rehearsal))


def test_of_several_submissions_one_has_to_be_named(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name / "results").mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"holds 2 submissions; pass one of them, such as {tmp_path}/one"):
        check_tree(tmp_path)


def test_run_folders_of_the_official_client_alone(tmp_path):
    write_run(tmp_path / "runs/r64")
    assert errors(tmp_path / "runs/r64") == errors(tmp_path / "runs") == errors(tmp_path) == []
    write_log(tmp_path / "runs/r64/events.jsonl", count=400, seconds=30.0, salted=False)
    found = check_tree(tmp_path / "runs")
    assert {one.rule for one in found if one.severity is Severity.ERROR} == {"issue-time", "salt"}


def test_the_configuration_s_samples_count_before_what_a_window_claims(tmp_path):
    window = {"steady_state": {"window": {"super_pass_size": 50}}}
    files = PointFiles(tmp_path, tmp_path / "r64", None, window)
    own = msgspec.structs.replace(files, config={"datasets": [{"name": "own", "samples": 100}]})
    assert (own.dataset_size, files.dataset_size) == (100, 50)


@pytest.mark.parametrize(
    ("stated", "configured"), [("mlperf_gpt_oss_performance", "own"), ("own", "mlperf_gpt_oss_performance")]
)
def test_an_official_dataset_has_its_samples_whatever_is_written(tmp_path, stated, configured):
    """Of a part of it passes would be complete that are none."""
    settings = {"datasets": [{"name": configured, "samples": 100}]}
    point = {"dataset": stated, "steady_state": {"window": {"super_pass_size": 50}}}
    assert PointFiles(tmp_path, tmp_path / "r64", None, point, settings).dataset_size == 6396


@pytest.mark.parametrize(
    ("pattern", "in_flight", "seconds"),
    [
        ("concurrency", 32, 600),
        ("concurrency", 33, 1200),
        ("agentic_inference", 32, 600),
        ("agentic_inference", 33, 2400),
    ],
)
def test_the_least_time_of_a_point(tmp_path, pattern, in_flight, seconds):
    """Section 6.2 of the rules."""
    stated = {"concurrency": in_flight, "runtime_settings": {"load_pattern": pattern}}
    assert PointFiles(tmp_path, tmp_path / "r64", None, stated).required_s == seconds


def test_a_finding_names_the_file_where_it_lies(tmp_path):
    run = write_run(tmp_path / "r64")
    (run / ACCURACY).parent.mkdir()
    write(run / ACCURACY, {"accuracy_scores": [{"score": 0.835, "unit_samples": 4395, "salted": True}]})
    (line,) = errors(tmp_path)
    assert line.startswith(f"r64/{ACCURACY}: [accuracy-salt")


@pytest.mark.parametrize("name", ["ttft", "tpot"])
@pytest.mark.parametrize(("block", "got"), [({}, "is missing"), ({"percentiles": {"50": 1.0}}, "has no p90")])
def test_a_run_folder_without_a_latency(name, block, got, tmp_path):
    """Both are of the point's result. MLCommons's checker takes trees, and no run folders."""
    run = write_run(tmp_path / "r64")
    summary = json.loads((run / SUMMARY).read_text())
    write(run / SUMMARY, summary | {name: block})
    (line,) = errors(tmp_path)
    assert f"r64/{SUMMARY}: [{name}" in line and got in line


@pytest.mark.parametrize(("salt", "found"), [(True, []), (False, ["[warm-up"]), (None, ["[warm-up"])])
def test_a_warm_up_of_the_performance_dataset_is_salted(salt, found, tmp_path):
    """Section 6.3.1 of the rules; the official client's default is no salt."""
    run = write_run(tmp_path / "r64")
    settings = config(64)
    settings["datasets"][0]["samples"] = 100
    settings["settings"]["warmup"] = {"enabled": True} | ({} if salt is None else {"salt": salt})
    write(run / CONFIG, settings)
    lines = errors(tmp_path)
    assert len(lines) == len(found) and all(words in lines[0] for words in found)


@pytest.mark.parametrize(
    ("keys", "part", "found"),
    [
        (TTFT, 0.995, []),
        (TTFT, 0.9, ["the p90 of ttft is 187.5 ms, expected 208.3 ms as in r4/"]),
        (TPOT, 0.995, []),
        (TPOT, 1.1, []),
        (TPOT, 0.9, ["the p90 of tpot is 2.25 ms, expected 2.50 ms as in r4/"]),
        (TOKENS, 0.9, []),  # the official client counts no thoughts of gpt-oss
        (TOKENS, 1.01, ["output_sequence_lengths.total is 113, expected 112 as in r4/"]),
    ],
)
def test_a_summary_of_another_run_with_the_same_counts(keys, part, found, tmp_path):
    """The official client's summary and events are of one run: its figures are those of the events."""
    run = shutil.copytree(DATA / "endpoints/official_run", tmp_path / "r4")
    before = errors(tmp_path)
    summary = json.loads((run / SUMMARY).read_text())
    table = reduce(dict.__getitem__, keys[:-1], summary)
    table[keys[-1]] *= part
    write(run / SUMMARY, summary)
    new = [one for one in errors(tmp_path) if one not in before]
    assert len(new) == len(found) and all(f"[log-differs §4.1] {words}" in new[0] for words in found)


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({"quantization": "mxfp4", "tp_size": 4}, []),
        ({"quantization": "fp8", "tp_size": 8}, ["quantization is fp8"]),
        ({"tp_size": 8}, ["quantization is not set"]),
        ({}, []),  # nothing is reported
    ],
)
def test_points_whose_servers_had_weights_of_another_precision(tmp_path, settings, got):
    """Such as a rehearsal that was continued after the servers were started anew."""
    for run in endpoints_kit.write_runs(tmp_path):
        made = read_point_run(run)
        own = settings if run.name == "r64" else {"quantization": "mxfp4", "tp_size": 8}
        write_point_run(run, replace(made, servers=(replace(made.servers[0], settings=own),)))
    for built in (False, True):
        if built:
            endpoints_folders.built(tmp_path / RUNS, tmp_path / TREE)
        found = [one for one in check_tree(tmp_path, officially=False) if one.rule == "points-differ"]
        assert [one.got for one in found] == got
        assert all("r64" in one.path and one.expected.startswith("mxfp4") for one in found)


@pytest.mark.parametrize("name", ["official_run", "official_failures"])
def test_the_p90_of_a_log_is_the_official_client_s(name):
    """Of the requests that had a first fragment."""
    run = DATA / "endpoints" / name
    stated = json.loads((run / SUMMARY).read_text())["ttft"]["percentiles"]["90.0"]
    assert read_log(run / EVENTS).ttft_p90_ns == stated


def test_the_run_folders_of_the_official_client_have_any_name(tmp_path):
    """tree.json names that of each point, wherever both are moved together."""
    runs = endpoints_folders.run_folders(tmp_path / "here")
    for run in list(runs.iterdir()):
        run.rename(runs / f"2026-11-23_{run.name}")
    endpoints_folders.built(runs, tmp_path / "here/tree")
    moved = (tmp_path / "here").rename(tmp_path / "there")
    assert errors(moved) == []
    (moved / "runs/2026-11-23_r64" / EVENTS).write_text("")
    (moved / "runs/2026-11-23_offline" / EVENTS).write_text("")
    points = {line.partition(":")[0] for line in errors(moved)}
    assert points == {f"2026-11-23_{name}/{EVENTS}" for name in ("r64", "offline")}


def test_an_accuracy_run_in_a_folder_of_its_own(tmp_path):
    """build joins it to the point of its concurrency; its log has no performance run."""
    run, apart = write_run(tmp_path / "r64"), tmp_path / "r64-accuracy"
    (apart / ACCURACY).parent.mkdir(parents=True)
    write(apart / ACCURACY, accuracy())
    (apart / CONFIG).write_bytes((run / CONFIG).read_bytes().replace(b"'on'", b"'off'"))
    (apart / EVENTS).write_text("")
    assert errors(tmp_path) == []
    write(apart / ACCURACY, accuracy(70.0))
    (line,) = errors(tmp_path)
    assert f"r64-accuracy/{ACCURACY}: [accuracy" in line


def test_a_scored_point_that_lost_its_summary(tmp_path):
    """It looks like an accuracy run in a folder of its own, but no other folder has the point."""
    write_run(tmp_path / "r512", 512)
    lost = write_run(tmp_path / "r64")
    (lost / ACCURACY).parent.mkdir()
    write(lost / ACCURACY, accuracy())
    assert errors(tmp_path) == []
    (lost / SUMMARY).unlink()
    (line,) = errors(tmp_path)
    assert f"r64/{SUMMARY}: [missing §8.1] is missing, and no other folder has this point" in line


def test_the_steady_state_of_the_official_client_s_run_folder(tmp_path):
    """It has the detector's headline, which names neither status nor verdict."""
    run = endpoints_kit.point_run(endpoints_kit.curve().points[0])
    endpoints_kit.write_official_run(folder := tmp_path / "r1", run)
    assert errors(folder) == []
    summary = json.loads((folder / SUMMARY).read_text())
    summary["steady_state"]["global_trend"]["tpot_p90"] = "up"
    write(folder / SUMMARY, summary)
    (line,) = errors(folder)
    assert "[steady-state §4.4] the verdict is drifting_up" in line
    settings = read_yaml(folder / CONFIG)
    settings["datasets"] = [{"name": "own", "type": "performance"}]
    write(folder / CONFIG, settings)  # nothing else says how many samples a super-pass has
    assert errors(folder) == [line]
    for verdict in ("steady state", None):  # in the form of point.yaml
        block = endpoints_kit.steady_state(run) | {"verdict": verdict}
        write(folder / SUMMARY, summary | {"steady_state": block})
        (line,) = errors(folder)
        assert f"the verdict is {verdict or 'missing'}" in line


@pytest.mark.parametrize("name", [CONFIG, SUMMARY, ACCURACY])
def test_a_point_that_was_run_again_after_the_tree_was_built(name, tmp_path):
    """The tree is of the earlier run, and MLCommons's checker sees nothing else."""
    folder = endpoints_folders.rehearsal(tmp_path / "rehearsed")
    endpoints_folders.built(folder, folder / TREE)
    assert errors(folder) == []
    file = folder / RUNS / "r64" / name
    file.write_text(file.read_text() + "\n")  # the same content
    assert errors(folder) == []
    changes = {CONFIG: ("10240", "2048"), SUMMARY: ("1000000", "2000000"), ACCURACY: ("83.5", "84.5")}
    before, after = changes[name]
    file.write_text(file.read_text().replace(before, after))
    (line,) = errors(folder)
    assert f"r64/{Path(name).name}: [copied §8.1] is another one than r64/{name}" in line


def test_a_score_that_was_left_out_of_the_tree(tmp_path):
    """As build asks for where a band has several."""
    folder = endpoints_folders.rehearsal(tmp_path)
    endpoints_folders.built(folder, folder / TREE)
    (score,) = (folder / TREE).rglob(f"r64/{Path(ACCURACY).name}")
    score.unlink()
    assert errors(folder) == []


def record(*, short: bool) -> PointRun:
    """What this client leaves of a point."""
    planned = Point(name="r64", concurrency=64, band="med", issue_s=1.0, passes=1)
    seeds = SeedSet(
        name="A",
        cohort="2026-10-C1",
        published="2026-10-C1",
        scheduler=SEEDS["scheduler_rng_seed"],
        sample_index=SEEDS["sample_index_rng_seed"],
        model=SEEDS["model_seed"],
    )
    curve = Curve(
        benchmark=MODEL,
        model_name=MODEL,
        c_min=1,
        c_max=1024,
        points=(planned,),
        samples=100,
        accuracy_samples=0,
        seeds=seeds,
        short=short,
    )
    return PointRun(
        curve=curve,
        point=planned,
        input_file="perf.parquet",
        dataset_sha256="0" * 64,
        parameters=parameters(),
        servers=ENDED.servers,
        provenance=ENDED.provenance,
        started=ENDED.started,
    )


@pytest.mark.parametrize("short", [False, True])
def test_a_short_rehearsal_is_not_blamed_for_its_length(tmp_path, short):
    run = write_run(tmp_path / "r64")
    settings = config(64)
    settings["settings"]["runtime"]["min_duration_ms"] = 1000
    write(run / "config.yaml", settings)
    (run / "point_run.json").write_bytes(msgspec.json.encode(record(short=short)))
    write_log(run / "events.jsonl", count=400, seconds=30.0)
    found = check_tree(run)
    severity = Severity.REHEARSED if short else Severity.ERROR
    assert {one.rule for one in found if one.severity is severity} == {"issue-time", "min-duration"}
    (last, *rest) = reversed(list(finding_lines(found)))
    assert [one.expected for one in found if one.rule == "min-duration"] == ["1200000 or more"]
    assert any("issue-time, min-duration" in line for line in rest) is short and NOT_A_RESULT in last
    headings = [line for line in rest if line.endswith("):")]
    assert headings == ([] if short else [f"{Severity.ERROR} ({len(found)}):"])
    assert check(Options(run)) == (EXIT_VALID if short else EXIT_THRESHOLD)


def official(level: int) -> Finding:
    got = f"point r{level} scores {level}.5"
    return Finding("accuracy-gate", f"r{level}", got, "", "repeat it", Severity.ERROR, "§4.3", OFFICIAL)


def test_alike_findings_are_one_line_and_all_are_counted():
    """MLCommons's sentences name the point; those of warnings of its are no errors of its."""
    short = [finding(rule, "r8", "", severity=Severity.REHEARSED) for rule in ("salt", "accuracy", "salt")]
    warning = msgspec.structs.replace(official(1), severity=Severity.WARNING)
    ours = finding("salt", "r8", "off", expected="64 bits", remedy="switch it on")
    unknown = [finding("not-recomputed", f"r{level}", "no log", remedy="") for level in (1, 8, 64)]
    assert [*finding_lines([*unknown, official(8), ours, official(64), warning, *short])] == [
        "too short to tell (3): accuracy, salt",
        "not checked (3):",
        "  r1 and 2 other places: [not-recomputed §4.4] no log",
        "warning (1):",
        "  r1: [accuracy-gate §4.3] point r1 scores 1.5; repeat it (MLCommons's checker)",
        "error (3):",
        "  r8 and 1 other place: [accuracy-gate §4.3] point r8 scores 8.5; repeat it (MLCommons's checker)",
        "  r8: [salt §2.9.5.1] off, expected 64 bits; switch it on",
        f"3 errors (2 of MLCommons's checker), 1 warning, 3 too short to tell, 3 not checked; {NOT_A_RESULT}",
    ]
    assert [*finding_lines([])] == [f"0 errors, 0 warnings; {NOT_A_RESULT}"]


def test_a_check_is_printed_as_lines_or_as_one_object(tmp_path, capsys):
    """Exit code 5 where one error is among what else there is."""
    run = write_run(tmp_path / "r64")
    assert check(Options(run)) == EXIT_VALID
    assert capsys.readouterr().out.endswith(f"; {NOT_A_RESULT}\n")
    (run / ACCURACY).parent.mkdir()
    write(run / ACCURACY, {"accuracy_scores": [{"score": 0.835, "unit_samples": 4395, "salted": True}]})
    (run / EVENTS).unlink()
    assert check(Options(run, json=True)) == EXIT_THRESHOLD
    printed = json.loads(capsys.readouterr().out)
    assert printed["label"] == NOT_A_RESULT
    assert {one["rule"]: one["severity"] for one in printed["findings"]} == {
        "accuracy-salt": "error",
        "not-recomputed": "not checked",
        "salt": "not checked",
    }


@pytest.mark.parametrize("short", [False, True])
def test_a_short_rehearsal_is_not_blamed_for_what_offline_reached(tmp_path, short):
    root = endpoints_folders.rehearsal(tmp_path, short=short)
    summary = root / "runs/offline" / SUMMARY
    measured = json.loads(summary.read_text())
    measured["output_sequence_lengths"]["total"] //= 10
    summary.write_text(json.dumps(measured))
    (found,) = [one for one in check_tree(root, officially=False) if one.rule == "offline-throughput"]
    assert found.severity is (Severity.REHEARSED if short else Severity.ERROR)


def test_the_tree_of_a_short_rehearsal_has_the_files_of_its_runs(tmp_path):
    """Its scores have other names there."""
    root = endpoints_folders.rehearsal(tmp_path, short=True)
    endpoints_folders.built(root, root / TREE)
    assert errors(root) == []


@pytest.mark.parametrize("bits", [0, 128])
def test_the_salt_of_our_own_run(tmp_path, bits):
    run = write_run(tmp_path / "r64")
    made = record(short=False)
    curve = msgspec.structs.replace(made.curve, salt_bits=bits)
    (run / "point_run.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(made, curve=curve)))
    assert len(errors(run)) == (bits == 0)


@pytest.mark.engine
def test_the_command_says_what_it_found(rehearsal, capsys):
    assert check(Options(rehearsal)) == EXIT_VALID
    *lines, last = capsys.readouterr().out.splitlines()
    assert NOT_A_RESULT in last
    (alike,) = (line for line in lines if "no events.jsonl" in line)
    assert "6 other places" in alike
    (rehearsal / POINT).rename(rehearsal / RESULTS / "r65")
    assert check(Options(rehearsal, json=True)) == EXIT_THRESHOLD
    printed = json.loads(capsys.readouterr().out)
    (found,) = [one for one in printed["findings"] if one["rule"] == "folder-name"]
    assert (found["severity"], found["section"], found["expected"]) == ("error", "§8.1", "r64")


def test_without_mlcommons_s_checker_one_line_says_so(rehearsal, monkeypatch):
    monkeypatch.setattr("sys.path", [])
    monkeypatch.delitem(sys.modules, "submission_checker", raising=False)  # another test may have imported it
    monkeypatch.setenv("PATH", "")
    (line,) = check_officially(rehearsal / "tree")
    assert line.severity is Severity.UNKNOWN and "pip install endpoints-submission-cli" in line.remedy


@pytest.mark.engine
@pytest.mark.skipif(interpreter() is None, reason="endpoints-submission-cli is not installed")
def test_a_tree_on_which_mlcommons_s_checker_fails(rehearsal):
    nested(rehearsal / RESULTS.parent / "system_power.json", '{"a":', 1 << 20)
    (line,) = [one for one in check_officially(rehearsal / "tree") if one.rule == "official-checker"]
    assert line.severity is Severity.ERROR and "RecursionError" in line.got


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("missing", "does not exist"),
        ("a file", "is no folder"),
        ("an empty folder", "holds no point"),
        ("a folder of others", "holds no point"),
    ],
)
def test_what_holds_nothing_to_check_is_refused(tmp_path, what, said):
    path = tmp_path / "given"
    if what == "a file":
        path.write_text("")
    elif what != "missing":
        path.mkdir()
    if what == "a folder of others":
        (path / "others").mkdir()
    with pytest.raises(ConfigError) as raised:
        check_tree(path)
    looks = "a folder with results/, a rehearsal's folder, or run folders with config.yaml"
    assert str(raised.value) == f"{path}: {said}, expected {looks}"


def nested(path: Path, open_: str, count: int = 5 << 20) -> None:
    path.write_text(open_ * count)


BROKEN = {
    "a cut-off score": ("accuracy_results.json", lambda path: path.write_text(path.read_text()[:50])),
    "cut-off JSON": ("result_summary.json", lambda path: path.write_text(path.read_text()[:50])),
    "an empty file": ("result_summary.json", lambda path: path.write_text("")),
    "a list": ("result_summary.json", lambda path: path.write_text("[]")),
    "10 MB of nested JSON": ("system_desc.json", lambda path: nested(path, '{"a":', 2 << 20)),
    "nested YAML": ("config.yaml", lambda path: nested(path, "[", 5000)),
    "10 MB of nested YAML": ("point.yaml", lambda path: nested(path, "[", 10 << 20)),
    "an anchor": ("point.yaml", lambda path: path.write_text("a: &a [1]\nb: *a\n")),
    "no YAML table": ("config.yaml", lambda path: path.write_text("text")),
    "bytes": ("config.yaml", lambda path: path.write_bytes(b"\xff\xfe\x00")),
    "a folder": ("config.yaml", lambda path: (path.unlink(), path.mkdir())),
}


def broken():
    """MLCommons's checker, another process, reads JSON."""
    return [
        pytest.param(how, marks=pytest.mark.engine if name.endswith(".json") else ())
        for how, (name, _) in BROKEN.items()
    ]


@pytest.mark.parametrize("how", broken())
def test_a_file_that_cannot_be_read_is_one_line(rehearsal, how):
    name, spoil = BROKEN[how]
    spoil(rehearsal / POINT / name)
    shutil.rmtree(rehearsal / "runs")
    found = [one for one in check_tree(rehearsal) if one.rule == "unreadable"]
    assert [one.path for one in found] == [f"{POINT.relative_to('tree').as_posix()}/{name}"]
    assert "\n" not in str(found[0]) and len(str(found[0])) <= 600


def test_a_point_yaml_that_cannot_be_read_accuses_no_other_file(rehearsal):
    """Its folder names the concurrency, and its other files are where those of a tree are."""
    (rehearsal / POINT / "point.yaml").write_text("[")
    found = [one for one in check_tree(rehearsal, officially=False) if one.severity is Severity.ERROR]
    where = f"{POINT.relative_to('tree').as_posix()}/point.yaml"
    assert [(one.rule, one.path) for one in found] == [("unreadable", where), ("steady-state", where)]


def test_a_tree_of_one_point_of_which_nothing_can_be_read(tmp_path):
    (folder := tmp_path / POINT).mkdir(parents=True)
    for name in ("point.yaml", "config.yaml", "result_summary.json", "system_desc.json"):
        (folder / name).write_text("[")
    found = check_tree(tmp_path, officially=False)
    assert sum(one.rule == "unreadable" for one in found) == 4


def test_the_run_folders_of_one_curve_are_none_of_another(rehearsal):
    """tree.json is of the curve that was built."""
    model = (rehearsal / POINT).parent
    shutil.copytree(model, other := model.parents[1] / "4xH200" / MODEL)
    unknown = {one.path for one in check_tree(rehearsal, officially=False) if "no events.jsonl" in one.got}
    assert f"results/4xH200/{MODEL}/r{LOGGED}" in unknown and other.is_dir()
    assert f"results/8xH200/{MODEL}/r{LOGGED}" not in unknown


def test_a_finding_is_one_line():
    rule = finding("whole-passes", "r64/a.json", "7 samples issued", expected="a multiple of 100")
    assert str(rule) == (
        "r64/a.json: [whole-passes §6.4] 7 samples issued, expected a multiple of 100;"
        " run the point again; issue ends with a pass"
    )
    bare = Finding("a-rule", "r64", "is so", "", "", Severity.ERROR, "")  # as MLCommons's checker may give it
    assert str(bare) == "r64: [a-rule] is so"


def test_mlcommons_s_checker_is_not_given_yaml_without_limits(rehearsal):
    (rehearsal / POINT / "config.yaml").write_text("a: &a [1]\nb: *a\n")
    (line,) = [one for one in check_tree(rehearsal) if one.rule == "official-checker"]
    assert "config.yaml" in line.got and "was not run" in line.got


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(rehearsal):
    (rehearsal / POINT / "config.yaml").chmod(0)
    assert any("Permission denied" in line for line in errors(rehearsal))


LOGS = {
    "cut off": (lambda text: text[:-30], "cut off"),
    "no end": (lambda text: "\n".join(text.splitlines()[:-1]), "cut off"),
    "empty": (lambda text: "", "start_performance_tracking"),
    "text": (lambda text: "text\n", "line 1"),
    "numbers in place of names": (lambda text: '{"event_type": 1, "timestamp_ns": 2}\n', "line 1"),
    "a time beyond 64 bits": (lambda text: re.sub(r'(_ns": *)', rf"\g<1>{'9' * 20}", text), "line 1"),
    "nested": (lambda text: "[" * (1 << 20), "line 1"),
}


@pytest.mark.parametrize("how", LOGS)
def test_a_log_that_is_not_complete_is_one_line(tmp_path, how):
    change, said = LOGS[how]
    run = write_run(tmp_path / "r64")
    log = run / "events.jsonl"
    log.write_text(change(log.read_text()))
    (found,) = [one for one in check_tree(run) if one.rule == "log"]
    assert said in found.got and found.severity is Severity.ERROR


VALUES = [None, [], {}, "text", -1, True, 1e308, 10**400, "9" * 400]


@pytest.mark.parametrize(
    "keys", [("concurrency",), ("runtime_settings",), ("steady_state", "window"), ("warmup",), ("dataset",)]
)
def test_any_value_in_point_yaml_gives_findings(passing, tmp_path, keys):
    """Beside the Offline point, with which it is compared."""
    rehearsal = tmp_path / "rehearsal"
    for one in (POINT, POINT.with_name(f"r{SAMPLES}")):
        shutil.copytree(passing / one, rehearsal / one)
    path = rehearsal / POINT / "point.yaml"
    for value in VALUES:
        content = point(LOGGED)
        at = content
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
        write(path, content)
        found = check_tree(rehearsal, officially=False)
        assert any(one.path.startswith(POINT.relative_to("tree").as_posix()) for one in found)
