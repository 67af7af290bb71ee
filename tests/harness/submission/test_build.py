"""``build``: from the runs' folders to a tree without issues, or one line and nothing written."""

import hashlib
import json
import re
import shutil
import tomllib

import pytest

from harness.submission import source_code
from harness.submission.build import write_test
from harness.submission.checks.check import check_tree
from harness.submission.cli import main
from harness.submission.rules import load_rules
from tests.harness.submission.building import build, files, one_line, write_info
from tests.harness.submission.trees import RESULTS, SYSTEM, accuracy_log
from tests.runs import ROOT

TRACKED = source_code._tracked  # before the fixture that names two files only


def test_what_is_written(results, info, tmp_path, capsys):
    assert build(results) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no issues"
    found = [name for name in files(tmp_path / "tree") if "/src/" not in name]
    folder = ["README.md", "measurements.json", "user.conf"]
    folder += [
        f"performance/run_1/mlperf_log_{name}" for name in ("accuracy.json", "detail.txt", "summary.txt")
    ]
    logs = ["accuracy.txt", "mlperf_log_accuracy.json"]
    folder += [f"accuracy/{name}" for name in (*logs, "mlperf_log_detail.txt", "mlperf_log_summary.txt")]
    for test, verify in (("TEST07", "verify_accuracy.txt"), ("TEST09", "verify_output_len.txt")):
        folder += [f"{test}/{verify}", *(f"{test}/accuracy/{name}" for name in logs)]
        folder += [f"{test}/performance/run_1/mlperf_log_{name}.txt" for name in ("detail", "summary")]
    expected = [f"{RESULTS}/{scenario}/{name}" for scenario in ("Interactive", "Offline") for name in folder]
    assert found == sorted([*expected, str(SYSTEM)])
    # Logs are truncated, hashed and kept; the score stays where the checker looks.
    for name in ("accuracy", "TEST07/accuracy", "TEST09/accuracy"):
        full = (results / "offline" / name / "mlperf_log_accuracy.json").read_bytes()
        folder = tmp_path / "tree" / RESULTS / "Offline" / name
        short = (folder / "mlperf_log_accuracy.json").read_bytes()
        assert short == full[:4096] + b"\n\n...\n\n" + full[-4096:]
        line = f"hash={hashlib.sha256(full).hexdigest()}"
        assert (folder / "accuracy.txt").read_text().splitlines()[-1] == line
        aside = tmp_path / "tree.kept" / RESULTS / "Offline" / name / "mlperf_log_accuracy.json"
        assert aside.read_bytes() == full
    path = tmp_path / "tree" / RESULTS / "Offline/accuracy/accuracy.txt"
    lines = path.read_text().splitlines()
    assert [line for line in lines if re.match(r".*'exact_match':\s([\d.]+).*", line)]
    assert sum(bool(re.match(r"^hash=([\w\d]+)$", line)) for line in lines) == 1


def test_the_system_is_completed_from_machine_and_runs(results, info, tmp_path):
    write_info(tmp_path, without=["host_memory_capacity"], cooling="water")
    assert build(results) == 0
    fields = json.loads((tmp_path / "tree" / SYSTEM).read_text())
    assert len(fields) == 35
    assert fields["host_memory_capacity"] == "2048 GiB"
    assert fields["framework"] == "SGLang 0.5.23"
    assert fields["other_software_stack"] == "CPython 3.11.7, LoadGen 6.0.17"
    assert (fields["cooling"], fields["division"], fields["submitter"]) == ("water", "closed", "MyOrg")


def test_running_again_is_refused_and_harmless_and_force_replaces(results, info, tmp_path, capsys):
    build(results)
    before = {name: (tmp_path / "tree" / name).read_bytes() for name in files(tmp_path / "tree")}
    capsys.readouterr()
    assert build(results) == 2
    assert "exists; pass --force" in one_line(capsys)
    assert before == {name: (tmp_path / "tree" / name).read_bytes() for name in files(tmp_path / "tree")}
    stray = tmp_path / "tree" / RESULTS / "Offline/stray.txt"
    stray.touch()
    assert build(results, "--force") == 0
    assert not stray.exists()
    assert not list(tmp_path.glob(".tree*"))


