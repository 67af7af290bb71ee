#!/usr/bin/env bash
# Start vLLM on this machine with what a benchmark needs.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/launch_options.sh
source "$here/../scripts/launch_options.sh"

usage() {
    cat <<EOF
usage: vllm/run_server.sh [OPTION]... [VLLM_FLAG]...
  --benchmark NAME     its model, revision and the defaults below (default: gpt-oss-120b)
  --model_path PATH    model folder or Hugging Face name (default: the benchmark's, at the rules' revision)
  --tp N               GPUs of each replica (default: deepseek-r1 8, others 1)
  --dp N               data-parallel replicas (default: 1)
  --max_model_len N    longest prompt plus answer in tokens (default: gpt-oss-120b 40960, deepseek-r1 32768,
                       llama3.1-8b 4096)
  --dtype TYPE         of the weights and activations (default: llama3.1-8b bfloat16, others auto)
  --dummy-weights      the benchmark's architecture with random weights, for a first look at a machine without the model:
                       a run against it is NOT OFFICIAL, and its answers mean nothing
  --layers N           with --dummy-weights: N layers, for a small GPU or a CPU
  --background FILE    start the server, its output in FILE, and return when it is ready; when it ends before, its last
                       lines are printed and the exit code is 3
  --dry-run            print the command instead of running it
  --help               this text

Every other flag is passed to vLLM unchanged and replaces the default of the same name. The defaults: port 30000,
stream interval 20, no sampling parameters of the model's own (--generation-config vllm), no KV cache across queries
(--enable-prefix-caching for one).
VLLM names the program (default: that of .venv-vllm, made by setup.sh --backend vllm, else vllm on the PATH).
EOF
}

parse_options() {
    tp='' dp=1 max_model_len='' dtype=''
    while (($#)); do
        taken=1
        case ${1%%=*} in
            --tp | -tp | --tensor-parallel-size) take_count "$@" && tp=$value ;;
            --dp | -dp | --data-parallel-size) take_count "$@" && dp=$value ;;
            --max_model_len | --max-model-len) take_count "$@" && max_model_len=$value ;;
            --dtype) take "$@" && dtype=$value ;;
            *) take_common "$@" ;;
        esac
        shift "$taken"
    done
    read_definition
    set_benchmark_defaults
    model_path=$(absolute "$model_path")
    build_server_args
}

# The lengths are the longest official prompt and answer, rounded up.
set_benchmark_defaults() {
    case $benchmark in
        gpt-oss-120b) : "${max_model_len:=40960}" ;;
        deepseek-r1) : "${max_model_len:=32768}" "${tp:=8}" ;;
        llama3.1-8b*) : "${max_model_len:=4096}" "${dtype:=bfloat16}" ;;
    esac
    : "${tp:=1}" "${dtype:=auto}"
}

build_server_args() {
    server_args=("$model_path")
    [[ -z $dummy_weights ]] || add_default '--load-format' dummy
    [[ -z $revision ]] || add_default '--revision' "$revision"
    add_default '--tensor-parallel-size' "$tp"
    add_default '--data-parallel-size' "$dp"
    [[ -z $max_model_len ]] || add_default '--max-model-len' "$max_model_len"
    add_default '--dtype' "$dtype"
    add_default '--stream-interval' 20
    # The requests carry all of the rules' parameters; the model's file could add a repetition penalty.
    add_default '--generation-config' vllm
    # The closed division allows no KV cache across queries.
    add_default '--no-enable-prefix-caching|--enable-prefix-caching'
    add_default '--port' 30000
    server_args+=("${passed[@]}")
}

parse_options "$@"
program=$(program_of "$here/../.venv-vllm" vllm "${VLLM:-}" vllm)
[[ -n $dry_run ]] || command -v "$program" >/dev/null ||
    fail "$program is not installed; run ./setup.sh --backend vllm, or set VLLM to its program"
run_or_print "$program" serve "${server_args[@]}"
