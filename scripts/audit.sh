#!/usr/bin/env bash
# Compare the locked packages with the known vulnerabilities; exit code 1 if there is one. If pip-audit or its data
# cannot be reached, one line reports that and the exit code is 0.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

version=2.10.1
venv=.cache/pip-audit-$version

skip() {
    echo "audit skipped: $1"
    exit 0
}
if [[ ! -x $venv/bin/pip-audit ]]; then
    .venv/bin/python -m venv "$venv" || skip "no environment for pip-audit"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "pip-audit==$version" 2>/dev/null ||
        skip "pip-audit $version cannot be installed"
fi
# test.txt holds what run.txt, vocabulary.txt, programs.txt and embedded.txt hold; the others have versions of their own.
results=()
for lock in test score pytorch; do
    result=$(timeout 120 "$venv/bin/pip-audit" --requirement "requirements/$lock.txt" --require-hashes --disable-pip \
        --format json --progress-spinner off 2>/dev/null) || [[ -n $result ]] ||
        skip "no vulnerability data for requirements/$lock.txt"
    results+=("$result")
done
printf '%s\n' "${results[@]}" | .venv/bin/python scripts/check_audit.py
