"""Official execution: the public LiveCodeBench runner's rules, its mistakes included.

A stdin program becomes the body of a function whose ``sys.stdin`` is replaced by an object that looks
like a stream only in part; all tests of a solution run in one process. Verdicts made with these rules
are what published scores consist of, so no mistake may be corrected here.
"""

import ast
import builtins
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, TextIO

from harness.grading.sandbox.jail import child_watch, preamble, protocol, values

WRAPPER = "wrapped_function"
_MAIN_GUARD = "__name__ == '__main__'"
_FORBIDDEN_OS = (
    "kill", "system", "putenv", "remove", "removedirs", "rmdir", "fchdir", "setuid", "fork", "forkpty",
    "killpg", "rename", "renames", "truncate", "replace", "unlink", "fchmod", "fchown", "chmod", "chown",
    "chroot", "lchflags", "lchmod", "lchown", "getcwd", "chdir",
)  # fmt: skip
_FORBIDDEN_MODULES = ("ipdb", "joblib", "resource", "psutil", "tkinter")

# Descriptors of the process; texts travel in memory files, their lengths through pipes.
INBOX_FD, OUTBOX_FD, TEXT_IN_FD, TEXT_OUT_FD, SOURCE_FD = range(3, 8)
LENGTH = 8  # bytes
_LONGEST_MESSAGE = 2_000

Attempt = Callable[[str], bytes]


class NotGradableError(Exception):
    """Raised for a solution that defines nothing that a test could call."""


class PreparedModule:
    """Every solution's environment, made before the fork: a module with the promised names, empty stdin."""

    def __init__(self) -> None:
        # The public runner has it; without os.getcwd it could not be loaded later.
        import multiprocessing  # noqa: F401

        self.module = preamble.module("tmp_sol", "")
        self.stdin: TextIO = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        self.first_stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123
        self.first_stdin.close()


def serve_tests(function: str, made: PreparedModule) -> int:
    """Run one input after the other, until the first exception. Returns the exit code of this process."""
    try:
        code = os.pread(SOURCE_FD, os.fstat(SOURCE_FD).st_size, 0).decode("utf-8", "surrogatepass")
        os.close(SOURCE_FD)
        attempt = prepare(code, function, made)
        while True:
            size = int.from_bytes(protocol.read_exactly(INBOX_FD, LENGTH), "little")
            output = attempt(os.pread(TEXT_IN_FD, size, 0).decode("utf-8", "surrogatepass"))
            protocol.write_all(OUTBOX_FD, store(TEXT_OUT_FD, output))
    except BaseException as error:  # noqa: BLE001 - the process's edge
        with contextlib.suppress(BaseException):
            os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace")[:_LONGEST_MESSAGE])
        return child_watch.exit_code(error)


def store(fd: int, text: bytes) -> bytes:
    """Replace the content of a memory file. Returns its length as the bytes that are sent through a pipe."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    protocol.write_all(fd, text)
    return len(text).to_bytes(LENGTH, "little")


def prepare(code: str, function: str, made: PreparedModule) -> Attempt:
    """Compile the solution; the result runs it on one input and returns stdout or the encoded value.

    Raises what the top level of the solution raises, SystemExit included.
    """
    # As multiprocessing leaves them: the first one is closed, the other reads nothing.
    sys.__stdin__, sys.stdin = made.first_stdin, made.stdin  # type: ignore[misc]
    _remove_functions()
    vars(made.module).update(quit=None, help=None, stdin=made.stdin)
    if function:
        method = _callable(preamble.LAST_LINE + "\n\n" + code, function, made.module)
        return lambda text: _returned(method, text)
    source = _as_function(*_without_main_guard(code))
    if source is None:  # the official rule: what cannot be parsed stays as it is, and then fails
        program = _callable(code, WRAPPER, ModuleType("tmp_sol", ""))
    else:
        program = _callable(source, WRAPPER, made.module)
    return lambda text: _printed(program, text).encode("utf-8", "surrogatepass")


def _remove_functions() -> None:
    vars(builtins).update(quit=None, help=None)
    vars(os).update(dict.fromkeys(_FORBIDDEN_OS))
    sys.meta_path.insert(0, _Remover())
    sys.modules.update(dict.fromkeys(_FORBIDDEN_MODULES))  # type: ignore[arg-type]


class _Remover:
    """Removes functions from modules that are rarely imported, when a solution imports one."""

    FUNCTIONS: Mapping[str, Sequence[str]] = {"shutil": ("rmtree", "move", "chown"), "subprocess": ("Popen",)}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As a finder of sys.meta_path."""
        spec = PathFinder.find_spec(name) if name in self.FUNCTIONS else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                vars(module).update(dict.fromkeys(self.FUNCTIONS[name]))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _callable(source: str, name: str, module: ModuleType) -> Callable[..., Any]:
    exec(source, module.__dict__)
    owner = module.Solution() if "class Solution" in source else module
    if not hasattr(owner, name):
        raise NotGradableError(f"the solution defines no {name}")
    method: Callable[..., Any] = getattr(owner, name)
    return method


def _without_main_guard(code: str) -> tuple[str, list[ast.stmt] | None]:
    """The source with a trailing ``if __name__ == '__main__':`` unwrapped, or its statements without one."""
    try:
        body = ast.parse(code).body
        last = body[-1]
        if isinstance(last, ast.If) and ast.unparse(last.test).strip() == _MAIN_GUARD:
            return _source(body[:-1]) + "\n" + _source(last.body), None
    except Exception:  # noqa: BLE001 - the official rule: what cannot be parsed stays as it is
        return code, None
    return code, body


def _as_function(code: str, body: list[ast.stmt] | None) -> str | None:
    """The source with imports at the top, after the preamble, and every other statement in one function.

    None where that cannot be had.
    """
    try:
        body = ast.parse(code).body if body is None else body
        imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        others = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
        function = ast.parse(f"def {WRAPPER}(): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        function.body = others
        return "\n".join((preamble.LAST_LINE, _source(imports), ast.unparse(function)))
    except Exception:  # noqa: BLE001 - as above; running it then fails in the solution's name
        return None


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
    lines, real = iter(text.split("\n")), sys.stdin
    methods = {
        "read": lambda *_: text,
        "readlines": lambda *_: text.split("\n"),
        "readline": lambda *_: next(lines),
    }
    with contextlib.ExitStack() as stack:
        for name, method in methods.items():
            setattr(real, name, method)
            stack.callback(delattr, real, name)
        stack.callback(setattr, sys, "stdin", real)
        stack.callback(setattr, builtins, "open", builtins.open)
        sys.stdin, builtins.open = Stdin(text), _mocked_open(text)
        yield


def _mocked_open(text: str) -> Callable[..., Any]:
    """``mock_open`` made at the first call: it costs more than most tests, and the preamble's ``open`` is
    another one.
    """
    made: list[Callable[..., Any]] = []

    def open(*arguments: object, **named: object) -> object:
        if not made:
            from unittest import mock

            made.append(mock.mock_open(read_data=text))
        return made[0](*arguments, **named)

    return open


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
