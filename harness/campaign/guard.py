"""The process that starts the command of a campaign's servers, keeps its log, and stops all that it started.

    python -I guard.py MARK LOG PARENT GRACE_S COMMAND

It ends when every process of the command has ended, with the command's exit code. It stops them all when the
command fails, when it gets SIGTERM, or when its parent dies. Processes are known by MARK in their
environment, which forks, daemons and changes of session keep. Standard library only.
"""

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
MOST_BYTES = 64 << 20  # of the log; then it begins again, and the part before stays as LOG.1
GRACE_S = 30.0  # between SIGTERM and SIGKILL
_KILL_S = 10.0
LOOK_S = 0.5
MARK = "MLPERF_CAMPAIGN"  # the variable that marks processes


def processes(mark: str, *, ancestor: int | None = None) -> set[int]:
    """Processes of the command that live, but this one: those with the mark, and who descends from them.

    vLLM and SGLang write the names of some processes over their environment, and the mark with it. Where
    the parents of such a one have ended, it is known by its session, or as it descends from ``ancestor``.
    """
    wanted = f"{MARK}={mark}".encode()
    kin: dict[int, tuple[int, int]] = {}  # parent and session
    members, overwritten = set(), set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            state, parent, session = _status(entry)
        except OSError:
            continue  # it has ended, or is another user's
        if state == b"Z":
            continue
        kin[int(entry.name)] = parent, session
        if wanted in variables:
            members.add(int(entry.name))
        elif b"=" not in variables[0]:
            overwritten.add(int(entry.name))
    while True:
        parents = members | {ancestor}
        sessions = {kin[pid][1] for pid in members} - {0, os.getsid(0)}
        more = {pid for pid, (parent, _) in kin.items() if parent in parents}
        more |= {pid for pid in overwritten if kin[pid][1] in sessions}
        if more <= members:
            return members
        members |= more


def _status(entry: Path) -> tuple[bytes, int, int]:
    """State, parent and session of a process."""
    state, parent, _, session = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:4]
    return state, int(parent), int(session)


def stop(mark: str, grace_s: float, *, ancestor: int | None = None) -> None:
    """End all processes of the command, by SIGTERM and, of those that stay, by SIGKILL."""
    left: set[int] = set()

    def signalled(signum: int) -> bool:
        """Send a signal, 0 for none, to those that are left. Returns whether any is."""
        nonlocal left
        # Once found they count until they have ended: one that ends has no environment, but still its ports.
        left = {pid for pid in left | processes(mark, ancestor=ancestor) if not _ended(pid)}
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signum)
        return bool(left)

    signalled(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if not signalled(0):
            return
        time.sleep(0.1)
    # Again, as one may have started another meanwhile; one that waits for a device may never end.
    deadline = time.monotonic() + _KILL_S
    while signalled(signal.SIGKILL) and time.monotonic() < deadline:
        time.sleep(0.05)


def _ended(pid: int) -> bool:
    """Whether all threads of a process have ended, not its first one alone."""
    entry = Path(f"/proc/{pid}")
    try:
        return _status(entry)[0] == b"Z" and len([*(entry / "task").iterdir()]) == 1
    except OSError:
        return True


def _reap() -> None:
    """Take the exit codes of children whose own parents have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _pump(source: IO[bytes], path: Path) -> None:
    """Write what the command prints to the log, which stays bounded."""
    log = path.open("ab", buffering=0)
    while data := os.read(source.fileno(), 1 << 16):
        if log.tell() + len(data) > MOST_BYTES:
            log.close()
            path.replace(path.with_name(f"{path.name}.1"))
            log = path.open("wb", buffering=0)
        try:
            log.write(data)
        except OSError:
            continue  # a full disk must not stop the servers
    log.close()


def _came(signals: "queue.SimpleQueue[int]", limit_s: float) -> bool:
    """Whether a signal comes within the time."""
    with suppress(queue.Empty):
        signals.get(timeout=limit_s)
        return True
    return False


def main(mark: str, log: Path, parent: int, grace_s: float, command: str) -> int:
    """Run the command until it has ended with all that it started."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # daemons of the command become children of this process
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()  # a handler must not wait for an Event's lock
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda number, _: signals.put(number))
    if os.getppid() != parent:
        return 1
    started = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {MARK: mark},
        start_new_session=True,
    )
    assert started.stdout is not None
    threading.Thread(target=_pump, args=(started.stdout, log), daemon=True).start()
    while not (is_stopped := _came(signals, LOOK_S)):
        if started.poll() is not None:
            _reap()
            if started.returncode or not processes(mark, ancestor=os.getpid()):
                time.sleep(LOOK_S)  # the last lines of its output
                break
    # Of a command that failed, parts may live on and hold a GPU's memory, as vLLM's engine does.
    stop(mark, grace_s, ancestor=os.getpid())
    code = 0 if is_stopped else started.returncode
    return code if code >= 0 else 128 - code  # as a shell gives that of a signal


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]))
