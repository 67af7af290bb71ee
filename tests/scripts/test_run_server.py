"""The scripts that start servers: what they make of their options."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from harness.config.benchmark import load_benchmark
from harness.record.settled import DUMMY
from tests.kit import PATIENCE_S, free_ports, needs_curl, wait_until
from tests.scripts.test_scripts import ROOT, run

RUN_SERVER, RUN_VLLM, RUN_PYTORCH = (
    ROOT / backend / "run_server.sh" for backend in ("sglang", "vllm", "pytorch")
)
BENCHMARKS = {path.stem: tomllib.loads(path.read_text()) for path in (ROOT / "configs").glob("*.toml")}
REVISIONS = {name: known["model_revision"] for name, known in BENCHMARKS.items()}


def dry_run(script: Path, *arguments: str, cwd: Path = ROOT, **environment: str) -> list[str]:
    """The words of the one command line that --dry-run prints."""
    result = run(script, *arguments, "--dry-run", cwd=cwd, **environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1
    if "$'" not in result.stdout:
        return shlex.split(result.stdout)
    split = f"printf '%s\\0' {result.stdout}"  # letters beyond ASCII: shlex does not know them
    done = subprocess.run(["bash", "-c", split], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def flags(words: list[str]) -> dict[str, str | None]:
    """Flag -> value; a flag that comes twice fails."""
    parsed: dict[str, str | None] = {}
    while words:
        (flag, is_one_word, value), *words = words[0].partition("="), *words[1:]
        assert flag not in parsed, f"{flag} comes twice"
        parsed[flag] = value if is_one_word else None
        if not is_one_word and words and not words[0].startswith("--"):
            parsed[flag] = words.pop(0)
    return parsed


def changed(defaults: str, *changes: str) -> dict[str, str | None]:
    """The flags of ``defaults`` and ``changes``; one with the value ``...`` is not there."""
    given: dict[str, str | None] = {}
    for line in (defaults, *changes):
        given |= flags(shlex.split(line))
    return {flag: value for flag, value in given.items() if value != "..."}


# sglang/run_server.sh

DEFAULTS = f"""--model-path openai/gpt-oss-120b --revision {REVISIONS["gpt-oss-120b"]} --host 0.0.0.0
    --dp-size 1 --tp-size 1 --pp-size 1 --ep-size 1 --max-running-requests 512 --mem-fraction-static 0.85
    --chunked-prefill-size 16384 --stream-interval 500 --enable-metrics --disable-radix-cache"""
DRAFT, DRAFT_REVISION = "nvidia/gpt-oss-120b-Eagle3-long-context", "633caf45f31288cbb70ee237f7c939db707ecc94"
EAGLE = f"""--speculative-algorithm EAGLE3 --speculative-draft-model-path {DRAFT}
    --speculative-draft-model-revision {DRAFT_REVISION}
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"""
NO_REVISION = "--speculative-draft-model-revision ..."
MY_DRAFT = f"--speculative-draft-model-path my/draft {NO_REVISION}"
OWN_HEAD = f"--speculative-algorithm EAGLE --speculative-draft-model-path ... {NO_REVISION}"
DEEPSEEK = f"""--model-path deepseek-ai/DeepSeek-R1 --revision {REVISIONS["deepseek-r1"]}
    --tp-size 8 --attn-dp-size 8 --context-length 23145 --trust-remote-code"""
LLAMA = f"""--model-path meta-llama/Llama-3.1-8B-Instruct --revision {REVISIONS["llama3.1-8b"]}
    --context-length 4096 --dtype bfloat16"""
PASSED = """--skip-tokenizer-init --served-model-name 'two words' --port 31000 --mem-fraction-static 0.9
    --json-model-override-args '{"a": "$HOME"}'"""
# Each command line of ours, and what it makes of the defaults.
COMMANDS = [
    ("",),
    ("--model_path org/model", "--model-path org/model --revision ..."),
    ("--model_path openai/gpt-oss-120b",),
    ("--dp 8", "--dp-size 8"),
    ("--dp-size 2 --max-running-requests 100", "--dp-size 2 --max-running-requests 100"),
    (
        "--dp 8 --tp 8 --enable-dp-attention",
        "--dp-size 8 --tp-size ... --tp 8 --enable-dp-attention --max-running-requests 4096",
    ),
    ("--tp 8 --attn-dp-size 4", "--tp-size ... --tp 8 --attn-dp-size 4 --max-running-requests 2048"),
    ("--stream_interval 20 --enable_prefix_caching", "--stream-interval 20 --disable-radix-cache ..."),
    ("--tensor-parallel-size 4", "--tp-size ... --tensor-parallel-size 4"),
    ("--mem-fraction-static=0.7 --host=127.0.0.1", "--mem-fraction-static 0.7 --host 127.0.0.1"),
    (PASSED, PASSED),
    ("--enable_speculative_decode", EAGLE),
    ("--eagle_path my/draft", EAGLE, MY_DRAFT),
    (
        "--enable_speculative_decode --speculative-draft-model my/draft",
        EAGLE,
        f"--speculative-draft-model-path ... --speculative-draft-model my/draft {NO_REVISION}",
    ),
    (
        "--enable_speculative_decode --speculative-draft-model-revision main",
        EAGLE,
        "--speculative-draft-model-revision main",
    ),
    (
        "--model_path /models/openai-gpt-oss-120b --enable_speculative_decode",
        EAGLE,
        "--model-path /models/openai-gpt-oss-120b --revision ...",
    ),
    (
        "--enable_speculative_decode --speculative-num-steps 5",
        EAGLE,
        "--speculative-num-steps 5 --speculative-num-draft-tokens 6",
    ),
    ("--benchmark deepseek-r1", DEEPSEEK),
    (
        "--benchmark=deepseek-r1 --dp 4 --max-running-requests 128",
        DEEPSEEK,
        "--attn-dp-size 4 --max-running-requests 128",
    ),
    (
        "--benchmark deepseek-r1 --enable-dp-attention --tp 16 --dp 16",
        DEEPSEEK,
        "--attn-dp-size ... --dp-size 16 --enable-dp-attention --tp-size ... --tp 16",
        "--max-running-requests 1024",
    ),
    ("--benchmark deepseek-r1 --attn-dp-size 2", DEEPSEEK, "--attn-dp-size 2 --max-running-requests 128"),
    (
        "--benchmark deepseek-r1 --model_path /models/r1 --enable_speculative_decode",
        *(DEEPSEEK, EAGLE, OWN_HEAD),
        "--model-path /models/r1 --revision ...",
    ),
    (
        "--benchmark deepseek-r1 --eagle_path my/draft --context-length 9000",
        *(DEEPSEEK, EAGLE, MY_DRAFT),
        "--context-length 9000",
    ),
    ("--benchmark llama3.1-8b", LLAMA),
    ("--benchmark llama3.1-8b-edge --dtype float16", LLAMA, "--dtype float16"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_run_server_turns_options_into_sglangs_flags(command):
    arguments, *changes = command
    words = dry_run(RUN_SERVER, *shlex.split(arguments))
    assert words[1:4] == ["-P", "-m", "sglang.launch_server"]
    assert flags(words[4:]) == changed(DEFAULTS, *changes)


@pytest.mark.parametrize("value", ["1", "true", "Yes", "y"])
def test_the_rust_server_has_one_rank_at_a_port(value):
    """SGLang 0.5.23 would load the weights for all ranks and then end: the port is in use."""
    result = run(RUN_SERVER, "--dp", "4", "--dry-run", SGLANG_RUST_SERVER=value)
    assert (result.returncode, result.stdout) == (2, "")
    assert "the Rust server has no --dp 4; start 4 servers" in result.stderr
    assert "--server-url http://localhost:30000-30003" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_servers_of_ranks_follow_the_port():
    result = run(RUN_SERVER, "--dp", "4", "--port", "40000", "--dry-run", SGLANG_RUST_SERVER="1")
    assert "run_server.sh --port 40001)" in result.stderr
    assert "--server-url http://localhost:40000-40003" in result.stderr


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("1", ""),
        ("1", "--benchmark deepseek-r1"),  # its ranks have a port each
        ("1", "--dp 8 --tp 8 --enable-dp-attention"),
        ("0", "--dp 4"),
        ("", "--dp 4"),
    ],
)
def test_the_rust_server_starts_with_other_ranks(value, words):
    assert dry_run(RUN_SERVER, *words.split(), SGLANG_RUST_SERVER=value)


@pytest.mark.parametrize("script", [RUN_SERVER, RUN_VLLM, RUN_PYTORCH], ids=lambda path: path.parent.name)
@pytest.mark.parametrize("model", ["my model", "openai/gpt-oss-120b"])
def test_a_model_folder_that_exists_becomes_absolute(script, model, tmp_path):
    """The rules' revision is that of the benchmark's own model by name; a folder has none."""
    (tmp_path / model).mkdir(parents=True)
    words = dry_run(script, "--model_path", model, cwd=tmp_path)
    assert str(tmp_path / model) in words
    assert "--revision" not in words


@pytest.mark.parametrize("script", [RUN_SERVER, RUN_VLLM, RUN_PYTORCH], ids=lambda path: path.parent.name)
def test_the_benchmarks_model_by_name_has_the_rules_revision(script):
    words = dry_run(script, "--model_path", "openai/gpt-oss-120b")
    assert words[words.index("--revision") + 1] == REVISIONS["gpt-oss-120b"]
    words = dry_run(script, "--model_path", "openai/gpt-oss-120b", "--revision", "main")
    assert words.count("--revision") == 1 and words[words.index("--revision") + 1] == "main"


@pytest.mark.parametrize(
    ("script", "environment", "message"),
    [
        # The working directory has a folder sglang/, which is not the package.
        (RUN_SERVER, {"PYTHON": sys.executable}, "has no SGLang; run ./setup.sh --backend sglang"),
        (RUN_VLLM, {"VLLM": "no-such-vllm"}, "no-such-vllm is not installed"),
        (RUN_PYTORCH, {"PYTHON": sys.executable}, "has no PyTorch; run ./setup.sh --backend pytorch"),
    ],
)
def test_a_server_that_is_not_installed_is_a_usage_error(script, environment, message):
    result = run(script, **environment)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


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


# --background

# A package in SGLang's place: what it prints, and whether it answers /health before it ends.
SERVER = """
import http.server, os, sys, time

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

