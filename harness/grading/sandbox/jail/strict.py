"""Strict execution: the solution is the main program of a process with a real stdin and stdout."""

import atexit
import io
import json
import marshal
import os
import sys
import threading
import traceback
from types import CodeType, ModuleType
from typing import TextIO

from harness.grading.sandbox.jail import preamble, values, watch
from harness.grading.sandbox.jail.protocol import Job, write_all

RESULT_FD = 3  # takes the encoded return value of a call-based problem
CODE_FD = 4  # takes the compiled solution at its first test and gives it at the later ones


def run(job: Job, text: str) -> int:
    """Run one test in this process. Returns its exit code: 0, or another after an uncaught exception."""
    printed = _real_streams()
    try:
        if job.function:
            _call(job, _compiled(job), text)
        else:
            _main_program(_compiled(job))
    except SystemExit:  # leaving early is no failure, whatever the code
        pass
    except BaseException as error:  # noqa: BLE001 - the process's edge
        traceback.print_exc(limit=3)
        _finish(printed)
        return watch.exit_code(error)
    return _finish(printed)


def _compiled(job: Job) -> CodeType:
    """The code object of the solution, stored before any of the solution runs."""
    stored = os.pread(CODE_FD, os.fstat(CODE_FD).st_size, 0)
    if stored:
        code: CodeType = marshal.loads(stored)
    else:
        code = compile(job.code, "solution.py", "exec")
        write_all(CODE_FD, marshal.dumps(code))
    os.close(CODE_FD)
    return code


def _main_program(code: CodeType) -> None:
    main = _module("__main__")
    sys.argv = ["solution.py"]
    exec(code, main.__dict__)


def _call(job: Job, code: CodeType, text: str) -> None:
    module = _module("solution")
    exec(code, module.__dict__)
    owner = module.Solution() if "class Solution" in job.code else module
    arguments = [json.loads(line) for line in text.split("\n")]
    write_all(RESULT_FD, values.encode(getattr(owner, job.function)(*arguments)))


def _module(name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module
    module.__dict__.update(preamble.names())
    sys.setrecursionlimit(preamble.RECURSION_LIMIT)
    return module


def _real_streams() -> TextIO:
    """Open descriptors 0, 1, 2 as the interpreter does at its start. Returns the stream of stdout."""
    streams = {
        "stdin": open(0, encoding="utf-8", errors="surrogateescape", closefd=False),  # noqa: SIM115
        "stdout": _writer(1, "surrogateescape", False),
        "stderr": _writer(2, "backslashreplace", True),
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return streams["stdout"]


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
