"""``build``: from the runs' folders to a tree without issues, or one line and nothing written."""

import errno
import hashlib
import json
import os
import re
import tomllib
from functools import partial

import pytest
from msgspec.structs import replace

from harness.compliance.registry import TESTS, find_test
from harness.config.benchmark import load_benchmark
from harness.config.plans import ComplianceSettings
from harness.record.run_record import RunRecord
from harness.record.settled import ServerInfo
from harness.submission.building import scenario_files
from harness.submission.building.readme import server_start
from harness.submission.building.scenario_files import write_test
from harness.submission.checks.check import check_tree
from harness.submission.tree.round_rules import load_rules
from prepare_submission import main
from tests.harness.submission.building import build, files, one_line, refused, write_info
from tests.harness.submission.edits import (
    DETAIL,
    SUMMARY,
    both,
    changed,
    copied,
    cut,
    fields,
    pattern,
    remove,
    rename,
    text,
    write,
)
from tests.harness.submission.trees import RESULTS, SYSTEM, accuracy_log
from tests.kit import full_disk
from tests.records import with_plan
from tests.runs import ROOT

ANSWERS = "mlperf_log_accuracy.json"


def test_what_is_written(original, results, info, tmp_path, capsys):
    """The files of the recorded tree, and the source. Logs are truncated, hashed and kept."""
    assert build(results) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no issues"
    tree, kept = tmp_path / "tree", tmp_path / "tree.kept"
    source = [f"closed/MyOrg/src/gpt-oss-120b/{name}" for name in ("README.md", "setup.sh")]
    recorded = [name for name in files(original) if "/src/" not in name]
    assert files(tree) == sorted([*recorded, *source])
    assert files(kept / RESULTS / "Offline") == [
        *(f"{run}/{name}" for run in ("TEST07", "TEST09") for name in (f"accuracy/{ANSWERS}", "run.json")),
        *(f"accuracy/{ANSWERS}", "accuracy/run.json", "performance/run_1/run.json"),
    ]
    for name in ("accuracy", "TEST07/accuracy", "TEST09/accuracy"):
        full = (results / "offline" / name / ANSWERS).read_bytes()
        folder = tree / RESULTS / "Offline" / name
        assert (folder / ANSWERS).read_bytes() == full[:4096] + b"\n\n...\n\n" + full[-4096:]
        line = f"hash={hashlib.sha256(full).hexdigest()}"
        assert (folder / "accuracy.txt").read_text().splitlines()[-1] == line
        assert (kept / RESULTS / "Offline" / name / ANSWERS).read_bytes() == full


def test_the_system_is_completed_from_machine_and_runs(results, info, tmp_path, capsys):
    write_info(tmp_path, without=["host_memory_capacity"], cooling="water")
    assert build(results) == 0
    assert "filled them in (is it the system under test?): host_memory_capacity\n" in capsys.readouterr().out
    system = json.loads((tmp_path / "tree" / SYSTEM).read_text())
    assert len(system) == 35
    assert system["host_memory_capacity"] == "2048 GiB"
    assert system["framework"] == "SGLang 0.5.23"
    assert system["other_software_stack"] == "CPython 3.11.7, LoadGen 6.0.17"
    assert (system["cooling"], system["division"], system["submitter"]) == ("water", "closed", "MyOrg")


@pytest.mark.engine
def test_a_second_system_goes_beside_the_first(results, info, tmp_path):
    build(results)
    info.write_text(info.read_text().replace('"made_up"', '"another"'))
    build(results)
    assert len(list((tmp_path / "tree/closed/MyOrg/systems").iterdir())) == 2
    # The same logs under two names are noticed.
    assert {issue.code for issue in check_tree(tmp_path / "tree")} == {"repeat"}


def test_open_needs_no_tests(results, info, tmp_path):
    both(*(remove(f"{name}/TEST0{n}") for name in ("offline", "interactive") for n in (7, 9)))(results)
    assert build(results, "--division", "open") == 0
    assert (tmp_path / "tree/open/MyOrg/systems/made_up.json").is_file()


