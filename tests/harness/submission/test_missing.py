"""``build`` names everything that is missing at once, the dearest first, each with its command."""

import json
import re
from pathlib import Path

import pytest

from harness.cli.door import LAUNCHER
from prepare_submission import main
from tests.harness.submission.building import build, files, one_line, refused, write_info
from tests.harness.submission.edits import (
    DETAIL,
    SUMMARY,
    both,
    changed,
    cut,
    fields,
    pattern,
    remove,
    rename,
    text,
    write,
)
from tests.harness.submission.trees import R1_ARCHIVE, RESULTS, results_of, unpack
from tests.runs import ROOT

ANSWERS = "mlperf_log_accuracy.json"
RUN = "interactive/accuracy/run.json"
URL = "http://localhost:30000"


def gaps(printed):
    """The lines below each heading: what is missing with its remedy."""
    found, heading = {}, ""
    for line in printed.splitlines()[:-1]:
        if match := re.fullmatch(r"(\S.*) \(\d+\):", line):
            heading = match[1]
        else:
            found.setdefault(heading, []).append(line.strip())
    return {cost: list(zip(lines[::2], lines[1::2], strict=True)) for cost, lines in found.items()}


def test_everything_is_listed_at_once_by_cost(results, info, tmp_path, capsys):
    """What the first try of a newcomer lacked, which took as many attempts."""
    both(
        remove("interactive/accuracy"),
        remove("offline/TEST09"),
        remove("offline/accuracy/accuracy.txt"),
        fields("offline/performance/run.json", verdict={"result": "INVALID", "reasons": ["too slow"]}),
        remove("interactive/TEST07/verify_accuracy.txt"),
        text("interactive/TEST09/run/run.json", "0.5.23", "0.5.9"),
    )(results)
    write_info(tmp_path, without=["cooling", "host_networking"], accelerators_per_node=0)
    assert build(results) == 2
    printed = refused(capsys)
    found = gaps(printed)
    assert list(found) == ["GPU hours", "minutes", "a text edit"]
    names = [re.search(r"(offline|interactive)(/\w+)?", what)[0] for what, _ in found["GPU hours"]]
    assert names == [
        "offline/performance",
        "offline/TEST09",
        "interactive/accuracy",
        "interactive",  # the origins
    ]
    assert [what for what, _ in found["minutes"]] == [
        "gpt-oss-120b: offline/accuracy: not scored, no accuracy.txt",
        "gpt-oss-120b: interactive/TEST07: not verified, no verify_accuracy.txt",
    ]
    ((edit, _),) = found["a text edit"]
    assert edit.endswith('empty: host_networking, accelerators_per_node (write "0", with quotes), cooling')
    assert "7 things to do first" in printed.splitlines()[-1]
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("change", "command"),
    [
        (
            remove("interactive/accuracy"),
            f"run_mlperf.py --scenario interactive --server-url {URL} --accuracy ",
        ),
        (remove("offline/TEST09"), f"run_compliance.py --test TEST09 --scenario offline --server-url {URL} "),
        (remove("offline/accuracy/accuracy.txt"), "eval_mlperf_accuracy.py --mlperf-log "),
    ],
)
def test_the_command_is_that_of_the_other_runs(results, info, capsys, change, command):
    """Servers, user.conf and folder are theirs, so that it can be pasted."""
    for path in results.rglob("run.json"):
        record = json.loads(path.read_text())
        record["plan"]["server_urls"] = [URL]
        path.write_text(json.dumps(record))
    change(results)
    assert build(results) == 2
    printed = one_line(capsys)
    assert f"/python {command}" in printed.replace(f"{ROOT}/", "") and str(results) in printed
    assert (" --user-conf " in printed) is command.startswith("run_")


@pytest.mark.parametrize(
    ("name", "role"), [("accuracy", "acc"), ("TEST07", "compliance"), ("TEST09", "perf")]
)
def test_the_command_of_what_no_scenario_has_reads_the_download(
    results, info, capsys, nothing_downloaded, name, role
):
    """The places of datasets/manifest.tsv, where datasets/download.sh puts them."""
    rows = [line.split("\t") for line in (ROOT / "datasets/manifest.tsv").read_text().splitlines()]
    (place,) = [row[3] for row in rows if row[:2] == ["gpt-oss-120b", role]]
    both(remove(f"interactive/{name}"), remove(f"offline/{name}"))(results)
    assert build(results) == 2
    commands = [line for line in refused(capsys).splitlines() if "/python " in line]
    assert len(commands) == 2 and all(f" --input-file {ROOT}/data/{place} " in line for line in commands)


