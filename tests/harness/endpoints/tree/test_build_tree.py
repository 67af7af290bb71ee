"""Trees of made-up curves, held against the official checker, upload and viewer."""

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import prepare_submission
import run_endpoints
from harness.endpoints.planning.rules import load_endpoints_rules
from harness.endpoints.point_run import write_point_run
from harness.endpoints.run_folder import (
    ACCURACY,
    CONFIG,
    NOT_A_RESULT_FILE,
    POINT_RUN,
    POINT_YAML,
    RUNS,
    SUMMARY,
    SYSTEM_DESC,
    SYSTEM_POWER,
    TREE,
    TREE_RECORD,
)
from harness.endpoints.tree.build_command import build
from harness.endpoints.tree.build_tree import build_tree
from harness.endpoints.tree.run_facts import read_runs, run_folders
from harness.endpoints.tree.system_file import read_system
from harness.errors import ConfigError
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.record.output_dir import aside_name
from harness.staging import staging
from harness.yaml_files import read_yaml, write_yaml
from tests.endpoints_kit import SYSTEM, curve, point_run, steady_state, write_run, write_runs, write_system
from tests.kit import DATA

needs_official = pytest.mark.skipif(
    find_spec("submission_checker") is None, reason="endpoints-submission-cli is not installed"
)
RUNTIME, LOAD = ("settings", "runtime"), ("settings", "load_pattern")
CURVES = {
    "ours, dedicated": ("dedicated", False),
    "ours, elected": ("elected", False),
    "official, dedicated": ("dedicated", True),
    "official, elected": ("elected", True),
}


class Given(msgspec.Struct):
    folders: tuple[Path, ...]
    system: Path | None
    target_cohort: str | None = None
    seed_sets: Path | None = None
    output: Path | None = None


def official(*words):
    program = Path(sys.executable).parent / words[0]
    return subprocess.run([program, *words[1:]], capture_output=True, text=True, timeout=300)


def tree_of(folder, text=SYSTEM):
    return build_tree([folder], read_system(write_system(folder, text)), folder / TREE)


