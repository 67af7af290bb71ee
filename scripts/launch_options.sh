# shellcheck shell=bash
# Reading options, a benchmark's definition, and passing a server's own flags on: for the scripts that start servers
# and for setup_enroot.sh, which source it.
#
# The array passed holds the flags that the user gives to the server, server_args those that it gets.

configs=$(dirname -- "${BASH_SOURCE[0]}")/../configs
benchmark=gpt-oss-120b model_path='' dummy_weights='' layers='' background='' dry_run=''
passed=()

fail() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit 2
}

# take OPTION=VALUE | OPTION VALUE: set value, and taken to the number of words used.
take() {
    if [[ $1 == *=* ]]; then
        value=${1#*=} taken=1
    elif (($# > 1)) && [[ $2 != --* ]]; then
        value=$2 taken=2
    else
        value=''
    fi
    [[ -n $value ]] || fail "${1%%=*} needs a value; see --help"
}

take_count() {
    take "$@"
    check_count "${1%%=*}" "$value"
}

# check_count OPTION VALUE
check_count() {
    [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "$1 is '$2', expected an integer of at least 1"
}

# take_common OPTION...: take an option that the scripts of all servers have, or pass a flag on.
take_common() {
    case ${1%%=*} in
        -h | --help) usage && exit 0 ;;
        --dry-run) dry_run=1 ;;
        --dummy-weights | --dummy_weights) dummy_weights=1 ;;
        --layers) take_count "$@" && layers=$value ;;
        --background) take "$@" && background=$value ;;
        --benchmark) take "$@" && benchmark=$value ;;
        --model_path | --model-path | --model) take "$@" && model_path=$value ;;
        --) passed+=("${@:2}") taken=$# ;;
        *) passed+=("$1") ;;
    esac
}

# read_definition: the model and its revision are those of the benchmark's definition, unless model_path is another. With
# dummy_weights it is a folder without weights, of this many layers, for any name of configs/architectures.
read_definition() {
    definition=$configs/$benchmark.toml revision=''
    [[ -z $layers || -n $dummy_weights ]] || fail "--layers $layers cuts a model with --dummy-weights only"
    if [[ -n $dummy_weights && $benchmark != */* ]]; then
        [[ -z $model_path ]] || fail "--dummy-weights has the benchmark's architecture; omit --model_path $model_path"
        model_path=$(python3 "$configs/../scripts/dummy_model.py" "$benchmark" $layers) || exit 2
        return 0
    fi
    [[ $benchmark != */* && -f $definition ]] || fail "--benchmark $benchmark: expected one of $(benchmarks)"
    model_path=${model_path:-$(defined model)}
    [[ $model_path != "$(defined model)" || -e $model_path ]] || revision=$(defined model_revision)
}

# defined KEY: print the value of a string at the definition's top.
defined() {
    sed -n "s/^$1 = \"\(.*\)\".*/\1/p" "$definition"
}

benchmarks() {
    local file names=''
    for file in "$configs"/*.toml; do
        file=${file##*/} names+=", ${file%.toml}"
    done
    echo "${names#, }"
}

# A model is a folder or a name on Hugging Face; only a folder that exists is made absolute.
absolute() {
    if [[ -e $1 ]]; then realpath -s -- "$1"; else printf '%s\n' "$1"; fi
}

# add_default 'FLAG|SYNONYM...' [VALUE]: add FLAG VALUE unless the user passed the flag.
add_default() {
    was_passed "$1" || server_args+=("${1%%|*}" "${@:2}")
}

# was_passed 'FLAG|SYNONYM...': succeed if the user passed the flag.
was_passed() {
    local given
    for given in "${passed[@]}"; do
        [[ "|$1|" != *"|${given%%=*}|"* ]] || return 0
    done
    return 1
}

# passed_value 'FLAG|SYNONYM...' DEFAULT: print the value that the user passed for FLAG, else DEFAULT.
passed_value() {
    local index
    for index in "${!passed[@]}"; do
        [[ "|$1|" == *"|${passed[index]%%=*}|"* ]] || continue
        case ${passed[index]} in
            *=*) printf '%s\n' "${passed[index]#*=}" && return ;;
            *) printf '%s\n' "${passed[index + 1]:-$2}" && return ;;
        esac
    done
    printf '%s\n' "$2"
}

# program_of VENV PROGRAM CHOSEN FALLBACK: print CHOSEN, else the PROGRAM that setup.sh installed in VENV, else FALLBACK.
program_of() {
    if [[ -n $3 ]]; then
        printf '%s\n' "$3"
    elif [[ -x $1/bin/$2 ]]; then
        printf '%s/%s\n' "$(cd "$1/bin" && pwd)" "$2"
    else
        printf '%s\n' "$4"
    fi
}

# run_or_print COMMAND...: replace this shell by the command, or with --dry-run print it, quoted for a shell, or with
# --background start it and wait until it is ready.
run_or_print() {
    if [[ -n $dry_run ]]; then
        printf '%q ' "$@" | sed 's/ $/\n/'
    elif [[ -n $background ]]; then
        start_in_background "$(passed_value --port 30000)" "$@"
    else
        exec "$@"
    fi
}

# start_in_background PORT COMMAND...: return when the server answers; when its process ends first, print the end of its
# output and fail. It outlives this script and its terminal; Ctrl-C while it is waited for stops it.
start_in_background() {
    local url=http://localhost:$1 pid waited=0
    shift
    command -v curl >/dev/null || fail "--background needs curl to ask whether the server is ready; install it"
    ! is_ready "$url" || fail "a server answers at $url already; stop it, or take another --port"
    : >"$background" || fail "cannot write to $background"
    nohup "$@" >"$background" 2>&1 </dev/null &
    pid=$!
    trap 'kill "$pid" 2>/dev/null; exit 130' INT
    trap 'kill "$pid" 2>/dev/null; exit 143' TERM
    while ! is_ready "$url"; do
        if ! kill -0 "$pid" 2>/dev/null; then
            tail -n 20 -- "$background" >&2
            printf '%s: the server ended before it was ready; above is the end of %s\n' "${0##*/}" "$background" >&2
            exit 3
        fi
        sleep 2
        waited=$((waited + 1))
        ((waited % 30)) || printf 'still starting: %s\n' "$(tail -n 1 -- "$background" | tr -d '\r' | cut -c 1-150)"
    done
    printf 'ready: %s (its output: %s; to stop it: kill %s)\n' "$url" "$background" "$pid"
}

is_ready() {
    curl -sf --noproxy '*' --max-time 5 -o /dev/null "$1/health"
}