def test_a_second_system_goes_beside_the_first(results, info, tmp_path):
    build(results)
    info.write_text(info.read_text().replace('"made_up"', '"another"'))
    build(results)
    assert len(list((tmp_path / "tree/closed/MyOrg/systems").iterdir())) == 2
    # The same logs under two names are noticed.
    assert {issue.code for issue in check_tree(tmp_path / "tree")} == {"repeat"}


def test_open_needs_no_tests(results, info, tmp_path):
    for scenario in ("offline", "interactive"):
        for test in ("TEST07", "TEST09"):
            shutil.rmtree(results / scenario / test)
    assert build(results, "--division", "open") == 0
    assert (tmp_path / "tree/open/MyOrg/systems/made_up.json").is_file()


def test_the_log_of_test06_is_copied_complete(tmp_path):
    """More than 10 KiB, and a reviewer runs the official script on it."""
    folder = tmp_path / "offline/TEST06"
    (folder / "accuracy").mkdir(parents=True)
    (folder / "verify_accuracy.txt").write_text("TEST06 verification complete\n")
    log = accuracy_log("TEST06")
    (folder / "accuracy/mlperf_log_accuracy.json").write_text(log)
    write_test(folder, "TEST06", load_rules(), tmp_path / "tree", tmp_path / "kept")
    assert files(tmp_path / "tree") == ["accuracy/mlperf_log_accuracy.json", "verify_accuracy.txt"]
    assert len(log) > load_rules().files.accuracy_log_bytes
    assert (tmp_path / "tree/accuracy/mlperf_log_accuracy.json").read_text() == log


def test_only_what_the_division_allows_is_taken(results, info, tmp_path, capsys):
    """One SingleStream folder beside, and the official checker refuses all results."""
    shutil.copytree(results / "offline", results / "single-stream")
    assert build(results) == 0
    assert f"{results}: single-stream" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "tree" / RESULTS).iterdir()) == ["Interactive", "Offline"]
    assert build(results, "--scenario", "single-stream", "--force") == 2
    assert "--scenario single-stream" in one_line(capsys)


def test_deviations_of_a_run_are_issues(results, info, tmp_path, capsys):
    path = results / "offline/performance/run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"deviations": ["dataset has 64 samples"]}))
    assert build(results) == 5
    assert "[deviations] dataset has 64 samples" in capsys.readouterr().out


def without(name):
    def change(results):
        path = results / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def cut(name):
    def change(results):
        path = results / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return change


def rewrite(name, content):
    return lambda results: (results / name).write_text(content)


def stated(old, new):
    def change(results):
        path = results.parent / "submission.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


def in_latin_1(results):
    path = results.parent / "submission.toml"
    path.write_bytes(path.read_text().replace("MyOrg", "M\xfcller").encode("latin-1"))


def unofficial(results):
    folder = results / "offline/TEST07"
    (folder / "verify_accuracy.txt").rename(folder / "verify_accuracy.NOT_OFFICIAL.txt")


