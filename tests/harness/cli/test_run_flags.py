"""The command line: the flags and defaults that were asked for, quick help, exit code 2 for wrong usage."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import eval_flags
from harness.cli.run_flags import build_parser, parse_options
from harness.compliance import cli as compliance
from harness.config.api_key import api_key
from harness.config.options import available_benchmarks
from harness.config.scenario import Scenario
from harness.files import CONFIG_DIR
from tests.runs import run_here

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "run_mlperf.py"
NEEDED = ["--input-file", "perf.parquet"]

# flag, attribute, default
FLAGS = [
    ("--scenario", "scenario", "offline"),
    ("--input-file", "input_file", Path("perf.parquet")),
    ("--max-samples", "max_samples", None),
    ("--mlperf-conf", "mlperf_conf", None),
    ("--user-conf", "user_conf", CONFIG_DIR / "user.conf"),
    ("--accuracy", "accuracy", False),
    ("--output-dir", "output_dir", Path("mlperf_results")),
    ("--backend", "backend", "sglang"),
    ("--server-url", "server_url", ()),
    ("--dcgm-url", "dcgm_url", ()),
    ("--generation-config", "generation_config", None),
    ("--max-new-tokens", "max_new_tokens", None),
    ("--ca-file", "ca_file", None),
    ("--preflight-timeout", "preflight_timeout", 60.0),
    ("--trial-timeout", "trial_timeout", 900.0),
    ("--wait-for-servers", "wait_for_servers", None),
    ("--min-replicas", "min_replicas", None),
    ("--num-workers", "num_workers", None),
    ("--max-concurrency", "max_concurrency", None),
    ("--benchmark", "benchmark", "gpt-oss-120b"),
    ("--round", "round", "v6.1"),
    ("--audit-config", "audit_config", None),
    ("--first-token-timeout", "first_token_timeout", None),
    ("--timeout", "timeout", None),
    ("--stall-timeout", "stall_timeout", None),
    ("--stream", "stream", "auto"),
    ("--progress-timeout", "progress_timeout", None),
    ("--retries", "retries", 0),
    ("--fail-fast", "fail_fast", None),
    ("--no-fail-fast", "fail_fast", None),
    ("--max-failures", "max_failures", None),
    ("--resume", "resume", False),
    ("--no-report", "report", True),
    ("--metrics-port", "metrics_port", None),
    ("--dry-run", "dry_run", False),
    ("--log-level", "log_level", "info"),
]

# flag, text, attribute, value
VALUES = [
    ("--max-samples", "64", "max_samples", 64),
    ("--mlperf-conf", "a.conf", "mlperf_conf", Path("a.conf")),
    ("--user-conf", "b.conf", "user_conf", Path("b.conf")),
    ("--output-dir", "out", "output_dir", Path("out")),
    ("--generation-config", "g.json", "generation_config", Path("g.json")),
    ("--max-new-tokens", "128", "max_new_tokens", 128),
    ("--num-workers", "4", "num_workers", 4),
    ("--max-concurrency", "512", "max_concurrency", 512),
    ("--ca-file", "ca.pem", "ca_file", Path("ca.pem")),
    ("--preflight-timeout", "5.5", "preflight_timeout", 5.5),
    ("--trial-timeout", "6.5", "trial_timeout", 6.5),
    ("--wait-for-servers", "30m", "wait_for_servers", "30m"),
    ("--min-replicas", "496", "min_replicas", 496),
    ("--timeout", "1.5", "timeout", 1.5),
    ("--first-token-timeout", "2.5", "first_token_timeout", 2.5),
    ("--stall-timeout", "3.5", "stall_timeout", 3.5),
    ("--progress-timeout", "4.5", "progress_timeout", 4.5),
    ("--retries", "3", "retries", 3),
    ("--max-failures", "5", "max_failures", 5),
    ("--audit-config", "audit.config", "audit_config", Path("audit.config")),
    ("--metrics-port", "0.0.0.0:9400", "metrics_port", "0.0.0.0:9400"),
    *(("--stream", name, "stream", name) for name in ("auto", "on", "off")),
    *(("--scenario", name, "scenario", name) for name in Scenario),
    *(
        ("--backend", name, "backend", name)
        for name in ("sglang", "pytorch", "vllm", "trtllm", "openai", "embedded")
    ),
    *(("--benchmark", name, "benchmark", name) for name in ("gpt-oss-120b", "deepseek-r1", "llama3.1-8b")),
    *(("--log-level", name, "log_level", name) for name in ("debug", "info", "warning", "error")),
]

WRONG = [
    [],
    ["--accuracy"],
    [*NEEDED, "--scenario", "multi-stream"],
    [*NEEDED, "--mode", "accuracy"],
    [*NEEDED, "--mode", "offline", "--scenario", "server"],
    [*NEEDED, "--num-samples", "8", "--total-sample-count", "8"],
    [*NEEDED, "--dataset-path", "other.parquet"],
    [*NEEDED, "--num_workers", "many"],
    [*NEEDED, "--no_such_flag"],
    [*NEEDED, "-max_samples", "8"],
    [*NEEDED, "--backend", "triton"],
    [*NEEDED, "--benchmark", "gpt-oss-20b"],
    [*NEEDED, "--max-samples", "all"],
    [*NEEDED, "--max-samples", "1.5"],
    [*NEEDED, "--timeout", "long"],
    [*NEEDED, "--num-workers"],
    [*NEEDED, "--log-level", "loud"],
    [*NEEDED, "--no-such-flag"],
    [*NEEDED, "stray"],
    ["--input-file"],
]


def program(*arguments):
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(("flag", "attribute", "default"), FLAGS)
def test_defaults(flag, attribute, default):
    assert getattr(parse_options(NEEDED), attribute) == default


def test_the_flags_are_these_and_no_others():
    flags = {name for action in build_parser()._actions for name in action.option_strings}
    assert flags == {flag for flag, *_ in FLAGS} | {"--help", "-h"}


@pytest.mark.parametrize(("flag", "text", "attribute", "value"), VALUES)
def test_values(flag, text, attribute, value):
    assert getattr(parse_options([*NEEDED, flag, text]), attribute) == value


# words of other harnesses, and ours
SPELLINGS = [
    *(([flag, name], ["--scenario", "offline"]) for flag in ("--scenario", "--mode")
      for name in ("Offline", "OFFLINE", "offline")),
    *((["--scenario", name], ["--scenario", "single-stream"])
      for name in ("SingleStream", "single_stream", "Single-Stream", "singlestream")),
    (["--scenario", "Server"], ["--scenario", "server"]),
    (["--mode=Interactive"], ["--scenario", "interactive"]),
    (["--output_dir", "out_1"], ["--output-dir", "out_1"]),
    (["--max_new_tokens=16"], ["--max-new-tokens", "16"]),
    (["--no_fail_fast"], ["--no-fail-fast"]),
    (["--server_url", "http://a:1", "--server-url", "http://b_1:1"],
     ["--server-url", "http://a:1,http://b_1:1"]),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "ours"), SPELLINGS, ids=lambda words: " ".join(words))
def test_spellings_of_other_harnesses(typed, ours):
    given, expected = parse_options([*NEEDED, *typed]), parse_options([*NEEDED, *ours])
    if typed[0] == "--server_url":
        assert ",".join(given.server_url) == ",".join(expected.server_url)
    else:
        assert given == expected


def test_the_dataset_under_its_other_name():
    assert parse_options(["--dataset-path", "a.json"]) == parse_options(["--input-file", "a.json"])
    assert parse_options(["--dataset_path=a.json"]) == parse_options(["--input-file", "a.json"])


@pytest.mark.parametrize("flag", ["--total-sample-count", "--total_sample_count", "--num-samples"])
def test_a_synonym_that_limits_the_samples_is_a_warning(flag):
    given = parse_options([*NEEDED, flag, "8"])
    assert given.max_samples == 8
    (warning,) = given.warnings
    assert flag in warning and "--max-samples" in warning


def test_switches():
    arguments = parse_options([*NEEDED, "--accuracy", "--dry-run", "--resume", "--fail-fast"])
    assert arguments.accuracy is True
    assert arguments.dry_run is True
    assert arguments.resume is True
    assert arguments.fail_fast is True
    assert parse_options([*NEEDED, "--no-fail-fast"]).fail_fast is False


def test_server_url_is_repeatable():
    urls = ["http://a:1", "http://b:2,http://c:3"]
    given = parse_options([*NEEDED, "--server-url", urls[0], "--server-url", urls[1]])
    assert given.server_url == tuple(urls)


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_options(arguments)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("run_mlperf.py: error: ")


def test_choices_are_those_of_the_definitions():
    choices = {action.dest: action.choices for action in build_parser()._actions}
    assert tuple(choices["scenario"]) == tuple(Scenario)
    assert choices["benchmark"] == tuple(available_benchmarks())


def test_help_names_every_flag_and_the_exit_codes():
    done = program("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for flag, *_ in FLAGS:
        assert f"{flag} " in done.stdout.replace("]", " ").replace("\n", " ")
    text = " ".join(done.stdout.split())
    for words in ("0 valid", "2 usage", "3 server", "4 invalid", "130/143 interrupted"):
        assert words in text
    for default in ("offline", "mlperf_results", "sglang", "http://localhost:30000", "configs/user.conf"):
        assert re.search(rf"default: {re.escape(default)}", text)


def test_help_imports_nothing_heavy():
    code = f"""
