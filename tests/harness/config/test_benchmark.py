"""Benchmark definitions against the rules' numbers and the settings that LoadGen 6.0.17 itself holds."""

import math
from itertools import product

import pytest

from harness.config.benchmark import load_benchmark, read_definition
from harness.config.choices import available_benchmarks
from harness.config.loadgen_conf import ConfKey, read_conf
from harness.config.rounds import benchmark_rules, current_round
from harness.config.rule_checks import (
    locked_settings,
    offline_deviations,
    scenario_deviations,
    setting_deviations,
)
from harness.config.scenario import Scenario
from harness.dataset.tokenizer import decode
from harness.errors import ConfigError
from harness.files import CONFIG_DIR
from harness.submission.tree.round_rules import load_rules
from tests.harness.config.loadgen import loadgen_reads

SEEDS = {"qsl_rng_seed": 2085463073848966840, "sample_index_rng_seed": 2747215439041700203}
SEEDS |= {"schedule_rng_seed": 16159082839903944936}
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
BENCHMARKS = ("deepseek-r1", "gpt-oss-120b", "llama3.1-8b", "llama3.1-8b-edge")
RULES_FILE = benchmark_rules(current_round(), "gpt-oss-120b")
CASES = [(name, scenario) for name in BENCHMARKS for scenario in load_benchmark(name).scenarios]
RUNS = [*CASES, ("gpt-oss-120b", Scenario.SINGLE_STREAM)]


@pytest.fixture(scope="module")
def readback():
    """LoadGen's settings by conf file, benchmark and scenario."""
    cases, asked = [(conf, *run) for conf, run in product(("user.conf", "quick.conf"), RUNS)], []
    for conf, name, scenario in cases:
        of = target(load_benchmark(name), scenario)
        asked.append((CONFIG_DIR / conf, of.model_key, of.scenario))
    answers = loadgen_reads(asked)
    assert {code for code, _ in answers} == {0}
    return {case: settings for case, (_, settings) in zip(cases, answers, strict=True)}


def target(benchmark, scenario):
    return ConfKey(benchmark.model_key(scenario), scenario.loadgen)


# benchmark, LoadGen key, performance rows, tokens, accuracy rows, tokens, server and interactive limits in ms
RULES = [
    ("gpt-oss-120b", "gpt-oss-120b", 6396, 10240, 4395, 32768, (3000, 80), (2000, 15)),
    ("deepseek-r1", "deepseek-r1", 4388, 20000, 4388, 20000, (2000, 80), (1500, 15)),
    ("llama3.1-8b", "llama3_1-8b", 13368, 128, 13368, 128, (2000, 100), (500, 30)),
]


@pytest.mark.parametrize(
    ("name", "key", "perf", "perf_tokens", "acc", "acc_tokens", "server", "interactive"), RULES
)
def test_rules(name, key, perf, perf_tokens, acc, acc_tokens, server, interactive):
    benchmark = load_benchmark(name)
    assert benchmark.official
    performance, accuracy = benchmark.dataset(accuracy=False), benchmark.dataset(accuracy=True)
    assert (performance.samples, performance.max_new_tokens) == (perf, perf_tokens)
    assert (accuracy.samples, accuracy.max_new_tokens) == (acc, acc_tokens)
    limits = {scenario: (at.ttft_ms, at.tpot_ms) for scenario, at in benchmark.latency_limits.items()}
    assert limits == {"server": server, "interactive": interactive}
    keys = [benchmark.model_key(scenario) for scenario in Scenario]
    assert keys == [key, key, f"{key}-interactive", key]


def test_gpt_oss_datasets():
    benchmark = load_benchmark("gpt-oss-120b")
    rules = benchmark.datasets.values()
    assert [(rule.file, rule.samples, rule.max_new_tokens, rule.reasoning_effort) for rule in rules] == [
        ("perf/perf_eval_ref.parquet", 6396, 10240, "low"),
        ("acc/acc_eval_ref.parquet", 4395, 32768, "high"),
        ("acc/acc_eval_compliance_gpqa.parquet", 990, 10240, "high"),
    ]
    assert str(benchmark.model_revision).startswith("b5c939d")
    questions = {"aime25": 30, "gpqa_diamond": 198, "livecodebench_v6": 1055}
    repeats = benchmark.datasets["accuracy"].repeats
    assert repeats == {"aime25": 8, "gpqa_diamond": 5, "livecodebench_v6": 3}
    assert sum(questions[name] * count for name, count in repeats.items()) == 4395


