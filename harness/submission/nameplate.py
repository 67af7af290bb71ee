"""The power that a system is designed for: its power supplies, listed in systems/<system>_power.yaml.

The file is a tree of names. A table with ``PSUs`` and ``Min PSUs Needed`` is a component; its power is that
of its largest supplies (``PowerCapacityWatts``), as many as it needs. The official checker adds them up for
results with power measurements, unless ``system_power_capacity`` of the system description states the sum.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

POWER_FIELD = "system_power_capacity"  # watts, of the system description
_SUPPLIES, _NEEDED, _WATTS = "psus", "min psus needed", "PowerCapacityWatts"


class NameplateError(ValueError):
    """The file is not what the official checker can add up."""


def nameplate_of(system_file: Path) -> Path:
    """The list of power supplies beside a system description."""
    return system_file.with_name(f"{system_file.stem}_power.yaml")


def design_watts(path: Path) -> float:
    """The sum over all components. Raises NameplateError, and OSError for a file that cannot be read."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise NameplateError(f"is not YAML: {str(error).splitlines()[0]}") from error
    return sum(_components(tree, path.stem))


def _components(node: Any, where: str) -> Iterator[float]:
    if isinstance(node, list):
        for number, child in enumerate(node, 1):
            yield from _components(child, f"{where}[{number}]")
    elif isinstance(node, dict):
        lower = {str(name).lower(): value for name, value in node.items()}
        if _SUPPLIES in lower and _NEEDED in lower:
            yield _watts(lower[_SUPPLIES], lower[_NEEDED], where)
        else:
            for name, child in node.items():
                yield from _components(child, f"{where}.{name}")


def _watts(supplies: Any, needed: Any, where: str) -> float:
    if not isinstance(supplies, list) or not all(isinstance(one, dict) for one in supplies):
        raise NameplateError(f"{where}: PSUs is no list of power supplies with {_WATTS}")
    capacities = sorted((_number(one.get(_WATTS), f"{where}: {_WATTS}") for one in supplies), reverse=True)
    count = int(_number(needed, f"{where}: Min PSUs Needed"))
    if not 1 <= count <= len(capacities):
        raise NameplateError(f"{where}: Min PSUs Needed is {needed}, its PSUs are {len(capacities)}")
    return sum(capacities[:count])


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise NameplateError(f"{what} is {value!r}, expected a number above 0")
    return value
