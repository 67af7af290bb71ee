#!/usr/bin/env bash
# Fetch and check the official datasets and models, which datasets/manifest.tsv lists. See docs/guide/datasets.md.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
manifest=$here/manifest.tsv
mlc_downloader=https://raw.githubusercontent.com/mlcommons/r2-downloader/refs/heads/main/mlc-r2-downloader.sh
mlc_storage=https://inference.mlcommons-storage.org/metadata
curl_cannot_write=23 # its exit code, as on a full disk

benchmark=gpt-oss-120b
what=perf
to=
via=auto
verify_only=no
dry_run=no

usage() {
    cat <<'HELP'
usage: datasets/download.sh [options]

Fetch official datasets and models and check them. The same command continues an interrupted download.

  --what WHAT         perf (default), acc, compliance, calibration, livecodebench, edge, model (from Hugging Face),
                      model-mlc (the same from MLCommons), eagle, wordnet, or all (all but model-mlc and eagle)
  --benchmark NAME    gpt-oss-120b (default), deepseek-r1, llama3.1-8b, llama3.1-8b-edge, gpt-oss-20b (model and
                      wordnet, for run_batch.py), or samples (the files of this repository)
  --to DIR            folder for the files (default: data beside datasets)
  --via HOW           how to fetch MLCommons' files: r2 (its downloader, needs curl and wget), mlcr, hf (llama3.1-8b's
                      files: built from CNN-DailyMail on Hugging Face), or auto (default: r2 or mlcr)
  --verify            only check: a file that is missing or differs gives exit code 2
  --dry-run           print the commands, run nothing
  --help              this text

Exit codes: 0 done, 2 bad usage or a file that is missing or differs, 3 no network or a tool is missing or failed.
HELP
}

fail() { # exit code, message
    printf 'download.sh: %s\n' "$2" >&2
    exit "$1"
}

full() { # file
    fail 2 "cannot write $1; free space there, or choose another folder with --to"
}

have() { command -v "$1" >/dev/null 2>&1; }

