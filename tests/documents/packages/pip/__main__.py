"""In place of pip: what is asked for is there already, but for SGLang, vLLM and the vocabulary's wheel."""

import os
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

site, stand_ins = Path(sysconfig.get_path("purelib")), Path(os.environ["STAND_INS"])
command, *words = [word for word in sys.argv[1:] if word != "--disable-pip-version-check"]
with (stand_ins / "pip.calls").open("a") as calls:
    print(command, *words, file=calls)
if command == "install" and any(word.startswith("sglang==") for word in words):
    shutil.copytree(stand_ins / "packages/sglang", site / "sglang", dirs_exist_ok=True)
if command == "install" and any(word.startswith("vllm==") for word in words):
    shutil.copy(stand_ins / "packages/vllm", sysconfig.get_path("scripts"))
if command == "download":
    folder = Path(words[words.index("--dest" if "--dest" in words else "-d") + 1])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "bpe_openai-0-py3-none-any.whl", "w") as wheel:
        wheel.write(os.environ["VOCABULARY"], "bpe_openai/data/o200k_base.tiktoken.gz")
