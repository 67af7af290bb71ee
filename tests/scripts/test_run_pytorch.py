"""pytorch/run_server.sh: what it makes of its options."""

import sys
import tomllib

import pytest

from tests.scripts.test_run_server import dry_run, flags
from tests.scripts.test_scripts import ROOT, assert_refused, run

RUN_PYTORCH = ROOT / "pytorch/run_server.sh"


@pytest.mark.parametrize(
    ("arguments", "launcher", "given"),
    [
        ([], [], {"--model-path": "openai/gpt-oss-120b", "--revision": ...}),
        (["--benchmark", "llama3.1-8b"], [], {"--model-path": ..., "--revision": ...}),
        (["--benchmark=deepseek-r1"], ["8"], {"--model-path": "deepseek-ai/DeepSeek-R1", "--revision": ...}),
        (["--benchmark=deepseek-r1", "--model", "org/m"], ["8"], {"--model-path": "org/m"}),
        (["--model_path", "org/m", "--tp", "2"], ["2"], {"--model-path": "org/m"}),
        (["--model_path", "org/m", "--dp", "1"], [], {"--model-path": "org/m"}),
        (
            ["--model_path=org/m", "--max-batch-size", "4", "--port", "31000", "--revision", "main"],
            [],
            {"--model-path": "org/m", "--max-batch-size": "4", "--port": "31000", "--revision": "main"},
        ),
    ],
    ids=lambda value: " ".join(value),
)
def test_options_of_the_pytorch_server(arguments, launcher, given):
    words = dry_run(RUN_PYTORCH, *arguments, PYTHON="python3.11")
    script = str(ROOT / "pytorch/serve.py")
    torchrun = ["-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    assert words[: words.index(script)] == ["python3.11", *(torchrun + launcher if launcher else [])]
    parsed = flags(words, script)
    assert parsed == {flag: parsed[flag] if value is ... else value for flag, value in given.items()}


@pytest.mark.parametrize("definition", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_pytorch_serves_each_benchmarks_model(definition):
    known = tomllib.loads(definition.read_text())
    given = flags(dry_run(RUN_PYTORCH, "--benchmark", definition.stem), str(ROOT / "pytorch/serve.py"))
    assert given == {"--model-path": known["model"], "--revision": known["model_revision"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--benchmark", "gpt-oss-20b"], "deepseek-r1, gpt-oss-120b"),
        (["--dp", "2"], "start a server for each replica"),
        (["--tp", "0"], "--tp is '0', expected an integer of at least 1"),
    ],
    ids=lambda value: "".join(value),
)
def test_pytorchs_script_reports_what_is_wrong_in_one_line(arguments, message):
    assert_refused(RUN_PYTORCH, *arguments, message=message)


def test_python_without_torch_is_a_usage_error():
    result = run(RUN_PYTORCH, PYTHON=sys.executable)
    assert (result.returncode, result.stdout) == (2, "")
    assert "has no PyTorch; run ./setup.sh --backend pytorch" in result.stderr