PERFORMANCE, SUMMARY = "offline/performance", "mlperf_log_summary.txt"
DETAIL_LOG, ACCURACY_LOG = f"{PERFORMANCE}/mlperf_log_detail.txt", "offline/accuracy/mlperf_log_accuracy.json"
TEST07_RUN, TEST09_LOG = (
    "interactive/TEST07/performance/run_1",
    "offline/TEST09/accuracy/mlperf_log_accuracy.json",
)
BROKEN = [
    ("no results", without("."), "--results"),
    ("no performance run", without(PERFORMANCE), f"{PERFORMANCE}/{SUMMARY}"),
    ("no accuracy run", without("interactive/accuracy"), "run_mlperf.py --accuracy"),
    ("not evaluated", without("offline/accuracy/accuracy.txt"), "eval_mlperf_accuracy.py"),
    ("no TEST folder", without("offline/TEST09"), "offline/TEST09/verify_output_len.txt"),
    ("an unofficial test", unofficial, "verify_accuracy.NOT_OFFICIAL.txt"),
    ("no Offline", without("offline"), "offline/performance"),
    ("neither Server nor Interactive", without("interactive"), "server or interactive"),
    ("detail log cut", cut(DETAIL_LOG), DETAIL_LOG),
    ("summary cut", cut(f"{TEST07_RUN}/{SUMMARY}"), TEST07_RUN),
    ("accuracy log cut", cut(ACCURACY_LOG), ACCURACY_LOG),
    ("no answers logged", rewrite(TEST09_LOG, "[\n]\n"), TEST09_LOG),
    ("an edge system", stated('"datacenter"', '"edge"'), "'edge'"),
    ("no user.conf", without("user.conf"), "--user-conf"),
    ("a slash in the name", stated('"MyOrg"', '"My/Org"'), "submitter is 'My/Org'"),
    ("a name upwards", stated('"made_up"', '"../made_up"'), "system_id is '../made_up'"),
    ("an empty name", stated('"MyOrg"', '""'), "submitter is ''"),
    ("no submitter", stated('submitter = "MyOrg"', ""), "submitter"),
    ("no TOML", stated("submitter", "[submitter"), "submission.toml"),
    ("a TOML in Latin-1", in_latin_1, "submission.toml"),
    ("a misspelt key", stated("[measurements]", "[measurement]"), "measurement"),
    ("system fields missing", stated('"cooling"', '"coolness"'), "cooling"),
    ("measurements missing", stated('retraining = "No"', ""), "retraining"),
]


