"""launch_docker.sh: the container that it asks for."""

import os
import pwd

import pytest

from tests.scripts.test_run_server import LAUNCH_DOCKER, RUN_SERVER, RUN_VLLM, VERSION, VLLM_VERSION, dry_run
from tests.scripts.test_scripts import ROOT, assert_refused, run, stand_in


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


def test_docker_is_run_with_these_words(tmp_path):
    stand_in(tmp_path / "bin", "docker", 'printf "%s\\n" "$@"')
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    arguments = ["--docker_image", "my/image:1", "--chat-template", "a b"]
    result = run(LAUNCH_DOCKER, *arguments, cwd=tmp_path, PATH=path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == dry_run(LAUNCH_DOCKER, *arguments, cwd=tmp_path)[1:]


CACHE = "--mount type=bind,source=/hf,target=/root/.cache/huggingface"
AS_ME = f"--user {os.getuid()}:{os.getgid()} --env HOME=/tmp --env USER={pwd.getpwuid(os.getuid()).pw_name}"
AS_ME += " --env HF_HOME=/huggingface --mount type=bind,source=/hf,target=/huggingface"
# Options of the container, and the words that stand between "docker run" and the image for them.
CONTAINERS = [
    ([], f"--gpus all {CACHE}"),
    (["--gpu-count", "2"], f"--gpus 2 {CACHE}"),
    (["--gpu-count=all", "--container-name", "r1"], f"--gpus all --name r1 {CACHE}"),
    (
        ["--extra-mounts", "/data:/data, /m:/models:ro"],
        f"--gpus all {CACHE} --mount type=bind,source=/data,target=/data "
        "--mount type=bind,source=/m,target=/models,readonly",
    ),
    (["--model-cache-dir", "/c"], f"--gpus all {CACHE}".replace("/hf", "/c")),
    (["--local-user", "0"], f"--gpus all {CACHE}"),
    (["--gpu", "nvidia"], f"--gpus all {CACHE}"),
    (["--local-user", "1"], f"--gpus all {AS_ME}"),
    (["--local-user"], f"--gpus all {AS_ME}"),
]
ALWAYS = "--rm --network host --ipc host --ulimit memlock=-1 --ulimit stack=67108864"


@pytest.mark.parametrize(("arguments", "expected"), CONTAINERS)
def test_docker_is_asked_for_this_container(arguments, expected):
    words = dry_run(LAUNCH_DOCKER, *arguments, HF_HOME="/hf")
    between = words[2 : words.index(f"lmsysorg/sglang:v{VERSION}")]
    assert sorted(between) == sorted(f"{ALWAYS} {expected}".split())


@pytest.mark.parametrize(
    ("count", "visible"), [([], []), (["--gpu-count", "2"], ["--env", "HIP_VISIBLE_DEVICES=0,1"])]
)
def test_docker_passes_on_the_devices_of_amd(count, visible):
    words = dry_run(LAUNCH_DOCKER, "--gpu", "amd", *count, HF_HOME="/hf")
    devices = ["--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video"]
    between = words[2 : words.index(f"lmsysorg/sglang:v{VERSION}-rocm720-mi30x")]
    assert sorted(between) == sorted([*f"{ALWAYS} {CACHE}".split(), *devices, *visible])


@pytest.mark.parametrize(
    ("arguments", "environment", "image", "server"),
    [
        (["--backend", "sglang"], {"MLPERF_BACKEND": "vllm"}, f"lmsysorg/sglang:v{VERSION}", RUN_SERVER),
        (["--backend", "vllm"], {}, f"vllm/vllm-openai:v{VLLM_VERSION}", RUN_VLLM),
        (["--image-name", "my/image"], {"MLPERF_BACKEND": "vllm"}, "my/image", RUN_VLLM),
        (["--gpu", "amd"], {}, f"lmsysorg/sglang:v{VERSION}-rocm720-mi30x", RUN_SERVER),
        (["--gpu=amd", "--backend=vllm"], {}, f"vllm/vllm-openai-rocm:v{VLLM_VERSION}", RUN_VLLM),
        (["--backend", "pytorch"], {}, f"lmsysorg/sglang:v{VERSION}", ROOT / "pytorch/run_server.sh"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "trt"], "--backend trt: expected sglang, vllm or pytorch"),
        (["--gpu", "intel"], "--gpu intel: expected nvidia or amd"),
        (["--gpu-count", "two"], "--gpu-count is 'two', expected an integer of at least 1"),
        (["--local-user=yes"], "--local-user is 'yes', expected 0 or 1"),
        (["--extra-mounts", "/data"], "--extra-mounts: '/data', expected /HOST:/CONTAINER"),
        (["--extra-mounts", "data:/data"], "expected /HOST:/CONTAINER"),
        (["--dp", "0"], "--dp is '0', expected an integer of at least 1"),
        (["--enable_speculative_decode", "--model_path", "deepseek-ai/DeepSeek-R1"], "is a draft model of"),
    ],
)
def test_launch_docker_says_what_is_wrong_in_one_line(arguments, message):
    assert_refused(LAUNCH_DOCKER, *arguments, message=message)


def test_a_folder_to_mount_must_exist(tmp_path):
    stand_in(tmp_path / "bin", "docker", "exit 1")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    result = run(LAUNCH_DOCKER, "--extra-mounts", f"{tmp_path}/no:/data", PATH=path, HF_HOME=str(tmp_path))
    assert (result.returncode, result.stdout) == (2, "")
    assert f"{tmp_path}/no does not exist" in result.stderr
