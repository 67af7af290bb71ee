"""The official files of a point as tables that may hold anything: read within limits, and looked into."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from harness.arrays import MOST_DIGITS
from harness.errors import ConfigError
from harness.json_files import read_fields
from harness.yaml_files import read_yaml

Fields = Mapping[str, Any]

OFFLINE_PATTERN = "max_throughput"  # the load pattern of a dedicated Offline run

_MOST = 1e300
_MOST_BYTES = 1 << 28  # accuracy results may hold every answer


def read_table(path: Path) -> Fields | str:
    """The table of a JSON or YAML file, or the reason why there is none, such as ``is no table``."""
    if path.suffix in (".yaml", ".yml"):
        try:
            found = read_yaml(path)
        except ConfigError as error:
            return str(error).removeprefix(f"{path}: ")
        return found if isinstance(found, Mapping) else "is no table"
    return "has more than 256 MiB" if _is_larger(path) else read_fields(path)


def _is_larger(path: Path) -> bool:
    try:
        return path.stat().st_size > _MOST_BYTES
    except OSError:
        return False


def at(fields: Fields, *names: str) -> Any:
    """A value in tables within each other; None where one of them is not there."""
    found: Any = fields
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def table(fields: Fields, *names: str) -> Fields:
    """A table in a table, empty where there is none."""
    found = at(fields, *names)
    return found if isinstance(found, Mapping) else {}


def tables(fields: Fields, name: str) -> list[Fields]:
    """The tables in a list, without what is none; empty where there is no list."""
    found = fields.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a finite number, and no truth value; the files may hold integers of any length."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    return float(value) if is_number(value) else None


def whole(value: object) -> int | None:
    """A whole number below 10^18, also as text; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**MOST_DIGITS:
        return value
    return None


def of_percent(percentiles: object, percent: int) -> Any:
    """The value of a table of percentiles, whose keys are ``90`` or ``90.0``; None where it has none."""
    values = percentiles if isinstance(percentiles, Mapping) else {}
    return next((values[key] for key in (f"{percent}.0", str(percent)) if key in values), None)


def percentiles(summary: Fields, name: str) -> dict[int, float]:
    """Those of whole percents that a block of result_summary.json has."""
    found = {percent: percentile_of(summary, name, percent) for percent in range(101)}
    return {percent: value for percent, value in found.items() if value is not None}


def percentile_of(summary: Fields, name: str, percent: int) -> float | None:
    """A percentile of a block of result_summary.json, such as ``ttft``; None where it has none."""
    return number(of_percent(at(summary, name, "percentiles"), percent))


def load_pattern(config: Fields) -> str:
    """How requests were issued, such as `concurrency`; "" where config.yaml does not say it."""
    return str(at(config, "settings", "load_pattern", "type") or "")


def is_offline(config: Fields) -> bool:
    """Whether config.yaml is that of a dedicated Offline run."""
    return load_pattern(config) == OFFLINE_PATTERN


def target_concurrency(config: Fields) -> int | None:
    """Requests in flight in config.yaml; None where it has none, as that of a dedicated Offline run."""
    return whole(at(config, "settings", "load_pattern", "target_concurrency"))


def performance_dataset(config: Fields) -> Fields:
    """The first performance dataset in config.yaml; empty where there is none."""
    found = (one for one in tables(config, "datasets") if one.get("type", "performance") == "performance")
    return next(found, {})


def system_tps(summary: Fields) -> float | None:
    """Output tokens per second of the complete run, as the official checker derives it from the summary."""
    tokens = number(at(summary, "output_sequence_lengths", "total"))
    duration_ns = number(summary.get("duration_ns"))
    return tokens / (duration_ns / 1e9) if tokens is not None and duration_ns else None


class SteadyWindow(msgspec.Struct, frozen=True):
    """The window of a block ``steady_state``, as far as it is stated; super-passes count from 0."""

    first: int | None = None
    """super-pass"""
    last: int | None = None
    """super-pass, inside of the window"""
    size: int | None = None
    """requests in a super-pass"""
    duration_s: float | None = None
    """of issue"""

    @property
    def super_passes(self) -> int | None:
        """Their number."""
        return None if self.first is None or self.last is None else self.last - self.first + 1


def steady_window(block: Fields) -> SteadyWindow:
    """The window in ``steady_state`` of point.yaml (section 4.4)."""
    found = table(block, "window")
    first, last, size = (whole(found.get(f"super_pass_{name}")) for name in ("start", "end", "size"))
    return SteadyWindow(first, last, size, number(found.get("duration_s")))


def shown(value: object) -> str:
    """A value in a message, as the files write it."""
    return "missing" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