own() { # tool: that of PATH, or else the one that setup.sh installed
    if ! have "$1" && [[ -x ${here%/*}/.venv/bin/$1 ]]; then
        printf '%s\n' "${here%/*}/.venv/bin/$1"
    else
        printf '%s\n' "$1"
    fi
}

need() { # tool, remedy
    [[ $dry_run == yes ]] || have "$1" || fail 3 "$1 is missing; $2"
}

run() {
    if [[ $dry_run == yes ]]; then
        printf '%q ' "$@"
        printf '\n'
    else
        "$@"
    fi
}

parse_arguments() {
    while (($#)); do
        case $1 in
        --what | --benchmark | --to | --via)
            (($# >= 2)) || fail 2 "$1 needs a value; see --help"
            case $1 in
            --what) what=$2 ;;
            --benchmark) benchmark=$2 ;;
            --to) to=$2 ;;
            --via) via=$2 ;;
            esac
            shift 2
            ;;
        --verify) verify_only=yes && shift ;;
        --dry-run) dry_run=yes && shift ;;
        --help | -h) usage && exit 0 ;;
        *) fail 2 "unknown argument $1; see --help" ;;
        esac
    done
    [[ $via == auto || $via == r2 || $via == mlcr || $via == hf ]] || fail 2 "--via $via, expected r2, mlcr, hf or auto"
    if [[ $benchmark == samples ]]; then
        what=samples
        to=${to:-$here}
    fi
    to=${to:-${here%/*}/data}
}

rows() { # the manifest's rows for --benchmark and --what
    awk -F '\t' -v b="$benchmark" -v w="$what" \
        '!/^#/ && $1 == b && ($2 == w || (w == "all" && $2 != "eagle" && $2 != "model-mlc"))' "$manifest"
}

kinds() { # what the manifest has for --benchmark
    awk -F '\t' -v b="$benchmark" '!/^#/ && $1 == b { print $2 }' "$manifest" | sort -u | paste -sd, - | sed 's/,/, /g'
}

names() {
    awk -F '\t' '!/^#/ && !seen[$1]++ { print $1 }' "$manifest"
}

require_benchmark() {
    local near list
    list=$(names | paste -sd, - | sed 's/,/, /g')
    [[ ", $list, " != *", $benchmark, "* ]] || return 0
    # One that holds what was written, whatever its case, hyphens and dots.
    near=$(names | awk -v given="$benchmark" '
        function plain(name) { name = tolower(name); gsub(/[^a-z0-9]/, "", name); return name }
        index(plain($1), plain(given)) { print; exit }')
    fail 2 "there is no benchmark $benchmark, ${near:+did you mean $near? }expected $list"
}

digest() { # sha256 or md5, file
    case $1 in
    sha256) if have sha256sum; then sha256sum -- "$2"; else shasum -a 256 -- "$2"; fi ;;
    md5) if have md5sum; then md5sum -- "$2"; else md5 -r "$2"; fi ;;
    esac | cut -d ' ' -f 1
}

recorded() { # path -> sha256:... from SHA256SUMS, or nothing
    [[ -f $to/SHA256SUMS ]] || return 0
    awk -v p="$1" '$2 == p { sum = $1 } END { if (sum) print "sha256:" sum }' "$to/SHA256SUMS"
}

record() { # path
    [[ -z $(recorded "$1") ]] || return 0
    printf '%s  %s\n' "$(digest sha256 "$to/$1")" "$1" 2>/dev/null >>"$to/SHA256SUMS" || full "$to/SHA256SUMS"
}

# Print one line about a file. Return 0 when it has the known checksum, 1 when it differs or is missing, 2 when it exists
# and no checksum is known.
check() { # path, checksum of the manifest
    local file=$to/$1 expected=$2 origin=known got
    if [[ $1 == */ ]]; then
        [[ -f ${file}config.json ]] || { echo "MISSING   $1" && return 1; }
        echo "present   $1 (a folder; its files are checked by hf while it downloads)"
        return 2
    fi
    [[ -f $file ]] || { echo "MISSING   $1" && return 1; }
    if [[ $expected == - ]]; then
        expected=$(recorded "$1")
        origin='recorded at download'
    fi
    if [[ -z $expected ]]; then
        echo "unknown   $1: no checksum known; its sha256 is $(digest sha256 "$file")"
        return 2
    fi
    got=${expected%%:*}:$(digest "${expected%%:*}" "$file")
    if [[ $got != "$expected" ]]; then
        echo "DIFFERS   $1: $got, expected $expected ($origin); delete it and download it again"
        return 1
    fi
    echo "ok        $1 ($origin ${expected%%:*})"
}

verify_rows() {
    local bad=0 path checksum status remedy
    while IFS=$'\t' read -r _ _ _ path checksum _; do
        status=0
        check "$path" "$checksum" || status=$?
        ((status != 1)) || bad=$((bad + 1))
    done < <(rows)
    remedy="datasets/download.sh --benchmark $benchmark --what $what"
    [[ $to == "${here%/*}/data" ]] || remedy+=" --to ${to@Q}"
    [[ $benchmark != samples ]] || remedy='git checkout datasets/samples'
    ((bad == 0)) || fail 2 "$bad of the files in $to missing or different; run $remedy"
}

fetch_with_mlc() { # name of the set, folder, mlcr tags...
    local how=$via status=0
    if [[ $how == auto ]]; then
        how=r2
        if have mlcr && ! { have curl && have wget; }; then how=mlcr; fi
    fi
    "fetch_with_$how" "$@" || status=$?
    ((status == 0)) ||
        fail 3 "MLCommons' download of $1 failed with exit code $status; run the same command again, it continues"
}

fetch_with_r2() { # name of the set, folder
    local script=$work/mlc-r2-downloader.sh status=0 tool
    for tool in curl wget; do
        need "$tool" "install it, or pip install mlc-scripts and use --via mlcr"
    done
    # Into a file first: bash <(curl ...) would run an incomplete script.
    run curl --fail --silent --location --retry 3 --connect-timeout 20 --output "$script" "$mlc_downloader" || status=$?
    ((status != curl_cannot_write)) || fail 2 "cannot write $script; free space there, or set TMPDIR to another folder"
    ((status == 0)) ||
        fail 3 "cannot fetch $mlc_downloader (curl exit code $status); connect to a network, or copy the files into $to"
    run bash "$script" -d "$2" "$mlc_storage/$1.uri"
}

fetch_with_mlcr() { # name of the set, folder, mlcr tags...
    local folder=$2 tags
    need mlcr "pip install mlc-scripts, or use --via r2"
    for tags in "${@:3}"; do
        run mlcr "$tags" --outdirname="$folder" -j || return
    done
}

fetch_with_hf() { # kind, repository@revision, folder, files (none: all)
    local kind=$1 repository=${2%@*} revision=${2##*@} folder=$3 tool status=0 hint
    shift 3
    tool=$(own hf)
    if ! have "$tool" && have huggingface-cli; then tool=huggingface-cli; fi
    hint=" (check the network; a gated model needs \"$tool auth login\")"
    need "$tool" "run ./setup.sh, which installs it, or pip install huggingface_hub"
    run "$tool" download "$repository" "$@" --repo-type "$kind" --revision "$revision" --local-dir "$to/$folder" ||
        status=$?
    ((status == 0)) ||
        fail 3 "hf download $repository failed with exit code $status; run the same command again, it continues$hint"
}

# MLCommons' file is what its own script made of the validation split, with the model's tokenizer.
build_from_hf() { # path of the file
    local python count=() tokenizer model status=0 split=3.0.0/validation-00000-of-00001.parquet
    case $1 in
    cnn_eval.json) ;;
    sample_cnn_eval_5000.json) count=(--total-count 5000) ;;
    *) fail 2 "--via hf: $1 cannot be built from files of Hugging Face; use --via r2 or mlcr" ;;
    esac
    model=$(awk -F '\t' -v b="$benchmark" '$1 == b && $2 == "model" { print $3, $4 }' "$manifest")
    tokenizer=${model#* }
    model=${model%% *}
    fetch_with_hf dataset abisee/cnn_dailymail@main cnn_dailymail "$split"
    if [[ ! -f $to/${tokenizer}tokenizer.json ]]; then
        fetch_with_hf model "${model#hf-model:}" "${tokenizer%/}" tokenizer.json
    fi
    python=${here%/*}/.venv/bin/python
    need "$python" "run ./setup.sh"
    run "$python" "${here%/*}/scripts/build_cnndm.py" --input-file "$to/cnn_dailymail/$split" \
        --tokenizer "$to/${tokenizer}tokenizer.json" "${count[@]}" --output-file "$to/$1" || status=$?
    ((status == 0)) || fail "$status" "$1 was not built"
}

fetch_with_curl() { # address, path
    local status=0
    need curl "install it"
    [[ $dry_run == yes || $2 != */* ]] || mkdir -p -- "$to/${2%/*}" 2>/dev/null || full "$to/$2"
    run curl --fail --silent --location --retry 3 --connect-timeout 20 --output "$to/$2.partial" "$1" ||
        status=$?
    ((status != curl_cannot_write)) || full "$to/$2"
    ((status == 0)) || fail 3 "cannot fetch $1 (curl exit code $status); connect to a network, or copy the file to $to/$2"
    run mv -- "$to/$2.partial" "$to/$2"
}

