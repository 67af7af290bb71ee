"""The files of TensorRT-LLM that answer HTTP, downloaded into the cache; no part of them is here.

``python -m tests.engines.trtllm_sources`` downloads them from GitHub, 260 kB. Each is pinned: its commit on
NVIDIA's main and its checksum. Together they are trtllm-serve of November 2025 (1.2.0rc2).

``python -m tests.engines.trtllm_sources v1.2.1`` downloads the same files of a tag, unpinned, into a folder
of their own, which HARNESS_TRTLLM_SOURCES names to the tests.
"""

import hashlib
import os
import sys
import urllib.request
from pathlib import Path

from tests.runs import ROOT

CACHE = ROOT / ".cache"
REPOSITORY = "https://raw.githubusercontent.com/NVIDIA/TensorRT-LLM"
# Path -> commit, SHA-256.
FILES = {
    "tensorrt_llm/sampling_params.py": (
        "a98a9061d72f6fd39f5d055ebdd2c6878a100e2c",
        "bb7b191613f05a430ccfcde9b7aae1f2a97790e2256ed047b5559d4359dde153",
    ),
    "tensorrt_llm/executor/result.py": (
        "a678b91aafbeff265cd0b764abb59d7def624ac2",
        "4658c175d7754531a06713edb0298e6abf49f0e777f867e03f6be1253b610ea5",
    ),
    "tensorrt_llm/serve/chat_utils.py": (
        "4c05a74891e4df8066f08ed4ce14b0972abe4e25",
        "af27ad7359f9b2b00902ecddfe4da847e8b8d4c5a2c430faead99690669d21c8",
    ),
    "tensorrt_llm/serve/harmony_adapter.py": (
        "38134b130944ed5c037949456df20300126ec728",
        "3d6ef7e06e634e390e7cc9d6ba57d71991f50b2cc3ff9d83fe47c82274ea13e7",
    ),
    "tensorrt_llm/serve/openai_protocol.py": (
        "54cf7be08a3582024dfa6791e8bb8b2034bfad67",
        "4bf7482c889ec0bbb88ff0adef5ade33baf8e7fe5e3c41c4be4dcc376da73d2a",
    ),
    "tensorrt_llm/serve/openai_server.py": (
        "e7f7345e31e574b5d0918b756b871882c7346b3c",
        "1f8dc96fefd3311138e1452f7ad227ba9429e80c1324968d78dad8eec411caf5",
    ),
    "tensorrt_llm/serve/postprocess_handlers.py": (
        "7b437aaa73bf5a44b1102aee5c631074da763b8f",
        "35a3fc9781d87c70fead62c929b9ba29ea9cad3cd6d1a541d21b7c61c0a444ed",
    ),
}


def sources() -> Path:
    """The folder of the files, which may not be there."""
    return Path(os.environ.get("HARNESS_TRTLLM_SOURCES", CACHE / "trtllm-serve"))


def missing() -> str:
    """Why the files cannot be used; empty where they can."""
    pinned = sources() == CACHE / "trtllm-serve"
    for name, (_, checksum) in FILES.items():
        path = sources() / name
        if not path.exists():
            return f"{path} is missing: python -m tests.engines.trtllm_sources downloads TensorRT-LLM's files"
        if pinned and _checksum(path.read_bytes()) != checksum:
            return f"{path} is not the file that the tests know: SHA-256 {_checksum(path.read_bytes())}"
    return ""


def download(tag: str | None) -> Path:
    """Download the pinned files, or those of a tag; the folder. Raises SystemExit for another checksum."""
    folder = CACHE / (f"trtllm-serve-{tag}" if tag else "trtllm-serve")
    for name, (commit, checksum) in FILES.items():
        url = f"{REPOSITORY}/{tag or commit}/{name}"
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                content = response.read()
        except OSError as error:
            raise SystemExit(f"{url}: {error}; connect to a network, or check the tag") from None
        if not tag and _checksum(content) != checksum:
            raise SystemExit(
                f"{name}: SHA-256 {_checksum(content)}, expected {checksum}; nothing is kept of it"
            )
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    print(download(sys.argv[1] if len(sys.argv) > 1 else None))
