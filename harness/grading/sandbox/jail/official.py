"""Official execution: the public LiveCodeBench runner's rules, its mistakes included.

A stdin program becomes the body of a function whose ``sys.stdin`` is replaced by an object that looks
like a stream only in part; all tests of a solution run in one process. Verdicts made with these rules
are what published scores consist of, so no mistake may be corrected here.
"""

import ast
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from harness.grading.sandbox.jail import preamble, values
from harness.grading.sandbox.jail.protocol import Job

WRAPPER = "wrapped_function"
_MAIN_GUARD = "__name__ == '__main__'"
_FORBIDDEN_OS = (
    "kill", "system", "putenv", "remove", "removedirs", "rmdir", "fchdir", "setuid", "fork", "forkpty",
    "killpg", "rename", "renames", "truncate", "replace", "unlink", "fchmod", "fchown", "chmod", "chown",
    "chroot", "lchflags", "lchmod", "lchown", "getcwd", "chdir",
)  # fmt: skip
_FORBIDDEN_MODULES = ("ipdb", "joblib", "resource", "psutil", "tkinter")

Attempt = Callable[[str], bytes]


class NotGradableError(Exception):
    """Raised for a solution that defines nothing that a test could call."""


def prepare(job: Job) -> Attempt:
    """Compile the solution; the result runs it on one input and returns stdout or the encoded value.

    Raises what the top level of the solution raises, SystemExit included.
    """
    _remove_functions()
    if job.function:
        method = _callable(preamble.SOURCE + "\n\n" + job.code, job.function)
        return lambda text: _returned(method, text)
    program = _callable(_as_function(_without_main_guard(job.code)), WRAPPER)
    return lambda text: _printed(program, text).encode("utf-8", "surrogatepass")


def _remove_functions() -> None:
    import builtins
    import shutil
    import subprocess

    sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - as multiprocessing leaves it
    vars(builtins).update(quit=None, help=None)
    vars(os).update(dict.fromkeys(_FORBIDDEN_OS))
    vars(shutil).update(dict.fromkeys(("rmtree", "move", "chown")))
    vars(subprocess).update(Popen=None)
    sys.modules.update(dict.fromkeys(_FORBIDDEN_MODULES))  # type: ignore[arg-type]


def _callable(source: str, name: str) -> Callable[..., Any]:
    module = ModuleType("tmp_sol", "")
    exec(source, module.__dict__)
    owner = module.Solution() if "class Solution" in source else module
    if not hasattr(owner, name):
        raise NotGradableError(f"the solution defines no {name}")
    method: Callable[..., Any] = getattr(owner, name)
    return method


def _without_main_guard(code: str) -> str:
    """Unwrap a trailing ``if __name__ == '__main__':``."""
    try:
        body = ast.parse(code).body
        last = body[-1]
        if isinstance(last, ast.If) and ast.unparse(last.test).strip() == _MAIN_GUARD:
            return _source(body[:-1]) + "\n" + _source(last.body)
    except Exception:  # noqa: BLE001 - the official rule: what cannot be parsed stays as it is
        return code
    return code


def _as_function(code: str) -> str:
    """The source with imports at the top, after the preamble, and every other statement in one function."""
    try:
        body = ast.parse(code).body
        imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        others = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
        function = ast.parse(f"def {WRAPPER}(): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        function.body = others
        return "\n".join((preamble.SOURCE, _source(imports), ast.unparse(function)))
    except Exception:  # noqa: BLE001 - as above; running it then fails in the solution's name
        return code


def _source(nodes: list[Any]) -> str:
    return ast.unparse(nodes)  # type: ignore[arg-type]  # a list is taken, and joined without a module


def _returned(method: Callable[..., Any], text: str) -> bytes:
    arguments = [json.loads(line) for line in text.split("\n")]
    return values.encode(method(*arguments))


def _printed(program: Callable[[], Any], text: str) -> str:
    """Everything printed to ``sys.stdout`` until the function returned; threads are not joined."""
    captured = io.StringIO()
    captured.close = lambda _: 1  # type: ignore[method-assign,misc,assignment]  # so close() raises
    before, sys.stdout = sys.stdout, captured
    try:
        with _mocked_input(text):
            program()
    except SystemExit:
        pass
    finally:
        output, sys.stdout = captured.getvalue(), before
    return output


@contextlib.contextmanager
def _mocked_input(text: str) -> Iterator[None]:
    """Replace ``sys.stdin``, ``open``, and three methods of the real stdin: it may be imported by name."""
    lines = iter(text.split("\n"))
    methods = {
        "read": lambda *_: text,
        "readlines": lambda *_: text.split("\n"),
        "readline": lambda *_: next(lines),
    }
    with contextlib.ExitStack() as stack:
        for name, method in methods.items():
            stack.enter_context(mock.patch.object(sys.stdin, name, method))
        stack.enter_context(mock.patch("sys.stdin", Stdin(text)))
        stack.enter_context(mock.patch("builtins.open", mock.mock_open(read_data=text)))
        yield


class _Bytes:
    """``sys.stdin.buffer``: every readline() gives the first line again."""

    def __init__(self, text: str) -> None:
        self.inputs = text.encode()

    def read(self, *_: object) -> bytes:
        return self.inputs

    def readline(self, *_: object) -> bytes:
        return self.inputs.split(b"\n")[0] + b"\n"


class Stdin:
    """``sys.stdin``: reads as a stream does, but cannot be iterated, and every read() returns all input."""

    def __init__(self, text: str) -> None:
        self.inputs = text
        self.buffer = _Bytes(text)
        self._lines = io.StringIO(text)

    def read(self, *_: object) -> str:
        """The complete input, each time."""
        return self.inputs

    def readline(self, *size: int) -> str:
        """The next line, as a stream gives it."""
        return self._lines.readline(*size)

    def readlines(self, *_: object) -> list[str]:
        """All lines, without their ends."""
        return self.inputs.split("\n")

    def __getattr__(self, name: str) -> object:
        return getattr(self._lines, name)