def test_llama_edge():
    """LoadGen's key of its own, 5,000 rows, no latency limits; else the datacenter's model and generation."""
    edge, datacenter = load_benchmark("llama3.1-8b-edge"), load_benchmark("llama3.1-8b")
    assert edge.official
    assert [edge.model_key(scenario) for scenario in edge.scenarios] == ["llama3_1-8b-edge"] * 2
    for accuracy in (False, True):
        rule = edge.dataset(accuracy=accuracy)
        assert (rule.file, rule.samples, rule.max_new_tokens) == ("sample_cnn_eval_5000.json", 5000, 128)
    assert (edge.latency_limits, edge.compliance) == ({}, {})
    deviating = [scenario for scenario in Scenario if scenario_deviations(edge, scenario)]
    assert deviating == [Scenario.SERVER, Scenario.INTERACTIVE]
    same = ("model", "model_revision", "vocabulary_size", "context_length", "generation")
    assert [getattr(edge, name) for name in same] == [getattr(datacenter, name) for name in same]
    # of the reference implementation's README
    assert datacenter.model_revision == "be673f326cab4cd22ccfef76109faf68e41aa5f1"


def test_scenarios_are_those_of_a_submission():
    rules = load_rules()
    assert set(BENCHMARKS) <= set(available_benchmarks())
    for name in available_benchmarks():
        benchmark = load_benchmark(name)
        assert benchmark.name == name
        assert set(benchmark.scenarios) == set(rules.suite_of(name)[1].allowed)


R1_LENGTH = (3497.60466, 4274.85014)


def rouge(*least):
    return {name: (value, math.inf) for name, value in zip(ROUGE, least, strict=True)}


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("gpt-oss-120b", {"exact_match": (82.2987, math.inf), "tokens_per_sample": (0, 10998.9)}),
        ("deepseek-r1", {"exact_match": (80.544618, math.inf), "tokens_per_sample": R1_LENGTH}),
        (
            "llama3.1-8b-edge",
            rouge(38.6694, 15.953553, 24.391125, 35.76276) | {"gen_len": (2746001.7, 3356224.3)},
        ),
        (
            "llama3.1-8b",
            rouge(38.391408, 15.748425, 24.250743, 35.43507) | {"gen_len": (7350879.6, 8984408.4)},
        ),
    ],
)
def test_accuracy_bounds(name, bounds):
    metrics = load_benchmark(name).accuracy
    assert list(metrics) == list(bounds)
    for metric, expected in bounds.items():
        assert metrics[metric].bounds == pytest.approx(expected, rel=1e-9)


def test_gpt_oss_compliance():
    compliance = load_benchmark("gpt-oss-120b").compliance
    assert sorted(compliance) == ["TEST07", "TEST09"]
    assert (compliance["TEST07"]["dataset"], compliance["TEST07"]["threshold"]) == ("compliance", 60.698)
    test09 = compliance["TEST09"]
    mean, tolerance = test09["reference_mean_output_tokens"], test09["tolerance"]
    assert test09["dataset"] == "performance"
    assert [round(mean * (1 - tolerance), 2), round(mean * (1 + tolerance), 2)] == [1150.38, 1406.02]


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_effort_ids_spell_the_effort(effort):
    ids = load_benchmark("gpt-oss-120b").reasoning_effort_ids[effort]
    assert decode(ids) == f"Reasoning: {effort}"


@pytest.mark.parametrize(("name", "scenario"), RUNS)
def test_loadgen_holds_what_is_locked(readback, name, scenario):
    settings = readback["user.conf", name, scenario]
    locked = locked_settings(load_benchmark(name), scenario)
    assert {key: settings[key] for key in locked} == locked


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_locks_what_would_change_it(name):
    benchmark = load_benchmark(name)
    locked = locked_settings(benchmark, benchmark.scenarios[-1])
    assert locked["min_duration_ms"] == 600_000
    assert locked["sample_concatenate_permutation"] is True
    assert locked["use_token_latencies"] is True
    assert {key: locked[key] for key in SEEDS} == SEEDS
    limits = {"ttft_latency", "tpot_latency"} if Scenario.SERVER in benchmark.scenarios else set()
    assert {"performance_sample_count_override", *limits} <= set(locked)


# the fewest queries of a run with user.conf: in Offline the complete dataset, however low target_qps is
FEWEST = [
    *(("gpt-oss-120b", scenario, 100) for scenario in ("server", "interactive", "single-stream")),
    ("gpt-oss-120b", "offline", 6396),
    ("deepseek-r1", "offline", 4388),
    ("llama3.1-8b", "offline", 13368),
    ("llama3.1-8b-edge", "offline", 5000),
]


@pytest.mark.parametrize(("name", "scenario", "queries"), FEWEST)
def test_fewest_queries_of_our_user_conf(readback, name, scenario, queries):
    assert readback["user.conf", name, scenario]["min_query_count"] == queries


