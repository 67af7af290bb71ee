"""Errors a user can cause. Each type carries the exit code of the program.

A message has one line: what, got, expected, remedy.
"""

import errno
import os
import sys

EXIT_VALID = 0
EXIT_USAGE = 2
EXIT_SERVER = 3
EXIT_INVALID = 4
EXIT_THRESHOLD = 5


class HarnessError(Exception):
    """Base of every error that is printed as one line instead of a traceback."""

    exit_code = EXIT_USAGE


class ConfigError(HarnessError):
    """A flag, benchmark definition, generation config or LoadGen conf file is wrong."""


class DatasetError(HarnessError):
    """The dataset file is missing, malformed or not the one that the benchmark needs."""


class ServerError(HarnessError):
    """The server cannot be used: unreachable, unhealthy, or its answers break the protocol."""

    exit_code = EXIT_SERVER


class RunError(HarnessError):
    """The run ended without a usable result: LoadGen or a worker process died, nothing completed."""

    exit_code = EXIT_INVALID


class GradingError(HarnessError):
    """An accuracy log or its references cannot be graded."""


class EntryError(GradingError):
    """An entry of an accuracy log or a table cannot be graded; who opened the file adds its path."""


# What the machine ran out of, and what to do about it.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SPACE = "free space there or"
_REMEDIES = {
    **dict.fromkeys(_FULL, f"{_SPACE} choose another folder"),
    errno.EFBIG: "lift the limit on the size of files (ulimit -f)",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow the system more open files (sysctl fs.file-max)",
    errno.ENOMEM: "free memory, or lift the limit on it (ulimit -v)",
    errno.EAGAIN: "allow more processes (ulimit -u)",
    errno.EADDRNOTAVAIL: "allow more local ports (sysctl net.ipv4.ip_local_port_range)",
    errno.ENOENT: "it was removed during the run; leave the output folder as it is until the run ends",
    errno.EACCES: "let this user reach it, or name another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EROFS: "the file system is mounted read-only, or has become so: see dmesg for errors of the disk",
    errno.EIO: "the disk reports errors: see dmesg",
}


# What another folder does not cure.
_EVERYWHERE = (errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)

# Errors of libraries for which the machine has no thread, and of the loader for a shared library.
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")  # Python's, LoadGen's and Arrow's
_NOT_MAPPED = "failed to map segment"


def explained(error: BaseException, written: os.PathLike[str] | None = None) -> HarnessError | None:
    """An error that a user can cause or cure, as one line; None for one that is a mistake in the program.

    ``written``: as of machine_failure.
    """
    match error:
        case HarnessError():
            return error
        case Exception() if not isinstance(error, OSError) and any(sign in str(error) for sign in _NO_THREAD):
            return RunError(
                "no more threads can be started; allow more processes (ulimit -u, in a container its limit "
                "of pids), or more memory (ulimit -v)"
            )
        case FileNotFoundError(filename=None) if not _has_working_directory():
            return ConfigError('the working directory was removed; if it was made anew: cd "$PWD"')
        case OSError(filename=str(), errno=errno.EACCES | errno.EPERM | errno.ENAMETOOLONG):
            return ConfigError(str(machine_failure(error)))
        case OSError() | MemoryError():
            return machine_failure(error, written)
        case RuntimeError() | ImportError() if _NOT_MAPPED in str(error):
            return _not_mapped()
        case ImportError():
            return _wrong_interpreter(error)
    return None


def in_words(error: BaseException) -> str:
    """The line that a child process reports: as ``explained``, or with the type of a mistake."""
    return str(explained(error) or f"{type(error).__name__}: {error}")


def _has_working_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is not loaded here
    except FileNotFoundError:
        return False
    return True


# Folders in which Python and the loader look before they look in the checkout's environment.
_SEARCHED_FIRST = ("PYTHONPATH", "LD_LIBRARY_PATH")


def _not_mapped() -> HarnessError:
    if os.statvfs(sys.prefix).f_flag & os.ST_NOEXEC:
        return ConfigError(
            f"{sys.prefix}: no library can be loaded from there, its file system is mounted noexec; move the "
            "checkout to another, or have it mounted with exec"
        )
    return machine_failure(MemoryError())


def _wrong_interpreter(error: ImportError) -> ConfigError | None:
    """For an interpreter without the pinned packages or their libraries, or too old for its own library."""
    ours = (error.name or "").partition(".")[0] in ("harness", "sut")
    # numpy adds a page of advice.
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    is_missing = isinstance(error, ModuleNotFoundError) or ".so" in str(cause)  # of the loader
    if sys.version_info >= (3, 11) and (ours or not is_missing):
        return None
    remedy = "run ./setup.sh once, and start every program with ./mlperf"
    if misleading := [name for name in _SEARCHED_FIRST if os.environ.get(name)]:
        remedy = f"unset {' '.join(misleading)}, or {remedy}"
    return ConfigError(f"{sys.executable} cannot run this: {cause}; {remedy}")


def refused(error: OSError, remedy: str) -> str:
    """``Permission denied; choose another folder``; its own remedy for what every folder refuses.

    Of a full disk space comes first: what is there would not be in another place.
    """
    own = _REMEDIES[error.errno] if error.errno in _EVERYWHERE else remedy
    return f"{error.strerror or error}; {f'{_SPACE} ' if error.errno in _FULL else ''}{own}"


def machine_failure(error: OSError | MemoryError, written: os.PathLike[str] | None = None) -> RunError:
    """A refusal by the machine as an error of one line: where, what, remedy.

    ``written``: what was written, for an error without a path, as that of a write to a full disk is.
    """
    if isinstance(error, MemoryError):
        return RunError(f"out of memory; {_REMEDIES[errno.ENOMEM]}")
    place = error.filename or written
    return RunError(f"{place}: {_refusal(error)}" if place else _refusal(error))


def unwritten(path: os.PathLike[str], error: OSError | MemoryError) -> str:
    """``/path/run.json could not be written: No space left on device; free space there or ...``.

    An error of another file, such as one that was read for it, names that one, too.
    """
    if isinstance(error, OSError):
        of = (error.filename, error.filename2)  # the second is what a file was renamed to
        if not any(of) or os.fspath(path) in of:
            return f"{path} could not be written: {_refusal(error)}"
    return f"{path} could not be written: {machine_failure(error)}"


def _refusal(error: OSError) -> str:
    """``No space left on device; free space there or choose another folder``."""
    remedy = _REMEDIES.get(error.errno or 0, "check the machine's limits and disks")
    if error.errno == errno.ENOENT and str(error.filename or "").startswith("/proc/"):
        remedy = "mount it (mount -t proc proc /proc)"
    return f"{error.strerror or error}; {remedy}"
