"""The kinds of sandbox: bubblewrap's namespaces, Landlock, or none.

Every tier limits resources in the child and, where there is one for the processor, adds a seccomp filter
(``jail.confine``). A tier is used only after a probe solution has run in it and could not get out.
"""

import os
import platform
import re
import resource
import shutil
import site
import sys
from enum import StrEnum
from pathlib import Path

import msgspec

from harness.errors import GradingError
from harness.files import ROOT
from harness.grading.sandbox.jail.confine import CAP_DAC_READ_SEARCH, Confinement
from harness.grading.sandbox.jail.syscalls import ARCHITECTURES
from harness.grading.sandbox.jail.warden import WardenConfig
from harness.grading.sandbox.users import NO_CHANGE, can_change_user
from harness.system_calls import process_descriptor
from harness.text import printable

GIB, MIB = 1 << 30, 1 << 20
MEMORY_LIMIT = 4 * GIB  # address space of a solution, as LiveCodeBench's own comment promises
OUTPUT_LIMIT = 64 * MIB  # the most bytes of stdout, and of any file
SCRATCH_LIMIT = 64 * MIB  # the size of /tmp
THREAD_LIMIT = 256
OPEN_FILES_LIMIT = 64
# What no limit of the shell may be below: the limit, the least, the unit and the flag of ulimit.
_GRANTED = (
    (resource.RLIMIT_AS, MEMORY_LIMIT, 1024, "v"),
    (resource.RLIMIT_FSIZE, OUTPUT_LIMIT, 1024, "f"),
    (resource.RLIMIT_NOFILE, OPEN_FILES_LIMIT, 1, "n"),
)

_JAIL = ROOT / "harness" / "grading" / "sandbox" / "jail"
_SYSTEM_CALLS = ROOT / "harness" / "system_calls.py"
_START = """\
import sys
sys.path.insert(0, {root!r})
from harness.grading.sandbox.jail.warden import main
sys.path.pop(0)
main()
"""
_SYSTEM_TREES = ("/usr", "/lib", "/lib64", "/lib32", "/bin")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime")
_LOADAVG, _STATUS = Path("/proc/loadavg"), Path("/proc/self/status")
_NOBODY = "65534"
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class Tier(StrEnum):
    """Kinds of sandbox, the strongest first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NAMESPACES = "bubblewrap without a seccomp filter"
    UNSANDBOXED = "unsandboxed"


class Sandbox(msgspec.Struct, frozen=True):
    """A sandbox that can be started."""

    tier: Tier
    command: tuple[str, ...]
    """The command line of its warden; the user id of its children is one more argument, see ``users``."""
    environment: dict[str, str]


def sandbox(tier: Tier, memory: int = MEMORY_LIMIT) -> Sandbox:
    """The sandbox of a tier, whether or not it works on this machine."""
    build = {
        Tier.BUBBLEWRAP: _bubblewrap,
        Tier.LANDLOCK: _landlock,
        Tier.NAMESPACES: _namespaces_alone,
        Tier.UNSANDBOXED: _unsandboxed,
    }
    return build[tier](_limits(memory))


def require_program_limits() -> None:
    """Raise GradingError where this process may use less than a program: a right one would fail."""
    for which, least, unit, flag in _GRANTED:
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY and hard < least:
            raise GradingError(
                f"ulimit -H{flag} is {hard // unit}, expected at least {least // unit}, which a graded "
                "program may use: with less a right one would count as failed; raise it, or score elsewhere"
            )


def _limits(memory: int) -> Confinement:
    return Confinement(
        uid=NO_CHANGE,  # given when it starts
        memory=memory,
        file_size=OUTPUT_LIMIT,
        threads=THREAD_LIMIT,
        processes=THREAD_LIMIT,
        open_files=OPEN_FILES_LIMIT,
        readable=(),
        devices=(),
        read_any=False,
        filter=True,
    )


def _warden(limits: Confinement, scratch: str, *, alone: bool = False) -> tuple[str, ...]:
    config = WardenConfig(limits, scratch, alone).as_json()
    return (sys.executable, "-I", "-c", _START.format(root=str(ROOT)), config)


def _interpreter_trees() -> tuple[str, ...]:
    """The folders of Python and its packages; nothing else of the user's home is visible."""
    places = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *site.getsitepackages()]
    real = {os.path.realpath(place) for place in places} | set(places)
    return tuple(sorted(place for place in real if Path(place).is_dir()))


def _bubblewrap(limits: Confinement) -> Sandbox:
    return Sandbox(Tier.BUBBLEWRAP, (*_bwrap(), *_warden(limits, "/tmp")), _ENVIRONMENT)


def _namespaces_alone(limits: Confinement) -> Sandbox:
    warden = _warden(limits._replace(filter=False), "/tmp", alone=True)
    return Sandbox(Tier.NAMESPACES, (*_bwrap(), *warden), _ENVIRONMENT)


