#!/usr/bin/env bash
# Make an enroot sandbox of SGLang's container image, for GPU nodes without docker. See docs/guide/servers/sglang.md.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
# shellcheck source=scripts/launch_options.sh
source scripts/launch_options.sh

docker_image=lmsysorg/sglang:v$(<sglang/VERSION)
sandbox_name=mlperf-sglang

usage() {
    cat <<EOF
usage: ./setup_enroot.sh [OPTION]...
  --docker_image IMAGE  image to import (default: $docker_image)
  --sandbox_name NAME   name of the sandbox (default: $sandbox_name)
  --dry-run             print the commands instead of running them
  --help                this text

The imported image is kept in sqsh_files/. An existing image or sandbox is used as it is; to renew them, delete the
.sqsh file and run "enroot remove NAME".
EOF
}

parse_options() {
    while (($#)); do
        case ${1%%=*} in
            --docker_image) take "$@" && docker_image=$value && shift "$taken" ;;
            --sandbox_name) take "$@" && sandbox_name=$value && shift "$taken" ;;
            --dry-run) dry_run=1 && shift ;;
            -h | --help) usage && exit 0 ;;
            *) fail "unknown option $1; see --help" ;;
        esac
    done
    [[ $sandbox_name =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] ||
        fail "--sandbox_name is '$sandbox_name', expected letters, digits, dots, dashes and underscores"
}

# enroot's notation is docker://[REGISTRY#]IMAGE[:TAG]; a first part with a dot or a port is a registry.
image_uri() {
    local registry=${1%%/*}
    if [[ $1 == */* && $registry == *[.:]* ]]; then
        printf 'docker://%s#%s\n' "$registry" "${1#*/}"
    else
        printf 'docker://%s\n' "$1"
    fi
}

run() {
    if [[ -n $dry_run ]]; then
        printf '%q ' "$@" | sed 's/ $/\n/'
    else
        "$@" || fail "$1 $2 failed with exit code $?; see above${remedy:-}"
    fi
}

sandbox_exists() {
    [[ -z $dry_run ]] && enroot list | grep -qxF -- "$sandbox_name"
}

parse_options "$@"
[[ -n $dry_run ]] || command -v enroot >/dev/null ||
    fail "enroot is not installed (https://github.com/NVIDIA/enroot); with docker use ./launch_docker.sh"

archive=sqsh_files/${docker_image//[\/:@]/+}.sqsh
run mkdir -p sqsh_files
if [[ ! -s $archive ]]; then
    # Imported under another name first: an interrupted import leaves no archive that looks complete.
    run rm -f -- "$archive.partial"
    run enroot import --output "$archive.partial" "$(image_uri "$docker_image")"
    run mv -- "$archive.partial" "$archive"
fi
# enroot lists a sandbox whose creation was cut off, too. Each node has its own sandboxes, and all may share this folder.
unfinished=sqsh_files/$sandbox_name.$HOSTNAME.unfinished
if [[ -e $unfinished ]] || ! sandbox_exists; then
    run touch -- "$unfinished"
    remedy="; if the image is damaged, delete $PWD/$archive"
    run enroot create --force --name "$sandbox_name" "$archive"
    run rm -f -- "$unfinished"
fi
[[ -n $dry_run ]] ||
    echo "ready: enroot start --rw --mount $(printf '%q' "$PWD:/harness") $sandbox_name /harness/sglang/run_server.sh --help"