def test_the_command_asks_the_servers_by_the_same_api(results, info, capsys):
    """Those of 64 nodes one by one would be cut off."""
    urls = [f"http://node{node:03}:{port}" for node in range(1, 65) for port in (30000, 30001)]
    for path in results.rglob("run.json"):
        record = json.loads(path.read_text())
        record["plan"] |= {"backend": "trtllm", "api": "chat-ids", "server_urls": urls}
        path.write_text(json.dumps(record))
    remove("interactive/accuracy")(results)
    assert build(results) == 2
    servers = "--server-url 'http://node[001-064]:30000-30001'"
    assert f" --backend trtllm --api chat-ids {servers} --accuracy " in one_line(capsys)


@pytest.mark.parametrize("missing", ["interactive/accuracy", "interactive/accuracy/accuracy.txt"])
def test_the_command_names_the_tokenizer_of_the_others(results, info, capsys, missing):
    """Without it the score of a model whose tokenizer is not built in ended with exit code 2."""
    for path in results.rglob("run.json"):
        record = json.loads(path.read_text())
        record["plan"]["tokenizer"] = "models/own"
        path.write_text(json.dumps(record))
    remove(missing)(results)
    assert build(results) == 2
    assert " --tokenizer models/own" in one_line(capsys)


ENDED = [
    ({"result": "INVALID", "reasons": ["1 of 6396 queries failed"]}, "INVALID: 1 of 6396 queries failed"),
    ({"result": "INTERRUPTED", "reasons": ["SIGINT"]}, "INTERRUPTED: SIGINT"),
    (None, "the run did not end"),
]


@pytest.mark.parametrize(("verdict", "said"), ENDED, ids=["invalid", "interrupted", "killed"])
def test_a_run_that_is_not_valid_is_named_with_its_own_command(results, info, capsys, verdict, said):
    """Also where it left an empty log, as a run does that is cut off."""
    both(fields(RUN, verdict=verdict), write(f"interactive/accuracy/{SUMMARY}", ""))(results)
    assert build(results) == 2
    printed = one_line(capsys)
    assert "interactive/accuracy: " in printed and said in printed
    assert "run_mlperf.py --scenario offline --max-concurrency 40 " in printed


@pytest.mark.parametrize(("chosen", "leaves"), [((), True), (("--scenario", "interactive"), False)])
def test_other_scenarios_may_be_submitted_without_the_lost_run(results, info, capsys, chosen, leaves):
    fields(RUN, verdict=None)(results)
    assert build(results, *chosen, "--division", "open") == 2
    hint = "; to leave runs out, name the others by --scenario or --benchmark; "
    assert (hint in one_line(capsys)) is leaves


UNUSABLE = {
    "a record cut off": (cut(RUN), "run.json is not the record of a run: "),
    "no log of the answers": (remove(f"interactive/accuracy/{ANSWERS}"), f": {ANSWERS} is missing; "),
    "a record without a command": (
        both(fields(RUN, verdict=None), pattern(RUN, r'"command": \[[^]]*\]', '"command": []')),
        "the run did not end; ",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_run_that_cannot_be_used_is_named_with_a_command(results, info, capsys, name):
    change, said = UNUSABLE[name]
    change(results)
    assert build(results) == 2
    printed = one_line(capsys)
    assert "interactive/accuracy: " in printed and said in printed and "run_mlperf.py --scenario " in printed


@pytest.mark.parametrize("verb", ["run", "comply"])
def test_a_run_of_the_door_is_repeated_by_it(results, info, capsys, verb):
    """Its recorded command has a verb; a checkout elsewhere made it."""
    path = results / RUN
    record = json.loads(path.read_text()) | {"verdict": None}
    record["provenance"]["command"] = ["/home/me/harness/mlperf", verb, "--accuracy", "--restart"]
    path.write_text(json.dumps(record))
    assert build(results) == 2
    launcher = "./mlperf" if Path.cwd() == ROOT else str(LAUNCHER)
    assert one_line(capsys).endswith(f"; {launcher} {verb} --accuracy --results {results}\n")


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (
            "--output-dir out --input-file TEST07=d.parquet --server-url @urls",
            "--input-file TEST07=d.parquet --server-url @urls",
        ),
        ("--audit_config=a.conf --restart --output_dir=o", "--audit_config=a.conf"),
    ],
)
def test_the_command_of_a_run_is_for_any_working_folder(results, info, capsys, typed, kept):
    """Every path of it begins in the folder where it was typed; the results may have been moved."""
    path = results / RUN
    record = json.loads(path.read_text()) | {"verdict": None}
    record["provenance"] |= {"command": [str(LAUNCHER), "run", *typed.split()], "folder": "/r"}
    path.write_text(json.dumps(record))
    assert build(results) == 2
    assert f"cd /r && {LAUNCHER} run {kept} --results {results}\n" in one_line(capsys)


