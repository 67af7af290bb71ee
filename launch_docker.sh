#!/usr/bin/env bash
# Start a server in a container: what BACKEND/run_server.sh would start on this machine. See docs/guide/servers/docker.md.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/launch_options.sh
source "$here/scripts/launch_options.sh"

sglang_image=lmsysorg/sglang:v$(<"$here/sglang/VERSION")
vllm_image=vllm/vllm-openai:v$(<"$here/vllm/VERSION")
# By the names of earlier releases; SGLang has none for MI250, vLLM's has gfx90a.
sglang_amd_image=$sglang_image-rocm720-mi30x
vllm_amd_image=vllm/vllm-openai-rocm:v$(<"$here/vllm/VERSION")

usage() {
    cat <<EOF
usage: ./launch_docker.sh [OPTION]... [SERVER_OPTION]...
  --backend NAME         sglang, vllm or pytorch (default: MLPERF_BACKEND, else sglang)
  --image-name IMAGE     (default: $sglang_image; vllm: $vllm_image)
  --container-name NAME  (default: docker's choice)
  --gpu nvidia|amd       (default: nvidia; amd: $sglang_amd_image, vllm: $vllm_amd_image)
  --gpu-count N          GPUs of the container, or all (default: all); the server uses as many as --dp and --tp say
  --extra-mounts LIST    HOST:CONTAINER[:ro] folders, separated by commas (default: EXTRA_MOUNTS)
  --model-cache-dir DIR  Hugging Face's cache (default: HF_HOME, else ~/.cache/huggingface)
  --local-user 0|1       1, or no value: the server runs as you, not as root (default: 0)
  --background FILE      start the container, its output in FILE, and return when the server is ready, as its script does
  --dry-run              print the command instead of running it
  --help                 this text

Every other option is passed to BACKEND/run_server.sh; see its --help. A model's folder is mounted at its own path.
HF_TOKEN is passed to the container by name.
EOF
}

parse_options() {
    backend=${MLPERF_BACKEND:-sglang} image='' name='' gpu=nvidia gpus=all mounts=${EXTRA_MOUNTS:-} local_user=0
    cache=${HF_HOME:-$HOME/.cache/huggingface}
    while (($#)); do
        case ${1%%=*} in
            -h | --help) usage && exit 0 ;;
            --dry-run) dry_run=1 && shift ;;
            --backend) take "$@" && backend=$value && shift "$taken" ;;
            --image-name | --docker_image) take "$@" && image=$value && shift "$taken" ;;
            --background) take "$@" && background=$value && shift "$taken" ;;
            --container-name) take "$@" && name=$value && shift "$taken" ;;
            --gpu) take "$@" && gpu=$value && shift "$taken" ;;
            --gpu-count) take "$@" && gpus=$value && shift "$taken" ;;
            --extra-mounts) take "$@" && mounts=$value && shift "$taken" ;;
            --model-cache-dir) take "$@" && cache=$(absolute "$value") && shift "$taken" ;;
            --local-user) take_switch "$@" && local_user=$value && shift "$taken" ;;
            --)
                shift
                [[ ${1:--} == -* ]] ||
                    fail "-- $*: the container runs the server alone; the harness runs outside of it (./mlperf)"
                passed+=("$@") && break
                ;;
            *) passed+=("$1") && shift ;;
        esac
    done
    [[ $gpus == all ]] || check_count --gpu-count "$gpus"
    case $gpu in
        nvidia) ;;
        amd) sglang_image=$sglang_amd_image vllm_image=$vllm_amd_image ;;
        *) fail "--gpu $gpu: expected nvidia or amd" ;;
    esac
}

# take_switch OPTION | OPTION 0|1 | OPTION=0|1
take_switch() {
    value=1 taken=1
    [[ $1 != *=* && ${2:-} != [01] ]] || take "$@"
    [[ $value == [01] ]] || fail "${1%%=*} is '$value', expected 0 or 1"
}

