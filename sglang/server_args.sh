# shellcheck shell=bash
# SGLang's arguments from the options of run_server.sh and run_server_docker.sh, which source this file.
#
# parse_options "$@" sets the array server_args and the variables model_path, eagle_path, dry_run, and
# docker_image if the script has set a default for it.

# shellcheck source=scripts/launch_options.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../scripts/launch_options.sh"

default_model=openai/gpt-oss-120b
default_eagle=nvidia/gpt-oss-120b-Eagle3-long-context
default_stream_interval=500 # tokens per event; the first token is always an event of its own
requests_per_replica=512 # SGLang's --max-running-requests counts for each data-parallel replica

parse_options() {
    model_path=$default_model eagle_path='' dp=1 stream_interval=$default_stream_interval dry_run=''
    passed=()
    while (($#)); do
        case ${1%%=*} in
            -h | --help) usage && exit 0 ;;
            --dry-run) dry_run=1 && shift ;;
            --enable_speculative_decode) eagle_path=${eagle_path:-$default_eagle} && shift ;;
            --model_path | --model-path | --model) take "$@" && model_path=$value && shift "$taken" ;;
            --eagle_path) take "$@" && eagle_path=$value && shift "$taken" ;;
            --dp | --dp-size | --data-parallel-size) take_count "$@" && dp=$value && shift "$taken" ;;
            --stream_interval | --stream-interval) take_count "$@" && stream_interval=$value && shift "$taken" ;;
            --docker_image)
                [[ -v docker_image ]] || fail "--docker_image is an option of run_server_docker.sh"
                take "$@" && docker_image=$value && shift "$taken"
                ;;
            --) shift && passed+=("$@") && break ;;
            *) passed+=("$1") && shift ;;
        esac
    done
    model_path=$(absolute "$model_path")
    [[ -z $eagle_path ]] || eagle_path=$(absolute "$eagle_path")
    check_draft_model
    build_server_args
}

# The default draft model fits gpt-oss-120b only: with another model SGLang fails late or drafts useless tokens.
check_draft_model() {
    [[ $eagle_path == "$default_eagle" && ${model_path,,} != *gpt-oss-120b* ]] || return 0
    fail "$default_eagle is a draft model of $default_model, and --model_path is $model_path; \
name that model's own draft model with --eagle_path, or remove --enable_speculative_decode"
}

build_server_args() {
    local running
    server_args=(--model-path "$model_path")
    add_default '--dp-size' "$dp"
    add_default '--tp-size|--tp|--tensor-parallel-size' 1
    add_default '--pp-size|--pp|--pipeline-parallel-size' 1
    add_default '--ep-size|--ep|--expert-parallel-size' 1
    running=$(max_running_requests)
    add_default '--max-running-requests' "$running"
    add_default '--mem-fraction-static' 0.85
    add_default '--chunked-prefill-size' 16384
    add_default '--stream-interval' "$stream_interval"
    add_default '--enable-metrics'
    add_default '--host' 0.0.0.0
    [[ -z $eagle_path ]] || add_speculation
    server_args+=("${passed[@]}")
}

# With data-parallel attention SGLang divides the number among the replicas; otherwise it counts for each.
max_running_requests() {
    local replicas
    replicas=$(passed_value --attn-dp-size 1)
    [[ $replicas =~ ^[1-9][0-9]*$ ]] || fail "--attn-dp-size is '$replicas', expected an integer of at least 1"
    ! was_passed --enable-dp-attention || replicas=$dp
    echo $((requests_per_replica * replicas))
}

# With top-k 1 the draft is a chain: SGLang needs one draft token more than there are steps.
add_speculation() {
    local steps
    steps=$(passed_value --speculative-num-steps 3)
    [[ $steps =~ ^[1-9][0-9]*$ ]] || fail "--speculative-num-steps is '$steps', expected an integer of at least 1"
    add_default '--speculative-algorithm' EAGLE3
    add_default '--speculative-draft-model-path|--speculative-draft-model' "$eagle_path"
    add_default '--speculative-num-steps' 3
    add_default '--speculative-eagle-topk' 1
    add_default '--speculative-num-draft-tokens' $((steps + 1))
}

usage_options() {
    cat <<EOF
  --model_path PATH            model folder or Hugging Face name (default: $default_model)
  --dp N                       data-parallel replicas, one GPU each at tp 1 (default: 1)
  --stream_interval N          tokens per streamed event (default: $default_stream_interval)
  --enable_speculative_decode  EAGLE3 with $default_eagle, gpt-oss-120b only
  --eagle_path PATH            EAGLE3 with another draft model
EOF
}

usage_rest() {
    cat <<EOF
  --dry-run                    print the command instead of running it
  --help                       this text

Every other flag is passed to SGLang unchanged and replaces the default of the same name. The defaults:
tp, pp and ep 1, $requests_per_replica running requests per replica, memory fraction 0.85, prefill chunks of 16384 tokens,
metrics on, host 0.0.0.0.
EOF
}
