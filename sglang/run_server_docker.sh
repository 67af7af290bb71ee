#!/usr/bin/env bash
# Start SGLang in its official container with all GPUs of this machine.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=sglang/server_args.sh
source "$here/server_args.sh"

docker_image=lmsysorg/sglang:v$(<"$here/VERSION")

usage() {
    echo "usage: sglang/run_server_docker.sh [OPTION]... [SGLANG_FLAG]..."
    echo "  --docker_image IMAGE         (default: $docker_image)"
    usage_options
    usage_rest
    echo "The Hugging Face cache (HF_HOME) is mounted; HF_TOKEN is passed to the container by name."
}

# Mount a local folder at its own path, so that the path is the same inside.
add_mount() {
    [[ ! -d $1 ]] || command+=(--mount "type=bind,source=$1,target=$1,readonly")
}

parse_options "$@"
[[ -n $dry_run ]] || command -v docker >/dev/null || fail "docker is not installed; use sglang/run_server.sh or setup_enroot.sh"
cache=${HF_HOME:-$HOME/.cache/huggingface}
[[ -n $dry_run ]] || mkdir -p -- "$cache"

command=(docker run --rm --gpus all --network host --ipc host)
command+=(--ulimit memlock=-1 --ulimit stack=67108864)
command+=(--mount "type=bind,source=$cache,target=/root/.cache/huggingface")
# By name only: a value would be readable in the process list.
[[ -z ${HF_TOKEN:-} ]] || command+=(--env HF_TOKEN)
add_mount "$model_path"
[[ -z $eagle_path ]] || add_mount "$eagle_path"
command+=("$docker_image" python3 -P -m sglang.launch_server "${server_args[@]}")
run_or_print "${command[@]}"
