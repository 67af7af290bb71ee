"""The set-up scripts, run for real with stand-ins on PATH for what a test machine lacks."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(
    script: Path, *arguments: str, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script, *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def stand_in(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{script}\n")
    path.chmod(0o755)
    return path


def locked(name: str) -> str:
    return f"--require-hashes --requirement requirements/{name}.txt"


def version(server: str) -> str:
    return (ROOT / server / "VERSION").read_text().strip()


# setup.sh


@pytest.fixture
def checkout(tmp_path):
    """What setup.sh reads, in a folder of its own."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy(ROOT / "setup.sh", folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    shutil.copytree(ROOT / "datasets", folder / "datasets")
    for server in ("sglang", "vllm"):
        (folder / server).mkdir()
        shutil.copy(ROOT / server / "VERSION", folder / server)
    return folder


# A Python 3.12 that can make an environment of itself; pip is recorded.
FAKE_PYTHON = """
case "$*" in
    *sys.version_info*) echo ${FAKE_VERSION:-3.12} ;;
    *"import venv, ensurepip"*) [[ $0 != *"${FAKE_NO_VENV:-none}" ]] ;;
    --version) echo Python ${FAKE_VERSION:-3.12}.0 ;;
    "-m venv "*) [[ -z ${FAKE_NO_ROOM:-} ]] || exit 1
        mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip install "*)
        echo "${PYTHONPATH:-}${PYTHONHOME:-}$*" >>"$PIP_CALLS"
        if [[ -n ${FAKE_PIP_ERROR:-} ]]; then echo "$FAKE_PIP_ERROR" && exit 1; fi
        ;;
esac
"""


Ended = tuple[subprocess.CompletedProcess[str], list[str]]


def setup(checkout: Path, *arguments: str, **environment: str) -> Ended:
    """Run setup.sh with the fake interpreter; also returns pip's arguments, a line for each call."""
    calls = checkout / "calls"
    calls.write_text("")
    python = stand_in(checkout / "bin", "python-of-the-test", FAKE_PYTHON)
    environment = {"PYTHON": str(python), "PIP_CALLS": str(calls)} | environment
    result = run(checkout / "setup.sh", *arguments, cwd=checkout, **environment)
    prefix = "-m pip install --disable-pip-version-check --no-compile "
    return result, [line.removeprefix(prefix) for line in calls.read_text().splitlines()]


@pytest.mark.parametrize(("free_kb", "end"), [(7000, "; it takes 30 MB, 6 are free there: "), (99_000, "")])
def test_an_environment_for_which_there_is_no_room(checkout, free_kb, end):
    table = f"printf 'Filesystem 1024-blocks Used Available\\ntmpfs 99 9 {free_kb} 1%% /\\n'"
    stand_in(checkout / "bin", "df", table)
    path = f"{checkout / 'bin'}:{os.environ['PATH']}"
    result, _ = setup(checkout, PATH=path, FAKE_NO_ROOM="1")
    assert result.returncode == 2
    assert f"could not create .venv{end}" in result.stderr
    assert ("free some" in result.stderr) == bool(end)


@pytest.mark.engine
def test_setup_installs_once_and_is_idempotent(checkout):
    result, calls = setup(checkout, "--no-embedded", "--no-programs")
    assert (result.returncode, result.stderr, calls) == (0, "", [locked("run")])
    assert setup(checkout, "--no-embedded")[1] == [locked("programs")]
    assert setup(checkout)[1] == [locked("embedded")]
    assert setup(checkout)[1] == []
    assert setup(checkout, "--with-tests")[1] == [locked("test")]
    (checkout / "requirements/run.txt").write_text("# changed")
    assert setup(checkout)[1] == [locked("run"), locked("programs"), locked("embedded")]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("arguments", "exported", "backend", "installed"),
    [
        (["--with-sglang"], "", "sglang", [f"sglang=={version('sglang')}"]),
        (["--backend", "sglang"], "vllm", "sglang", [f"sglang=={version('sglang')}"]),
        (["--backend=vllm"], "", "vllm", [f"vllm=={version('vllm')}"]),
        ([], "pytorch", "pytorch", [locked("pytorch")]),
        (["--backend", "none"], "sglang", "sglang", []),
        ([], "embedded", "embedded", []),
        (["--backend=trtllm"], "", "trtllm", []),
        (["--backend=dynamo"], "", "dynamo", []),
    ],
)
def test_setup_keeps_a_server_in_an_environment_of_its_own(checkout, arguments, exported, backend, installed):
    result, calls = setup(checkout, "--venv", "my env", *arguments, MLPERF_BACKEND=exported)
    assert result.returncode == 0, result.stderr
    of_server = ["--upgrade pip>=25.1", *installed] if installed else []
    assert calls == [locked("run"), locked("programs"), locked("embedded"), *of_server]
    assert (checkout / f"my env-{backend}/bin/python").exists() is bool(installed)
    place = "VLLM=my\\ env-vllm/bin/vllm" if backend == "vllm" else f"PYTHON=my\\ env-{backend}/bin/python"
    assert (f"server: {place} {backend}/run_server.sh\n" in result.stdout) is bool(installed)
    note = f"note: no server was installed: --backend {backend} asks one that runs already"
    assert (note in result.stdout) is (backend in ("trtllm", "dynamo"))


