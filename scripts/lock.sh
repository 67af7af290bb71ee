#!/usr/bin/env bash
# Write the lock files from the pins in pyproject.toml: every package by version and sha256, dependencies included.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

command -v uv >/dev/null || {
    echo 'lock.sh: needs uv (pip install uv)' >&2
    exit 2
}
lock() {
    uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
        --no-emit-index-url --no-emit-find-links --custom-compile-command scripts/lock.sh "$@"
}
lock --group test --output-file requirements/test.txt
for group in run vocabulary programs embedded; do
    lock --group "$group" --constraints requirements/test.txt --output-file "requirements/$group.txt"
done
for group in pytorch score; do
    lock --group "$group" --output-file "requirements/$group.txt"
done
