"""launch_docker.sh: the container that it asks for."""

import os
import pwd
from pathlib import Path

import pytest

from tests.kit import free_ports, needs_curl
from tests.scripts.test_run_server import RUN_PYTORCH, RUN_SERVER, RUN_VLLM, dry_run
from tests.scripts.test_scripts import ROOT, run, stand_in, version

LAUNCH_DOCKER = ROOT / "launch_docker.sh"
SGLANG_IMAGE, VLLM_VERSION = f"lmsysorg/sglang:v{version('sglang')}", version("vllm")


def test_docker_mounts_the_model_and_hides_the_token(tmp_path):
    (tmp_path / "model").mkdir()
    words = dry_run(LAUNCH_DOCKER, "--model_path", "model", cwd=tmp_path, HF_TOKEN="hf_secret", HF_HOME="/hf")
    mounts = [words[index + 1] for index, word in enumerate(words) if word == "--mount"]
    model = tmp_path / "model"
    assert mounts == [
        "type=bind,source=/hf,target=/root/.cache/huggingface",
        f"type=bind,source={model},target={model},readonly",
    ]
    assert words[words.index("--env") + 1] == "HF_TOKEN"
    assert "hf_secret" not in " ".join(words)
    assert words[words.index("--model-path") + 1] == str(model)


@pytest.mark.parametrize(
    "words",
    [
        ["--dummy-weights"],
        ["--backend", "vllm", "--dummy-weights"],
        ["--backend", "pytorch", "--dummy-weights"],
        ["--model_path", "model"],
        ["--model_path", "nobody/model", "--eagle_path", "model"],
    ],
)
def test_every_folder_of_the_servers_command_is_in_the_container(words, tmp_path):
    (tmp_path / "model").mkdir()
    asked = dry_run(LAUNCH_DOCKER, *words, cwd=tmp_path, HF_HOME="/hf")
    folders = {word for word in asked if word.startswith("/") and Path(word).is_dir()}
    assert folders
    for folder in folders:
        assert f"type=bind,source={folder},target={folder},readonly" in asked


@needs_curl
def test_a_container_in_the_background_that_ends_is_an_error(tmp_path):
    """The script waits for the server itself: docker has no such option of the server."""
    path = path_with_docker(tmp_path, "echo no space left for the image; exit 125")
    words = ("--port", str(free_ports(1)), "--background", str(tmp_path / "server.log"))
    result = run(LAUNCH_DOCKER, *words, PATH=path, HF_HOME=str(tmp_path))
    assert (result.returncode, result.stdout) == (3, "")
    assert "no space left for the image\nlaunch_docker.sh: the server ended before" in result.stderr


@pytest.mark.parametrize("name", ["SGLANG_RUST_SERVER", "VLLM_USE_RUST_FRONTEND"])
def test_the_choice_of_a_front_end_reaches_the_container(name):
    assert "--env" not in dry_run(LAUNCH_DOCKER)
    words = dry_run(LAUNCH_DOCKER, **{name: "1"})
    assert words[words.index("--env") + 1] == name


def path_with_docker(folder, script):
    stand_in(folder / "bin", "docker", script)
    return f"{folder / 'bin'}:{os.environ['PATH']}"