def test_the_log_of_test06_is_copied_complete(tmp_path):
    """More than 10 KiB, and a reviewer runs the official script on it."""
    log = accuracy_log("TEST06")
    verified = write("verify_accuracy.txt", "TEST06 verification complete\n")
    both(verified, write(f"accuracy/{ANSWERS}", log))(tmp_path / "TEST06")
    write_test(tmp_path / "TEST06", "TEST06", load_rules(), tmp_path / "tree", tmp_path / "kept")
    assert files(tmp_path / "tree") == [f"accuracy/{ANSWERS}", "verify_accuracy.txt"]
    assert len(log) > load_rules().files.accuracy_log_bytes
    assert (tmp_path / "tree/accuracy" / ANSWERS).read_text() == log


def test_only_what_the_division_allows_is_taken(results, info, tmp_path, capsys):
    """One SingleStream folder beside, and the official checker refuses all results."""
    copied("offline", "single-stream")(results)
    assert build(results) == 0
    assert f"{results}: single-stream" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "tree" / RESULTS).iterdir()) == ["Interactive", "Offline"]
    assert build(results, "--scenario", "single-stream", "--force") == 2
    assert "--scenario single-stream" in one_line(capsys)


def test_the_open_division_takes_the_scenarios_that_are_named(results, info, tmp_path):
    build(results, "--division", "open", "--scenario", "offline")
    tree = tmp_path / "tree" / RESULTS.as_posix().replace("closed", "open")
    assert [path.name for path in tree.iterdir()] == ["Offline"]


def test_deviations_of_a_run_are_issues(results, info, tmp_path, capsys):
    fields("offline/performance/run.json", deviations=["dataset has 64 samples"])(results)
    assert build(results) == 5
    assert ": [deviations] dataset has 64 samples; " in capsys.readouterr().out


TOML = "../submission.toml"
stated = partial(text, TOML)
nameplate = changed(TOML, lambda old: b'nameplate = "power.yaml"\n' + old)
supplies = partial(write, "../power.yaml")
MISSING = "status, accelerator_model_name, cooling"
PERFORMANCE, TEST07 = "offline/performance", "offline/TEST07/verify_accuracy"
DETAIL_LOG, ACCURACY_LOG = f"{PERFORMANCE}/{DETAIL}", f"offline/accuracy/{ANSWERS}"
TEST07_RUN = "interactive/TEST07/performance/run_1"
TEST09_LOG = f"offline/TEST09/accuracy/{ANSWERS}"


def server(run, **values):
    """Other facts of the server in the record of a run."""

    def change(content):
        record = json.loads(content)
        record["servers"][0] |= values
        return json.dumps(record).encode()

    return changed(f"{run}/run.json", change)


def of_server(run):
    """The record of a run of Server: LoadGen's logs of Interactive, an accuracy run's, are like it."""
    return text(f"{run}/run.json", '"scenario": "' + run.partition("/")[0], '"scenario": "server')


def elsewhere(old, new):
    """Other text in every record, and a field of the system left out that describes this machine."""

    def edit(results):
        stated('"host_memory_capacity" = "made up"', "")(results)
        for path in results.rglob("run.json"):
            pattern(path, old, new)(results)

    return edit


