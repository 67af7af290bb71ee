"""compare_round.py on a made-up checkout with one benchmark's official numbers, and on a real one."""

import os
from pathlib import Path

import pytest

from harness.compliance.registry import find_test
from harness.config.benchmark import load_benchmark
from harness.submission.tree.round_rules import load_rules
from scripts import compare_round

CONF = """
*.*.qsl_rng_seed = 2085463073848966840
*.*.sample_index_rng_seed = 2747215439041700203
*.*.schedule_rng_seed = 16159082839903944936
*.Server.min_duration = 600000
*.Server.target_latency_percentile = 99
*.Offline.min_duration = 600000
""" + "".join(
    f"""
{model}.*.performance_sample_count_override = 6396
{model}.*.accuracy_sample_count_override = 4395
{model}.*.sample_concatenate_permutation = 1
{model}.*.use_token_latencies = 1
{model}.Server.ttft_latency = {ttft_ms}
{model}.Server.tpot_latency = {tpot_ms}
"""
    for model, ttft_ms, tpot_ms in (("gpt-oss-120b", 3000, 80), ("gpt-oss-120b-interactive", 2000, 15))
)
AUDIT = find_test(load_benchmark("gpt-oss-120b"), "TEST07").official_audit.render("TEST07")
CHECKER = {
    "MODEL_CONFIG": {
        "v6.1": {
            "models": [*load_rules().benchmarks],
            "model_mapping": load_rules().aliases,
            "seeds": load_rules().seeds,
            "required-scenarios-datacenter": {"gpt-oss-120b": ["Offline"]},
            "optional-scenarios-datacenter": {"gpt-oss-120b": ["Interactive", "Server"]},
            "accuracy-target": {"gpt-oss-120b": ("exact_match", 83.13 * 0.99)},
            "accuracy-upper-limit": {"gpt-oss-120b": ("TOKENS_PER_SAMPLE", 1.1 * 9999)},
            "performance-sample-count": {"gpt-oss-120b": 6396},
            "accuracy-sample-count": {"gpt-oss-120b": 4395},
            "dataset-size": {"gpt-oss-120b": 6396},
            "latency-constraint": {"gpt-oss-120b": {"Server": 60000000000}},
            "models_TEST07": ["gpt-oss-120b"],
        }
    },
    "LLM_LATENCY_LIMITS": {
        "gpt-oss-120b": {
            "Server": {"ttft": 3000000000, "tpot": 80000000},
            "Interactive": {"ttft": 2000000000, "tpot": 15000000},
        }
    },
    "SYSTEM_DESC_MEANINGFUL_RESPONSE_REQUIRED_FIELDS": [*load_rules().system.meaningful],
    "SYSTEM_DESC_REQUIRED_FIELDS": [*load_rules().system.fields],
    "SYSTEM_DESC_REQUIRED_FIELDS_NETWORK_MODE": [*load_rules().system.network],
    "SYSTEM_IMP_REQUIRED_FILES": [*load_rules().measurements.required],
    "VALID_AVAILABILITIES": ["available", "preview", "rdi"],
    "MAX_ACCURACY_LOG_SIZE": 10240,
    "FILE_SIZE_LIMIT_MB": 50,
    "MB_TO_BYTES": 1048576,
    "MS_TO_NS": 1000000,
    "TEST_DURATION_MS": 600000,
    "OFFLINE_MIN_SPQ_SINCE_V4": {"gpt-oss-120b": 6396},
    "REQUIRED_POWER_FILES": [*load_rules().power.power],
    "REQUIRED_PERF_FILES": ["mlperf_log_summary.txt", "mlperf_log_detail.txt"],
    "REQUIRED_PERF_POWER_FILES": ["spl.txt"],
    "RESULT_FIELD_ENDPOINTS": {"v6.1": {}},
    "ENDPOINTS_ALLOWED_MODELS": [*load_rules().endpoints_benchmarks],
}


@pytest.fixture
def compared(tmp_path, monkeypatch, capsys):
    """Exit code and differences by name, of gpt-oss-120b and TEST07, after a change of a file."""

    def run(old="", new=""):
        constants = "".join(f"{name} = {value!r}\n" for name, value in CHECKER.items())
        files = {compare_round._CONSTANTS: constants, compare_round._MLPERF_CONF: CONF}
        files["compliance/TEST07/gpt-oss-120b/audit.config"] = AUDIT
        files["compliance/TEST09/audit.config"] = ""
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(old, new) if old else text)
        monkeypatch.setattr(compare_round, "available_benchmarks", lambda: ["gpt-oss-120b"])
        code = compare_round.main([str(tmp_path)])
        lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
        return code, {name: line for name, line in lines.items() if "TEST09" not in line + name}

    return run


def test_no_difference(compared):
    assert compared()[1] == {}


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("16159082839903944936\n", "7\n", "mlperf.conf.schedule_rng_seed"),
        ("'tpot': 15000000", "'tpot': 16000000", "gpt-oss-120b.latency.interactive.tpot_ms"),
        ("latency = 2000\n", "latency = 9\n", "gpt-oss-120b.mlperf.conf.interactive.ttft_latency"),
        ("performance_issue_unique = 1", "mode = 2", "gpt-oss-120b.TEST07.performance_issue_unique"),
        ("82.2987", "82.4", "gpt-oss-120b.accuracy.exact_match.lowest"),
        ("['Interactive', 'Server']", "['Server']", "gpt-oss-120b.scenarios.one_of"),
        ("'whisper'", "'whisperer'", "benchmarks"),
        ("60.698", "61", "gpt-oss-120b.TEST07.test07_accuracy_threshold"),
    ],
)  # fmt: skip
def test_each_difference_is_named(compared, old, new, name):
    code, found = compared(old, new)
    assert (code, list(found)) == (1, [name])


def test_no_checkout(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        compare_round.main([str(tmp_path)])
    assert "mlcommons/inference" in capsys.readouterr().err


@pytest.mark.skipif(
    "HARNESS_MLCOMMONS_INFERENCE" not in os.environ, reason="names no mlcommons/inference checkout"
)
def test_a_real_checkout():
    assert compare_round.main([str(Path(os.environ["HARNESS_MLCOMMONS_INFERENCE"]))]) == 0