@pytest.mark.parametrize(("change", "named"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_broken_input_is_one_line_and_nothing_is_written(results, info, tmp_path, capsys, change, named):
    change(results)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert build(results) == 2
    assert named in one_line(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_all_missing_fields_are_named_at_once(results, info, tmp_path, capsys):
    write_info(tmp_path, without=["cooling", "status", "accelerator_model_name"])
    assert build(results) == 2
    line = one_line(capsys)
    assert all(name in line for name in ("cooling", "status", "accelerator_model_name"))


def test_a_write_that_fails_leaves_nothing(results, info, tmp_path, capsys, monkeypatch):
    from harness.submission import build as module

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "keep_file", full)
    assert build(results) == 2
    assert "No space left on device" in one_line(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "submission.toml"]


def test_the_example_is_read_and_names_known_fields():
    example = tomllib.loads((ROOT / "configs/submission/example.toml").read_text())
    assert set(example["system"]) <= set(load_rules().system.fields)
    assert set(example["measurements"]) <= set(load_rules().measurements.required)


def test_system_prints_toml_that_can_be_completed(capsys):
    assert main(["system"]) == 0
    found = tomllib.loads(capsys.readouterr().out)["system"]
    assert set(found) == set(load_rules().system.fields) - {"division", "submitter"}


def test_the_user_conf_that_the_run_had_counts(results, info, tmp_path):
    """The file that run.json names may have been edited for the next run."""
    had = "*.Offline.min_query_count = 6396\n*.Offline.target_qps = 7\n"
    (results / "offline/performance/user.conf").write_text(had)
    assert build(results) == 0
    (written,) = tmp_path.glob("tree/closed/MyOrg/results/made_up/*/Offline/user.conf")
    assert written.read_text() == had


def test_the_source_is_what_git_tracks(results, info, tmp_path, monkeypatch):
    monkeypatch.setattr(source_code, "_tracked", TRACKED)
    build(results)
    found = set(files(tmp_path / "tree/closed/MyOrg/src/gpt-oss-120b"))
    assert {"run_mlperf.py", "sut/loadgen/binding.py", "setup.sh"} <= found
    assert {"requirements/run.txt", "configs/user.conf"} <= found
    assert not [name for name in found if name.startswith(("tests/", ".")) or name.endswith(".pyc")]


def test_a_secret_stops_the_build(results, info, tmp_path, capsys):
    write_info(tmp_path, cooling="hf_" + "a1" * 17)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert build(results) == 2
    assert "systems/made_up.json:" in one_line(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def change_record(path, **changes):
    record = json.loads(path.read_text())
    record["servers"][0] |= {name: value for name, value in changes.items() if name != "commit"}
    if "commit" in changes:
        record["provenance"]["git"]["commit"] = changes["commit"]
    path.write_text(json.dumps(record))


MIXED = [
    ("accuracy", {"version": "0.5.9"}, "engine"),
    ("TEST07/run", {"engine": "fakesgl"}, "engine"),
    ("TEST09/run", {"model": "openai/gpt-oss-20b"}, "model"),
    ("performance", {"url": "http://localhost:30001"}, "server"),
    ("accuracy", {"settings": {"tp_size": 2}}, "server settings"),
    ("TEST07/run", {"commit": "661220a"}, "commit of the harness"),
]


@pytest.mark.parametrize(("run_name", "changes", "what"), MIXED)
def test_runs_of_two_servers_do_not_go_together(results, info, capsys, run_name, changes, what):
    change_record(results / "offline" / run_name / "run.json", **changes)
    assert build(results) == 2
    line = one_line(capsys)
    assert what in line
    assert "performance/run_1" in line


def test_servers_may_have_other_addresses(results, info, capsys):
    change_record(results / "offline/accuracy/run.json", url="http://localhost:30001")
    assert build(results, "--servers-moved") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no issues, 1 warning"


def test_a_server_that_a_run_did_without_is_no_other_server(results, info, capsys):
    url = "http://localhost:30001"
    for path in results.glob("offline/**/run.json"):
        record = json.loads(path.read_text())
        if "accuracy" in path.parts:
            record["left_out"] = {url: "not reachable"}
        else:
            record["servers"].append(record["servers"][0] | {"url": url})
        path.write_text(json.dumps(record))
    assert build(results) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no issues"


def test_the_runs_are_kept(results, info, tmp_path):
    """Also those of the tests, so that check can compare their origins again."""
    build(results)
    kept = tmp_path / "tree.kept" / RESULTS / "Offline"
    assert [name for name in files(kept) if name.endswith("run.json")] == [
        "TEST07/run.json",
        "TEST09/run.json",
        "accuracy/run.json",
        "performance/run_1/run.json",
    ]
    change_record(kept / "TEST07/run.json", version="0.5.9")
    assert {found.code for found in check_tree(tmp_path / "tree")} == {"origin"}


@pytest.mark.parametrize("where", ["server", "client"])
def test_a_client_does_not_describe_the_servers(results, info, tmp_path, capsys, where):
    """Two cores and 24 GiB were once published as those of two nodes with eight GPUs each."""
    for path in results.rglob("run.json"):
        record = json.loads(path.read_text())
        if where == "server":
            record["servers"][0]["url"] = "http://node1:30000"
        else:
            record["provenance"]["host"]["hostname"] = "another-client"
        path.write_text(json.dumps(record))
    write_info(tmp_path, without=["host_memory_capacity"])
    assert build(results) == 2
    assert "host_memory_capacity" in one_line(capsys)


def test_the_readme_has_what_was_run(results, info, tmp_path):
    build(results)
    lines = (tmp_path / "tree" / RESULTS / "Offline/README.md").read_text().splitlines()
    command = "python run_mlperf.py --scenario offline --max-concurrency 40 --input-file"
    names = ("performance", "accuracy", "TEST07-run", "TEST09-run")
    assert [line for line in lines if line.startswith("python ")] == [
        f"{command} {name}.parquet" for name in names
    ]
    assert any(line.endswith(": tp_size 1, dp_size 8, kv_cache_dtype fp8_e4m3") for line in lines)
    assert "- client: worker processes 4, backend sglang" in lines