BROKEN = [
    ("no results", remove("."), "--results"),
    ("no performance run", remove(PERFORMANCE), f"{PERFORMANCE}: no run; "),
    ("no summary", remove(f"{PERFORMANCE}/{SUMMARY}"), f"{PERFORMANCE}: {SUMMARY} is missing; "),
    ("no accuracy run", remove("interactive/accuracy"), "run_mlperf.py --scenario interactive --accuracy "),
    ("not evaluated", remove("offline/accuracy/accuracy.txt"), "eval_mlperf_accuracy.py"),
    ("no TEST folder", remove("offline/TEST09"), "run_compliance.py --test TEST09 --scenario offline "),
    ("not verified", remove(f"{TEST07}.txt"), "run_compliance.py verify TEST07 "),
    ("an unofficial test", rename(f"{TEST07}.txt", f"{TEST07}.NOT_OFFICIAL.txt"), ".NOT_OFFICIAL"),
    ("no Offline", remove("offline"), "offline/performance"),
    ("neither Server nor Interactive", remove("interactive"), "server or interactive"),
    ("detail log cut", cut(DETAIL_LOG), f"{PERFORMANCE}: {DETAIL} is "),
    ("summary cut", cut(f"{TEST07_RUN}/{SUMMARY}"), f"interactive/TEST07: {SUMMARY} is "),
    ("accuracy log cut", cut(ACCURACY_LOG), f"offline/accuracy: {ANSWERS} is cut short"),
    ("no answers logged", write(TEST09_LOG, "[\n]\n"), f"offline/TEST09: {ANSWERS} has no answers"),
    ("an edge system", stated('"datacenter"', '"edge"'), "'edge'"),
    ("no user.conf", remove("user.conf"), "--user-conf"),
    ("a slash in the name", stated('"MyOrg"', '"My/Org"'), "submitter is 'My/Org'"),
    ("a name upwards", stated('"made_up"', '"../made_up"'), "system_id is '../made_up'"),
    ("an empty name", stated('"MyOrg"', '""'), "submitter is ''"),
    ("no submitter", stated('submitter = "MyOrg"', ""), "submitter"),
    ("no TOML", stated("submitter", "[submitter"), "submission.toml"),
    ("a TOML in Latin-1", changed(TOML, lambda old: old.replace(b"MyOrg", b"M\xfcller")), "submission.toml"),
    ("a misspelt key", stated("[measurements]", "[measurement]"), "measurement"),
    ("fields missing", pattern(TOML, '^"(cooling|status|accelerator_model_name)".*', ""), MISSING),
    ("measurements missing", stated('retraining = "No"', ""), "retraining"),
    ("no nameplate", nameplate, "power.yaml"),
    ("an empty nameplate", both(nameplate, supplies("")), "power.yaml"),
    ("a nameplate without a sum", both(nameplate, supplies("PSUs: 3\nMin PSUs Needed: 1")), "power.yaml"),
    ("another scenario", of_server("interactive/accuracy"), ".py --scenario interactive --accuracy "),
    ("another test's scenario", of_server("offline/TEST09/run"), "offline/TEST09: holds a run of server; "),
    ("another version", server("offline/accuracy", version="0.5.9"), "engine of performance/run_1"),
    ("another engine", server("offline/TEST07/run", engine="fakesgl"), "engine of performance/run_1"),
    ("another model", server("offline/TEST09/run", model="gpt-oss-20b"), "model of performance/run_1"),
    ("another server", server(PERFORMANCE, url="http://localhost:30001"), "server of performance/run_1"),
    ("other settings", server("offline/accuracy", settings={"tp_size": 2}), "settings of performance/run_1"),
    ("another commit", text("offline/TEST07/run/run.json", "77cbc39", "661220a"), "commit of the harness"),
    # Two cores and 24 GiB were once published as those of two nodes with eight GPUs each.
    ("servers on other machines", elsewhere("//localhost:", "//node1:"), "host_memory_capacity"),
    ("a client elsewhere", elsewhere('"hostname": ?"[^"]*"', '"hostname":"another"'), "host_memory_capacity"),
    ("a secret", stated('"cooling" = "made up"', f'"cooling" = "hf_{"a1" * 17}"'), "systems/made_up.json:"),
]


