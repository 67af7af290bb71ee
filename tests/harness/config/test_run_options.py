"""The command line: the flags and defaults that were asked for, quick help, exit code 2 for wrong usage."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.api_key import api_key
from harness.batch import batch_options
from harness.compliance import compliance_options
from harness.config.choices import available_benchmarks
from harness.config.run_options import build_parser, parse_options
from harness.config.scenario import Scenario
from harness.files import CONFIG_DIR
from harness.rows import eval_options
from tests.runs import ROOT, run_here

NEEDED = ["--input-file", "perf.parquet"]

# flag, default, text, value
FLAGS = [
    ("--scenario", "offline", "server", Scenario.SERVER),
    ("--input-file", Path("perf.parquet"), "a.json", Path("a.json")),
    ("--max-samples", None, "64", 64),
    ("--mlperf-conf", None, "a.conf", Path("a.conf")),
    ("--user-conf", CONFIG_DIR / "user.conf", "b.conf", Path("b.conf")),
    ("--accuracy", False, "", True),
    ("--stop-when-lost", False, "", True),
    ("--output-dir", None, "out", Path("out")),
    ("--backend", "sglang", "vllm", "vllm"),
    ("--api", None, "chat-ids", "chat-ids"),
    ("--tokenizer", None, "models/m", "models/m"),
    ("--server-url", (), "http://a:1", ("http://a:1",)),
    ("--dcgm-url", (), "http://a:1", ("http://a:1",)),
    ("--generation-config", None, "g.json", Path("g.json")),
    ("--max-new-tokens", None, "128", 128),
    ("--ca-file", None, "ca.pem", Path("ca.pem")),
    ("--preflight-timeout", 60.0, "5.5", 5.5),
    ("--trial-timeout", 900.0, "6.5", 6.5),
    ("--wait-for-servers", None, "30m", 1800.0),
    ("--min-replicas", None, "496", 496),
    ("--num-workers", None, "4", 4),
    ("--max-concurrency", None, "512", 512),
    ("--benchmark", "gpt-oss-120b", "llama3.1-8b", "llama3.1-8b"),
    ("--round", "v6.1", "v6.0", "v6.0"),
    ("--audit-config", None, "audit.config", Path("audit.config")),
    ("--first-token-timeout", None, "2.5", 2.5),
    ("--timeout", None, "1.5", 1.5),
    ("--stall-timeout", None, "3.5", 3.5),
    ("--stream", "auto", "off", "off"),
    ("--progress-timeout", None, "4.5", 4.5),
    ("--retries", 0, "3", 3),
    ("--fail-fast", None, "", True),
    ("--no-fail-fast", None, "", False),
    ("--max-failures", None, "5", 5),
    ("--resume", False, "", True),
    ("--restart", False, "", True),
    ("--no-report", True, "", False),
    ("--metrics-port", None, "0.0.0.0:9400", "0.0.0.0:9400"),
    ("--official", False, "", True),
    ("--dry-run", False, "", True),
    ("--log-level", "info", "debug", "debug"),
]
CHOICES = [
    *(("--stream", name) for name in ("auto", "on")),
    *(("--scenario", name) for name in Scenario),
    *(("--backend", name) for name in ("sglang", "pytorch", "trtllm", "openai", "embedded")),
    *(("--benchmark", name) for name in available_benchmarks()),
    *(("--log-level", name) for name in ("info", "warning", "error")),
]

WRONG = [
    [*NEEDED, "--mode", "offline", "--scenario", "server"],
    [*NEEDED, "--num-samples", "8", "--total-sample-count", "8"],
    [*NEEDED, "--results", "a", "--output-dir", "b"],
    [*NEEDED, "--num_workers", "many"],
    [*NEEDED, "--no_such_flag"],
    [*NEEDED, "-max_samples", "8"],
    [*NEEDED, "--backend", "triton"],
    [*NEEDED, "--benchmark", "gpt-oss-20b"],
    [*NEEDED, "--timeout", "long"],
    [*NEEDED, "--log-level", "loud"],
    [*NEEDED, "stray"],
    ["--input-file"],
]


def attribute(flag):
    return flag.removeprefix("--no" if flag.startswith("--no-") else "--").strip("-").replace("-", "_")


@pytest.mark.parametrize(("flag", "default", "text", "value"), FLAGS)
def test_defaults_and_values(flag, default, text, value):
    assert getattr(parse_options(NEEDED), attribute(flag)) == default
    assert getattr(parse_options([*NEEDED, flag, *text.split()]), attribute(flag)) == value


@pytest.mark.parametrize(("flag", "name"), CHOICES)
def test_choices(flag, name):
    assert getattr(parse_options([*NEEDED, flag, name]), attribute(flag)) == name


def test_the_flags_are_these_and_no_others():
    flags = {name for action in build_parser()._actions for name in action.option_strings}
    assert flags == {flag for flag, *_ in FLAGS} | {"--help", "-h", "--version", "--results"}


# words of other harnesses, and ours
SPELLINGS = [
    ("--mode Offline", "--scenario offline"),
    ("--mode=Interactive", "--scenario interactive"),
    ("--scenario SingleStream", "--scenario single-stream"),
    ("--output_dir out_1", "--output-dir out_1"),
    ("--max_new_tokens=16", "--max-new-tokens 16"),
    ("--no_fail_fast", "--no-fail-fast"),
    ("--results out", "--output-dir out"),
    ("--output-log-dir out", "--output-dir out"),
    (
        "--server_url http://a:1 --server-url http://b_1:1",
        "--server-url http://a:1 --server-url http://b_1:1",
    ),
    ("--server-url http://a:1 http://b:1", "--server-url http://a:1 --server-url http://b:1"),
]


@pytest.mark.parametrize(("typed", "ours"), SPELLINGS)
def test_spellings_of_other_harnesses(typed, ours):
    assert parse_options([*NEEDED, *typed.split()]) == parse_options([*NEEDED, *ours.split()])


def test_the_dataset_under_its_other_name():
    assert parse_options(["--dataset_path=perf.parquet"]) == parse_options(NEEDED)


@pytest.mark.parametrize("flag", ["--total_sample_count", "--num-samples"])
def test_a_synonym_that_limits_the_samples_is_a_warning(flag):
    given = parse_options([*NEEDED, flag, "8"])
    assert given.max_samples == 8
    (warning,) = given.warnings
    assert flag in warning and "--max-samples" in warning


def test_vllm_is_a_backend_here():
    given = parse_options([*NEEDED, "--vllm"])
    assert given.backend == "vllm"
    (warning,) = given.warnings
    assert "--vllm is read as --backend vllm" in warning


# what users of other harnesses type first, and what the one line names
ELSEWHERE = [
    (["--model-path", "meta-llama/Llama-3.1-8B-Instruct"], "--benchmark"),
    (["--model_name", "m"], "run_server.sh --model_path"),
    (["--dtype", "bfloat16"], "run_server.sh"),
    (["--batch_size=1"], "run_server.sh"),
    (["--dp", "2"], "run_server.sh"),
    (["--tp-size=8"], "run_server.sh"),
    (["--target-qps", "20"], "*.Server.target_qps = 10"),
    (["--request-rate", "20"], "--user-conf"),
    (["--base-url", "http://n1:30000"], "--server-url http://HOST:PORT"),
    (["--port", "30000"], "--server-url http://HOST:PORT"),
    (["--api-key", "k"], "OPENAI_API_KEY"),
    (["--endpoint", "/v1/chat/completions"], "--api"),
    (["--mlperf-accuracy-file", "l.json"], "./mlperf score --mlperf-log FILE"),
    (
        ["/models/gpt-oss-120b.bin", "-m", "getp", "-i", "in", "-o", "out"],
        "./mlperf prompts run -i FILE -o FILE",
    ),
    (["--lg-model-name", "llama3_1-8b"], "'--benchmark' names the rules"),
    (["--api-server", "http://n1:8000"], "--server-url http://HOST:PORT"),
    (["--api-model-name", "m"], "omit the flag"),
    (["--log-dir", "d"], "--results DIR"),
    (["--skip-samples", "8"], "--max-samples"),
    (["--enable-log-trace"], "requests.parquet"),
    (["--test_mode=AccuracyOnly"], "--accuracy"),
    (["--benchmark", "llama3.1-8b-interactive"], "did you mean llama3.1-8b?"),
    (["--backend", "llama_cpp"], "'openai' is for a llama.cpp server of yours"),
    (["--backend", "llamacpp"], "'embedded' starts a small one here"),
    (["--backend=triton"], "'trtllm' is for TensorRT-LLM's trtllm-serve"),
    (["--backend", "vllm_openai"], "did you mean vllm?"),
    (["--benchmark", "llama2-70b"], "invalid choice: 'llama2-70b'"),
    (["--user-cnf", "my.conf"], "did you mean --user-conf?"),
    (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
]


@pytest.mark.parametrize(("words", "named"), ELSEWHERE)
@pytest.mark.parametrize("needed", [NEEDED, []])
def test_what_belongs_elsewhere_is_named_before_what_is_missing(needed, words, named, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_options([*needed, *words])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "--max_new_tokens", "8"], "--positions N"),
        (["generate", "-i", "Hi"], "the prompt is an argument of its own"),
        (["chat", "--port", "30000"], "--server-url http://HOST:PORT"),
    ],
)
def test_what_prompts_say_otherwise_is_named(words, named, capsys):
    with pytest.raises(SystemExit):
        batch_options.parse_options(words)
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parse", "words", "flag"),
    [
        (eval_options.parse_options, [], "--log-dir=d"),
        (eval_options.parse_options, [], "--enable-log-trace"),
        (batch_options.parse_options, ["run"], "--skip-samples=8"),
    ],
)
def test_what_only_runs_of_loadgen_have_is_named_by_no_other_program(parse, words, flag, capsys):
    with pytest.raises(SystemExit):
        parse([*words, flag])
    assert f"unrecognized arguments: {flag}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_options(arguments)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("run_mlperf.py: error: ")


def test_help_imports_nothing_heavy():
    code = """
