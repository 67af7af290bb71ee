#!/usr/bin/env bash
# Start SGLang on this machine with what a benchmark needs. launch_docker.sh does the same in a container.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/launch_options.sh
source "$here/../scripts/launch_options.sh"

# As datasets/download.sh --what eagle fetches it.
IFS=:@ read -r _ draft_of_gpt_oss draft_revision < <(awk '$2 == "eagle" { print $3 }' "$here/../datasets/manifest.tsv")
draft_flags='--speculative-draft-model-path|--speculative-draft-model'

usage() {
    cat <<EOF
usage: sglang/run_server.sh [OPTION]... [SGLANG_FLAG]...
  --benchmark NAME             its model, revision and the defaults below (default: gpt-oss-120b)
  --model_path PATH            model folder or Hugging Face name (default: the benchmark's, at the rules' revision)
  --dp N                       data-parallel replicas, one GPU each at tp 1 (default: 1); of deepseek-r1 the attention
                               alone is replicated (default: 8)
  --stream_interval N          tokens per streamed event (default: 500)
  --enable_speculative_decode  gpt-oss-120b: EAGLE3 with $draft_of_gpt_oss;
                               deepseek-r1: EAGLE with the model's own head
  --eagle_path PATH            EAGLE3 with another draft model
  --enable_prefix_caching      keep SGLang's KV cache across queries, which the closed division does not allow
  --dummy-weights              the benchmark's architecture with random weights, for a first look at a machine without the
                               model: a run against it is NOT OFFICIAL, and its answers mean nothing
  --layers N                   with --dummy-weights: N layers, for a small GPU or a CPU
  --background FILE            start the server, its output in FILE, and return when it is ready; when it ends before, its
                               last lines are printed and the exit code is 3
  --dry-run                    print the command instead of running it
  --help                       this text

Every other flag is passed to SGLang unchanged and replaces the default of the same name. The defaults: tp 1
(deepseek-r1: 8), pp and ep 1, 512 running requests per replica (deepseek-r1: 64), memory fraction 0.85, prefill
chunks of 16384 tokens, metrics on, host 0.0.0.0. Further ones of deepseek-r1: context 23145, the model's own code
is run (--trust-remote-code); of llama3.1-8b: context 4096, bfloat16.
PYTHON names the interpreter (default: that of .venv-sglang, made by setup.sh --backend sglang, else python3).
EOF
}

parse_options() {
    eagle_path='' speculate='' dp='' stream_interval=500 prefix_caching=''
    while (($#)); do
        taken=1
        case ${1%%=*} in
            --enable_speculative_decode) speculate=1 ;;
            --enable_prefix_caching | --enable-prefix-caching) prefix_caching=1 ;;
            --eagle_path) take "$@" && eagle_path=$value speculate=1 ;;
            --dp | --dp-size | --data-parallel-size) take_count "$@" && dp=$value ;;
            --stream_interval | --stream-interval) take_count "$@" && stream_interval=$value ;;
            *) take_common "$@" ;;
        esac
        shift "$taken"
    done
    read_definition
    [[ -z $speculate ]] || choose_draft_model
    refuse_draft_of_another_model
    model_path=$(absolute "$model_path")
    [[ -z $eagle_path ]] || eagle_path=$(absolute "$eagle_path")
}

# DeepSeek-R1 has a head of its own for drafts, and SGLang takes it where no path is given.
choose_draft_model() {
    if [[ -z $eagle_path ]]; then
        case $benchmark in
            gpt-oss-120b) eagle_path=$draft_of_gpt_oss ;;
            deepseek-r1) require_own_head ;;
            *) fail "--enable_speculative_decode: no scenario of $benchmark allows drafts, and no draft model of it is known; \
remove it, or name one with --eagle_path for a run that is NOT OFFICIAL" ;;
        esac
    fi
}

require_own_head() {
    case ${model_path,,} in
        *distill* | *gpt-oss* | *llama* | *qwen*)
            fail "--enable_speculative_decode: $model_path has no head of its own for drafts, as DeepSeek-R1 has; name \
its draft model with --eagle_path"
            ;;
    esac
}

# Under another model SGLang fails late or drafts useless tokens.
refuse_draft_of_another_model() {
    local draft
    draft=$(passed_value "$draft_flags" "$eagle_path")
    [[ ${draft,,} == *gpt-oss-120b* && ${model_path,,} != *gpt-oss-120b* ]] || return 0
    fail "$draft is a draft model of openai/gpt-oss-120b, and --model_path is $model_path; name that model's own \
draft model with --eagle_path (DeepSeek-R1's own head: --benchmark deepseek-r1), or remove --enable_speculative_decode"
}

