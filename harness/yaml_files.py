"""YAML of others, read within limits, and our own, written the same way every time.

YAML can be small and still huge: aliases multiply what they stand for, and a nesting of 10 MB exhausts the
stack of any reader. Neither belongs into the files that are read here, so both are refused before any value
is made.
"""

from pathlib import Path
from typing import Any

import yaml

from harness.errors import ConfigError
from harness.text import one_line

MOST_BYTES = 1 << 20  # the official files have a few kB
_MOST_DEPTH = 32
# In C where PyYAML was built with libyaml, ten times as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SafeDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_yaml(path: Path) -> Any:
    """The one document of a file: tables, lists, text, numbers, dates; None for an empty file.

    Raises ConfigError where the file cannot be read, is larger than 1 MiB, is not YAML, or has
    aliases, tags or a nesting deeper than 32.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{path}: more than {MOST_BYTES} bytes, which no file of this kind has")
    return parse_yaml(data, str(path))


def parse_yaml(data: bytes, source: str) -> Any:
    """The document in ``data``, as read_yaml. Raises ConfigError that begins with ``source``."""
    try:
        text = data.decode("utf-8-sig")
        _check(text)
        return _document(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: the 13th month, a huge number
        raise ConfigError(f"{source}: no YAML that can be read here: {one_line(error)}") from error


def write_yaml(value: Any) -> str:
    """Tables and lists as block YAML, in the order of ``value``: equal values give equal text."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    return text


class _Dumper(_SafeDumper):  # type: ignore[misc, valid-type]  # PyYAML has no types
    def ignore_aliases(self, data: Any) -> bool:
        """Values that occur twice are written twice: readers such as ours refuse aliases."""
        return True


def _check(text: str) -> None:
    """Refuse what makes small YAML large. Parsing to events needs no stack, whatever the nesting."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if getattr(event, "anchor", None) is not None:
            raise ValueError(f"an anchor or alias in line {event.start_mark.line + 1}; write its value out")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"a tag in line {event.start_mark.line + 1}, {event.tag[:40]!a}")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MOST_DEPTH:
            raise ValueError(f"nested deeper than {_MOST_DEPTH} in line {event.start_mark.line + 1}")


def _document(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
