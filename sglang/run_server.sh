#!/usr/bin/env bash
# Start SGLang on this machine. sglang/run_server_docker.sh does the same in a container.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=sglang/server_args.sh
source "$here/server_args.sh"

usage() {
    echo "usage: sglang/run_server.sh [OPTION]... [SGLANG_FLAG]..."
    usage_options
    usage_rest
    echo "PYTHON names the interpreter (default: that of .venv-sglang, made by setup.sh --with-sglang, else python3)."
}

find_python() {
    local own=$here/../.venv-sglang
    if [[ -n ${PYTHON:-} ]]; then
        printf '%s\n' "$PYTHON"
    elif compgen -G "$own/lib/python3*/site-packages/sglang" >/dev/null; then
        printf '%s/bin/python\n' "$(cd "$own" && pwd)"
    else
        echo python3
    fi
}

# Python finds a folder sglang/ without modules as a namespace without an origin; that is not the package.
require_sglang() {
    "$1" -P - <<'PY' || fail "$1 has no SGLang; run ./setup.sh --with-sglang, or set PYTHON"
import importlib.util, sys
spec = importlib.util.find_spec("sglang")
sys.exit(spec is None or spec.origin is None)
PY
}

parse_options "$@"
python=$(find_python)
[[ -n $dry_run ]] || require_sglang "$python"
# -P keeps the working directory off sys.path: this repository's folder sglang/ would otherwise shadow
# an editable install of the package.
run_or_print "$python" -P -m sglang.launch_server "${server_args[@]}"