# The server's command, as its script prints it; the container has its programs on the PATH.
read_server_command() {
    local line script=$here/$backend/run_server.sh
    case $backend in
        sglang | pytorch) : "${image:=$sglang_image}" ;;
        vllm) : "${image:=$vllm_image}" ;;
        *) fail "--backend $backend: expected sglang, vllm or pytorch" ;;
    esac
    line=$(PYTHON=python3 VLLM=vllm "$script" "${passed[@]}" --dry-run) || exit
    # Quoted by printf %q, so this splits it into the same words again.
    eval "server=($line)"
}

# More GPUs for one replica than the container has are an error deep in the server's log.
check_gpus() {
    local passed=("${server[@]}") tp
    ! was_passed --nnodes || return 0 # of all nodes together
    tp=$(passed_value '--tp-size|--tp|-tp|--tensor-parallel-size|--nproc-per-node' 1)
    check_count --tp "$tp"
    [[ $gpus == all || $tp -le $gpus ]] ||
        fail "--gpu-count $gpus: a replica of this server takes $tp GPUs; give --gpu-count $tp, or --tp $gpus"
}

# add_mount HOST [CONTAINER [,readonly]]
add_mount() {
    command+=(--mount "type=bind,source=$1,target=${2:-$1}${3:-}")
}

# The folders of models in the server's command are at the same paths inside.
add_model_mounts() {
    local index path
    for index in "${!server[@]}"; do
        case ${server[index]} in
            serve | --model-path | --speculative-draft-model-path) path=${server[index + 1]:-} ;;
            *) continue ;;
        esac
        [[ $path != /* || ! -d $path ]] || add_mount "$path" "$path" ,readonly
    done
}

add_extra_mounts() {
    local mount host target mode
    while IFS= read -r mount; do
        [[ -n $mount ]] || continue
        IFS=: read -r host target mode <<<"$mount"
        [[ $host == /* && $target == /* && $mode == @(|ro|rw) ]] ||
            fail "--extra-mounts: '$mount', expected /HOST:/CONTAINER or /HOST:/CONTAINER:ro"
        [[ -n $dry_run || -e $host ]] || fail "--extra-mounts: $host does not exist"
        add_mount "$host" "$target" "$([[ $mode != ro ]] || echo ,readonly)"
    done < <(tr ',' '\n' <<<"$mounts" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//')
}

# Packages ask for a home they can write to and for the name of the user.
add_user() {
    local user
    if ((local_user)); then
        user=$(id -un 2>/dev/null) || true # the number, where a container's user has no name
        command+=(--user "$(id -u):$(id -g)" --env HOME=/tmp --env USER="$user" --env HF_HOME=/huggingface)
        add_mount "$cache" /huggingface
    else
        add_mount "$cache" /root/.cache/huggingface
    fi
}

# Docker passes NVIDIA's GPUs on itself; AMD's are devices of the kernel, chosen by ROCm.
add_gpus() {
    if [[ $gpu == nvidia ]]; then
        command+=(--gpus "$gpus")
        return
    fi
    command+=(--device /dev/kfd --device /dev/dri --group-add video)
    [[ $gpus == all ]] || command+=(--env HIP_VISIBLE_DEVICES="$(seq -s , 0 $((gpus - 1)))")
}

parse_options "$@"
read_server_command
check_gpus
[[ -n $dry_run ]] || command -v docker >/dev/null ||
    fail "docker is not installed; use $backend/run_server.sh, or setup_enroot.sh for SGLang"
[[ -n $dry_run ]] || mkdir -p -- "$cache"

command=(docker run --rm --network host --ipc host)
add_gpus
command+=(--ulimit memlock=-1 --ulimit stack=67108864)
[[ -z $name ]] || command+=(--name "$name")
add_user
# By name only: a value would be readable in the process list.
for variable in HF_TOKEN SGLANG_RUST_SERVER VLLM_USE_RUST_FRONTEND; do
    [[ -z ${!variable:-} ]] || command+=(--env "$variable")
done
add_model_mounts
add_extra_mounts
case $backend in
    vllm) command+=(--entrypoint "${server[0]}" "$image" "${server[@]:1}") ;;
    pytorch) add_mount "$here" "$here" ,readonly && command+=("$image" "${server[@]}") ;;
    *) command+=("$image" "${server[@]}") ;;
esac
run_or_print "${command[@]}"