import runpy, sys
sys.argv = ["run_mlperf.py", "--help"]
try:
    runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
except SystemExit as end:
    print(end.code, *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    status, *modules = done.stdout.splitlines()[-1].split()
    assert status == "0"
    assert {"harness", "argparse"} <= set(modules)
    heavy = {"numpy", "pandas", "pyarrow", "httpx", "msgspec", "mlperf_loadgen", "httptools", "asyncio"}
    assert heavy.isdisjoint(modules)


def test_a_wrong_value_is_one_line_and_exit_code_2(tmp_path):
    done = program("--input-file", str(tmp_path / "perf.parquet"), "--timeout", "nan")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("run_mlperf.py: error: --timeout is nan, expected a positive number of seconds")


MANY = "9" * 23  # more than 64 bits hold


# flag and value as they are typed, and what the one line names
@pytest.mark.parametrize(
    ("words", "exported", "backend", "warnings"),
    [
        ([], "", "sglang", 0),
        ([], "sglang", "sglang", 0),
        ([], "vllm", "vllm", 1),
        (["--backend", "sglang"], "vllm", "sglang", 0),
        (["--backend", "trtllm"], "nonsense", "trtllm", 0),
    ],
)
def test_the_environment_may_name_the_backend(words, exported, backend, warnings, monkeypatch):
    monkeypatch.setenv("MLPERF_BACKEND", exported)
    for options in (
        parse_options([*NEEDED, *words]),
        compliance.parse_options(["--test", "TEST07", *NEEDED, *words]).run,
        eval_flags.parse_options([*NEEDED, *words]),
    ):
        assert options.backend == backend
        assert sum("MLPERF_BACKEND" in warning for warning in options.warnings) == warnings


def test_an_unknown_backend_in_the_environment_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("MLPERF_BACKEND", "triton")
    with pytest.raises(SystemExit) as caught:
        parse_options(NEEDED)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "MLPERF_BACKEND in the environment is 'triton'" in line


ONE_LINE = [
    (["--scenario", "Multistream"], "--scenario"),
    (["--mode", "accuracy"], "--accuracy"),
    (["--acc"], "--acc"),
    (["--num-workers", MANY], "--num-workers"),
    (["--num-workers", "1000000000"], "--num-workers"),
    (["--num-workers", "9" * 5000], "--num-workers"),
    (["--max-concurrency", MANY], "--max-concurrency"),
    (["--max-concurrency", "1000000000"], "--max-concurrency"),
    (["--max-samples", MANY], "--max-samples"),
    (["--max-new-tokens", MANY], "--max-new-tokens"),
    (["--retries", MANY], "--retries"),
    (["--max-failures", MANY], "--max-failures"),
    (["--timeout", "1e300"], "--timeout"),
    (["--timeout", "inf"], "--timeout"),
    (["--stall-timeout", "1e18"], "--stall-timeout"),
    (["--server-url", "http://a..b:80"], "a..b"),
    (["--server-url", "http://.x:80"], ".x"),
    (["--server-url", f"http://{'x' * 64}:80"], "x" * 64),
    (["--server-url", "http://300.300.300.300:80"], "300.300.300.300"),
    (["--server-url", "http://xn--:80"], "xn--"),
    (["--backend", "embedded", "--server-url", "http://a:1"], "--server-url http://a:1"),
    (["--output-dir", ""], "--output-dir"),
    (["--output-dir", b"out\xff"], "--output-dir"),
    (["--user-conf", "/"], "--user-conf"),
    (["--user-conf", "/dev/zero"], "--user-conf"),
    (["--generation-config", "/dev/zero"], "--generation-config"),
    (["--audit-config", "FIFO"], "--audit-config"),
    (["--input-file", "/dev/zero"], "/dev/zero"),
    (["--input-file", "FIFO"], "fifo"),
]


@pytest.mark.parametrize(("words", "named"), ONE_LINE)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capfd, words, named):
    """Nothing is read without an end, started or written."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.chdir(tmp_path)
    typed = [fifo if word == "FIFO" else word for word in words]
    done = run_here(capfd, Path("mlperf_results"), "--input-file", tmp_path / "perf.parquet", *typed)
    assert (done.code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("run_mlperf.py: error: ")
    assert named in line
    assert len(line) < 700
    assert list(tmp_path.iterdir()) == [fifo]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"OPENAI_API_KEY": "o"}, "o"),
        ({"SGLANG_API_KEY": "s"}, "s"),
        ({"SGLANG_API_KEY": "s", "OPENAI_API_KEY": "o"}, "s"),
        ({"SGLANG_API_KEY": "", "OPENAI_API_KEY": ""}, None),
    ],
)
def test_api_key_comes_from_the_environment(monkeypatch, environment, expected):
    for name in ("SGLANG_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert api_key() == expected