@pytest.mark.parametrize(("name", "scenario"), CASES)
def test_our_user_conf_deviates_in_nothing_and_quick_conf_does(readback, name, scenario):
    """LoadGen reads every row of both."""
    benchmark = load_benchmark(name)
    found = {}
    for conf in ("user.conf", "quick.conf"):
        read = read_conf(CONFIG_DIR / conf, target(benchmark, scenario))
        assert (bool(read.rows), read.warnings) == (True, ())
        locked, samples = locked_settings(benchmark, scenario), benchmark.datasets["performance"].samples
        found[conf] = setting_deviations(locked, readback[conf, name, scenario], read.settings, samples)
    assert found["user.conf"] == ()
    assert {line.split()[1] for line in found["quick.conf"]} > {"min_duration_ms"}
    assert readback["quick.conf", name, scenario]["min_duration_ms"] <= 30_000


@pytest.mark.parametrize("name", ["gpt-oss-20b", "", "../configs/gpt-oss-120b", "user"])
def test_unknown_benchmark(name):
    with pytest.raises(ConfigError, match="gpt-oss-120b"):
        load_benchmark(name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("top_k = 0", "topk = 0"),
        ("least_weights_gb", "least_weight_gb"),  # it need not be there
        ("program_s", "programs_s"),
        ("ttft_ms = 3000", 'ttft_ms = "3000"'),
        ("reference = 83.13", ""),
        ("[loadgen]", "[loadgen"),
        ("min_duration_ms", "min_duration"),
    ],
)
def test_malformed_definition(tmp_path, old, new):
    """In the definition or in the round's file: both are named."""
    mine, rules = tmp_path / "mine.toml", tmp_path / "rules.toml"
    files = (CONFIG_DIR / "gpt-oss-120b.toml", mine), (RULES_FILE, rules)
    found = 0
    for source, target in files:
        text = source.read_text()
        found += old in text
        target.write_text(text.replace(old, new))
    assert found == 1
    with pytest.raises(ConfigError, match=r"(mine|rules)\.toml"):
        read_definition(mine, current_round(), rules)


def test_a_benchmark_without_interactive_says_so(tmp_path):
    text = (CONFIG_DIR / "gpt-oss-120b.toml").read_text()
    text = text.replace('interactive_model_key = "gpt-oss-120b-interactive"', "")
    (tmp_path / "mine.toml").write_text(text)
    benchmark = read_definition(tmp_path / "mine.toml", current_round(), tmp_path / "no_rules.toml")
    assert benchmark.model_key(Scenario.SERVER) == "gpt-oss-120b"
    with pytest.raises(ConfigError, match=r"gpt-oss-120b .*interactive .*offline, server"):
        benchmark.model_key(Scenario.INTERACTIVE)


# What a user.conf can ask for that makes a run easier than the rules' own, which is a deviation, and what the
# rules leave to the submitter: loads, and tests longer than they ask for.
SOFTER = [
    ("server", "*.Server.min_duration = 1000"),
    ("server", "*.Server.ttft_latency = 60000"),
    ("server", "*.Server.tpot_latency = 500"),
    ("server", "*.Server.use_token_latencies = 0"),
    ("offline", "*.Offline.sample_concatenate_permutation = 0"),
    ("offline", "*.Offline.performance_sample_count_override = 64"),
    ("offline", "*.Offline.performance_issue_same = 1"),
    ("offline", "*.Offline.performance_issue_unique = 1"),
    ("server", "*.Server.target_latency_percentile = 50"),
    ("interactive", "*.Server.target_latency_percentile = 90"),
    ("server", "*.Server.coalesce_queries = 1"),
    ("server", "*.Server.max_async_queries = 64"),
    ("server", "*.Server.infer_token_latencies = 1"),
    ("offline", "*.Offline.min_query_count = 1"),  # 660 samples at 1 sample/s: a part of the dataset
]
ALLOWED = [
    ("offline", "*.Offline.target_qps = 4212"),
    ("server", "*.Server.target_qps = 3956"),
    ("single-stream", "*.SingleStream.target_latency = 10"),
    ("offline", "*.Offline.min_query_count = 12792"),
    ("server", "*.Server.min_duration = 1200000"),
]


def test_a_softer_user_conf_deviates_and_what_is_left_to_the_submitter_does_not(tmp_path):
    benchmark, runs = load_benchmark("gpt-oss-120b"), {}
    for number, (scenario, row) in enumerate((*SOFTER, *ALLOWED)):
        path = tmp_path / f"{number}.conf"
        path.write_text(f"{row}\n")
        runs[scenario, row] = path, target(benchmark, Scenario(scenario))
    answers = loadgen_reads([(path, of.model_key, of.scenario) for path, of in runs.values()])
    deviating = []
    for (run, (path, of)), (_, settings) in zip(runs.items(), answers, strict=True):
        (key,) = asked = read_conf(path, of).settings
        found = setting_deviations(locked_settings(benchmark, Scenario(run[0])), settings, asked, 6396)
        if key in ("min_query_count", "target_qps") and run[0] == "offline":
            found += offline_deviations(settings, benchmark.dataset(accuracy=False))
        deviating += [run] * len(found)
    assert deviating == SOFTER
