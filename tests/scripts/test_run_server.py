"""The scripts that start servers: what they make of their options."""

import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.scripts.test_scripts import ROOT, assert_refused, run, stand_in

RUN_SERVER = ROOT / "sglang/run_server.sh"
VERSION = (ROOT / "sglang/VERSION").read_text().strip()
LAUNCH_DOCKER = ROOT / "launch_docker.sh"
VLLM_VERSION = (ROOT / "vllm/VERSION").read_text().strip()
RUN_VLLM = ROOT / "vllm/run_server.sh"

REVISIONS = {
    path.stem: tomllib.loads(path.read_text())["model_revision"] for path in (ROOT / "configs").glob("*.toml")
}
DEFAULTS = {
    "--model-path": "openai/gpt-oss-120b",
    "--revision": REVISIONS["gpt-oss-120b"],
    "--dp-size": "1",
    "--tp-size": "1",
    "--pp-size": "1",
    "--ep-size": "1",
    "--max-running-requests": "512",
    "--mem-fraction-static": "0.85",
    "--chunked-prefill-size": "16384",
    "--stream-interval": "500",
    "--enable-metrics": None,
    "--disable-radix-cache": None,
    "--host": "0.0.0.0",
}
EAGLE = {
    "--speculative-algorithm": "EAGLE3",
    "--speculative-draft-model-path": "nvidia/gpt-oss-120b-Eagle3-long-context",
    "--speculative-num-steps": "3",
    "--speculative-eagle-topk": "1",
    "--speculative-num-draft-tokens": "4",
}

OWN_HEAD = EAGLE | {"--speculative-algorithm": "EAGLE", "--speculative-draft-model-path": ...}
DEEPSEEK = {
    "--model-path": "deepseek-ai/DeepSeek-R1",
    "--revision": REVISIONS["deepseek-r1"],
    "--tp-size": "8",
    "--attn-dp-size": "8",
    "--context-length": "23145",
    "--trust-remote-code": None,
}
LLAMA = {
    "--model-path": "meta-llama/Llama-3.1-8B-Instruct",
    "--revision": REVISIONS["llama3.1-8b"],
    "--context-length": "4096",
    "--dtype": "bfloat16",
}