fetch() { # source: all rows of --benchmark and --what with this source
    local source=$1 files=() tags=() path='' row tag folder within=$to
    while IFS=$'\t' read -r _ _ _ row _ tag; do
        path=$row
        folder=${path%/*}
        [[ " ${tags[*]} " == *" $tag "* ]] || tags+=("$tag")
        if [[ $path == */ ]]; then within=$to/$folder; else files+=("${path##*/}"); fi
    done < <(rows | awk -F '\t' -v s="$source" '$3 == s')
    if [[ $via == mlcr && $source != mlc:* && $what != all ]]; then # all: each from its own place
        [[ ${tags[*]} != - ]] || fail 2 "--via mlcr: MLCommons does not offer $path; leave out --via"
        source=mlc:${path%/}
    elif [[ $via == hf && $source == mlc:* ]]; then
        source=built
    fi
    case $source in
    built) build_from_hf "$path" ;;
    mlc:*) fetch_with_mlc "${source#mlc:}" "$within" "${tags[@]}" ;;
    url:*) fetch_with_curl "${source#url:}" "$path" ;;
    hf-dataset:*) fetch_with_hf dataset "${source#hf-dataset:}" "$folder" "${files[@]}" ;;
    hf-model:*) fetch_with_hf model "${source#hf-model:}" "$folder" ;;
    *) fail 2 "$benchmark $what cannot be downloaded; its files come with the repository" ;;
    esac
}

incomplete_sources() {
    local source path checksum
    while IFS=$'\t' read -r _ _ source path checksum _; do
        check "$path" "$checksum" >/dev/null || printf '%s\n' "$source"
    done < <(rows) | awk '!seen[$0]++'
}

main() {
    parse_arguments "$@"
    require_benchmark
    [[ -n $(rows) ]] || fail 2 "there is no $what for $benchmark, only $(kinds)"
    if [[ $verify_only == yes ]]; then
        verify_rows
        return
    fi
    work=$(mktemp -d)
    trap 'rm -rf -- "$work"' EXIT
    local sources source path checksum
    sources=$(incomplete_sources)
    if [[ $dry_run == no ]]; then
        mkdir -p -- "$to" 2>/dev/null && [[ -w $to ]] || fail 2 "cannot write to $to; choose another folder with --to"
    fi
    while IFS= read -r source; do
        [[ -z $source ]] || fetch "$source" </dev/null
    done <<<"$sources"
    [[ $dry_run == no ]] || return 0
    # The first download, checked by its own tool, is the reference for later checks.
    while IFS=$'\t' read -r _ _ _ path checksum _; do
        [[ $checksum != - || ! -f $to/$path ]] || record "$path"
    done < <(rows)
    verify_rows
}

main "$@"