def test_docker_is_run_with_these_words(tmp_path):
    path = path_with_docker(tmp_path, 'printf "%s\\n" "$@"')
    arguments = ["--docker_image", "my/image:1", "--chat-template", "a b"]
    result = run(LAUNCH_DOCKER, *arguments, cwd=tmp_path, PATH=path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == dry_run(LAUNCH_DOCKER, *arguments, cwd=tmp_path)[1:]


CACHE = "--mount type=bind,source=/hf,target=/root/.cache/huggingface"


def my_name():
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user need not have one
        return str(os.getuid())


AS_ME = f"--user {os.getuid()}:{os.getgid()} --env HOME=/tmp --env USER={my_name()}"
AS_ME += " --env HF_HOME=/huggingface --mount type=bind,source=/hf,target=/huggingface"
MOUNTS = "--mount type=bind,source=/data,target=/data --mount type=bind,source=/m,target=/models,readonly"
AMD = "--device /dev/kfd --device /dev/dri --group-add video"
ALWAYS = "--rm --network host --ipc host --ulimit memlock=-1 --ulimit stack=67108864"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], f"--gpus all {CACHE}"),
        (["--gpu-count", "2"], f"--gpus 2 {CACHE}"),
        (["--gpu-count", "2", "--tp", "2"], f"--gpus 2 {CACHE}"),
        (["--gpu-count", "2", "--tp", "16", "--nnodes", "8"], f"--gpus 2 {CACHE}"),  # two of each node
        (["--gpu-count=all", "--container-name", "r1"], f"--gpus all --name r1 {CACHE}"),
        (["--extra-mounts", "/data:/data, /m:/models:ro"], f"--gpus all {CACHE} {MOUNTS}"),
        (["--model-cache-dir", "/c"], f"--gpus all {CACHE}".replace("/hf", "/c")),
        (["--local-user", "0", "--gpu", "nvidia"], f"--gpus all {CACHE}"),
        (["--local-user", "1"], f"--gpus all {AS_ME}"),
        (["--local-user"], f"--gpus all {AS_ME}"),
        (["--gpu", "amd"], f"{AMD} {CACHE}"),
        (["--gpu", "amd", "--gpu-count", "2"], f"{AMD} --env HIP_VISIBLE_DEVICES=0,1 {CACHE}"),
    ],
)
def test_docker_is_asked_for_this_container(arguments, expected):
    """The words between "docker run" and the image."""
    words = dry_run(LAUNCH_DOCKER, *arguments, HF_HOME="/hf")
    (image,) = [place for place, word in enumerate(words) if word.startswith("lmsysorg/sglang:")]
    assert sorted(words[2:image]) == sorted(f"{ALWAYS} {expected}".split())


@pytest.mark.parametrize(
    ("arguments", "environment", "image", "server"),
    [
        (["--backend", "sglang"], {"MLPERF_BACKEND": "vllm"}, SGLANG_IMAGE, RUN_SERVER),
        (["--backend", "vllm"], {}, f"vllm/vllm-openai:v{VLLM_VERSION}", RUN_VLLM),
        (["--image-name", "my/image"], {"MLPERF_BACKEND": "vllm"}, "my/image", RUN_VLLM),
        (["--gpu", "amd"], {}, f"{SGLANG_IMAGE}-rocm720-mi30x", RUN_SERVER),
        (["--gpu=amd", "--backend=vllm"], {}, f"vllm/vllm-openai-rocm:v{VLLM_VERSION}", RUN_VLLM),
        (["--backend", "pytorch"], {}, SGLANG_IMAGE, RUN_PYTORCH),
    ],
)
def test_a_container_runs_what_the_backends_script_would(arguments, environment, image, server):
    benchmark = ["--benchmark", "deepseek-r1"]
    words = dry_run(LAUNCH_DOCKER, *arguments, *benchmark, **environment)
    here = dry_run(server, *benchmark, PYTHON="python3", VLLM="vllm")
    place = words.index(image)
    if server == RUN_VLLM:
        assert words[place - 2 : place] == ["--entrypoint", here.pop(0)]
    if "pytorch" in arguments:
        assert words[place - 1] == f"type=bind,source={ROOT},target={ROOT},readonly"
    assert words[place + 1 :] == here


def test_a_command_to_run_in_the_container_is_refused(tmp_path):
    """The reference's script starts a shell there; the server would take the word for its own option."""
    path = path_with_docker(tmp_path, "exit 1")
    result = run(LAUNCH_DOCKER, "--gpu-count", "2", "--", "bash", PATH=path, HF_HOME=str(tmp_path))
    assert (result.returncode, result.stdout) == (2, "")
    assert "-- bash: the container runs the server alone" in result.stderr
    options = run(LAUNCH_DOCKER, "--dry-run", "--", "--dp", "2", PATH=path, HF_HOME=str(tmp_path))
    assert (options.returncode, " --dp-size 2 " in options.stdout) == (0, True), options.stderr


def test_a_folder_to_mount_must_exist(tmp_path):
    path = path_with_docker(tmp_path, "exit 1")
    result = run(LAUNCH_DOCKER, "--extra-mounts", f"{tmp_path}/no:/data", PATH=path, HF_HOME=str(tmp_path))
    assert (result.returncode, result.stdout) == (2, "")
    assert f"{tmp_path}/no does not exist" in result.stderr