def test_setup_keeps_bert_score_in_an_environment_of_its_own(checkout):
    vocabulary = "share/o200k_base.tiktoken.gz"
    setup(checkout)
    (checkout / ".venv/share").mkdir(exist_ok=True)
    (checkout / ".venv" / vocabulary).write_bytes(b"x")
    result, calls = setup(checkout, "--with-score")
    assert result.returncode == 0, result.stderr
    assert calls[-1] == locked("score")
    assert (checkout / ".venv-score" / vocabulary).read_bytes() == b"x"


SETUP_ERRORS = [
    ([], {"FAKE_VERSION": "3.14", "PATH": "tools"}, "needs Python 3.11 to 3.13, found: "),
    ([], {"FAKE_VERSION": "3.10"}, "found: "),  # no other one takes the place of PYTHON
    ([], {"PYTHON": "python-3.99"}, "found: none (PYTHON=python-3.99); install python3.12 or set PYTHON"),
    ([], {"FAKE_NO_VENV": "of-the-test"}, "has no venv module; install it"),
    ([], {"FAKE_PIP_ERROR": "NewConnectionError: refused"}, "failed: no network, or no package index"),
    ([], {"FAKE_PIP_ERROR": "ERROR: No matching distribution"}, "failed: ERROR: No matching distribution"),
    ([], {"FAKE_PIP_ERROR": "SSL module is not available"}, "failed: this Python cannot load its ssl module"),
    (["--venv"], {}, "--venv needs a directory"),
    (["--with-everything"], {}, "unknown option --with-everything"),
    (["--backend"], {}, "--backend needs a name"),
    (["--backend", "triton"], {}, "--backend triton: expected sglang, vllm, pytorch or none"),
    ([], {"MLPERF_BACKEND": "x"}, "--backend x (or MLPERF_BACKEND): expected"),
]


@pytest.mark.parametrize(
    ("arguments", "environment", "message"), SETUP_ERRORS, ids=lambda value: str(value)[:40]
)
def test_setup_says_what_is_wrong_in_one_line(checkout, arguments, environment, message):
    if "tools" in environment.values():  # a PATH without any Python
        (checkout / "tools").mkdir()
        for name in ("bash", "dirname", "env", "cat", "sha256sum"):
            (checkout / "tools" / name).symlink_to(shutil.which(name))
    result, _ = setup(checkout, *arguments, **environment)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr


def test_setup_passes_a_python_without_venv_by(checkout):
    """As a conda environment's, or Ubuntu's without its package; the variables are a cluster's modules'."""
    for name in ("python3.13", "python3.12"):
        stand_in(checkout / "bin", name, FAKE_PYTHON.replace("echo Python", f"echo {name}"))
    path = f"{checkout / 'bin'}:{os.environ['PATH']}"
    others = {"PYTHONPATH": "/other", "PYTHONHOME": "/other", "FAKE_NO_VENV": "3.13"}
    result, calls = setup(checkout, PATH=path, PYTHON="", **others)
    assert "creating .venv with python3.12 " in result.stdout, result.stderr
    assert calls == [locked("run"), locked("programs"), locked("embedded")]


def test_setup_repeats_what_pip_could_not_do(checkout):
    setup(checkout, FAKE_PIP_ERROR="ERROR: no")
    assert setup(checkout)[1] == [locked("run"), locked("programs"), locked("embedded")]


def test_setup_notices_changed_samples(checkout):
    (checkout / "datasets/samples/perf_sample.parquet").write_text("two\n")
    result, _ = setup(checkout)
    assert result.returncode == 2
    assert "sample data in datasets/ are missing or changed" in result.stderr


