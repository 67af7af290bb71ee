"""The servers' API key: read from the environment and masked in everything that is written or shown."""

import os

from harness.errors import ConfigError

KEY_VARIABLES = ("SGLANG_API_KEY", "OPENAI_API_KEY")
_SCHEME = "bearer "  # before a key that was copied from a header
_MASK = b"[API key]"
_SHORTEST_PART = 6  # a shorter part of a key at the edge of a text reveals nothing


def api_key() -> str | None:
    """The first variable's value that is set; it never travels in flags, plans or logs.

    Raises ConfigError, which does not show it, for a key that no HTTP header can carry.
    """
    name = _variable()
    if name is None:
        return None
    key = _key_in(name)
    if key.isascii() and key.isprintable():
        return key
    raise ConfigError(
        f"{name}: got a key with a line break or a letter beyond ASCII, expected printable ASCII; "
        "export it again"
    )


def key_remedy() -> str:
    """What to do about a server that denies a request: no key was sent, or not the server's."""
    name = _variable()
    if name is None:
        return f"put the server's key into {' or '.join(KEY_VARIABLES)}"
    return f"the key in {name}, which is sent to every server, is not that of this one: correct it"


def masked(data: bytes) -> bytes:
    """``data`` without the keys: servers and proxies repeat headers in their error pages.

    Where ``data`` was cut inside of a key, the part at its edge goes too.
    """
    for name in KEY_VARIABLES:
        if key := _key_in(name).encode("utf-8", "surrogateescape"):
            data = _without(data, key)
    return data


def masked_text(text: str) -> str:
    """``masked`` for text."""
    return masked(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _variable() -> str | None:
    """The variable whose key is sent."""
    return next((name for name in KEY_VARIABLES if _key_in(name)), None)


def _key_in(name: str) -> str:
    """The key in a variable, "" for none."""
    value = os.environ.get(name, "").strip()
    return value[len(_SCHEME) :].lstrip() if value.lower().startswith(_SCHEME) else value


def _without(data: bytes, key: bytes) -> bytes:
    data = data.replace(key, _MASK)
    for size in range(len(key) - 1, _SHORTEST_PART - 1, -1):
        if data.endswith(key[:size]):
            data = data[:-size] + _MASK
        if data.startswith(key[-size:]):
            data = _MASK + data[size:]
    return data
