#!/usr/bin/env python3
"""Fetches vllm-rs, vLLM's client in Rust: one file of 61 MB out of a wheel of 336 MB, into .cache.

python benchmarks/peers/fetch_vllm_rs.py prints its path.
"""

import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from harness.files import ROOT, atomic_write, sha256_of

VERSION, MEMBER = "0.33.0", "vllm/vllm-rs"
SHA256 = {"x86_64": "ee53a9eec77b858799f7526ad0f284df808d9350b8b4d6f1754583f9f8782c62"}
BINARY = ROOT / f".cache/vllm-rs-{VERSION}"


def main() -> None:
    """Fetch it, unless it is there."""
    reason = lacks()
    if reason and (reason := fetch()):
        raise SystemExit(f"vllm-rs {VERSION}: {reason}")
    print(BINARY)


def lacks() -> str:
    """The reason why it cannot be run here, or ""."""
    wanted = SHA256.get(platform.machine())
    if wanted is None:
        return f"no sha256 is known of the binary for {platform.machine()}, only for {', '.join(SHA256)}"
    if not BINARY.exists():
        return "not fetched: python benchmarks/peers/fetch_vllm_rs.py"
    found = sha256_of(BINARY)
    return "" if found == wanted else f"{BINARY} has the sha256 {found}, expected {wanted}; remove it"


def fetch() -> str:
    """Take it out of the wheel. Returns the reason why that failed, or ""."""
    if platform.machine() not in SHA256 or BINARY.exists():
        return lacks()
    BINARY.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BINARY.parent) as folder:
        words = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
        words += ["--dest", folder, f"vllm=={VERSION}"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip download failed"])[-1]
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, atomic_write(BINARY) as file:
            file.write(archive.read(MEMBER))
    BINARY.chmod(0o755)
    if reason := lacks():
        BINARY.unlink()
    return reason


if __name__ == "__main__":
    main()
