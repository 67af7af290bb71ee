"""The fenced blocks of an answer as Markdown reads them, and the program among them."""

import ast
import builtins
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from harness.grading.sandbox.jail import preamble

_FENCE = re.compile(r"^([ \t>]*+(?:(?:[-*+]|\d{1,3}[.)])[ \t]++)?+)(`{3,}+|~{3,}+)[ \t]*+([\w+-]*+)[^`]*+$")
_FENCE_AFTER_TEXT = re.compile(r"()(?<!`)(`{3,}+)(python3?|py3?)[ \t]*+$", re.IGNORECASE)
_CLOSED_AFTER_CODE = re.compile(r"^([^`]*[^`\s][^`]*)`{3,}[ \t]*$")
_QUOTED = re.compile(r"^[ \t]*+> ?", re.MULTILINE)
_PYTHON = re.compile(r"(?:python|py|pypy)\d*")
_READING = frozenset({"input", "stdin", "open", "fileinput", "read"})
_FENCES_IN_A_TEXT = 8  # the most that are tried
_WRITING = frozenset({"print", "stdout", "write", "writelines"})


class CodeBlock(NamedTuple):
    """A closed block: its language in lower case, empty where it names none, and its content."""

    language: str
    code: str

    @property
    def is_python(self) -> bool:
        """Whether it says so."""
        return bool(_PYTHON.fullmatch(self.language))


def candidates(text: str) -> list[CodeBlock]:
    """The blocks that can be the program, those in Python last, before them those without a language."""
    found = [
        block for block in fenced_blocks(text) if not block.language or block.is_python or _is_code(block)
    ]
    return sorted(found, key=lambda block: (block.is_python, not block.language))


def _is_code(block: CodeBlock) -> bool:
    """Whether a block of another name, as ``code``, is Python, and more than names and numbers."""
    tree = _parsed(block.code)
    return tree is not None and any(isinstance(node, ast.Call | ast.FunctionDef) for node in ast.walk(tree))


def program(codes: Sequence[str], function: str) -> str:
    """The last of the blocks that defines ``function``, or for a stdin problem reads and prints.

    With what it needs of the others: definitions above it, or the call of what it defines below it. The last
    one where no block is a program: an example of its use, or a part.
    """
    found = [number for number, code in enumerate(codes) if _is_program(code, function)]
    if not found:
        return codes[-1]
    number = found[-1]
    code = _with_definitions(codes[number], codes[:number])
    return code if function else _with_call(code, codes[number + 1 :])


def _is_program(code: str, function: str) -> bool:
    tree = _parsed(code)
    if tree is None:  # it fails, and is what the answer gives
        words = frozenset(re.findall(r"\w+", code))
        return f"def {function}" in code if function else bool(words & _READING and words & _WRITING)
    if function:
        return any(
            (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function)
            or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == function)
            for node in ast.walk(tree)
        )
    used = frozenset(_used(tree))
    return bool(used & _READING and used & _WRITING) and not any(map(_replaces_stdin, ast.walk(tree)))


def _replaces_stdin(node: ast.AST) -> bool:
    """``sys.stdin = io.StringIO(...)``: an example of use."""
    return (
        isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Attribute) and target.attr == "stdin" for target in node.targets)
        and "StringIO" in _used(node.value)
    )


def _with_definitions(code: str, above: Sequence[str]) -> str:
    """The code, after those of the blocks above it that only define names which it lacks."""
    tree = _parsed(code)
    if tree is None:
        return code
    for block in reversed(above):
        part = _parsed(block)
        if part and not _executes(part) and _lacking(tree) & _defined(part):
            code = f"{block}\n\n{code}"
            tree.body = [*part.body, *tree.body]
    return code


def _with_call(code: str, below: Sequence[str]) -> str:
    """Code that only defines names, in front of the first block below it that does something with them."""
    tree = _parsed(code)
    if tree is None or _executes(tree):
        return code
    for block in below:
        part = _parsed(block)
        if not part or any(map(_replaces_stdin, ast.walk(part))):
            continue
        if _executes(part) and _lacking(part) & _defined(tree):
            return f"{code}\n\n{block}"
    return code


