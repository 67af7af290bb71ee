"""``build``: origin of the code, the runs and the system description; no secrets."""

import json

import pytest

from harness.submission.checks.check import check_tree
from tests.harness.submission.building import build, files, one_line, write_info
from tests.harness.submission.trees import RESULTS


def test_the_source_is_what_git_tracks(results, info, tmp_path):
    build(results)
    found = set(files(tmp_path / "tree/closed/MyOrg/src/gpt-oss-120b"))
    assert {
        "run_mlperf.py",
        "sut/loadgen/binding.py",
        "requirements/run.txt",
        "setup.sh",
        "configs/user.conf",
    } <= found
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
