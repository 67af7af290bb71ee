#!/usr/bin/env bash
# Check that every package of the lock files can be installed on each processor and Python, most without a compiler.
#
# Asks the package index, and installs nothing. Needs uv.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# Without wheels: LoadGen on aarch64, which needs a C++ compiler; the others are Python alone.
declare -A sources=([aarch64]="mlcommons-loadgen pylatexenc rouge-score" [x86_64]="pylatexenc rouge-score")
failed=0
for processor in x86_64 aarch64; do
    for lock in requirements/*.txt; do
        for python in 3.11 3.12 3.13; do
            flags=()
            for package in ${sources[$processor]}; do
                flags+=(--no-binary "$package")
            done
            if ! said=$(uv pip install --dry-run --no-deps --require-hashes --only-binary :all: "${flags[@]}" \
                --python-platform "$processor-manylinux_2_28" --python-version "$python" --target .cache/none \
                -r "$lock" 2>&1); then
                echo "$processor, Python $python, $lock: $(grep -m 1 cause <<<"$said" || tail -n 1 <<<"$said")"
                failed=1
            fi
        done
    done
done
((failed)) || echo "every package of requirements/*.txt is there for x86_64 and aarch64, Python 3.11 to 3.13"
exit "$failed"
