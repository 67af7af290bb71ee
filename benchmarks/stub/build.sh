#!/usr/bin/env bash
# Builds the stub server: build.sh [OUTPUT [FLAGS]], by default beside the sources; FLAGS are the compiler's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "${CC:-cc}" -std=gnu17 -O3 -flto -Wall -Wextra "${@:2}" -o "${1:-$here/stub_server}" "$here"/*.c -lm
