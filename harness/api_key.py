"""The servers' API key: read from the environment and masked in everything that is written or shown."""

import os

from harness.errors import ConfigError

KEY_VARIABLES = ("SGLANG_API_KEY", "OPENAI_API_KEY")
_MASK = b"[API key]"
_SHORTEST_PART = 6  # a shorter part of a key at the edge of a text reveals nothing


def api_key() -> str | None:
    """The first variable's value that is set; it never travels in flags, plans or logs.

    Raises ConfigError, which does not show it, for a key that no HTTP header can carry.
    """
    for name in KEY_VARIABLES:
        if key := os.environ.get(name, "").strip():
            if key.isascii() and key.isprintable():
                return key
            raise ConfigError(
                f"{name}: got a key with a line break or a letter beyond ASCII, expected printable ASCII; "
                "export it again"
            )
    return None


def masked(data: bytes) -> bytes:
    """``data`` without the keys: servers and proxies repeat headers in their error pages.

    Where ``data`` was cut inside of a key, the part at its edge goes too.
    """
    for name in KEY_VARIABLES:
        if key := os.environ.get(name, "").strip().encode("utf-8", "surrogateescape"):
            data = _without(data, key)
    return data


def masked_text(text: str) -> str:
    """``masked`` for text."""
    return masked(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _without(data: bytes, key: bytes) -> bytes:
    data = data.replace(key, _MASK)
    for size in range(len(key) - 1, _SHORTEST_PART - 1, -1):
        if data.endswith(key[:size]):
            data = data[:-size] + _MASK
        if data.startswith(key[-size:]):
            data = _MASK + data[size:]
    return data
