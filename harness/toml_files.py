"""A user's TOML, read into a struct; an unknown key is named with the one that may be meant."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from harness.errors import ConfigError
from harness.files import read_decoded

Table = TypeVar("Table", bound=msgspec.Struct)
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def read_struct(source: str, path: Path, kind: type[Table], remedy: str) -> Table:
    """The file as a struct. Raises ConfigError that begins with ``source``."""
    fields = read_decoded(source, path, msgspec.toml.decode, remedy)
    return converted(source, fields, kind)


def converted(source: str, fields: Any, kind: type[Table], place: str = "") -> Table:
    """Tables of a TOML as a struct; ``place`` is that of the outermost. Raises ConfigError."""
    for table, name, known in unknown_keys(fields, kind, place):
        where = f": [{table}]" if table else ""
        raise ConfigError(f"{source}{where}: unknown key {name!r}{meant(name, known)}")
    try:
        return msgspec.convert(fields, kind, dec_hook=lambda to, value: to(value))
    except msgspec.ValidationError as error:
        where = f": [{place}]" if place else ""
        raise ConfigError(f"{source}{where}: {error}{_meant_value(kind, str(error))}") from error


def _meant_value(kind: type[msgspec.Struct], error: str) -> str:
    """The rest of a message about a value of a key that takes certain words only."""
    found = re.fullmatch(r"Invalid enum value '(.*)' - at `\$(.*)`", error)
    hint: Any = kind
    for step in re.findall(r"\w+|\[\.\.\.\]", found[2]) if found else ():
        if struct := _struct_in(hint):
            hint = _fields(struct)[step]
        else:
            hint = get_args(hint)[get_origin(hint) is dict]  # the values of a table, the items of an array
    choices = [one for one in (hint, *get_args(hint)) if get_origin(one) is Literal]
    words = [word for one in choices for word in get_args(one) if word]
    return meant(found[1], words) if found and words else ""


def require_folder_names(source: str, table: msgspec.Struct, fields: Iterable[str]) -> None:
    """Raise ConfigError where one of the fields, which become folders, is no name of one."""
    for field in fields:
        if not _FOLDER.fullmatch(name := getattr(table, field)):
            raise ConfigError(
                f"{source}: {field} is {name!r}, expected a folder's name: letters, digits and ._+-, without "
                "slash, space or leading dot"
            )


def unknown_keys(fields: Any, kind: Any, place: str) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Keys that a table does not have: its place, the key, and the keys that it has."""
    if isinstance(fields, Mapping):
        if struct := _struct_in(kind):
            known = _fields(struct)
            for name, value in fields.items():
                if name not in known:
                    yield place, name, list(known)
                else:
                    yield from unknown_keys(value, known[name], f"{place}.{name}".lstrip("."))
        elif get_origin(kind) is dict:
            for name, value in fields.items():
                yield from unknown_keys(value, get_args(kind)[1], f"{place}.{name}".lstrip("."))
    elif isinstance(fields, list) and get_origin(kind) in (list, tuple):
        for value in fields:
            yield from unknown_keys(value, get_args(kind)[0], place)


def meant(name: str, known: Iterable[str]) -> str:
    """The rest of a message about an unknown name."""
    names = list(known)
    found = difflib.get_close_matches(name, names, 1, 0.6)
    return f"; did you mean {found[0]!r}?" if found else f", expected one of {', '.join(names)}"


def quoted(text: str) -> str:
    """Text as a TOML string in one line; what cannot be printed is left out."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{"".join(letter for letter in escaped if letter.isprintable())}"'


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct of a type, or of ``Struct | None``."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return next((one for one in kinds if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {one.encode_name: hints[one.name] for one in msgspec.structs.fields(kind)}
