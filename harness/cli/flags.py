"""Flags from an options class, and back: each field says how it is written on the command line.

Imports stay light, since ``--help`` uses them.
"""

import argparse
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from harness.cli.parser import not_text

Options = TypeVar("Options")

_FLAG = "flag"
_MOST_BYTES = 255  # of a name; for a longer one Linux has an error instead of an answer


@dataclass(frozen=True, slots=True)
class Flag:
    """How a field is typed."""

    names: tuple[str, ...]
    """Its spellings; none: the field's own name with hyphens."""
    words: Mapping[str, Any]
    """What argparse's ``add_argument`` gets beside what follows from the field's type and default."""
    old: tuple[str, ...] = ()
    """Further spellings, which the help does not show."""


def flag(
    text: str,
    *names: str,
    default: Any = MISSING,
    untyped: Any = MISSING,
    old: tuple[str, ...] = (),
    **words: Any,
) -> Any:
    """A field of an options class with its help text; without a default it is required.

    ``names`` are its spellings where they are not the field's name, such as ``"--input", "-i"``; one
    without a hyphen is a positional argument. ``untyped`` is what the parser gives in place of the default
    where the flag was not typed. ``old`` spellings mean the same without being shown. ``words`` are those of
    argparse's ``add_argument``; ``choices`` may be a function that gives them when the parser is built.
    """
    if untyped is not MISSING:
        words["default"] = untyped
    return field(default=default, metadata={_FLAG: Flag(names, {"help": text, **words}, old)})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(flag, field))
def options(cls: type[Options]) -> type[Options]:
    """Make a class the options of a command: frozen, by keyword."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(flag, field))
def shared_options(cls: type[Options]) -> type[Options]:
    """The same for fields of several commands beside another base: of two bases only one can have slots."""
    return dataclass(frozen=True, kw_only=True)(cls)


def add_flags(group: argparse._ActionsContainer, cls: type, names: Iterable[str]) -> None:
    """Add the flags of these fields in this order."""
    own = {item.name: item for item in fields(cls)}
    hints = _hints_of(cls)
    for name in names:
        item = own[name]
        how: Flag = item.metadata[_FLAG]
        words = _of_type(hints[name], how.words) | _of_default(item, how) | dict(how.words)
        if callable(choices := words.get("choices")):
            words["choices"] = tuple(choices())
        spelt = how.names or (_spelt(name, off=item.default is True),)
        if spelt[0].startswith("-"):
            words["dest"] = name
        action = group.add_argument(*spelt, **words)
        group._option_string_actions |= dict.fromkeys(how.old, action)


@cache
def _hints_of(cls: type) -> Mapping[str, Any]:
    return get_type_hints(cls)


def add_groups(parser: argparse.ArgumentParser, cls: type, groups: Mapping[str, Iterable[str]]) -> None:
    """Add groups of flags by their titles; without a title they stand beside ``--help``."""
    for title, names in groups.items():
        add_flags(parser.add_argument_group(title) if title else parser, cls, names)


class Command(NamedTuple):
    """A command of a program."""

    options: type
    flags: tuple[str, ...] | Mapping[str, tuple[str, ...]]
    """Names of the fields that its flags fill, in the order of the help; of groups by their titles."""
    text: str
    words: Mapping[str, Any] = types.MappingProxyType({})
    """What its parser gets beside the text."""


def add_commands(parser: argparse.ArgumentParser, commands: Mapping[str, Command]) -> None:
    """Add commands, one of which must be typed; ``command`` is its name."""
    added = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (cls, flags, text, words) in commands.items():
        own = added.add_parser(name, help=text, description=text, **words)
        if isinstance(flags, Mapping):
            add_groups(own, cls, flags)
        else:
            add_flags(own, cls, flags)


def read(cls: type[Options], given: Mapping[str, Any]) -> Options:
    """The options among parsed flags; what was not typed keeps its default."""
    values = {}
    for item in fields(cls):  # type: ignore[arg-type]
        if item.name in given and not (given[item.name] is None and _is_repeated(item)):
            value = given[item.name]
            values[item.name] = tuple(value) if isinstance(value, list) else value
    return cls(**values)


def _spelt(name: str, *, off: bool) -> str:
    return f"--{'no-' if off else ''}{name.replace('_', '-')}"


def _is_repeated(item: Field[Any]) -> bool:
    return isinstance(item.default, tuple)


def _of_type(hint: Any, words: Mapping[str, Any]) -> dict[str, Any]:
    """What argparse needs for values of a type; None in it is for a flag that was not typed."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [kind for kind in members if kind is not type(None)]
    if len(kinds) != 1 or "type" in words or "action" in words:
        return {}
    (kind,) = kinds
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction if len(members) > 1 else "store_true"}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) in (tuple, Sequence) and "nargs" not in words:
        return {"action": "append"}
    return {"type": {Path: path, str: plain_text}.get(kind, kind)} if kind in (Path, str, int, float) else {}


def _of_default(item: Field[Any], how: Flag) -> dict[str, Any]:
    if item.default is True:
        return {"default": True, "action": "store_false"}
    if item.default is not MISSING:
        return {"default": None if _is_repeated(item) else item.default}
    return {"required": True} if not how.names or how.names[0].startswith("-") else {}


def plain_text(word: str) -> str:
    """A flag's text; argparse names the flag where it is none."""
    if wrong := not_text(word):
        raise argparse.ArgumentTypeError(wrong)
    return word


def path(text: str) -> Path:
    """A flag's path; argparse names the flag where the text is no path."""
    if not plain_text(text):
        raise argparse.ArgumentTypeError("the path is empty")
    if (longest := max((len(part.encode()) for part in Path(text).parts), default=0)) > _MOST_BYTES:
        raise argparse.ArgumentTypeError(f"a name of {longest} bytes, expected at most {_MOST_BYTES}")
    return Path(text)
