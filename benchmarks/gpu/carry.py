#!/usr/bin/env python3
"""Fetch what a GPU machine without a network lacks for benchmarks/gpu/first_run: wheels and a vocabulary.

    there$ python3 -m pip list --format=freeze > there.txt
    here$  .venv/bin/python benchmarks/gpu/carry.py --there there.txt --python-version 3.12

It has PyTorch and transformers of its own, on x86-64. The rest of requirements/run.txt, of the PyTorch server
and of the benchmarks, less what there.txt names, goes into .carried/, which git ignores: take that along with
the checkout.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.bench import program_parser
from harness.cli.main import exit_code_of, run_main
from harness.dataset.tokenizer import RANKS_FILE
from harness.errors import ConfigError
from harness.files import ROOT
from harness.text import counted

CARRIED = ROOT / ".carried"
# aiohttp and what it needs; the rest of requirements/pytorch.txt comes with PyTorch and transformers.
_SERVER = (
    "aiohttp",
    "aiohappyeyeballs",
    "aiosignal",
    "attrs",
    "frozenlist",
    "multidict",
    "propcache",
    "yarl",
)
_BENCHMARKS = ("pandas", "psutil", "python-dateutil")
_WITHOUT_WHEELS = ("pylatexenc", "rouge-score")  # Python alone, as scripts/check_wheels.sh knows them
_NVML = "nvidia-ml-py"  # not pinned: each version reads every driver
_GLIBC = (5, 12, 17, 24, 27, 28)  # manylinux_2_N
_BLOCK = re.compile(r"^([a-z0-9][a-z0-9_.-]*)==.*(?:\n    .*)*", re.MULTILINE)


def main(argv: Sequence[str]) -> int:
    """Fetch; returns the exit code."""
    parser = program_parser(__doc__)
    parser.add_argument("--there", type=Path, required=True, metavar="FILE", help="packages that it has")
    parser.add_argument("--python-version", required=True, metavar="3.N", help="of its python3")
    options = parser.parse_args(argv)
    return exit_code_of("carry.py", "warning", lambda: carry(options.there, options.python_version))


def carry(there: Path, python: str) -> int:
    """Fill the folder anew; returns 0. Raises ConfigError."""
    if not there.is_file():
        raise ConfigError(f"--there {there}: no such file; see --help for the command that writes it")
    has = names_in(there.read_text(encoding="utf-8"))
    wanted = lacking(has)
    shutil.rmtree(CARRIED, ignore_errors=True)
    CARRIED.mkdir()
    _fetch("wheel", "--wheel-dir", CARRIED, pinned=[wanted.pop(name, "") for name in _WITHOUT_WHEELS])
    target = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for one in ("manylinux2014_x86_64", *(f"manylinux_2_{number}_x86_64" for number in _GLIBC)):
        target += ["--platform", one]
    _fetch("download", "--dest", CARRIED, *target, pinned=wanted.values())
    if _NVML not in has:
        _pip("download", "--dest", CARRIED, *target, _NVML)
    shutil.copy(Path(sys.prefix) / RANKS_FILE, CARRIED)
    size = sum(path.stat().st_size for path in CARRIED.iterdir()) / 1e6
    print(
        f"{counted(len(list(CARRIED.glob('*.whl'))), 'wheel')} and a vocabulary, {size:.0f} MB, in {CARRIED}"
    )
    return 0


def names_in(text: str) -> set[str]:
    """The packages of a list: ``pip list --format=freeze``, or names between commas or spaces."""
    words = re.sub(r"==\S+| @ \S+", " ", text).replace(",", " ").split()
    return {re.sub(r"[-_.]+", "-", word).strip("-").lower() for word in words}


def lacking(there: Collection[str]) -> dict[str, str]:
    """By name, the lines of the lock files for each package that is needed and not there."""
    found = dict(_locked("run")) | dict(_locked("pytorch", *_SERVER)) | dict(_locked("test", *_BENCHMARKS))
    return {name: lines for name, lines in found.items() if name not in there}


def _locked(lock: str, *names: str) -> Iterator[tuple[str, str]]:
    """The lines of each of the names, or of all."""
    text = (ROOT / f"requirements/{lock}.txt").read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        if not names or block[1] in names:
            yield block[1], block[0]


def _fetch(*words: object, pinned: Iterable[str]) -> None:
    """A command of pip for lines of the lock files; nothing where there are none."""
    if lines := "\n".join(filter(None, pinned)):
        file = CARRIED / "pinned.txt"
        file.write_text(f"{lines}\n", encoding="utf-8")
        _pip(*words, "--require-hashes", "--requirement", file)
        file.unlink()


def _pip(*words: object) -> None:
    """Raises ConfigError with its last line."""
    command = [sys.executable, "-m", "pip", *map(str, words), "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"pip {words[0]}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")


if __name__ == "__main__":
    run_main(main)
