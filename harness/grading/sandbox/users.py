"""A user for each sandbox: RLIMIT_NPROC counts all threads of a user, in whichever sandbox they run."""

import errno
import itertools
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from harness.errors import GradingError

NO_CHANGE = 0  # the grader's own user
# No account has these by systemd's table of uids; the second range is for machines with more workers,
# where a service with DynamicUser= may have one. All lie below 65,536, as a container's users do.
_UNUSED, _FURTHER = range(60_578, 61_184), range(61_184, 64_000)
_LOCK = "\0mlperf-harness-sandbox-user-{}"  # an abstract socket: bound once, and free when its process ends

# One user after the other, so that threads of a sandbox that was just killed are not met by the next one.
_turn = itertools.count(random.randrange(len(_UNUSED)))


@contextmanager
def own_user() -> Iterator[int]:
    """A user id that no other sandbox of this machine has until the exit; NO_CHANGE where none can be had.

    The processes that exclude each other are those of one network namespace.
    Raises GradingError when all are taken.
    """
    if not can_change_user():
        yield NO_CHANGE
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        yield _take(lock)


@cache
def can_change_user() -> bool:
    """Whether a child can be another user: only of root, and not in a user namespace without another.

    In a container of root by enroot a change of user succeeds without effect.
    """
    if os.geteuid() != 0:
        return False
    user = _UNUSED[0]
    try:
        seen = subprocess.run(("id", "-u"), user=user, stdout=subprocess.PIPE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    return int(seen) == user


def _take(lock: socket.socket) -> int:
    first = next(_turn) % len(_UNUSED)
    users: list[int] = [*_UNUSED[first:], *_UNUSED[:first], *_FURTHER]
    for uid in users:
        try:
            lock.bind(_LOCK.format(uid))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return uid
    raise GradingError(
        f"all {len(_UNUSED) + len(_FURTHER)} user ids for sandboxes are in use; "
        "end other evaluators on this machine"
    )