print("loading")
print(*sys.argv[1:])
if "--never-ready" in sys.argv:
    time.sleep(3600)
if "--die" in sys.argv:
    sys.exit("CUDA out of memory")
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""


@pytest.fixture
def background(tmp_path):
    """Starts that server in the background; what it started is ended."""
    package = tmp_path / "site/sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(SERVER)
    started = []

    def start(*words):
        environment = {
            "PYTHON": sys.executable,
            "PYTHONPATH": str(tmp_path / "site"),
            "PYTHONUNBUFFERED": "1",
        }
        done = run(RUN_SERVER, *words, "--background", str(tmp_path / "server.log"), **environment)
        started.extend(re.findall(r"kill (\d+)", done.stdout))
        return done

    yield start
    for pid in started:
        os.kill(int(pid), signal.SIGKILL)


@needs_curl
def test_a_server_in_the_background_is_ready_when_the_script_returns(background, tmp_path):
    port = str(free_ports(1))
    done = background("--port", port)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"ready: http://localhost:{port} " in done.stdout
    assert "--port" in (tmp_path / "server.log").read_text()
    with urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
        assert answer.status == 200
    again = background("--port", port)
    assert again.returncode == 2 and "answers" in again.stderr  # it would be taken for the new one


@needs_curl
def test_a_server_that_died_ends_the_wait_with_its_last_lines(background):
    done = background("--port", str(free_ports(1)), "--die")
    assert (done.returncode, done.stdout) == (3, "")
    assert "CUDA out of memory\nrun_server.sh: the server ended before it was ready" in done.stderr


