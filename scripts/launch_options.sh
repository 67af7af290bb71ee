# shellcheck shell=bash
# Reading options, and passing a server's own flags on: shared by sglang/, vllm/ and setup_enroot.sh, which source it.
#
# The array passed holds the flags that the user gives to the server, server_args those that it gets.

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
    [[ $value =~ ^[1-9][0-9]*$ ]] || fail "${1%%=*} is '$value', expected an integer of at least 1"
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

# passed_value FLAG DEFAULT: print the value that the user passed for FLAG, else DEFAULT.
passed_value() {
    local index
    for index in "${!passed[@]}"; do
        case ${passed[index]} in
            "$1"=*) printf '%s\n' "${passed[index]#*=}" && return ;;
            "$1") printf '%s\n' "${passed[index + 1]:-$2}" && return ;;
        esac
    done
    printf '%s\n' "$2"
}

# run_or_print COMMAND...: replace this shell by the command, or with --dry-run print it, quoted for a shell.
run_or_print() {
    if [[ -n $dry_run ]]; then
        printf '%q ' "$@" | sed 's/ $/\n/'
    else
        exec "$@"
    fi
}