def edit(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def edit_config(path, *keys, value):
    config = read_yaml(path)
    table = config
    for key in keys[:-1]:
        table = table[key]
    table[keys[-1]] = value
    path.write_text(write_yaml(config))


# MLCommons's programs take a second for each: in the quick loop they have a tree of each client.
MORE = ("ours, elected", "official, dedicated")


@pytest.fixture(
    params=[
        pytest.param(made, id=name, marks=[pytest.mark.engine] if name in MORE else [])
        for name, made in CURVES.items()
    ]
)
def built(request, tmp_path):
    offline, of_official = request.param
    write_runs(tmp_path, offline, official=of_official)
    return tmp_path, tree_of(tmp_path), of_official


@pytest.mark.engine
@needs_official
def test_the_official_checker_finds_no_error(built):
    _, tree, _ = built
    assert tree.missing == ()
    done = official("endpoints-submission-cli", "check-submission", tree.submission)
    assert done.returncode == 0, done.stdout
    assert "0 error(s)" in done.stdout


@needs_official
@pytest.mark.engine
def test_every_run_folder_can_be_uploaded(built):
    _, tree, _ = built
    for name, run in tree.points.items():
        done = official("endpoints-submission-cli", "runs", "create", "--path", run, "--dry-run")
        assert done.returncode == 0, done.stdout
        payload = json.loads(done.stdout)
        assert payload["point_config"]["concurrency"] == int(name[1:])
        derived = payload["system_power"]["derived"]
        assert derived["problems"] == []
        assert derived["system_tps_per_kw"] == payload["point_config"]["system_tps_per_kw"]


@needs_official
@pytest.mark.engine
@pytest.mark.filterwarnings("ignore:Runs have inconsistent system_info")  # each has its tps_utilization
def test_the_submission_made_of_the_uploaded_runs_has_no_error(built, tmp_path):
    """submissions create makes it of the archives; the folder of the system is its name there."""
    from endpoints_submission_cli.runs.parser import build_archive
    from endpoints_submission_cli.submissions.builder import build_submission_folder
    from submission_checker.checker import SubmissionChecker

    _, tree, _ = built
    archives = [(name, build_archive(run, tmp_path / f"{name}.tar.gz")) for name, run in tree.points.items()]
    shared = {"shared_src_dirs": [tree.submission / "src"], "shared_docs_dirs": [tree.submission / "docs"]}
    made = build_submission_folder(archives, "standardized", "available", tmp_path / "bundle", **shared)
    report = SubmissionChecker(made).run()
    assert [error.message for error in report.errors] == []
    assert {path.name for path in made.rglob("r*") if path.is_dir()} >= set(tree.points)


@pytest.mark.skipif(find_spec("mlperf_endpoints_visualizer") is None, reason="mlperf-viz is not installed")
def test_the_official_viewer_shows_every_point(built):
    folder, tree, of_official = built
    done = official("mlperf-viz", folder / TREE, "--strict", "--export", folder / "bundle.json")
    assert done.returncode == 0, done.stdout + done.stderr
    bundle = json.loads((folder / "bundle.json").read_text())
    assert len(bundle["runs"]) == len(tree.points)
    assert (NOT_A_RESULT in json.dumps(bundle["submissions"])) is not of_official


def test_only_a_tree_of_this_client_is_labelled(built):
    folder, tree, of_official = built
    named = (folder / TREE / NOT_A_RESULT_FILE).is_file()
    texts = [path.read_text() for path in tree.curve.rglob("*") if path.name in (POINT_YAML, SYSTEM_DESC)]
    marked = [NOT_A_RESULT in text for text in texts]
    assert len(texts) == 2 * len(tree.points)
    assert (named, all(marked), any(marked)) == ((False,) * 3 if of_official else (True,) * 3)
    assert (NOT_A_RESULT.replace(" ", "-") in str(tree.submission)) is not of_official


def test_a_point_has_what_was_measured_and_decided(tmp_path):
    write_runs(tmp_path)
    ran = point_run(curve().points[3])
    ran = replace(ran, provenance=replace(ran.provenance, server_command="serve --tp 8"))
    write_point_run(tmp_path / RUNS / "r64", ran)
    text = SYSTEM.replace("\ndriver =", '\ninference_backend = "own"\ndriver =', 1)
    tree = tree_of(tmp_path, text.replace("\nsystem_size", '\nserving_framework = "Dynamo"\nsystem_size', 1))
    point = read_yaml(tree.curve / "r64" / POINT_YAML)
    run = point_run(curve().points[3])
    assert point["concurrency"] == run.point.concurrency == 64
    assert point["max_supported_concurrency"] == 1024
    assert point["steady_state"] == steady_state(run)
    assert point["warmup"]["requests_issued"] == run.warm_up.requests_issued
    seeds = run.curve.seeds
    assert point["runtime_settings"]["runtime"]["model_seed"] == seeds.model
    assert point["runtime_settings"]["salt"] == 128
    assert point["runtime_settings"]["stream_all_chunks"] is run.parameters.stream is True
    assert (point["seed_set"], point["target_cohort"]) == (seeds.name, "2026-12-C0")
    offline = read_yaml(tree.curve / "r6396" / POINT_YAML)
    assert (point["offline"], offline["offline"]) == ("none", "dedicated")
    assert offline["runtime_settings"]["load_pattern"] == "max_throughput"
    described = json.loads((tree.curve / "r64" / SYSTEM_DESC).read_text())
    assert described["serving_framework"] == "Dynamo"
    assert described["baseline_network_latency"] == {"round_trips": 100, "min_us": 180.0, "p50_us": 210.0}
    configs = tree.curve / "r64/server_configs"
    assert json.loads((configs / "servers.json").read_text())[0]["url"] == run.servers[0].url
    assert (configs / "command.txt").read_text() == "serve --tp 8\n"
    assert "serve --tp 8" in (tree.submission / "src/sglang/README.md").read_text()
    (server, *_) = run.servers
    software = (tree.submission / "docs" / "software_disclosure.md").read_text()
    assert f"\n- {server.software}: {server.names}\n" in software  # no server tells its model's path
    (node,) = described["node_types"]
    assert (node["number_of_nodes"], node["inference_backend"]) == (1, "own")
    rates = {one.name: one.system_tps for one in read_runs(list(tree.points.values()))}
    assert described["tps_utilization"] == pytest.approx(rates["r64"] / max(rates.values()), abs=1e-6)


def test_what_is_no_cohort_is_refused(tmp_path):
    write_runs(tmp_path)
    with pytest.raises(ConfigError, match="'soon' is no cohort, expected one such as"):
        tree_of(tmp_path, SYSTEM.replace("2026-12-C0", "soon"))


def test_the_official_clients_folder_alone_is_enough(tmp_path):
    write_runs(tmp_path, official=True)
    assert not any(path.name == POINT_RUN for path in tmp_path.rglob("*"))
    edit_config(tmp_path / RUNS / "r8" / CONFIG, "model_params", "seed", value=7)
    tree = tree_of(tmp_path)
    eight, point = (read_yaml(tree.curve / name / POINT_YAML) for name in ("r8", "r64"))
    assert eight["runtime_settings"]["runtime"]["model_seed"] == 7
    assert point["runtime_settings"]["runtime"]["model_seed"] == curve().seeds.model
    assert point["steady_state"] == steady_state(point_run(curve().points[3]))
    assert point["seed_set"] == "A"  # the published set with the seeds of config.yaml
    assert point["dataset"] == "mlperf_gpt_oss_performance"
    assert (tree.curve / "r64" / CONFIG).read_bytes() == (tree.points["r64"] / CONFIG).read_bytes()


def test_a_run_folder_as_the_official_client_left_it(tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(DATA / "endpoints/official_run", run)
    (one,) = read_runs(run_folders([run]))
    assert (one.name, one.model_name, one.dataset_name) == (
        "r4",
        "gpt-oss-120b",
        "mlperf_gpt_oss_performance",
    )
    assert one.system_tps == pytest.approx(one.summary["tps"])
    assert build(Given((run,), write_system(tmp_path))) == 5
    printed = capsys.readouterr().out
    for word in ("seed_set", "no steady state", "no accuracy results"):
        assert word in printed
    assert read_yaml(run / POINT_YAML)["warmup"]["requests_issued"] == 0


SEED_SETS = """\
cohort:
  cohort-id: 2026-10-C1
  seed_sets:
  - {id: B, scheduler_rng_seed: 42, sample_index_rng_seed: 586478644936801402, model_seed: 7}
"""


def test_newer_seeds_come_from_their_file(tmp_path):
    write_runs(tmp_path, official=True)
    for run in (tmp_path / RUNS).iterdir():
        edit_config(run / CONFIG, *RUNTIME, "scheduler_random_seed", value=42)
        edit_config(run / CONFIG, "model_params", "seed", value=7)
    (tmp_path / "seeds.yaml").write_text(SEED_SETS)
    given = Given((tmp_path,), write_system(tmp_path), seed_sets=tmp_path / "seeds.yaml")
    assert build(given) == 0
    assert read_yaml(tmp_path / RUNS / "r1" / POINT_YAML)["seed_set"] == "B"


def test_a_number_of_samples_that_is_none_is_not_stated(tmp_path):
    """YAML has true for yes, and Python takes it for 1."""
    offline = write_runs(tmp_path, official=True)[-1]
    edit_config(offline / CONFIG, "datasets", 0, "samples", value=True)
    (found,) = read_runs([offline])
    assert (found.name, found.samples) == ("r6396", 6396)
    edit_config(offline / CONFIG, "datasets", 0, "samples", value=5000)
    (found,) = read_runs([offline])
    assert (found.name, found.samples) == ("r5000", 5000)


def test_of_a_model_without_rules_the_dataset_is_what_the_configuration_names(tmp_path):
    """Without the part after ``::``, by which the official client knows a preparation of it."""
    (found,) = read_runs(write_runs(tmp_path, official=True)[:1])
    datasets = [{"name": "mine::prepared", "type": "performance"}]
    other = msgspec.structs.replace(found, config={"datasets": datasets})
    assert (other.dataset_name, other.samples) == ("mine", None)


def test_a_verdict_with_half_a_character_is_written(tmp_path):
    """The build ended with a traceback."""
    write_runs(tmp_path)
    path = tmp_path / RUNS / "r64" / SUMMARY
    summary = json.loads(path.read_text())
    summary["steady_state"]["verdict"] = "STEADY\ud800"
    path.write_text(json.dumps(summary))
    tree_of(tmp_path)
    written = read_yaml(tmp_path / RUNS / "r64" / POINT_YAML)
    assert written["steady_state"]["verdict"] == "STEADY\ufffd"


def test_a_mean_that_is_no_number_is_left_out(tmp_path):
    write_runs(tmp_path, official=True)
    path = tmp_path / RUNS / "r64" / SUMMARY
    summary = json.loads(path.read_text())
    summary["output_sequence_lengths"]["avg"] = "many"
    path.write_text(json.dumps(summary))
    tree_of(tmp_path)
    written = {name: read_yaml(tmp_path / RUNS / name / POINT_YAML) for name in ("r8", "r64")}
    assert [name for name, point in written.items() if "output_token_average" in point] == ["r8"]


def of_toml(old, new=""):
    assert old in SYSTEM
    return lambda folder: SYSTEM.replace(old, new, 1)


def of_preview(ready):
    return of_toml('"Available"', f'"Preview"\ntarget_availability_date = "{ready}"')


SOURCED = '= {{ watts = {}, source = "https://example.com/h200" }}'


def of_power(lines):
    """Instead of the parts; of the node's figure, where ``{}`` is, there are 10 200 W."""
    parts = re.search(r"(?<=\[node_types.power]\n)(?:.+\n)+", SYSTEM)
    return of_toml(parts[0], lines.format(SOURCED.format(10200)) + "\n")


def of_run(change):
    def apply(folder):
        change(folder / RUNS / "r64")
        return SYSTEM

    return apply


def scored_in_the_margin(folder):
    run = folder / RUNS / "r512"
    edit_config(run / CONFIG, *LOAD, "target_concurrency", value=1100)
    shutil.copy(folder / RUNS / "r64" / ACCURACY, run / ACCURACY)
    return SYSTEM.replace("# max_supported_concurrency", "max_supported_concurrency")


GAPS = {
    "no precision": (of_toml('model_precision = "MXFP4"'), "model_precision"),
    "no cohort": (of_toml('target_cohort = "2026-12-C0"'), "target_cohort"),
    "no dataset link": (
        of_toml('dataset_link = "https://example.com/perf_eval_ref.parquet"'),
        "dataset_link",
    ),
    "no short name": (of_toml('shortened_system_name = "8xH200"'), "shortened_system_name"),
    "no URL": (of_toml('availability_url = "https://example.com/h200"'), "availability_url"),
    "no date": (of_toml('"Available"', '"Preview"'), "target_availability_date"),
    "a Preview for longer than 180 days": (of_preview("2027-06-01"), "2027-05-31"),
    "a Preview of no cohort": (
        lambda folder: of_preview("2027-06-01")(folder).replace('target_cohort = "2026-12-C0"', ""),
        "target_cohort",
    ),
    "an Available system in RDI": (of_toml('"Standardized"', '"RDI"'), "RDI as its status"),
    "no driver": (of_toml('driver = "580.65.06"'), "node type 1 has no driver"),
    "no cooling": (of_toml('cooling = "air"'), "cooling"),
    "no power": (
        of_toml('accelerator = { watts = 700, source = "https://example.com/h200" }'),
        "power.accelerator",
    ),
    "no parallelism": (of_toml("tensor_parallel = 1\ndata_parallel = 8"), "parallelism"),
    "too few replicas": (of_toml("data_parallel = 8", "data_parallel = 4"), "dp_shortfall"),
    "too many replicas": (of_toml("data_parallel = 8", "data_parallel = 9"), "data_parallel"),
    "too many replicas of four accelerators each": (
        of_toml(
            "tensor_parallel = 1\ndata_parallel = 8",
            "tensor_parallel = 2\npipeline_parallel = 2\ndata_parallel = 3",
        ),
        "data_parallel is 3, but 2 fit",
    ),
    "no steady state": (of_run(lambda run: edit(run / SUMMARY, steady_state=None)), "steady_state"),
    "no accuracy in a band": (
        of_run(lambda run: (run / ACCURACY).unlink()),
        "in the bands Medium; run the accuracy dataset at",
    ),
    "scores of no data set": (of_run(lambda run: (run / ACCURACY).write_text("{}")), "Medium"),
    "a data set without a score": (
        of_run(lambda run: (run / ACCURACY).write_text('{"accuracy_scores": [{"score": null}]}')),
        "Medium",
    ),
    "a score in the margin": (scored_in_the_margin, "5 accuracy results for 4 bands (margin: r1100)"),
    "two scores in a band": (
        of_run(lambda run: shutil.copy(run / ACCURACY, run.with_name("r32") / ACCURACY)),
        "5 accuracy results for 4 bands (Medium: r32, r64)",
    ),
    "two scores in a band and none in another": (
        of_run(lambda run: (run.with_name("r8") / ACCURACY).rename(run.with_name("r32") / ACCURACY)),
        "4 accuracy results for 3 bands (Medium: r32, r64)",
    ),
    "no accelerators": (
        of_toml("accelerators_per_node = 8", "accelerators_per_node = 0"),
        "node type 1 has no accelerators",
    ),
    "a rack of no more nodes than the system": (
        of_power("rack {}\nrack_nodes = 1"),
        "rack_nodes is 1, expected more than 1",
    ),
    "no energy of a network's bits": (
        of_power("combined {}\nscale_up = {{ bandwidth_tbps = 14.4 }}"),
        "has no pj_per_bit",
    ),
    "seeds of no set": (
        of_run(
            lambda run: edit_config(run / CONFIG, "settings", "runtime", "scheduler_random_seed", value=42)
        ),
        "seed",
    ),
    "another seed of the model": (
        of_run(lambda run: edit_config(run / CONFIG, "model_params", "seed", value=42)),
        "model_seed is not that of the seed set (r64)",
    ),
    "a model of no benchmark": (
        of_toml("[model]\n", '[model]\nmodel_name = "gpt-oss-20b"\n'),
        "model_name is gpt-oss-20b",
    ),
    "a cohort after the seeds'": (
        of_toml('"2026-12-C0"', '"2027-02-C0"'),
        "target_cohort is 2027-02-C0, but seed set A is for 2026-10-C1 to 2026-12-C0",
    ),
    "a C_min without a point": (
        of_toml("# c_min_override = 1 ", "c_min_override = 7 "),
        "c_min_override is 7",
    ),
    "a C_min that is too high": (
        of_toml("# c_min_override = 1 ", "c_min_override = 64 "),
        "c_min_override is 64, expected the requests in flight of a point, at most 32",
    ),
    "switches for a part of the adapters": (
        lambda folder: SYSTEM.replace("[model]\n", NETWORK_OUT.replace("51.2", "3.1") + "[model]\n"),
        "switches have 3.1 Tb/s, the adapters 3.2",
    ),
    "nodes that nothing connects": (
        lambda folder: of_toml("number_of_nodes = 1", "number_of_nodes = 2")(folder).replace(
            "scale_up", "# "
        ),
        "[scale_out] is missing, and no scale_up connects the 2 nodes",
    ),
    "a warm-up that nothing counts": (
        of_run(lambda run: edit_config(run / CONFIG, "settings", "warmup", "enabled", value=True)),
        "[warm_up]",
    ),
}


@pytest.mark.parametrize("stated", ["tensor_parallel = 1\ndisaggregated = true", "disaggregated = true"])
def test_replicas_of_a_disaggregated_system_are_not_counted(stated, tmp_path):
    write_runs(tmp_path, official=True)
    text = GAPS["no parallelism"][0](tmp_path).replace("[parallelism]", f"[parallelism]\n{stated}")
    assert "disaggregated" in text and tree_of(tmp_path, text).missing == ()


@pytest.mark.parametrize("score", [{"exact_match": 0.9}, 0.9], ids=["named", "a number"])
def test_scores_of_a_short_rehearsal_have_no_name_of_the_benchmarks(score, tmp_path):
    """By their names MLCommons's checker would gate them."""
    write_runs(tmp_path, short=True)
    entry = {"dataset_name": "a", "score": score, "unit_samples": 4, "dataset_type": "accuracy"}
    (tmp_path / RUNS / "r64" / ACCURACY).write_text(json.dumps({"accuracy_scores": [entry]}))
    written = json.loads((tree_of(tmp_path).curve / "r64" / "accuracy_results.json").read_text())
    (found,) = written["accuracy_scores"]
    assert found["dataset_name"] == "a" and found["short_rehearsal_unit_samples"] == 4
    assert "unit_samples" not in found and list(found["score"].values()) == [0.9]
    assert all(name.startswith("short_rehearsal_") for name in found["score"])


@pytest.mark.parametrize("short", [False, True])
def test_a_short_rehearsal_does_not_name_the_dataset_of_the_rules(short, tmp_path):
    """It ran a part of it, or a sample: MLCommons's checker would count passes of the official one."""
    write_runs(tmp_path, short=short)
    text = SYSTEM.replace("[dataset]", '[dataset]\ndataset_name = "the complete one"')
    named = read_yaml(tree_of(tmp_path, text).curve / "r64" / POINT_YAML)
    assert (named["dataset"] == "mlperf_gpt_oss_performance") is not short
    assert (named["dataset_name"] == "the complete one") is not short


@pytest.mark.parametrize("salt", [True, False, None])
def test_the_salt_of_the_warm_up_of_the_official_client_is_stated(salt, tmp_path):
    """MLCommons's checker looks for it in runtime_settings.warmup; the client's default is none."""
    for run in write_runs(tmp_path, official=True):
        stated = {"enabled": True} | ({} if salt is None else {"salt": salt})
        edit_config(run / CONFIG, "settings", "warmup", value=stated)
    settings = read_yaml(tree_of(tmp_path).curve / "r64" / POINT_YAML)["runtime_settings"]
    assert settings["warmup"] == {"salt": bool(salt)}


SOURCED_SWITCH = 'switch = {{ watts = 100, source = "https://example.com/nvswitch" }}'
SOURCED_BITS = 'pj_per_bit = 1.3, source = "https://example.com/nvlink"'
NETWORKS = {
    "within what a node draws": (2, of_power("node {}")),
    "within what a rack draws": (2, of_power("rack {}\nrack_nodes = 4")),
    "switches of the accelerators": (
        2,
        of_power(f"combined {{}}\nscale_up = {{{{ switches = 4, {SOURCED_SWITCH} }}}}"),
    ),
    "links of the accelerators": (
        2,
        of_power(f"combined {{}}\nscale_up = {{{{ bandwidth_tbps = 14.4, {SOURCED_BITS} }}}}"),
    ),
    "none, of one node": (1, of_power("combined {}")),
    "switches with just what the adapters have": (
        1,
        lambda folder: SYSTEM.replace("[model]\n", NETWORK_OUT.replace("51.2", "3.2") + "[model]\n"),
    ),
}


QUICK = ("within what a node draws", "switches with just what the adapters have")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.engine]) for name in NETWORKS],
)
def test_a_network_that_is_one_is_taken_as_the_official_checker_takes_it(name, tmp_path):
    checker = pytest.importorskip("submission_checker.checker")
    nodes, change = NETWORKS[name]
    write_runs(tmp_path, official=True)
    text = change(tmp_path).replace("number_of_nodes = 1", f"number_of_nodes = {nodes}")
    tree = tree_of(tmp_path, text.replace("data_parallel = 8", f"data_parallel = {8 * nodes}"))
    assert [error.message for error in checker.SubmissionChecker(tree.submission).run().errors] == []
    assert tree.missing == ()