@needs_curl
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_wait_that_is_ended_stops_the_server(signum, code, background, tmp_path):
    log = tmp_path / "server.log"
    words = ("--port", str(free_ports(1)), "--never-ready", "--background", str(log))
    environment = {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "site"), "PYTHONUNBUFFERED": "1"}
    script = subprocess.Popen([RUN_SERVER, *words], env=os.environ | environment)
    try:
        wait_until(lambda: log.is_file() and "loading" in log.read_text())
        (server,) = [one for one in psutil.Process(script.pid).children() if "python" in one.name()]
        script.send_signal(signum)
        assert script.wait(PATIENCE_S) == code
        server.wait(PATIENCE_S)
    finally:
        script.kill()
        script.wait()


# vllm/run_server.sh

VLLM_DEFAULTS = f"""--revision {REVISIONS["gpt-oss-120b"]} --tensor-parallel-size 1 --data-parallel-size 1
    --max-model-len 40960 --dtype auto --stream-interval 20 --generation-config vllm
    --no-enable-prefix-caching --port 30000"""
VLLM_PASSED = """--generation-config auto --enforce-eager --revision main --port 8000 --max-num-seqs 7
    --override-generation-config '{"a": "$HOME"}'"""


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ("", ""),
        ("--dp 8", "--data-parallel-size 8"),
        ("-dp 8 -tp 2", "--data-parallel-size 8 --tensor-parallel-size 2"),
        ("--tensor-parallel-size=2", "--tensor-parallel-size 2"),
        ("--max_model_len 8192", "--max-model-len 8192"),
        ("--max-model-len=8192 --dtype=float16", "--max-model-len 8192 --dtype float16"),
        (VLLM_PASSED, VLLM_PASSED),
        ("--enable-prefix-caching", "--enable-prefix-caching --no-enable-prefix-caching ..."),
    ],
)
def test_options_become_vllms_flags(arguments, changes):
    words = dry_run(RUN_VLLM, *shlex.split(arguments))
    assert words[:3] == ["vllm", "serve", "openai/gpt-oss-120b"]
    assert flags(words[3:]) == changed(VLLM_DEFAULTS, changes)