def _bwrap() -> tuple[str, ...]:
    program = shutil.which("bwrap") or "bwrap"
    shown = [path for path in (*_SYSTEM_TREES, *_SYSTEM_FILES) if Path(path).exists()]
    mounts = [part for path in shown for part in _mount(path)]
    mounts += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    mounts += ["--perms", "1777", "--size", str(SCRATCH_LIMIT), "--tmpfs", "/tmp"]
    for path in (*_interpreter_trees(), str(_JAIL), str(_SYSTEM_CALLS)):
        mounts += [*_parent_folders(path), "--ro-bind", path, path]
    mounts += ["--remount-ro", "/", "--chdir", "/tmp"]
    return (program, *_namespaces(), *mounts, "--")


def _mount(path: str) -> list[str]:
    """Arguments of bubblewrap: a link stays a link (/lib -> usr/lib), anything else is bound read-only."""
    if Path(path).is_symlink():
        return ["--symlink", str(Path(path).readlink()), path]
    return ["--ro-bind", path, path]


def _parent_folders(path: str) -> list[str]:
    """Arguments of bubblewrap for the folders above an interpreter in a private home; they are read-only."""
    above = [str(folder) for folder in reversed(Path(path).parents)][1:]
    return [part for folder in above for part in ("--perms", "0555", "--dir", folder)]


def _namespaces() -> list[str]:
    """Root needs no user namespace where its child can change to another user in ``confine``."""
    common = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    common += ["--die-with-parent", "--new-session", "--as-pid-1"]
    if not can_change_user():
        return ["--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY, *common]
    rights = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL")
    return [*common, "--cap-drop", "ALL", *(part for right in rights for part in ("--cap-add", right))]


def _landlock(limits: Confinement) -> Sandbox:
    readable = (*_SYSTEM_TREES, *_SYSTEM_FILES, *_interpreter_trees())
    limits = limits._replace(
        processes=THREAD_LIMIT + _tasks_running(),
        readable=readable,
        devices=_DEVICES,
        read_any=not all(_reachable_by_others(tree) for tree in _interpreter_trees()),
    )
    return Sandbox(Tier.LANDLOCK, _warden(limits, ""), _ENVIRONMENT)


def _unsandboxed(limits: Confinement) -> Sandbox:
    """Resource limits only."""
    limits = limits._replace(processes=THREAD_LIMIT + _tasks_running(), filter=False)
    return Sandbox(Tier.UNSANDBOXED, _warden(limits, ""), _ENVIRONMENT)


def _tasks_running() -> int:
    """RLIMIT_NPROC counts all threads of a user where no namespace separates them. Raises GradingError."""
    text = _LOADAVG.read_text()
    if (found := re.search(r"/([0-9]+) ", text)) is None:
        raise GradingError(
            f"{_LOADAVG}: got {printable(text.strip(), 40)!r}, expected the number of threads, without which "
            "programs cannot be limited; mount the machine's own (mount -t proc proc /proc)"
        )
    return int(found[1])


def _reachable_by_others(path: str) -> bool:
    """Whether a user who owns nothing may enter this folder and all above it."""
    return all(folder.stat().st_mode & 0o001 for folder in (Path(path), *Path(path).parents))


def _out_of_reach() -> str:
    """A folder of the interpreter that no child of root can read; root in docker has no such right."""
    if os.geteuid() != 0 or _permitted() >> CAP_DAC_READ_SEARCH & 1:
        return ""
    return next((tree for tree in _interpreter_trees() if not _reachable_by_others(tree)), "")


def _permitted() -> int:
    """The capabilities that this process may have, a bit for each; none where the kernel does not say."""
    found = re.search(r"^CapPrm:\s*([0-9a-f]+)$", _STATUS.read_text(), re.MULTILINE)
    return int(found[1], 16) if found else 0


def candidates() -> tuple[Tier, ...]:
    """The tiers to try on this processor, the strongest first."""
    known = platform.machine() in ARCHITECTURES
    return (Tier.BUBBLEWRAP, Tier.LANDLOCK) if known else (Tier.NAMESPACES,)


def unsupported(tier: Tier) -> str:
    """The reason why a tier cannot work here, found without trying it; empty when none is known."""
    if tier in (Tier.BUBBLEWRAP, Tier.NAMESPACES) and not shutil.which("bwrap"):
        return "bwrap is not installed (apt-get install bubblewrap)"
    if tier is Tier.LANDLOCK and (folder := _out_of_reach()):
        return (
            f"{folder} is closed to other users, and root lacks CAP_DAC_READ_SEARCH here (remove .venv, "
            "and run PYTHON=/usr/bin/python3 ./setup.sh)"
        )
    try:
        os.close(process_descriptor(os.getpid()))  # the fork server needs it in every tier
    except OSError as error:
        return f"{error.strerror} (Linux 5.3 has it; a container's seccomp profile may refuse it)"
    return ""


def refusal(reasons: dict[Tier, str]) -> GradingError:
    """The error for a machine without any sandbox."""
    found = "; ".join(f"{tier}: {reason}" for tier, reason in reasons.items())
    bubblewrap = "install bubblewrap"
    if shutil.which("bwrap"):
        bubblewrap = (
            "allow bubblewrap its namespaces (user.max_user_namespaces, a container's seccomp profile)"
        )
    return GradingError(
        f"no sandbox for model-written code ({found}); {bubblewrap}, or use Linux 5.13+ with Landlock,"
        " or accept the risk with --allow-unsandboxed"
    )