def dry_run(script: Path, *arguments: str, cwd: Path = ROOT, **environment: str) -> list[str]:
    """The words of the one command line that --dry-run prints."""
    result = run(script, *arguments, "--dry-run", cwd=cwd, **environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1
    if "$'" not in result.stdout:
        return shlex.split(result.stdout)
    split = [
        "bash",
        "-c",
        f"printf '%s\\0' {result.stdout}",
    ]  # letters beyond ASCII: shlex does not know them
    return subprocess.run(split, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]


def flags(words: list[str], after: str = "sglang.launch_server") -> dict[str, str | None]:
    """What follows the word ``after`` as flag -> value; a flag that comes twice fails."""
    parsed: dict[str, str | None] = {}
    rest = words[words.index(after) + 1 :]
    while rest:
        flag, *rest = rest
        assert flag not in parsed, f"{flag} comes twice"
        parsed[flag] = rest.pop(0) if rest and not rest[0].startswith("--") else None
    return parsed


def changed(defaults: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """``defaults`` with ``changes``, of which ``...`` is a flag that is not there."""
    return {flag: value for flag, value in {**defaults, **changes}.items() if value is not ...}


# What each command line of ours makes of the defaults.
COMMANDS = [
    ([], {}),
    (["--model_path", "org/model"], {"--model-path": "org/model", "--revision": ...}),
    (["--dp", "8"], {"--dp-size": "8", "--max-running-requests": "512"}),
    (["--dp-size", "2"], {"--dp-size": "2"}),
    (["--dp", "8", "--max-running-requests", "100"], {"--dp-size": "8", "--max-running-requests": "100"}),
    (
        ["--dp", "8", "--tp", "8", "--enable-dp-attention"],
        {
            "--dp-size": "8",
            "--tp-size": ...,
            "--tp": "8",
            "--enable-dp-attention": None,
            "--max-running-requests": "4096",
        },
    ),
    (
        ["--tp", "8", "--attn-dp-size", "4"],
        {"--tp-size": ..., "--tp": "8", "--attn-dp-size": "4", "--max-running-requests": "2048"},
    ),
    (["--stream_interval", "20"], {"--stream-interval": "20"}),
    (["--enable_prefix_caching"], {"--disable-radix-cache": ...}),
    (["--mem-fraction-static", "0.9"], {"--mem-fraction-static": "0.9"}),
    (["--tensor-parallel-size", "4"], {"--tp-size": ..., "--tensor-parallel-size": "4"}),
    (["--skip-tokenizer-init", "--port", "31000"], {"--skip-tokenizer-init": None, "--port": "31000"}),
    (["--served-model-name", "two words"], {"--served-model-name": "two words"}),
    (["--json-model-override-args", '{"a": "$HOME"}'], {"--json-model-override-args": '{"a": "$HOME"}'}),
    (["--enable_speculative_decode"], EAGLE),
    (["--eagle_path", "my/draft"], EAGLE | {"--speculative-draft-model-path": "my/draft"}),
    (
        ["--model_path", "/models/openai-gpt-oss-120b", "--enable_speculative_decode"],
        EAGLE | {"--model-path": "/models/openai-gpt-oss-120b", "--revision": ...},
    ),
    (
        ["--enable_speculative_decode", "--speculative-num-steps", "5"],
        EAGLE | {"--speculative-num-steps": "5", "--speculative-num-draft-tokens": "6"},
    ),
    (["--benchmark", "deepseek-r1"], DEEPSEEK),
    (
        ["--benchmark=deepseek-r1", "--dp", "4", "--max-running-requests", "128"],
        DEEPSEEK | {"--attn-dp-size": "4", "--max-running-requests": "128"},
    ),
    (
        ["--benchmark", "deepseek-r1", "--enable-dp-attention", "--tp", "16", "--dp", "16"],
        DEEPSEEK
        | {"--attn-dp-size": ..., "--dp-size": "16", "--enable-dp-attention": None, "--tp-size": ...}
        | {"--tp": "16", "--max-running-requests": "1024"},
    ),
    (
        ["--benchmark", "deepseek-r1", "--attn-dp-size", "2"],
        DEEPSEEK | {"--attn-dp-size": "2", "--max-running-requests": "128"},
    ),
    (
        ["--benchmark", "deepseek-r1", "--model_path", "/models/r1", "--enable_speculative_decode"],
        DEEPSEEK | OWN_HEAD | {"--model-path": "/models/r1", "--revision": ...},
    ),
    (
        ["--benchmark", "deepseek-r1", "--eagle_path", "my/draft", "--context-length", "9000"],
        DEEPSEEK | EAGLE | {"--speculative-draft-model-path": "my/draft", "--context-length": "9000"},
    ),
    (["--benchmark", "llama3.1-8b"], LLAMA),
    (["--benchmark", "llama3.1-8b-edge", "--dtype", "float16"], LLAMA | {"--dtype": "float16"}),
]


@pytest.mark.parametrize(("arguments", "changes"), COMMANDS, ids=lambda value: " ".join(value))
def test_run_server_turns_options_into_sglangs_flags(arguments, changes):
    words = dry_run(RUN_SERVER, *arguments)
    assert flags(words) == changed(DEFAULTS, changes)
    assert words[1:4] == ["-P", "-m", "sglang.launch_server"]


def test_pass_through_with_an_equals_sign_replaces_the_default():
    words = dry_run(RUN_SERVER, "--mem-fraction-static=0.7", "--host=127.0.0.1")
    assert "--mem-fraction-static=0.7" in words
    assert "--mem-fraction-static" not in words
    assert "--host" not in words


@pytest.mark.parametrize("script", [RUN_SERVER, LAUNCH_DOCKER], ids=lambda path: path.name)
def test_a_model_folder_that_exists_becomes_absolute(script, tmp_path):
    (tmp_path / "my model").mkdir()
    words = dry_run(script, "--model_path", "my model", "--eagle_path", "no/folder", cwd=tmp_path)
    assert flags(words)["--model-path"] == str(tmp_path / "my model")
    assert flags(words)["--speculative-draft-model-path"] == "no/folder"


DRAFT = "nvidia/gpt-oss-120b-Eagle3-long-context"
USAGE_ERRORS = [
    (["--attn-dp-size", "x"], "--attn-dp-size is 'x', expected an integer of at least 1"),
    (
        ["--model_path", "deepseek-ai/DeepSeek-R1", "--enable_speculative_decode"],
        "--model_path is deepseek-ai/DeepSeek-R1; name that model's own draft model",
    ),
    (
        ["--model_path", "openai/gpt-oss-20b", "--eagle_path", DRAFT],
        "is a draft model of openai/gpt-oss-120b",
    ),
    (["--dp"], "--dp needs a value"),
    (["--dp", "--stream_interval", "5"], "--dp needs a value"),
    (["--model_path="], "--model_path needs a value"),
    (["--dp", "0"], "--dp is '0', expected an integer of at least 1"),
    (["--stream_interval", "many"], "--stream_interval is 'many', expected an integer of at least 1"),
    (["--benchmark", "deepseek-r1", "--speculative-draft-model-path", DRAFT], "is a draft model of"),
    (["--benchmark", "deepseek-r1", f"--speculative-draft-model={DRAFT}"], "is a draft model of"),
    (
        ["--benchmark=deepseek-r1", "--model_path=R1-Distill", "--enable_speculative_decode"],
        "no head of its own",
    ),
    (["--benchmark", "llama3.1-8b", "--enable_speculative_decode"], "no draft model of llama3.1-8b is known"),
    (["--benchmark", "gpt-oss-20b"], "deepseek-r1, gpt-oss-120b"),
    (
        ["--enable_speculative_decode", "--speculative-num-steps", "x"],
        "--speculative-num-steps is 'x', expected an integer of at least 1",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE_ERRORS, ids=lambda value: "".join(value))
def test_run_server_says_what_is_wrong_in_one_line(arguments, message):
    assert_refused(RUN_SERVER, *arguments, message=message)


def test_run_server_without_sglang_names_the_remedy():
    """The working directory has a folder sglang/, which is not the package."""
    result = run(RUN_SERVER, PYTHON=sys.executable)
    assert result.returncode == 2
    assert "has no SGLang; run ./setup.sh --backend sglang" in result.stderr


def test_run_server_starts_python_without_the_repository_on_its_path(tmp_path):
    """An installed SGLang is found, though the working directory holds a folder of that name."""
    package = tmp_path / "site/sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text("import json, sys; print(json.dumps([sys.path, sys.argv[1:]]))")
    result = run(RUN_SERVER, "--a", "b c", PYTHON=sys.executable, PYTHONPATH=str(tmp_path / "site"))
    assert result.returncode == 0, result.stderr
    assert '"--a", "b c"]]' in result.stdout
    assert f'"{ROOT}"' not in result.stdout
    assert '""' not in result.stdout


# vllm/run_server.sh

VLLM_DEFAULTS = {
    "--revision": "b5c939de8f754692c1647ca79fbf85e8c1e70f8a",
    "--tensor-parallel-size": "1",
    "--data-parallel-size": "1",
    "--max-model-len": "40960",
    "--dtype": "auto",
    "--stream-interval": "20",
    "--generation-config": "vllm",
    "--no-enable-prefix-caching": None,
    "--port": "30000",
}
VLLM_COMMANDS = [
    ([], {}),
    (["--dp", "8"], {"--data-parallel-size": "8"}),
    (["-dp", "8", "-tp", "2"], {"--data-parallel-size": "8", "--tensor-parallel-size": "2"}),
    (["--tensor-parallel-size=2"], {"--tensor-parallel-size": "2"}),
    (["--max_model_len", "8192"], {"--max-model-len": "8192"}),
    (["--max-model-len=8192", "--dtype=float16"], {"--max-model-len": "8192", "--dtype": "float16"}),
    (["--port", "8000", "--max-num-seqs", "7"], {"--port": "8000", "--max-num-seqs": "7"}),
    (
        ["--generation-config", "auto", "--enforce-eager"],
        {"--generation-config": "auto", "--enforce-eager": None},
    ),
    (["--override-generation-config", '{"a": "$HOME"}'], {"--override-generation-config": '{"a": "$HOME"}'}),
    (["--revision", "main"], {"--revision": "main"}),
    (["--enable-prefix-caching"], {"--enable-prefix-caching": None, "--no-enable-prefix-caching": ...}),
]


@pytest.mark.parametrize(("arguments", "changes"), VLLM_COMMANDS, ids=lambda value: " ".join(value))
def test_options_become_vllms_flags(arguments, changes):
    words = dry_run(RUN_VLLM, *arguments)
    assert words[:3] == ["vllm", "serve", "openai/gpt-oss-120b"]
    assert flags(words, words[2]) == changed(VLLM_DEFAULTS, changes)


@pytest.mark.parametrize("definition", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_vllm_serves_each_benchmarks_model_with_room_for_its_answers(definition):
    known = tomllib.loads(definition.read_text())
    words = dry_run(RUN_VLLM, "--benchmark", definition.stem)
    given = flags(words, words[2])
    assert (words[2], given["--revision"]) == (known["model"], known["model_revision"])
    assert int(given["--max-model-len"]) > max(of["max_new_tokens"] for of in known["datasets"].values())


def test_vllms_defaults_for_llama():
    words = dry_run(RUN_VLLM, "--benchmark=llama3.1-8b-edge")
    expected = {"--max-model-len": "4096", "--dtype": "bfloat16", "--tensor-parallel-size": "1"}
    assert flags(words, words[2]).items() >= expected.items()


def test_the_rules_revision_is_that_of_the_benchmarks_own_model(tmp_path):
    (tmp_path / "my model").mkdir()
    words = dry_run(RUN_VLLM, "--model_path", "my model", cwd=tmp_path)
    assert words[2] == str(tmp_path / "my model")
    assert "--revision" not in words


def test_vllm_is_run_with_these_words(tmp_path):
    program = stand_in(tmp_path / "bin", "my-vllm", 'printf "%s\\n" "$@"')
    result = run(RUN_VLLM, "--chat-template", "a b", VLLM=str(program))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == dry_run(RUN_VLLM, "--chat-template", "a b")[1:]


VLLM_ERRORS = [
    (["--benchmark", "gpt-oss-20b"], "deepseek-r1, gpt-oss-120b"),
    (["--benchmark", "../configs/gpt-oss-120b"], "expected one of"),
    (["--dp", "0"], "--dp is '0', expected an integer of at least 1"),
    (["--max-model-len", "auto"], "--max-model-len is 'auto'"),
    (["--dtype"], "--dtype needs a value"),
]


@pytest.mark.parametrize(("arguments", "message"), VLLM_ERRORS, ids=lambda value: "".join(value))
def test_vllms_script_says_what_is_wrong_in_one_line(arguments, message):
    assert_refused(RUN_VLLM, *arguments, message=message)


def test_a_missing_vllm_is_a_usage_error():
    result = run(RUN_VLLM, VLLM="no-such-vllm")
    assert (result.returncode, result.stdout) == (2, "")
    assert "no-such-vllm is not installed" in result.stderr
