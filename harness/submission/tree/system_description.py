"""The description of a system: systems/<system>.json, and its power supplies in systems/<system>_power.yaml.

The second is a tree of names. A table with ``PSUs`` and ``Min PSUs Needed`` is a component; its power is that
of its largest supplies (``PowerCapacityWatts``), as many as it needs. The official checker adds them up for
results with power measurements, unless ``system_power_capacity`` of the system description states the sum.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.arrays import MOST_DIGITS
from harness.submission.tree.round_rules import SystemRule
from harness.text import one_line

_IS_NETWORK, _NODES = "is_network", "number_of_nodes"
# Where there are sw_notes, the official checker joins the two, and ends with an error if one is no text.
_NOTES = ("hw_notes", "sw_notes")
# The official checker writes these into its CSV as they are, and generate_final_report.py reads that again.
_IN_CSV = (
    "system_name",
    "host_processor_model_name",
    "host_processor_core_count",
    "accelerator_model_name",
    "framework",
    "operating_system",
)
POWER_FIELD = "system_power_capacity"  # the system description states it in watts
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
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, the 13th month
        raise NameplateError(f"is not YAML: {one_line(error)}") from error
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


def system_issues(fields: Mapping[str, Any], rule: SystemRule, folders: Mapping[str, str]) -> Iterator[str]:
    """Errors of a system description. ``folders`` holds folder names that the file must repeat."""
    wanted = (*rule.fields, *(rule.network if fields.get(_IS_NETWORK) else ()))
    missing = [name for name in wanted if name not in fields]
    if missing:
        yield f"missing: {', '.join(missing)}"
    # The official checker takes the number 0 for empty, and the text "0" not.
    empty = [
        name if fields[name] != 0 else f'{name} (write "0", with quotes)'
        for name in rule.meaningful
        if name in fields and not fields[name]
    ]
    if empty:
        yield f"empty: {', '.join(empty)}"
    for name in _NOTES if fields.get("sw_notes") else ():
        if fields.get(name) and not isinstance(fields[name], str):
            yield f"{name} is {fields[name]!r}, expected text"
    for name, expected in folders.items():
        if name in fields and str(fields[name]).lower() != expected.lower():
            yield f"{name} is {fields[name]!r}, its folder is {expected!r}"
    for name in rule.whole_numbers:
        if fields.get(name) and whole_number(fields[name]) is None:
            yield f"{name} is {str(fields[name])!r}, expected an integer"
    cells = {name: str(fields.get(name, "")) for name in _IN_CSV}
    cells[" or ".join(_NOTES)] = ". ".join(str(fields[name]) for name in _NOTES if fields.get(name))
    for name, text in cells.items():
        if _ends_cell(text):
            yield f"{name} has a double quote that ends its cell in MLCommons's CSV of results"
    if whole_number(fields.get(_NODES)) == 0:
        yield f"{_NODES} is 0, expected 1 or more"
    for name, words in (("status", rule.status), ("system_type", rule.system_type)):
        found = str(fields.get(name) or "")
        if found and (found.lower() if name == "status" else found) not in words:
            yield f"{name} is {found!r}, expected one of {', '.join(words)}"
    watts = fields.get(POWER_FIELD, 1)
    if isinstance(watts, bool) or not isinstance(watts, int | float) or watts <= 0:
        yield f"{POWER_FIELD} is {watts!r}, expected a number of watts"
    yield from _network_issues(fields.get(_IS_NETWORK), folders.get("division", ""))


def other_suite(fields: Mapping[str, Any], suite: str, benchmark: str) -> str:
    """That a system's type is not that of a benchmark; "" where it is, or where none is stated."""
    types = str(fields.get("system_type", ""))
    is_other = types and suite not in types.split(",")
    return f"system_type is {types!r}, and {benchmark} is a benchmark of {suite} systems" if is_other else ""


def whole_number(value: object) -> int | None:
    """A count, as a number or text; None for anything else.

    The official checker reads it by Python's int.
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    text = str(value).strip()
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def _ends_cell(text: str) -> bool:
    """Whether the CSV, in which quotes are not doubled, gets more or fewer cells by this text."""
    rows = list(csv.reader(io.StringIO(f'"{text}","next"\n', newline="")))
    return len(rows) != 1 or rows[0][1:] != ["next"]


def _network_issues(is_network: object, division: str) -> Iterator[str]:
    """The value must be the text "true" or "false"; the official checker fails on a JSON true."""
    if is_network is not None and not isinstance(is_network, str):
        yield f'{_IS_NETWORK} is {is_network!r}, expected the text "true" or "false"'
        return
    found = (is_network or "").lower() == "true"
    if division in ("closed", "network") and found != (division == "network"):
        expected = division == "network"
        yield f"{_IS_NETWORK} is {is_network!r}, expected {expected} in the division {division!r}"
