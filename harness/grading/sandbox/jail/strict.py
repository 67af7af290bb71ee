"""Strict execution: the solution is the main program of a process with a real stdin and stdout."""

import atexit
import contextlib
import io
import json
import marshal
import os
import sys
import threading
import traceback
from types import CodeType, ModuleType
from typing import TextIO

from harness.grading.sandbox.jail import child_watch, preamble, values
from harness.grading.sandbox.jail.protocol import write_all

RESULT_FD = 3  # takes the encoded return value of a call-based problem
CODE_FD = 4  # takes the compiled solution at its first test and gives it at the later ones
SOURCE_FD = 5  # gives the source


class PreparedProcess:
    """Every test run's environment, made before the fork: streams on descriptors 0, 1, 2, and modules."""

    def __init__(self) -> None:
        # As the interpreter opens them at its start.
        self.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        self.stdout = _writer(1, "surrogateescape", False)
        self.stderr = _writer(2, "backslashreplace", True)
        streams = {"stdin": self.stdin, "stdout": self.stdout, "stderr": self.stderr}
        self.streams = {**streams, **{f"__{name}__": stream for name, stream in streams.items()}}
        self.main, self.solution = preamble.module("__main__"), preamble.module("solution")
        for module in (self.main, self.solution):
            vars(module).update(streams)  # ``from sys import *`` finds them there


def run(function: str, made: PreparedProcess) -> int:
    """Run one test in this process. Returns its exit code: 0, or another after an uncaught exception."""
    vars(sys).update(made.streams)
    try:
        if function:
            _call(function, made.solution)
        else:
            _main_program(made.main)
    except SystemExit:  # leaving early is no failure, whatever the code
        pass
    except BaseException as error:  # noqa: BLE001 - the process's edge
        with contextlib.suppress(BaseException):  # out of memory or threads, Python 3.13.0 raises SystemError
            traceback.print_exc(limit=3)
        _finish(made.stdout)
        return child_watch.exit_code(error)
    return _finish(made.stdout)


def _compiled() -> tuple[CodeType, bool]:
    """The code object of the solution, stored before any of the solution runs, and whether it has a class."""
    stored = _content(CODE_FD)
    if stored:
        code, has_class = marshal.loads(stored)
    else:
        source = _content(SOURCE_FD).decode("utf-8", "surrogatepass")
        code, has_class = compile(source, "solution.py", "exec"), "class Solution" in source
        write_all(CODE_FD, marshal.dumps((code, has_class)))
    os.close(CODE_FD)
    os.close(SOURCE_FD)
    return code, has_class


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _main_program(main: ModuleType) -> None:
    code, _ = _compiled()
    sys.argv = ["solution.py"]
    _execute(code, main)


def _call(function: str, module: ModuleType) -> None:
    (code, has_class), text = _compiled(), _content(0).decode("utf-8", "surrogatepass")
    _execute(code, module)
    owner = module.Solution() if has_class else module
    arguments = [json.loads(line) for line in text.split("\n")]
    write_all(RESULT_FD, values.encode(getattr(owner, function)(*arguments)))


def _execute(code: CodeType, module: ModuleType) -> None:
    sys.modules[module.__name__] = module
    sys.setrecursionlimit(preamble.RECURSION_LIMIT)
    exec(code, module.__dict__)


def _writer(fd: int, errors: str, line_buffering: bool) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(fd, "wb", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=line_buffering)


def _finish(printed: TextIO) -> int:
    """End as a real process does: join threads, run exit handlers, flush buffers.

    ``printed`` is the stdout of the start, which is flushed even where the solution replaced it.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr, printed):
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
    except BaseException as error:  # noqa: BLE001 - the process's edge
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
        return 1
    return 0