def _executes(tree: ast.Module) -> bool:
    """Whether there is more at the top than definitions, imports, texts and values for names."""
    defining = (
        ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign,
        ast.AnnAssign,
    )  # fmt: skip
    return not all(
        isinstance(node, defining) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in tree.body
    )


def _lacking(tree: ast.Module) -> set[str]:
    """Names that are read and nowhere bound."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names - _stored(tree) - _bound(tree) - _promised()


def _bound(tree: ast.AST) -> set[str]:
    """Names that definitions, imports and arguments bind anywhere."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.arg():
                found.add(node.arg)
            case ast.alias():
                found.add((node.asname or node.name).partition(".")[0])
            case ast.ExceptHandler(name=str(name)):
                found.add(name)
    return found


def _defined(tree: ast.Module) -> set[str]:
    """Names that are bound at the top."""
    found: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Import() | ast.ImportFrom():
                found |= _bound(node)
            case ast.Assign() | ast.AnnAssign():
                found |= _stored(node)
    return found


def _stored(tree: ast.AST) -> set[str]:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return {name.id for name in names if not isinstance(name.ctx, ast.Load)}


@cache
def _promised() -> frozenset[str]:
    """Names that every program finds."""
    return frozenset(vars(builtins)) | frozenset(vars(preamble.module("promised"))) | {"__file__"}


def _used(tree: ast.AST) -> Iterator[str]:
    """Names, attributes and imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Name():
                yield node.id
            case ast.Attribute():
                yield node.attr
            case ast.alias():
                yield node.name


def _parsed(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd code, with a line on stderr
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def fenced_blocks(text: str) -> list[CodeBlock]:
    """The closed blocks in order. A fence inside a triple-quoted text of Python is none."""
    blocks: list[CodeBlock] = []
    opening: re.Match[str] | None = None
    content: list[str] = []
    lines, passed = text.split("\n"), 0
    for number, line in enumerate(lines):
        if number < passed:
            content.append(line)
            continue
        fence = _FENCE.match(line)
        if opening and fence and (end := _end_of_text(content, lines, number, opening)):
            content.append(line)
            passed = end
            continue
        closes = opening is not None and (_closes(fence, opening) if fence else None)
        if opening is None or (fence and fence[3]):
            opening, content = fence or _FENCE_AFTER_TEXT.search(line), []
        elif closes or (not fence and (last := _CLOSED_AFTER_CODE.match(line))):
            complete = content if closes else [*content, last[1].rstrip()]  # type: ignore[index]
            blocks.append(CodeBlock(opening[3].lower(), _outdented("\n".join(complete), opening[1])))
            opening = None
        else:
            content.append(line)
    return blocks


def _end_of_text(content: list[str], lines: list[str], number: int, opening: re.Match[str]) -> int:
    """The line of the fence that closes a block whose content so far is cut in a text; 0 where it is not."""
    if not any("\n".join(content).count(quotes) % 2 for quotes in ('"""', "'''")):
        return 0
    tried = 0
    for later in range(number + 1, len(lines)):
        fence = _FENCE.match(lines[later])
        if fence and not fence[3] and _closes(fence, opening):
            whole = [*content, *lines[number:later]]
            if _parsed(_outdented("\n".join(whole), opening[1])):
                return later
            tried += 1
            if tried == _FENCES_IN_A_TEXT:
                break
    return 0


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    """A fence closes one of the same kind that is no longer than itself."""
    return fence[2][0] == opening[2][0] and len(fence[2]) >= len(opening[2])


def _outdented(code: str, lead: str) -> str:
    """The code without the quotation marks or the indentation of the list item around the block."""
    if ">" in lead:
        code = _QUOTED.sub("", code)
    return textwrap.dedent(code) if lead or code[:1] in (" ", "\t") else code
