#!/usr/bin/env bash
# Installs SGLang for a machine without a GPU: tests/engines/install_sglang_cpu.sh [VENV]
#
# 2.9 GB, about two minutes; a second run with the same pins takes no time. PYTHON names the interpreter,
# TORCH_INDEX_URL an index with torch's CPU build (where the configured one has only CUDA builds:
# https://download.pytorch.org/whl/cpu).
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
venv=${1:-$here/../../.cache/sglang-cpu}

mkdir -p -- "$venv"
exec 9>"$venv.lock"
flock 9

stamp=$(cd "$here" && find install_sglang_cpu.sh sglang_cpu -type f ! -path '*/__pycache__/*' -exec sha256sum {} + | sort | sha256sum)
if [[ -f $venv/installed && $(<"$venv/installed") == "$stamp" ]]; then
    echo "SGLang for the CPU is installed in $venv"
    exit
fi

"${PYTHON:-python3}" -m venv --clear "$venv"
# Of the many modules few are imported, and compiled then.
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile)
"${pip[@]}" --upgrade 'pip>=25.1' # looks through an index in half of the time
if [[ -n ${TORCH_INDEX_URL:-} ]]; then
    "${pip[@]}" --no-deps --index-url "$TORCH_INDEX_URL" torch==2.13.0
fi
"${pip[@]}" --no-deps --requirement "$here/sglang_cpu/requirements.txt"
# Built from a copy: setuptools writes build/ beside the sources.
parts=$(mktemp -d)
trap 'rm -rf -- "$parts"' EXIT
cp -r -- "$here/sglang_cpu/." "$parts"
"${pip[@]}" --no-deps --no-build-isolation "$parts"
printf '%s\n' "$stamp" >"$venv/installed"
echo "installed SGLang for the CPU in $venv"