# Each rank would listen at the same port, and SGLang 0.5.23 ends once all have loaded the weights.
refuse_ranks_of_one_port() {
    local asked=${SGLANG_RUST_SERVER:-} port
    [[ ${asked,,} == @(1|y|yes|true) && $dp -gt 1 ]] || return 0
    ! was_passed --enable-dp-attention || return 0
    port=$(passed_value --port 30000)
    check_count --port "$port"
    fail "SGLANG_RUST_SERVER is set, and the Rust server has no --dp $dp; start $dp servers, each with a GPU and a port \
of its own (CUDA_VISIBLE_DEVICES=1 sglang/run_server.sh --port $((port + 1))), and name all with --server-url \
http://localhost:$port-$((port + dp - 1)), or unset it"
}

build_server_args() {
    local tp=1 attention=1 requests_per_replica=512
    server_args=(--model-path "$model_path")
    [[ -z $dummy_weights ]] || add_default '--load-format' dummy
    [[ -z $revision ]] || add_default '--revision' "$revision"
    case $benchmark in
        deepseek-r1) use_deepseek_defaults ;;
        llama3.1-8b*)
            add_default '--context-length' 4096
            add_default '--dtype' bfloat16
            ;;
    esac
    add_default '--dp-size' "${dp:=1}"
    refuse_ranks_of_one_port
    add_default '--tp-size|--tp|--tensor-parallel-size' "$tp"
    add_default '--pp-size|--pp|--pipeline-parallel-size' 1
    add_default '--ep-size|--ep|--expert-parallel-size' 1
    add_running_requests
    add_default '--mem-fraction-static' 0.85
    add_default '--chunked-prefill-size' 16384
    add_default '--stream-interval' "$stream_interval"
    add_default '--enable-metrics'
    # The closed division allows no KV cache across queries.
    [[ -n $prefix_caching ]] || add_default '--disable-radix-cache'
    add_default '--host' 0.0.0.0
    [[ -z $speculate ]] || add_speculation
    server_args+=("${passed[@]}")
}

# One model over all GPUs, its attention replicated. A rank of 141 GB has room for about 64 answers of mean length.
use_deepseek_defaults() {
    tp=8 requests_per_replica=64
    add_default '--context-length' 23145 # longest prompt 3140, answer 20000, and the 5 that the reference adds
    add_default '--trust-remote-code'
    if was_passed --enable-dp-attention; then
        : "${dp:=8}"
    elif ! was_passed --attn-dp-size; then
        attention=${dp:-8} dp=1
        server_args+=(--attn-dp-size "$attention")
    fi
}

# With data-parallel attention SGLang divides the number among the replicas; otherwise it counts for each.
add_running_requests() {
    local replicas
    replicas=$(passed_value --attn-dp-size "$attention")
    check_count --attn-dp-size "$replicas"
    ! was_passed --enable-dp-attention || replicas=$dp
    add_default '--max-running-requests' $((requests_per_replica * replicas))
}

# With top-k 1 the draft is a chain: SGLang needs one draft token more than there are steps.
add_speculation() {
    local steps
    steps=$(passed_value --speculative-num-steps 3)
    check_count --speculative-num-steps "$steps"
    if [[ -n $eagle_path ]]; then
        add_default '--speculative-algorithm' EAGLE3
        add_default "$draft_flags" "$eagle_path"
        [[ $(passed_value "$draft_flags" "$eagle_path") != "$draft_of_gpt_oss" ]] ||
            add_default '--speculative-draft-model-revision' "$draft_revision"
    else
        add_default '--speculative-algorithm' EAGLE
    fi
    add_default '--speculative-num-steps' 3
    add_default '--speculative-eagle-topk' 1
    add_default '--speculative-num-draft-tokens' $((steps + 1))
}

find_python() {
    local own=$here/../.venv-sglang
    if [[ -n ${PYTHON:-} ]]; then
        printf '%s\n' "$PYTHON"
    elif compgen -G "$own/lib/python3*/site-packages/sglang" >/dev/null; then
        printf '%s/bin/python\n' "$(cd "$own" && pwd)"
    else
        echo python3
    fi
}

# Python finds a folder sglang/ without modules as a namespace without an origin; that is not the package.
require_sglang() {
    "$1" -P - <<'PY' || fail "$1 has no SGLang; run ./setup.sh --backend sglang, or set PYTHON"
import importlib.util, sys
spec = importlib.util.find_spec("sglang")
sys.exit(spec is None or spec.origin is None)
PY
}

parse_options "$@"
build_server_args
python=$(find_python)
[[ -n $dry_run ]] || require_sglang "$python"
# -P keeps the working directory off sys.path: this repository's folder sglang/ would otherwise shadow
# an editable install of the package.
run_or_print "$python" -P -m sglang.launch_server "${server_args[@]}"
