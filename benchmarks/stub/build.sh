#!/usr/bin/env bash
# Builds the stub server: build.sh [OUTPUT [FLAGS]], by default beside the sources; FLAGS are the compiler's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
compile=("${CC:-cc}" -std=gnu17 -O3 -Wall -Wextra "${@:2}" -o "${1:-$here/stub_server}" "$here"/*.c -lm)
"${compile[@]}" -flto 2>/dev/null || exec "${compile[@]}" # some compilers come without their link-time optimizer