@pytest.mark.engine
def test_a_test_may_be_too_slow_and_not_incomplete(results, info, capsys):
    run = "interactive/TEST07/run/run.json"
    fields(run, verdict={"result": "INVALID", "reasons": ["slow"], "complete": True})(results)
    assert build(results) == 0
    capsys.readouterr()
    fields(run, verdict={"result": "INVALID", "reasons": ["a failure"], "complete": False})(results)
    assert build(results) == 2
    assert "interactive/TEST07: the run is INVALID: a failure" in one_line(capsys)


def test_a_test_that_was_killed_before_its_verdict_needs_no_gpu(results, info, capsys):
    """Its logs lie where the run left them; the verified folder is what is missing."""
    test = results / "offline/TEST09"
    for name in (*(f"performance/run_1/{log}" for log in (SUMMARY, DETAIL)), f"accuracy/{ANSWERS}"):
        (test / name).rename(test / "run" / Path(name).name)
    (test / "verify_output_len.txt").unlink()
    assert build(results) == 2
    printed = one_line(capsys)
    assert "offline/TEST09: not verified" in printed and "run_compliance.py verify TEST09 " in printed


def of(benchmark, run):
    """The record of a run of another benchmark."""
    return changed(
        f"{run}/run.json", lambda old: old.replace(b'"name": "gpt-oss-120b"', b'"name": "%s"' % benchmark)
    )


def test_a_run_of_another_benchmark_is_named_and_the_right_one_found(results, info, capsys):
    """The quick start of llama3.1-8b moved the scored run of gpt-oss-120b aside."""
    aside = "accuracy.20261123-015214"
    rename("offline/accuracy", f"offline/{aside}")(results)
    write_again = both(
        lambda folder: (folder / "offline/accuracy").mkdir(),
        lambda folder: (folder / "offline/accuracy/run.json").write_bytes(
            (folder / f"offline/{aside}/run.json").read_bytes()
        ),
        of(b"llama3.1-8b", "offline/accuracy"),
    )
    write_again(results)
    assert build(results, "--benchmark", "gpt-oss-120b") == 2
    printed = one_line(capsys)
    assert "offline/accuracy: holds a run of llama3.1-8b; a usable one lies in " in printed
    move = printed[printed.index("mv ") :].strip()
    assert move == (
        f"mv {results}/offline/accuracy {results}/offline/accuracy.other && "
        f"mv {results}/offline/{aside} {results}/offline/accuracy"
    )


def test_a_scenario_that_is_required_is_listed_run_by_run(results, info, capsys):
    remove("offline")(results)
    assert build(results) == 2
    found = gaps(refused(capsys))
    assert [what.split(": ")[1] for what, _ in found["GPU hours"]] == [
        f"offline/{name}" for name in ("performance", "accuracy", "TEST07", "TEST09")
    ]


@pytest.fixture
def both_benchmarks(results, info, tmp_path):
    """Runs of two benchmarks, each in a folder of its name."""
    folder = tmp_path / "all"
    folder.mkdir()
    results.rename(folder / "gpt-oss-120b")
    originals = unpack(tmp_path / "r1", R1_ARCHIVE)
    results_of(originals / "deepseek-r1", folder / "deepseek-r1", "deepseek-r1", ["TEST06"])
    for path in folder.rglob("run.json"):
        path.write_text(path.read_text().replace(str(results), str(folder / "gpt-oss-120b")))
    return folder