def test_one_run_of_this_client_labels_all(tmp_path):
    write_runs(tmp_path, official=True)
    write_run(tmp_path / RUNS / "r64", point_run(curve().points[3]))
    for name in ("r32", "r64"):
        point = read_yaml(tree_of(tmp_path).curve / name / POINT_YAML)
        assert point["notes"].startswith(NOT_A_RESULT)


@pytest.mark.parametrize("name", ["Serviced", "RDI"])
def test_other_divisions_need_no_power(name, tmp_path, capsys):
    write_runs(tmp_path, official=True)
    text = GAPS["no power"][0](tmp_path).replace('"Standardized"', f'"{name}"')
    if name == "RDI":
        text = text.replace('"Available"', '"RDI"')
    output = tmp_path / "elsewhere"
    assert build(Given((tmp_path,), write_system(tmp_path, text), output=output)) == 0
    assert output.is_dir() and not (tmp_path / TREE).exists()
    assert not list(tmp_path.rglob(SYSTEM_POWER))
    assert SYSTEM_POWER not in capsys.readouterr().out


def test_a_preview_may_be_available_180_days_after_its_cohort(tmp_path):
    write_runs(tmp_path, official=True)
    text = of_preview("2027-05-31")(tmp_path).replace("availability_url", "# availability_url")
    assert tree_of(tmp_path, text).missing == ()


