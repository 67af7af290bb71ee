#!/usr/bin/env python3
"""Write docs/reference/run_json.md again: the fields of run.json, from the types of a run's record.

usage: python scripts/write_run_json_reference.py
"""

import ast
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import structs

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.config.plans import ClientPlan, RunPlan  # noqa: E402
from harness.record.run_record import RunRecord  # noqa: E402
from harness.record.server_metrics import QUANTITIES, Quantity  # noqa: E402
from harness.record.settled import Settled  # noqa: E402

PAGE = ROOT / "docs/reference/run_json.md"
MARK = "<!-- below: written by scripts/write_run_json_reference.py -->"
# Values whose fields stand side by side in the file, and the fields that hold them in a record.
_PARTS: dict[type, tuple[type, ...]] = {RunPlan: (ClientPlan, RunPlan, Settled)}
_HELD = ("client", "settled")
_SCHEMA = "| `schema` | integer | version of this format, 1 |"
_QUANTITIES = (
    "## Names in `server_load`",
    "",
    "A level goes up and down; a count only grows, until its server restarts. Of several metrics the first "
    "that a server has is read.",
    "",
    "| name | | meaning | read from |",
    "|---|---|---|---|",
)


def written(text: str) -> str:
    """``text`` up to the mark, and all tables after it."""
    return f"{text.partition(MARK)[0]}{MARK}\n\n{reference()}"


def reference() -> str:
    """A table for each type of value, under all places of the file that hold one; the servers' metrics."""
    places: dict[type, list[str]] = {}
    _collect(RunRecord, "", places)
    lines = [line for kind, found in places.items() for line in _section(found, kind)]
    return "\n".join([*lines, *_QUANTITIES, *map(_quantity, QUANTITIES, QUANTITIES.values()), ""])


def _quantity(name: str, one: Quantity) -> str:
    mode = f'{{mode="{one.mode}"}}' if one.mode else ""
    names = ", ".join(f"`{each}{mode}`" for each in one.names)
    return f"| `{name}` | {one.kind} | {one.meaning} | {names} |"


def _collect(kind: type, place: str, places: dict[type, list[str]]) -> None:
    places.setdefault(kind, []).append(place)
    for name, hint in _fields(kind):
        marks = "[]" if typing.get_origin(hint) is tuple else ""
        for inner in _values(hint):
            _collect(inner, f"{place}.{name}{marks}".lstrip("."), places)


def _section(places: list[str], kind: type) -> Iterator[str]:
    top = places == [""]
    title = "The file" if top else ", ".join(f"`{place}`" for place in places)
    yield from (f"## {title}", "", _cell(inspect.getdoc(kind) or ""), "")
    yield from ("| field | type | meaning |", "|---|---|---|", *([_SCHEMA] if top else []))
    meanings = {name: text for part in _PARTS.get(kind, (kind,)) for name, text in _meanings(part).items()}
    for name, hint in _fields(kind):
        yield f"| `{name}` | {_shown(hint)} | {_cell(meanings.get(name, ''))} |"
    yield ""


def _fields(kind: type) -> list[tuple[str, typing.Any]]:
    """The fields that the file has at a place, with their hints."""
    return [one for part in _PARTS.get(kind, (kind,)) for one in _own_fields(part) if one[0] not in _HELD]


def _own_fields(kind: type) -> list[tuple[str, typing.Any]]:
    hints = typing.get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in structs.fields(kind)]


def _values(hint: typing.Any) -> Iterator[type]:
    """The types of values with fields of their own in a hint."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in typing.get_args(hint):
        yield from _values(part)


def _shown(hint: typing.Any) -> str:
    """A hint in JSON's words."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_shown, parts)))
    if origin in (tuple, list):
        return f"array of {_shown(parts[0])}"
    if origin is typing.Literal:
        return "string"
    if origin is not None:
        return f"object of {_shown(parts[1])}"
    words = {int: "integer", float: "number", bool: "boolean", typing.Any: "any", type(None): "`null`"}
    if hint in words:
        return words[hint]
    return "object" if list(_values(hint)) else "string"


def _meanings(kind: type) -> dict[str, str]:
    """The text below a field or the comment beside it."""
    lines = inspect.getsource(kind).splitlines()
    (body,) = (node.body for node in ast.parse("\n".join(lines)).body if isinstance(node, ast.ClassDef))
    found = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        comment = lines[(node.end_lineno or 1) - 1].partition("  # ")[2]
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            comment = inspect.cleandoc(str(after.value.value))
        found[node.target.id] = comment
    return found


def _cell(text: str) -> str:
    """One line of Markdown."""
    return " ".join(re.sub(r"\bNone\b", "`null`", text.replace("``", "`")).split())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