def test_all_benchmarks_become_one_tree(both_benchmarks, tmp_path, capsys):
    assert build(both_benchmarks) == 0
    runs = (tmp_path / "tree" / RESULTS).parent
    assert {path.parent.name for path in runs.glob("*/Offline")} == {"gpt-oss-120b", "deepseek-r1"}
    assert len(list((tmp_path / "tree/closed/MyOrg/systems").iterdir())) == 1
    assert "weight_data_types mxfp4" in capsys.readouterr().out  # stated for both alike


def test_a_scenario_in_the_folder_of_an_earlier_version_is_found(both_benchmarks, tmp_path, capsys):
    """Without a benchmark in its path, beside those with one: only its run.json tells whose it is."""
    rename("gpt-oss-120b/offline", "offline")(both_benchmarks)
    assert build(both_benchmarks) == 0
    runs = (tmp_path / "tree" / RESULTS).parent
    assert {path.name for path in (runs / "gpt-oss-120b").iterdir()} == {"Offline", "Interactive"}
    assert {path.name for path in (runs / "deepseek-r1").iterdir()} == {"Offline", "Interactive"}
    capsys.readouterr()
    both(fields("offline/accuracy/run.json", verdict=None), remove("offline/TEST07"))(both_benchmarks)
    assert build(both_benchmarks) == 2
    commands = [command for _, command in gaps(refused(capsys))["GPU hours"]]
    assert len(commands) == 2  # a run below gpt-oss-120b would hide all others of its scenario
    assert all(command.endswith(f" --results {both_benchmarks}") for command in commands)


@pytest.mark.engine
def test_one_benchmark_of_several(both_benchmarks, tmp_path):
    assert build(both_benchmarks, "--benchmark", "deepseek-r1") == 0
    assert not (tmp_path / "tree" / RESULTS).exists()
    before = {name: (tmp_path / "tree" / name).read_bytes() for name in files(tmp_path / "tree")}
    assert build(both_benchmarks, "--benchmark", "gpt-oss-120b") == 0
    added = {name: (tmp_path / "tree" / name).read_bytes() for name in before}
    assert added == before  # the description is of both benchmarks' runs


def test_what_all_benchmarks_lack_is_one_list(both_benchmarks, tmp_path, capsys):
    both(remove("gpt-oss-120b/offline/TEST09"), remove("deepseek-r1/interactive/TEST06"))(both_benchmarks)
    assert build(both_benchmarks) == 2
    found = gaps(refused(capsys))
    assert [what.partition(":")[0] for what, _ in found["GPU hours"]] == ["deepseek-r1", "gpt-oss-120b"]
    assert "--benchmark deepseek-r1 " in found["GPU hours"][0][1]


def test_a_benchmark_has_its_own_measurements(both_benchmarks, tmp_path, capsys):
    toml = tmp_path / "submission.toml"
    toml.write_text(toml.read_text() + '[measurements."deepseek-r1"]\nweight_data_types = "fp8"\n')
    assert build(both_benchmarks) == 0
    runs = (tmp_path / "tree" / RESULTS).parent
    types = {
        name: json.loads((runs / name / "Offline/measurements.json").read_text())["weight_data_types"]
        for name in ("gpt-oss-120b", "deepseek-r1")
    }
    assert types == {"gpt-oss-120b": "mxfp4", "deepseek-r1": "fp8"}
    pattern("submission.toml", "deepseek-r1", "deepseek")(tmp_path)
    capsys.readouterr()
    assert build(both_benchmarks) == 2
    assert "deepseek-r1" in one_line(capsys)


def test_before_the_first_run_nothing_is_asked_for_that_a_run_shows(info, tmp_path, capsys):
    (tmp_path / "results/offline").mkdir(parents=True)
    write_info(tmp_path, without=["cooling"])
    assert build(tmp_path / "results") == 2
    ((what, _),) = gaps(refused(capsys))["a text edit"]
    assert what.endswith("empty: cooling")


def test_an_empty_folder_of_results(info, tmp_path, capsys):
    (tmp_path / "results").mkdir()
    words = ["build", "--results", str(tmp_path / "results"), "--submission", str(info)]
    assert main(words) == 2
    assert "no scenario folder" in one_line(capsys)