def test_the_highest_c_min_may_be_declared(tmp_path):
    """C_min is at most 32."""
    write_runs(tmp_path, official=True)
    text = SYSTEM.replace("# c_min_override = 1 ", "c_min_override = 32 ")
    assert not any("c_min_override is" in line for line in tree_of(tmp_path, text).missing)


def test_a_rehearsal_s_own_seeds_are_for_their_cohorts(tmp_path):
    """Whatever sets are known where its tree is built."""
    write_runs(tmp_path, seeds=replace(curve().seeds, name="B", published="2027-03-C1", scheduler=42))
    (line,) = (line for line in tree_of(tmp_path).missing if "seed set" in line)
    assert "target_cohort is 2026-12-C0, but seed set B is for 2027-03-C1 to 2027-05-C0" in line


def without(*names):
    def change(root):
        for name in names:
            shutil.rmtree(root / RUNS / name)
        return SYSTEM

    return change


def from_8_on(root):
    return without("r1", "r8")(root).replace("# c_min_override = 1 ", "c_min_override = 8 ")


def planned_from_16_on(root):
    """Scored in the bands of C_min 16: at most 16, 17-26, 27-117, 118-1024."""
    for name, level in (("r8", 16), ("r32", 24)):
        edit_config(root / RUNS / name / CONFIG, *LOAD, "target_concurrency", value=level)
    (root / RUNS / "r1" / ACCURACY).rename(root / RUNS / "r32" / ACCURACY)
    return SYSTEM