@pytest.mark.engine
def test_setup_completes_an_environment_whose_pip_is_not_complete(checkout):
    """A real one, as Ctrl-C or a full disk leave it; pip then finds no package without an index.

    It is without pip, then with one whose "pip --version" works.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    (packages,) = checkout.glob(".venv/lib/python*/site-packages")
    for lacks in (None, "pip/_vendor/resolvelib"):
        if lacks:
            shutil.rmtree(packages / lacks)
        result, _ = setup(checkout, PIP_NO_INDEX="1")
        assert "ERROR: Could not find a version that satisfies" in result.stderr, lacks


def test_setup_leaves_a_folder_that_is_no_environment_alone(checkout):
    (checkout / ".venv").mkdir()
    result, calls = setup(checkout)
    assert (result.returncode, calls) == (2, [])
    assert ".venv exists but is no working virtual environment; remove it" in result.stderr


def test_the_engine_tests_install_the_same_sglang():
    lines = (ROOT / "tests/engines/sglang_cpu/requirements.txt").read_text().splitlines()
    assert f"sglang=={version('sglang')}" in lines


# setup_enroot.sh

FAKE_ENROOT = """
echo "$*" >>calls
case $1 in
    import) [[ -z ${FAKE_IMPORT_ERROR:-} ]] || exit 1; echo image >"$3" ;;
    create) echo "$4" >>sandboxes; [[ -z ${FAKE_CREATE_ERROR:-} ]] || exit 1 ;; # enroot 4.1.2, its disk full
    list) touch sandboxes && cat sandboxes ;;