import runpy, sys
sys.argv = ["run_mlperf.py", "--help"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    print(end.code, *sorted({name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120, cwd=ROOT
    )
    status, *modules = done.stdout.splitlines()[-1].split()
    assert status == "0"
    assert {"harness", "argparse"} <= set(modules)
    heavy = {"numpy", "pandas", "pyarrow", "httpx", "msgspec", "mlperf_loadgen", "httptools", "asyncio"}
    assert heavy.isdisjoint(modules)


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
        compliance_options.parse_options(["--test", "TEST07", *NEEDED, *words]).run,
        eval_options.parse_options([*NEEDED, *words]),
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


MANY = "9" * 23  # more than 64 bits hold
# flag and value as they are typed, and what the one line names
ONE_LINE = [
    (["--scenario", "Multistream"], "--scenario"),
    (["--mode", "accuracy"], "--accuracy"),
    (["--acc"], "--acc"),
    (["--num-workers", "1000000000"], "--num-workers"),
    (["--num-workers", "9" * 5000], "--num-workers"),
    (["--max-concurrency", "1000000000"], "--max-concurrency"),
    (["--max-samples", MANY], "--max-samples"),
    (["--max-new-tokens", MANY], "--max-new-tokens"),
    (["--retries", MANY], "--retries"),
    (["--max-failures", MANY], "--max-failures"),
    (["--timeout", "1e300"], "--timeout"),
    (["--stall-timeout", "1e18"], "--stall-timeout"),
    (["--server-url", f"http://{'x' * 64}:80"], "x" * 64),
    (["--backend", "embedded", "--server-url", "http://a:1"], "--server-url http://a:1"),
    (["--backend", "embedded", "--server-url", "http://me:secret@a:1"], "--server-url has credentials"),
    (["--accuracy", "--resume", "--restart"], "--resume and --restart"),
    (["--output-dir", ""], "--output-dir"),
    (["--output-dir", b"out\xff"], "--output-dir"),
    (["--user-conf", "/dev/zero"], "--user-conf"),
    (["--audit-config", "FIFO"], "--audit-config"),
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


def test_a_working_directory_that_is_no_text_is_refused(tmp_path, monkeypatch, capsys):
    """Under LC_ALL=C PYTHONUTF8=0 only ASCII is: a dataset there was "not a parquet file; download it"."""
    folder = tmp_path / os.fsdecode(b"out\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as caught:
        parse_options(NEEDED)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the working directory '" in line and "out\\udcff' is not text" in line


@pytest.mark.parametrize(
    ("sglang", "openai", "expected"),
    [(None, None, None), (None, "o", "o"), ("s", None, "s"), ("s", "o", "s"), ("", "", None)],
)
def test_api_key_comes_from_the_environment(monkeypatch, sglang, openai, expected):
    for name, value in (("SGLANG_API_KEY", sglang), ("OPENAI_API_KEY", openai)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert api_key() == expected