@pytest.mark.parametrize(("change", "named"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_broken_input_is_named_and_nothing_is_written(results, info, tmp_path, capsys, change, named):
    change(results)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert build(results) == 2
    assert named in refused(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_write_that_fails_leaves_nothing(results, info, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(scenario_files, "keep_file", full_disk)
    assert build(results) == 2
    assert os.strerror(errno.ENOSPC) in one_line(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "submission.toml"]


def test_the_example_is_read_and_names_known_fields():
    example = tomllib.loads((ROOT / "configs/submission/example.toml").read_text())
    assert set(example["system"]) <= set(load_rules().system.fields)
    assert set(example["measurements"]) <= set(load_rules().measurements.required)


def test_system_prints_toml_that_can_be_completed(capsys):
    assert main(["system"]) == 0
    printed = capsys.readouterr().out
    found = tomllib.loads(printed)["system"]
    marks = {line.partition(" = ")[0].strip('"'): line.partition("  # ")[2] for line in printed.splitlines()}
    assert (marks["cooling"], marks["framework"]) == ("needed", "empty: from run.json")
    filled = {name for name, value in found.items() if value}
    assert filled and {marks[name] for name in filled} == {""}
    assert set(found) == set(load_rules().system.fields) - {"division", "submitter"}


def test_what_system_prints_can_be_pasted_into_the_example(tmp_path, capsys):
    mine = tmp_path / "my_submission.toml"
    example = (ROOT / "configs/submission/example.toml").read_text()
    mine.write_text(example)
    assert main(["system", "--submission", str(mine)]) == 0
    mine.write_text(example.replace("[system]\n", f"[system]\n{capsys.readouterr().out}"))
    assert set(tomllib.loads(mine.read_text())["system"]) == set(load_rules().system.fields) - {
        "division",
        "submitter",
    }
    assert main(["system", "--submission", str(mine)]) == 0
    assert capsys.readouterr().out == f"# nothing is missing in [system] of {mine}\n"


def test_the_user_conf_that_the_run_had_counts(results, info, tmp_path):
    """The file that run.json names may have been edited for the next run."""
    had = "*.Offline.min_query_count = 6396\n*.Offline.target_qps = 9\n"
    (results / "offline/performance/user.conf").write_text(had)
    assert build(results) == 0
    (written,) = tmp_path.glob("tree/closed/MyOrg/results/made_up/*/Offline/user.conf")
    assert written.read_text() == had


def test_servers_may_have_other_addresses(results, info, capsys):
    server("offline/accuracy", url="http://localhost:30001")(results)
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
    assert capsys.readouterr().out.splitlines()[-1] == "no issues, 1 warning"  # 16 GPUs


def test_the_kept_runs_of_tests_are_compared(results, info, tmp_path):
    build(results)
    server("Offline/TEST07", version="0.5.9")(tmp_path / "tree.kept" / RESULTS)
    assert {found.code for found in check_tree(tmp_path / "tree")} == {"origin"}


def test_the_readme_has_what_was_run(results, info, tmp_path):
    build(results)
    lines = (tmp_path / "tree" / RESULTS / "Offline/README.md").read_text().splitlines()
    assert any(line.endswith(": tp_size 1, dp_size 8, kv_cache_dtype fp8_e4m3") for line in lines)
    assert "- client: worker processes 4, backend sglang" in lines
    assert [line for line in lines if line.startswith("```")] == ["```bash", "```"] * 3


def test_the_readme_has_the_commands(results, info, tmp_path):
    """The server's from what it reported, those of the runs with published files in place of their own."""
    (results / "offline/performance/user.conf").write_text("*.Offline.target_qps = 7\n")
    for name in ("TEST07", "TEST09"):
        (results / f"offline/{name}/run/user.conf").write_text("*.Offline.target_qps = 9\n")
    scored = results / "offline/accuracy/run.json"
    with_plan(RunRecord.read(scored), tokenizer="/home/me/models/mine").write(scored)
    build(results)
    folder = tmp_path / "tree" / RESULTS / "Offline"
    lines = (folder / "README.md").read_text().splitlines()
    start = "python -m sglang.launch_server --model-path openai/gpt-oss-120b --tp-size 1 --dp-size 8"
    assert f"{start} --kv-cache-dtype fp8_e4m3 --context-length 512" in lines
    command = ".venv/bin/python run_mlperf.py --scenario offline --max-concurrency 40"
    places = '"$data/{}.parquet" --user-conf "$here/{}user.conf" --server-url "$servers" --output-dir results'
    confs = {"performance": "", "accuracy": "", "TEST07-run": "TEST07/", "TEST09-run": "TEST07/"}
    for name, conf in confs.items():
        assert f"{command} --input-file {places.format(name, conf)}" in lines
    assert (folder / "TEST07/user.conf").read_text() == "*.Offline.target_qps = 9\n"
    assert not (folder / "TEST09/user.conf").exists()
    (score,) = [line for line in lines if line.startswith("./mlperf score ")]
    assert " --mlperf-log results/offline/accuracy/" in score and " --tokenizer mine " in score


def test_a_dataset_that_no_flag_named_is_in_the_readme_too(results, info, tmp_path):
    """Of a run, and of two tests that one command made: the README has all datasets in one folder."""
    benchmark = load_benchmark("gpt-oss-120b")
    tests = ("run_compliance.py", "--reference-data", "/home/me/gpqa.parquet")
    made = {"performance": ("run_mlperf.py",), **dict.fromkeys(("TEST07", "TEST09"), tests)}
    for name, command in made.items():
        path = results / "offline" / name / ("run/run.json" if name in TESTS else "run.json")
        record = RunRecord.read(path)
        record = replace(record, provenance=replace(record.provenance, command=(*command, "--report")))
        if name in TESTS:
            rule = find_test(benchmark, name).dataset
            audit = ComplianceSettings(test=name, dataset=rule, settings={}, text="", official=True)
            record = with_plan(record, audit=audit)
        record.write(path)
    build(results)
    lines = (tmp_path / "tree" / RESULTS / "Offline/README.md").read_text().splitlines()
    found = [line.partition(" --user-conf ")[0] for line in lines if " --report --input-file " in line]
    assert found == [
        '.venv/bin/python run_mlperf.py --report --input-file "$data/performance.parquet"',
        '.venv/bin/python run_compliance.py --reference-data "$data/gpqa.parquet" --report '
        '--input-file TEST07="$data/TEST07-run.parquet" --input-file TEST09="$data/TEST09-run.parquet"',
    ]


def test_the_command_of_a_server_names_all_of_its_ranks():
    """Ranks of data-parallel attention, and which of SGLang's HTTP servers answered."""
    settings = {"dp_size": 1, "attn_dp_size": 8, "enable_dp_attention": True, "watermark_enforce_all": True}
    settings |= {"load_format": "/a/b/dummy", "json_model_override_args": '{"a":"b/c"}'}
    settings |= {"mamba_backend": "a,b+c", "random_seed": "-1", "chat_template": "~me", "other": "/x/me@host"}
    facts = {"wire": "sglang", "engine": "SGLang", "version": "0.5.23 (Rust server)", "model": "m"}
    start = server_start(ServerInfo(url="", settings=settings, **facts), load_benchmark("gpt-oss-120b"))
    assert start == (
        "SGLANG_RUST_SERVER=1 python -m sglang.launch_server --model-path m --dp-size 1 --attn-dp-size 8 "
        """--enable-dp-attention --load-format dummy --json-model-override-args '{"a":"b/c"}' """
        "--mamba-backend a,b+c --random-seed -1 --chat-template FILE --other FILE"
    )


START = "python -m sglang.launch_server"


@pytest.mark.parametrize(
    ("wire", "engine", "words"),
    [
        ("openai", "SGLang", f"{START} --model-path m --tp-size 1"),
        ("sglang", "PyTorch", ""),
        ("openai", "vllm", ""),
    ],
)
def test_the_command_of_a_server_is_that_of_its_engine(wire, engine, words):
    """Not of the protocol by which it was asked: PyTorch's server has SGLang's."""
    server = ServerInfo(url="", wire=wire, engine=engine, model="m", settings={"tp_size": 1})
    assert server_start(server, load_benchmark("gpt-oss-120b")) == words


def test_ranks_with_a_port_each_are_one_server(results, info, tmp_path):
    file = results / "offline/performance/run.json"
    record = json.loads(file.read_text())
    (server,) = record["servers"]
    record["servers"] = [
        {**server, "url": f"http://n:{30000 + rank}", "listener": {"rank": rank, "of": 8, "here": 8}}
        for rank in range(8)
    ]
    file.write_text(json.dumps(record))
    build(results, "--servers-moved")
    text = (tmp_path / "tree" / RESULTS / "Offline/README.md").read_text()
    assert "\n- server: engine " in text
    assert "\n1 server. The command " in text


@pytest.mark.engine
def test_two_builds_are_equal_whatever_the_umask(results, info, tmp_path):
    found = []
    for mask in (0o077, 0o002):
        old = os.umask(mask)
        try:
            assert build(results, "--output", tmp_path / f"tree{mask}") == 0
        finally:
            os.umask(old)
        tree = tmp_path / f"tree{mask}"
        found.append(
            {
                path.relative_to(tree): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
                for path in (tree, *tree.rglob("*"))
            }
        )
    assert found[0] == found[1]


LEAKS = ("acme", "alice", "mallory", "hostx", "10.1.2.3", "corp.example")
HOSTILE = [
    ["/home/alice/acme/run_mlperf.py", "--input-file", "/home/alice/acme-data/perf.parquet"],
    ["run_mlperf.py", "--input-file=../../alice/acme-data/perf.parquet", "--user-conf=../alice/acme/u.conf"],
    ["run_mlperf.py", "--input-file", "~alice", "--output-dir", "~alice/out", "--ca-file", "~/acme/ca.pem"],
    ["run_mlperf.py", "--input-file", "file:///home/alice/p.parquet", "--dcgm-url", "http://hostx1:9400"],
    ["run_mlperf.py", "--input_file", "acme/perf.parquet", "--server_url", "http://hostx1:1,http://10.1.2.3:2"],
    ["run_mlperf.py", "--input-file", "p.parquet", "--server-url", "slurm:hostx[1-4]:30000"],
    ["run_mlperf.py", "--input-file", "p.parquet", "--metrics-port", "10.1.2.3:9", "--report"],
    ["run_mlperf.py", "--dataset-path", "p.parquet", "--server-url", "@/home/alice/acme.txt"],
    ["run_mlperf.py", "--input-file", "p.parquet", "--generation-config", "acme/secret/../g.json"],
    ["run_compliance.py", "--test", "all", "--input-file", "TEST07=/home/alice/a.parquet"],
    ["run_compliance.py", "--test", "TEST09", "--input-file", "TEST09=~alice"],
    ["run_compliance.py", "--test", "a", "--input-file", "p", "--audit-config", "TEST07=../alice/a.config"],
    ["/home/alice/wrapper.py", "--customer", "acme", "/home/alice/x"],
    ["-c", "import acme"],
]  # fmt: skip


@pytest.mark.parametrize("commands", [HOSTILE[:8], HOSTILE[-8:]], ids=["first", "last"])
def test_no_published_file_names_a_user_host_or_folder(results, info, tmp_path, commands):
    """Model, settings, dataset, deviations, servers and the commands of all runs name them."""
    runs = sorted(results.rglob("run.json"))
    for number, (path, command) in enumerate(zip(runs, commands, strict=True)):
        record = json.loads(path.read_text())
        record["provenance"]["command"] = command
        record["provenance"]["host"]["hostname"] = "hostx0.corp.example"
        record["plan"] |= {"input_file": "/home/alice/acme/perf.parquet", "log_dir": "/home/alice/acme/out"}
        record["plan"]["server_urls"] = ["http://hostx1:30000"]
        record["servers"][0] |= {
            "url": "http://hostx1.corp.example:30000",
            "model": "/home/alice/customers/acme-confidential/gpt-oss-120b",
            "model_path": "/home/alice/customers/acme-confidential/gpt-oss-120b",
            "settings": {"speculative_draft_model_path": "../mallory/acme/eagle", "tp_size": 2},
        }
        record["deviations"] = [
            f"{number}: /home/alice/acme/g.json has 2.0/15.0 tokens/s; http://hostx1:30000 and ~mallory/acme"
        ]
        path.write_text(json.dumps(record))
    assert build(results, "--division", "open") == 0
    texts = {path: path.read_bytes() for path in (tmp_path / "tree").rglob("*") if path.is_file()}
    assert [
        (path.name, leak) for path, text in texts.items() for leak in LEAKS if leak.encode() in text
    ] == []
    readme = (tmp_path / "tree/open/MyOrg/results/made_up/gpt-oss-120b/Offline/README.md").read_text()
    assert "model gpt-oss-120b" in readme
    assert "speculative_draft_model_path eagle" in readme
    assert re.search(r"^- accuracy: \d+: g.json has 2.0/15.0 tokens/s; URL and FOLDER$", readme, re.MULTILINE)


@pytest.mark.parametrize("flag", ["deepseek-r1", "llama3.1-8b"])
def test_runs_of_another_benchmark_are_refused_in_one_line(results, info, tmp_path, capsys, flag):
    assert build(results, "--benchmark", flag) == 2
    said = one_line(capsys)
    assert f"--benchmark {flag}: {results} " in said and "--benchmark gpt-oss-120b" in said
    assert not (tmp_path / "tree").exists()