ABSENT = {
    "the declared C_min": (planned_from_16_on, "write c_min_override = 16 into [system]"),
    "a band": (without("r64", "r32"), "Medium band, 12-103"),
    "the lowest": (without("r1", "r8", "r32"), "Ultra Low"),
    "the lowest by a declared C_min": (from_8_on, "Ultra Low band, 1-8 in flight"),
    "two of eight": (without("r256", "r512"), "5 points at a fixed concurrency, expected 7"),
    "all above 32": (without("r64", "r256", "r512", "r1024"), "C_max is 32"),
    "Offline and C_max": (without("r6396", "r1024"), "r512 is the Offline point"),
}


@pytest.mark.parametrize(("change", "words"), ABSENT.values(), ids=ABSENT.keys())
def test_points_that_a_curve_lacks_are_named(change, words, tmp_path, capsys):
    for folder in write_runs(tmp_path, official=True):
        if folder.name == "offline":
            folder.rename(folder.with_name("r6396"))
    assert build(Given((tmp_path,), write_system(tmp_path, change(tmp_path)))) == 5
    assert words in capsys.readouterr().out


@needs_official
def test_with_the_c_min_that_is_named_every_band_has_a_score(tmp_path):
    from submission_checker.checker import SubmissionChecker

    write_runs(tmp_path, official=True)
    text = planned_from_16_on(tmp_path).replace("# c_min_override = 1 ", "c_min_override = 16 ")
    tree = tree_of(tmp_path, text)
    assert tree.missing == () and SubmissionChecker(tree.submission).run().errors == []


