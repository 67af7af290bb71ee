#!/usr/bin/env bash
# Looks every locked package up among the known vulnerabilities; exit code 1 when there is one.
# Where pip-audit or its data cannot be reached, it says so in one line and ends with 0.
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
result=$(timeout 120 "$venv/bin/pip-audit" --requirement requirements/test.txt --require-hashes --disable-pip \
    --format json --progress-spinner off 2>/dev/null) || [[ -n $result ]] || skip "no vulnerability data"
.venv/bin/python scripts/audit_verdict.py <<<"$result"