esac
"""


def setup_enroot(tmp_path: Path, *arguments: str, **environment: str) -> Ended:
    """Run setup_enroot.sh beside a fake enroot; also returns enroot's arguments, a line for each call."""
    for name in ("setup_enroot.sh", "sglang/VERSION", "scripts/launch_options.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    calls = tmp_path / "calls"
    calls.write_text("")
    stand_in(tmp_path / "bin", "enroot", FAKE_ENROOT)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    result = run(tmp_path / "setup_enroot.sh", *arguments, cwd=tmp_path, PATH=path, **environment)
    return result, calls.read_text().splitlines()


def test_enroot_imports_and_creates_once(tmp_path):
    archive = "sqsh_files/lmsysorg+sglang+v1.sqsh"
    arguments = ["--docker_image", "lmsysorg/sglang:v1", "--sandbox_name=box"]
    result, calls = setup_enroot(tmp_path, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert calls == [
        f"import --output {archive}.partial docker://lmsysorg/sglang:v1",
        "list",
        f"create --force --name box {archive}",
    ]
    assert [path.name for path in (tmp_path / "sqsh_files").iterdir()] == [Path(archive).name]
    assert setup_enroot(tmp_path, *arguments)[1] == ["list"]


def test_the_command_to_start_the_sandbox_is_one_for_a_shell(tmp_path):
    folder = tmp_path / "my harness"
    folder.mkdir()
    result, _ = setup_enroot(folder)
    assert f"{folder}:/harness" in shlex.split(result.stdout)


@pytest.mark.parametrize(
    ("image", "uri"),
    [
        ("lmsysorg/sglang", "docker://lmsysorg/sglang"),
        ("ubuntu:24.04", "docker://ubuntu:24.04"),
        ("nvcr.io/nvidia/sglang:1", "docker://nvcr.io#nvidia/sglang:1"),
        ("host:5000/sglang:1", "docker://host:5000#sglang:1"),
    ],
)
def test_enroot_gets_the_registry_as_it_wants_it(tmp_path, image, uri):
    assert setup_enroot(tmp_path, "--docker_image", image)[1][0].endswith(f" {uri}")


def test_a_failed_import_leaves_no_archive(tmp_path):
    result, _ = setup_enroot(tmp_path, FAKE_IMPORT_ERROR="1")
    assert result.returncode == 2
    assert "enroot import failed with exit code 1" in result.stderr
    assert list((tmp_path / "sqsh_files").iterdir()) == []


def test_a_sandbox_whose_creation_failed_is_created_again(tmp_path):
    result, _ = setup_enroot(tmp_path, FAKE_CREATE_ERROR="1")
    assert (result.returncode, "enroot create failed" in result.stderr) == (2, True)
    (image,) = (tmp_path / "sqsh_files").glob("*.sqsh")
    assert f"if the image is damaged, delete {image}" in result.stderr
    assert setup_enroot(tmp_path)[1][-1].startswith("create --force --name mlperf-sglang")
    assert setup_enroot(tmp_path)[1] == ["list"]


def test_enroot_dry_run_calls_nothing(tmp_path):
    result, calls = setup_enroot(tmp_path, "--dry-run")
    assert (result.returncode, calls) == (0, [])
    assert "enroot create --force --name mlperf-sglang" in result.stdout
    assert not (tmp_path / "sqsh_files").exists()


@pytest.mark.skipif(shutil.which("enroot") is not None, reason="enroot is installed here")
def test_setup_enroot_needs_enroot():
    result = run(ROOT / ENROOT)
    assert result.returncode == 2
    assert "enroot is not installed" in result.stderr


# All scripts

SGLANG, VLLM, PYTORCH = (f"{backend}/run_server.sh" for backend in ("sglang", "vllm", "pytorch"))
DOCKER, ENROOT = "launch_docker.sh", "setup_enroot.sh"
DRAFT = "nvidia/gpt-oss-120b-Eagle3-long-context"
ERRORS = [
    (SGLANG, "--attn-dp-size x", "--attn-dp-size is 'x', expected an integer of at least 1"),
    (
        SGLANG,
        "--model_path deepseek-ai/DeepSeek-R1 --enable_speculative_decode",
        "--model_path is deepseek-ai/DeepSeek-R1; name that model's own draft model",
    ),
    (
        SGLANG,
        f"--model_path openai/gpt-oss-20b --eagle_path {DRAFT}",
        "is a draft model of openai/gpt-oss-120b",
    ),
    (SGLANG, "--dp", "--dp needs a value"),
    (SGLANG, "--model_path=", "--model_path needs a value"),
    (SGLANG, "--dp 0", "--dp is '0', expected an integer of at least 1"),
    (SGLANG, "--stream_interval many", "--stream_interval is 'many', expected an integer of at least 1"),
    (SGLANG, f"--benchmark deepseek-r1 --speculative-draft-model-path {DRAFT}", "is a draft model of"),
    (SGLANG, f"--benchmark deepseek-r1 --speculative-draft-model={DRAFT}", "is a draft model of"),
    (
        SGLANG,
        "--benchmark=deepseek-r1 --model_path=R1-Distill --enable_speculative_decode",
        "no head of its own",
    ),
    (SGLANG, "--benchmark llama3.1-8b --enable_speculative_decode", "no scenario of llama3.1-8b allows"),
    (SGLANG, "--benchmark gpt-oss-20b", "deepseek-r1, gpt-oss-120b"),
    (
        SGLANG,
        "--enable_speculative_decode --speculative-num-steps x",
        "--speculative-num-steps is 'x', expected an integer of at least 1",
    ),
    (VLLM, "--benchmark ../configs/gpt-oss-120b", "expected one of"),
    (VLLM, "--dp 0", "--dp is '0', expected an integer of at least 1"),
    (VLLM, "--max-model-len auto", "--max-model-len is 'auto'"),
    (VLLM, "--dtype", "--dtype needs a value"),
    (PYTORCH, "--dp 2", "start a server for each replica"),
    (PYTORCH, "--tp 0", "--tp is '0', expected an integer of at least 1"),
    (DOCKER, "--backend trt", "--backend trt: expected sglang, vllm or pytorch"),
    (DOCKER, "--gpu intel", "--gpu intel: expected nvidia or amd"),
    (DOCKER, "--gpu-count two", "--gpu-count is 'two', expected an integer of at least 1"),
    (
        DOCKER,
        "--gpu-count 2 --benchmark deepseek-r1",
        "--gpu-count 2: a replica of this server takes 8 GPUs; give --gpu-count 8, or --tp 2",
    ),
    (DOCKER, "--gpu-count 2 --backend vllm --tp=4", "takes 4 GPUs; give --gpu-count 4, or --tp 2"),
    (DOCKER, "--gpu-count 2 --backend pytorch --tp 3", "takes 3 GPUs; give --gpu-count 3, or --tp 2"),
    (DOCKER, "--gpu-count 2 --tp two", "--tp is 'two', expected an integer of at least 1"),
    (DOCKER, "--local-user=yes", "--local-user is 'yes', expected 0 or 1"),
    (DOCKER, "--extra-mounts /data", "--extra-mounts: '/data', expected /HOST:/CONTAINER"),
    (DOCKER, "--extra-mounts data:/data", "expected /HOST:/CONTAINER"),
    (DOCKER, "--dp 0", "--dp is '0', expected an integer of at least 1"),
    (ENROOT, "--sandbox_name", "--sandbox_name needs a value"),
    (ENROOT, "--sandbox_name ../up", "--sandbox_name is '../up', expected letters"),
    (ENROOT, "--name x", "unknown option --name"),
]


@pytest.mark.parametrize(("script", "arguments", "message"), ERRORS)
def test_a_script_reports_what_is_wrong_in_one_line(script, arguments, message):
    result = run(ROOT / script, *arguments.split(), "--dry-run")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
    assert message in result.stderr


@pytest.mark.parametrize("script", ["setup.sh", ENROOT, DOCKER, SGLANG, VLLM, PYTORCH])
def test_help_is_printed_and_succeeds(script):
    result = run(ROOT / script, "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("usage: ")