def test_points_of_the_plan_that_were_not_run_are_named(tmp_path, capsys):
    write_runs(tmp_path)
    for name in ("r512", "offline"):
        (tmp_path / RUNS / name / CONFIG).unlink()
        (tmp_path / RUNS / name / SUMMARY).unlink()
    tables = "".join(f"[points.{name}]\ntensor_parallel = 8\n" for name in ("r8", "r512", "r65"))
    build(Given((tmp_path,), write_system(tmp_path, f"{SYSTEM}\n{tables}")))
    lines = capsys.readouterr().out.splitlines()
    (line,) = [one for one in lines if "of the plan" in one]
    assert "r512, offline" in line
    (line,) = [one for one in lines if "[points." in one]
    assert "[points.r65] of the TOML is of no point; write one of r1, r8, r32, r64, " in line
    label = (tmp_path / TREE / NOT_A_RESULT_FILE).read_text()
    assert "- points of the plan that were not run: r512, offline" in label


def test_points_of_two_models_are_refused(tmp_path):
    write_runs(tmp_path)
    other = point_run(curve().points[3], curve(benchmark="deepseek-r1", model_name="deepseek-r1"))
    write_run(tmp_path / RUNS / "r64", other)
    with pytest.raises(ConfigError, match="r64: deepseek-r1"):
        tree_of(tmp_path)


@pytest.mark.parametrize(("change", "word"), GAPS.values(), ids=GAPS.keys())
def test_what_is_missing_is_named_with_its_remedy(change, word, tmp_path, capsys):
    write_runs(tmp_path, official=True)
    system = write_system(tmp_path, change(tmp_path))
    assert build(Given((tmp_path,), system)) == 5
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MISSING")]
    assert [line for line in lines if word in line and ";" in line], lines


REFUSED = (
    *("no precision", "no short name", "no URL", "no cooling", "seeds of no set", "a model of no benchmark"),
    *("a cohort after the seeds'", "a C_min without a point", "switches for a part of the adapters"),
    *("nodes that nothing connects", "another seed of the model", "two scores in a band"),
    *("a score in the margin", "a C_min that is too high", "two scores in a band and none in another"),
)


@needs_official
@pytest.mark.engine
@pytest.mark.parametrize("name", REFUSED)
def test_the_official_checker_rejects_what_is_named(name, tmp_path):
    write_runs(tmp_path, official=True)
    tree = tree_of(tmp_path, GAPS[name][0](tmp_path))
    done = official("endpoints-submission-cli", "check-submission", tree.submission)
    assert done.returncode == 1


def test_without_a_toml_everything_in_it_is_missing(tmp_path):
    write_runs(tmp_path)
    assert build(Given((tmp_path / RUNS,), None)) == 5
    record = json.loads((tmp_path / TREE / TREE_RECORD).read_text())
    assert record["label"] == NOT_A_RESULT
    assert any("model_precision" in line for line in record["missing"])
    # Only a submitter knows it: a default was that of a cohort long past.
    assert any("no target_cohort" in line for line in record["missing"])
    assert (tmp_path / TREE / record["curve"] / "r1" / POINT_YAML).is_file()


UNUSABLE = {
    "a summary that was cut off": lambda run: (run / SUMMARY).write_bytes((run / SUMMARY).read_bytes()[:200]),
    "no summary": lambda run: (run / SUMMARY).unlink(),
    "a summary of another kind": lambda run: (run / SUMMARY).write_text("[]"),
    "no tokens": lambda run: edit(run / SUMMARY, output_sequence_lengths={}),
    "no duration": lambda run: edit(run / SUMMARY, duration_ns=0),
    "a duration of text": lambda run: edit(run / SUMMARY, duration_ns="long"),
    "an anchor": lambda run: (run / CONFIG).write_text("a: &a [1]\nb: *a\n"),
    "a deep nesting": lambda run: (run / CONFIG).write_text("[" * 10_000_000),
    "a list": lambda run: (run / CONFIG).write_text("- 1\n"),
    "no config": lambda run: (run / CONFIG).unlink(),
    "no load": lambda run: edit_config(run / CONFIG, *LOAD, "type", value=None),
    "another load": lambda run: edit_config(run / CONFIG, *LOAD, "type", value="poisson"),
    "a concurrency that nobody has": lambda run: edit_config(
        run / CONFIG, *LOAD, "target_concurrency", value=10**30
    ),
    "no concurrency": lambda run: edit_config(run / CONFIG, *LOAD, "target_concurrency", value="many"),
    "scores of another kind": lambda run: (run / ACCURACY).write_text('{"accuracy_scores": 5}'),
    "scores that were cut off": lambda run: (run / ACCURACY).write_text('{"accuracy_scores": ['),
    "our record, nested": lambda run: (run / POINT_RUN).write_text('{"later": ' + "[" * (1 << 20)),
    "our record, cut off": lambda run: (run / POINT_RUN).write_text('{"curve": {'),
}


