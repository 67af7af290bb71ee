# shellcheck shell=bash
# Reading options, a benchmark's definition, and passing a server's own flags on: for the scripts that start servers
# and for setup_enroot.sh, which source it.
#
# The array passed holds the flags that the user gives to the server, server_args those that it gets.

configs=$(dirname -- "${BASH_SOURCE[0]}")/../configs

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

# read_definition BENCHMARK: the model and its revision are those of the definition, unless model_path is set.
read_definition() {
    definition=$configs/$1.toml
    [[ $1 != */* && -f $definition ]] || fail "--benchmark $1: expected one of $(benchmarks)"
    revision=''
    [[ -z $model_path ]] || return 0
    model_path=$(defined model) revision=$(defined model_revision)
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

# run_or_print COMMAND...: replace this shell by the command, or with --dry-run print it, quoted for a shell.
run_or_print() {
    if [[ -n $dry_run ]]; then
        printf '%q ' "$@" | sed 's/ $/\n/'
    else
        exec "$@"
    fi
}
