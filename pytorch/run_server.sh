#!/usr/bin/env bash
# Start the PyTorch reference server on this machine.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/launch_options.sh
source "$here/../scripts/launch_options.sh"

usage() {
    cat <<EOF
usage: pytorch/run_server.sh [OPTION]... [SERVE_FLAG]...
  --benchmark NAME     its model, at the revision of the rules (default: gpt-oss-120b)
  --model_path PATH    model folder or Hugging Face name (default: the benchmark's)
  --tp N               processes, one to a GPU, that share the model; needs a model for which transformers has a
                       tensor-parallel plan (default: deepseek-r1 8, others 1)
  --dummy-weights      the benchmark's architecture with random weights, for a first look at a machine without the model:
                       a run against it is NOT OFFICIAL, and its answers mean nothing
  --layers N           with --dummy-weights: N layers, for a small GPU or a CPU
  --background FILE    start the server, its output in FILE, and return when it is ready; when it ends before, its last
                       lines are printed and the exit code is 3
  --dry-run            print the command instead of running it
  --help               this text

Every other flag is passed to pytorch/serve.py unchanged and replaces the default of the same name; see
pytorch/serve.py --help. Several servers (--port) make several replicas.
PYTHON names the interpreter (default: that of .venv-pytorch, made by setup.sh --backend pytorch, else python3).
EOF
}

parse_options() {
    tp=''
    while (($#)); do
        taken=1
        case ${1%%=*} in
            --tp | -tp | --tensor-parallel-size | --tp-size) take_count "$@" && tp=$value ;;
            --dp | -dp | --data-parallel-size | --dp-size)
                take_count "$@"
                ((value == 1)) || fail "--dp is '$value': start a server for each replica, with a --port of its own"
                ;;
            *) take_common "$@" ;;
        esac
        shift "$taken"
    done
    read_definition
    model_path=$(absolute "$model_path")
    build_server_args
}

build_server_args() {
    if [[ -z $tp ]]; then
        case $benchmark in
            deepseek-r1) tp=8 ;;
            *) tp=1 ;;
        esac
    fi
    server_args=()
    add_default '--model-path' "$model_path"
    [[ -z $dummy_weights ]] || add_default '--dummy-weights'
    [[ -z $revision ]] || add_default '--revision' "$revision"
    server_args+=("${passed[@]}")
}

parse_options "$@"
python=$(program_of "$here/../.venv-pytorch" python "${PYTHON:-}" python3)
# Looked for, not imported: that takes seconds.
found='import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))'
[[ -n $dry_run ]] || "$python" -P -c "$found" aiohttp msgspec torch transformers 2>/dev/null ||
    fail "$python has no PyTorch; run ./setup.sh --backend pytorch, or set PYTHON"
# The script's folder is on sys.path, this repository's root is not: its folders cannot shadow packages.
program=("$here/serve.py")
((tp == 1)) || program=(-P -m torch.distributed.run --standalone --nproc-per-node "$tp" "$here/serve.py")
run_or_print "$python" "${program[@]}" "${server_args[@]}"