def test_vllms_defaults_for_llama():
    words = dry_run(RUN_VLLM, "--benchmark=llama3.1-8b-edge")
    expected = changed("--max-model-len 4096 --dtype bfloat16 --tensor-parallel-size 1")
    assert flags(words[3:]).items() >= expected.items()


# pytorch/run_server.sh

SERVE = str(ROOT / "pytorch/serve.py")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_benchmarks_model_is_served_with_room_for_its_answers(name):
    known = BENCHMARKS[name]
    words = dry_run(RUN_VLLM, "--benchmark", name)
    given = flags(words[3:])
    assert (words[2], given["--revision"]) == (known["model"], known["model_revision"])
    assert int(given["--max-model-len"]) > max(of["max_new_tokens"] for of in known["datasets"].values())
    words = dry_run(RUN_PYTORCH, "--benchmark", name)
    assert words[words.index(SERVE) + 1 :] == [
        *("--model-path", known["model"]),
        *("--revision", known["model_revision"]),
    ]


@pytest.mark.parametrize(
    ("arguments", "processes", "given"),
    [
        ("--benchmark=deepseek-r1 --model org/m", "8", "--model-path org/m"),
        ("--model_path org/m --tp 2", "2", "--model-path org/m"),
        ("--model_path org/m --dp 1", None, "--model-path org/m"),
        (
            "--model_path=org/m --max-batch-size 4 --port 31000 --revision main",
            None,
            "--model-path org/m --max-batch-size 4 --port 31000 --revision main",
        ),
    ],
)
def test_options_of_the_pytorch_server(arguments, processes, given):
    words = dry_run(RUN_PYTORCH, *arguments.split(), PYTHON="python3.11")
    torchrun = ["-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    assert words == ["python3.11", *(torchrun if processes else []), SERVE, *given.split()]


# --dummy-weights, of all three


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "the following arguments are required: NAME"),
        (["llama3.1-8b", "x"], "argument LAYERS: invalid int value"),
    ],
)
def test_dummy_model_without_its_words(words, problem):
    result = run(ROOT / "scripts/dummy_model.py", *words)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("usage: dummy_model.py") and problem in result.stderr