SAID = {
    "a summary that was cut off": "is not JSON",
    "a summary of another kind": "is not a JSON object",
    "an anchor": "an anchor or alias in line 1",
    "a list": "is no table",
    "no config": "No such file or directory",
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_damaged_run_folder_is_one_line(name, tmp_path):
    write_runs(tmp_path)
    UNUSABLE[name](tmp_path / RUNS / "r64")
    with pytest.raises(ConfigError) as raised:
        tree_of(tmp_path)
    text = str(raised.value)
    assert "r64" in text and "\n" not in text and len(text) < 500
    assert SAID.get(name, "") in text
    assert not (tmp_path / TREE).exists()


@pytest.mark.parametrize("command", ["build", "system"])
def test_all_damaged_run_folders_are_named(command, tmp_path, capsys):
    write_runs(tmp_path)
    for name in ("r1", "r64"):
        (tmp_path / RUNS / name / SUMMARY).unlink()
    if command == "build":
        assert run_endpoints.main(["build", str(tmp_path)]) == 2
    else:
        assert prepare_submission.main(["system", "--endpoints", str(tmp_path)]) == 2
    first, second, error = capsys.readouterr().err.splitlines()
    assert "/r1:" in first and "/r64:" in second and "2 run folders cannot be used" in error


def test_a_file_of_the_other_kind_is_refused(capsys):
    """It was left out, without a word."""
    words = ["system", "--endpoints", "--submission", "configs/submission/example.toml"]
    assert prepare_submission.main(words) == 2
    assert "--submission configs/submission/example.toml is a TOML of " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_a_folder_without_runs_is_one_line(name, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=name):
        run_folders([tmp_path / name])


def test_the_same_point_twice_is_refused(tmp_path):
    write_runs(tmp_path)
    write_run(tmp_path / RUNS / "again", point_run(curve().points[3]))
    with pytest.raises(ConfigError, match="r64"):
        read_runs(run_folders([tmp_path]))


def test_the_earlier_run_of_a_point_that_was_run_again_is_no_point(tmp_path):
    """It had failed requests, and was moved aside: the tree was refused at each call."""
    runs = sorted(write_runs(tmp_path))
    for _ in range(2):
        shutil.copytree(runs[0], aside_name(runs[0]))
    assert run_folders([tmp_path]) == run_folders([tmp_path / RUNS]) == runs
    alone = tmp_path / "official" / aside_name(runs[0]).name
    shutil.copytree(runs[0], alone)
    assert run_folders([alone.parent]) == run_folders([alone]) == [alone]


def test_an_accuracy_run_in_a_folder_of_its_own_belongs_to_its_point(tmp_path):
    write_runs(tmp_path, official=True)
    run, apart = tmp_path / RUNS / "r64", tmp_path / RUNS / "r64-accuracy"
    (apart / ACCURACY).parent.mkdir(parents=True)
    (run / ACCURACY).rename(apart / ACCURACY)
    (apart / CONFIG).write_bytes((run / CONFIG).read_bytes())
    tree = tree_of(tmp_path)
    assert tree.missing == ()
    assert (tree.curve / "r64" / "accuracy_results.json").read_bytes() == (apart / ACCURACY).read_bytes()


@pytest.mark.parametrize(
    ("started", "dated"), [(1_795_000_000 * 10**9, "2026-11-18"), (0, None), (38_233_174_325_231, None)]
)
def test_the_date_of_a_run_is_of_the_wall_clock(tmp_path, started, dated):
    """Some versions of the official client write 0, or the time of another clock."""
    for run in write_runs(tmp_path, official=True):
        edit(run / SUMMARY, test_started_at=started)
    (point,) = tree_of(tmp_path).submission.rglob(f"r64/{POINT_YAML}")
    assert read_yaml(point).get("run_date") == dated


def test_a_point_says_whether_its_accuracy_was_measured(tmp_path):
    write_runs(tmp_path)
    points = tree_of(tmp_path).submission.rglob(POINT_YAML)
    types = {one.parent.name: read_yaml(one)["dataset_type"] for one in points}
    assert (types["r64"], types["r512"]) == ("Accuracy + Performance", "Performance")


@pytest.mark.parametrize(
    ("path", "revision", "link"),
    [
        ("openai/gpt-oss-120b", "b5c939d", "https://huggingface.co/openai/gpt-oss-120b/tree/b5c939d"),
        ("openai/gpt-oss-120b", None, "https://huggingface.co/openai/gpt-oss-120b"),
        *((folder, "b5c939d", None) for folder in ("/models", "./models", "models", "/data/models/gpt")),
    ],
)
def test_a_model_that_was_served_from_its_repository_is_linked(tmp_path, path, revision, link):
    plan = curve()
    (planned,) = (one for one in plan.points if one.name == "r64")
    made = point_run(planned, plan)
    servers = tuple(replace(one, model_path=path, revision=revision) for one in made.servers)
    write_run(tmp_path / RUNS / "r64", replace(made, servers=servers))
    (point,) = build_tree([tmp_path / RUNS / "r64"], None, tmp_path / TREE).submission.rglob(POINT_YAML)
    assert read_yaml(point).get("link_to_model") == link


@pytest.mark.parametrize("others", [("b", "c"), ("b", "r64")])
def test_two_scores_of_one_point_are_refused(tmp_path, others):
    """Which one counts would depend on the names of their folders."""
    write_runs(tmp_path, official=True)
    run = tmp_path / RUNS / "r64"
    scores = (run / ACCURACY).read_bytes()
    (run / ACCURACY).unlink()
    for name in others:
        folder = tmp_path / RUNS / name
        (folder / ACCURACY).parent.mkdir(parents=True, exist_ok=True)
        (folder / ACCURACY).write_bytes(scores)
        (folder / CONFIG).write_bytes((run / CONFIG).read_bytes())
    with pytest.raises(ConfigError, match="accuracy of r64 again"):
        tree_of(tmp_path)


def test_a_tree_replaces_its_predecessor_and_nothing_else(tmp_path):
    write_runs(tmp_path)
    (tmp_path / TREE).mkdir()
    (tmp_path / TREE / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="other files"):
        tree_of(tmp_path)
    (tmp_path / TREE / "thesis.txt").unlink()
    first = tree_of(tmp_path)
    for name in ("r256", "r512"):
        (tmp_path / RUNS / name / CONFIG).rename(tmp_path / f"{name}.yaml")
        (tmp_path / RUNS / name / SUMMARY).unlink()
    second = tree_of(tmp_path)
    assert set(first.points) - set(second.points) == {"r256", "r512"}
    assert sorted(path.name for path in second.curve.iterdir()) == sorted(second.points)


def test_a_disclosure_written_by_hand_is_kept(tmp_path):
    write_runs(tmp_path, official=True)
    own = tmp_path / RUNS / "r64" / POINT_YAML
    own.write_text("concurrency: 64\nnotes: by hand\n")
    tree_of(tmp_path)
    tree_of(tmp_path, SYSTEM.replace("MXFP4", "BF16"))
    assert own.with_name("point.yaml.earlier").read_text().endswith("by hand\n")
    assert read_yaml(own)["model_precision"] == "BF16"


@pytest.mark.parametrize("given", ["readme", "software_disclosure", None])
def test_the_documents_that_nobody_has_written_are_named(given, tmp_path):
    write_runs(tmp_path)
    (tmp_path / "a.md").write_text("# Written\n")
    text = SYSTEM if given is None else f'{SYSTEM}\n[docs]\n{given} = "a.md"\n'
    named = {line.rpartition("[docs] ")[2] for line in tree_of(tmp_path, text).unwritten}
    assert named == {"readme", "software_disclosure"} - {given}


def test_c_max_is_that_of_the_plan_where_its_point_is_not_there(tmp_path):
    """The regions follow from it (section 5.3 of the rules), and must not move with what has been run."""
    write_runs(tmp_path)
    shutil.rmtree(tmp_path / RUNS / "r1024")
    curve = tree_of(tmp_path).curve
    assert read_yaml(curve / "r64" / POINT_YAML)["max_supported_concurrency"] == 1024


@pytest.mark.parametrize("line", ['readme = "a.md"', 'calibration = "a.md"', 'server_configs = ["a.md"]'])
def test_a_document_that_was_removed_during_the_rehearsal_is_one_line(line, tmp_path):
    write_runs(tmp_path)
    (tmp_path / "a.md").touch()
    system = read_system(write_system(tmp_path, f"{SYSTEM}\n[docs]\n{line}\n"))
    (tmp_path / "a.md").unlink()
    with pytest.raises(ConfigError, match=r"a\.md: No such file or directory; correct its path in \[docs\]"):
        build_tree([tmp_path], system, tmp_path / TREE)


NETWORK = 'scale_up = {{ bandwidth_tbps = 14.4, pj_per_bit = 5, source = "https://example.com/nvlink" }}'
# What is stated, and the W that are published of nodes.
POWER = {
    "parts": ("", 0),
    "nodes": ("node {}", 3 * 10200),
    "racks": ("rack {}\nrack_nodes = 8", 10200 * 3 / 8),
    "processors with accelerators": ("combined {}", 0),
    "a network's bits": ("combined {}\n" + NETWORK, 0),
}


@needs_official
@pytest.mark.parametrize(("lines", "published"), POWER.values(), ids=POWER.keys())
def test_power_is_the_official_packages(lines, published, tmp_path):
    from submission_checker.models import SystemPower
    from submission_checker.models.file.point_config import NodesUsed

    text = of_power(lines)(tmp_path) if lines else SYSTEM
    text = text.replace('cooling = "air" ', 'cooling = "liquid" ')
    text = text.replace("number_of_nodes = 1", "number_of_nodes = 3")
    text = text.replace("[model]\n", SCALE_OUT + "[model]\n")
    write_runs(tmp_path)
    tree = tree_of(tmp_path, text)
    stated = json.loads((tree.curve.parent / SYSTEM_POWER).read_text())
    theirs = SystemPower.model_validate(stated).compute()
    assert theirs.problems == [] and theirs.published_node_power_w == published
    assert stated["scale_out"]["nics"]["counted"] is not bool(published)  # in the figure of a node they are
    assert stated["provisioned_power_kw"] == theirs.provisioned_power_kw
    point = read_yaml(tree.curve / "r1" / POINT_YAML)
    assert point["point_power_kw"] == theirs.point_power_kw({1: 2})
    assert point["nodes_used"] == [NodesUsed(system_node_ensemble_id=1, nodes=2).model_dump()]
    assert theirs.point_power_kw({1: 2}) < theirs.provisioned_power_kw


NETWORK_OUT = """\
[scale_out]
cabling = "passive"
nics_per_node = 8
nic_gbps = 400
nic = { watts = 25, source = "https://example.com/nic" }

[[scale_out.switches]]
model = "SN5610"
count = 1
bandwidth_tbps = 51.2
power = { watts = 900, source = "https://example.com/sn5610" }

"""
SCALE_OUT = "[points.r1]\nnodes_used = { 1 = 2 }\n\n" + NETWORK_OUT


def test_canonical_names():
    rules = load_endpoints_rules()
    for name, found in (("llama3.1-8b", "llama3_1-8b"), ("openai/gpt-oss-120b", "gpt-oss-120b")):
        for part in ({"submission_ref": {"model": name}}, {"model_params": {"name": name}}):
            assert rules.model_in(part) == found
    assert rules.model_in({}) == ""


def test_odd_values_in_a_configuration_are_not_fatal(tmp_path):
    write_runs(tmp_path, official=True)
    for keys in (("datasets",), ("model_params",), ("settings", "runtime"), ("settings", "warmup")):
        edit_config(tmp_path / RUNS / "r64" / CONFIG, *keys, value=True)
    assert any("seed" in line for line in tree_of(tmp_path).missing)


def test_two_builds_at_once_are_refused(tmp_path):
    """The second removed what the first had written, and either could take the place of the tree."""
    write_runs(tmp_path)
    with staging(tmp_path / TREE), pytest.raises(ConfigError, match="another build is writing there"):
        tree_of(tmp_path)
    assert tree_of(tmp_path).submission.is_dir()


def test_an_offline_run_alone_is_no_curve(tmp_path):
    write_runs(tmp_path)
    with pytest.raises(ConfigError, match="Offline run alone"):
        build_tree([tmp_path / RUNS / "offline"], None, tmp_path / TREE)
