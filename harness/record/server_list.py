"""Many servers in run.json: what is equal stands there once, and figures of a server on one line."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_IN_FULL = 16
_LIKE = "like"


def shortened(servers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """More than 16 servers as the first and differences from it: ``url``, ``like`` 0, and what is not equal.

    A part that the first has and another has not is null there.
    """
    if len(servers) <= _IN_FULL:
        return list(servers)
    first = servers[0]
    return [first, *({"url": one["url"], _LIKE: 0, **_difference(first, one)} for one in servers[1:])]


def _difference(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in {**first, **other}:
        one, another = first.get(name), other.get(name)
        if isinstance(one, dict) and isinstance(another, dict):
            if parts := _difference(one, another):
                found[name] = parts
        elif type(one) is not type(another) or one != another:
            found[name] = another
    return found


def completed(servers: Sequence[Any]) -> list[Any]:
    """The servers in full. Raises ValueError for one that is like a server that is not there."""
    return [_completed(one, servers) for one in servers]


def _completed(one: Any, servers: Sequence[Any]) -> Any:
    if not isinstance(one, dict) or _LIKE not in one:
        return one
    if one[_LIKE] != 0 or not isinstance(servers[0], dict) or _LIKE in servers[0]:
        raise ValueError(f"a server is like number {one[_LIKE]!r}, expected 0, the first")
    changed = {name: value for name, value in one.items() if name != _LIKE}
    whole = {**servers[0], **changed}
    for name, value in changed.items():
        base = servers[0].get(name)
        if isinstance(base, dict) and isinstance(value, dict):
            whole[name] = {key: part for key, part in (base | value).items() if part is not None}
    return whole


def indented(value: Any, indent: str = "") -> str:
    """Strict JSON in ASCII, indented by two; more than 16 objects in one value are a line each if flat."""
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, allow_nan=False)
    deeper = f"{indent}  "
    parts = list(value.values() if isinstance(value, dict) else value)
    many = len(parts) > _IN_FULL and all(isinstance(part, dict) for part in parts)
    texts = [
        json.dumps(part, allow_nan=False) if many and _is_flat(part) else indented(part, deeper)
        for part in parts
    ]
    if isinstance(value, dict):
        texts = [f"{json.dumps(name)}: {text}" for name, text in zip(value, texts, strict=True)]
    first, last = "{}" if isinstance(value, dict) else "[]"
    lines = f",\n{deeper}".join(texts)
    return f"{first}\n{deeper}{lines}\n{indent}{last}"


def _is_flat(value: dict[str, Any]) -> bool:
    return not any(isinstance(part, dict | list) for part in value.values())