@pytest.mark.engine
def test_dummy_weights_where_the_checkout_cannot_be_written(tmp_path):
    """As in another user's; here a file is in the place of the folder."""
    checkout = tmp_path / "checkout"
    for name in ("scripts/dummy_model.py", "configs/architectures/llama3.1-8b.json"):
        (checkout / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, checkout / name)
    (checkout / ".cache").touch()
    words = [sys.executable, checkout / "scripts/dummy_model.py", "llama3.1-8b"]

    def made(cache):
        return subprocess.run(
            words, capture_output=True, text=True, env=os.environ | {"XDG_CACHE_HOME": str(cache)}
        )

    folder = made(tmp_path / "cache")
    assert Path(folder.stdout.strip(), "config.json").is_file(), folder.stderr
    assert folder.stdout.startswith(f"{tmp_path}/cache/")
    nowhere = made(checkout / ".cache")
    assert nowhere.returncode == 2 and "export XDG_CACHE_HOME=FOLDER" in nowhere.stderr
    assert nowhere.stderr.count("\n") == 1


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "layers"),
    [("gpt-oss-120b", 36), ("deepseek-r1", 61), ("llama3.1-8b", 32), ("llama3.1-8b-edge", 32)],
)
def test_dummy_weights_are_the_benchmarks_architecture(name, layers):
    words = dry_run(RUN_SERVER, "--benchmark", name, "--dummy-weights")
    given = flags(words[words.index("sglang.launch_server") + 1 :])
    folder = Path(given["--model-path"])
    assert (given["--load-format"], "--revision" in given) == ("dummy", False)
    config = json.loads((folder / "config.json").read_text())
    assert (config["num_hidden_layers"], config["vocab_size"]) == (
        layers,
        load_benchmark(name).vocabulary_size,
    )
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert (len(vocabulary), DUMMY in folder.name) == (config["vocab_size"], True)
    words = dry_run(RUN_VLLM, "--benchmark", name, "--dummy-weights", "--layers", "1")
    cut = json.loads(Path(words[2], "config.json").read_text())
    assert cut == {**config, "num_hidden_layers": 1}
    assert flags(words[3:])["--load-format"] == "dummy"
    words = dry_run(RUN_PYTORCH, "--benchmark", name, "--dummy-weights", "--layers=1")
    assert words[words.index(SERVE) + 1 :] == ["--model-path", f"{folder}-1-layers", "--dummy-weights"]


@pytest.mark.engine
@pytest.mark.parametrize("script", [RUN_VLLM, RUN_PYTORCH], ids=lambda script: script.parent.name)
def test_dummy_weights_of_a_model_that_is_no_benchmark(script):
    words = dry_run(script, "--benchmark", "gpt-oss-20b", "--dummy-weights")
    (folder,) = (word for word in words if word.endswith(f"gpt-oss-20b{DUMMY}"))
    large = json.loads((ROOT / "configs/architectures/gpt-oss-120b.json").read_text())
    differences = {"num_hidden_layers": 24, "num_local_experts": 32}
    assert json.loads(Path(folder, "config.json").read_text()) == {**large, **differences}


def test_an_architecture_that_is_not_known():
    result = run(RUN_PYTORCH, "--benchmark", "gpt-oss-7b", "--dummy-weights", "--dry-run")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "gpt-oss-20b" in result.stderr


@pytest.mark.parametrize("script", [RUN_SERVER, RUN_VLLM, RUN_PYTORCH], ids=lambda script: script.parent.name)
@pytest.mark.parametrize(
    "words", ["--layers 2", "--dummy-weights --model_path a/b", "--dummy-weights --layers 0"]
)
def test_layers_and_models_that_do_not_belong_to_dummy_weights(script, words):
    result = run(script, *words.split(), "--dry-run")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
