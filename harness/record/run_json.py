"""The fields of run.json and those of a record.

The file has the parts of a plan side by side under ``plan``, where programs of other people look for them; a
record holds them apart. Its schema is 1: what is added has a default.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.config.plans import ClientPlan
from harness.record.settled import Settled

SCHEMA = 1
_MOST_BITS = 64


def parse(data: bytes) -> Any:
    """The JSON of a file. Raises ValueError, also for a number that is infinite or beyond 64 bits."""
    return json.loads(data, parse_int=_integer, parse_float=_finite, parse_constant=_finite)


def file_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as the file has them, from those of a record."""
    fields = {name: value for name, value in record.items() if name not in ("plan", "settled")}
    plan = {name: value for name, value in record["plan"].items() if name != "client"}
    return {"plan": record["plan"]["client"] | plan | record["settled"], **fields}


def record_fields(file: Any) -> dict[str, Any]:
    """The fields as a record has them, from those of a file. Raises ValueError for another schema."""
    if not isinstance(file, dict):
        raise ValueError(f"got a {type(file).__name__}, expected an object")
    if file.get("schema") != SCHEMA:
        raise ValueError(f"schema {file.get('schema')}, this version reads schema {SCHEMA}")
    fields = dict(file)
    if isinstance(plan := fields.get("plan"), dict):
        plan = plan | {"benchmark": _benchmark(plan.get("benchmark"))}
        fields["plan"] = plan | {"client": _part(plan, ClientPlan.__struct_fields__)}
        fields["settled"] = _part(plan, Settled.__struct_fields__)
    return fields


def in_file(message: str) -> str:
    """A message about a record with the places of the file: ``$.plan`` for ``$.plan.client``."""
    return message.replace("$.plan.client", "$.plan").replace("$.settled", "$.plan")


def _integer(text: str) -> int:
    if (number := int(text)).bit_length() > _MOST_BITS:
        raise ValueError(f"got {text:.20}..., expected a number of at most {_MOST_BITS} bits")
    return number


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"got {text:.20}, expected a finite number")
    return number


def _part(fields: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def _benchmark(fields: Any) -> Any:
    """The benchmark's definition: a metric without a highest value has null there."""
    if not isinstance(fields, dict) or not isinstance(accuracy := fields.get("accuracy"), dict):
        return fields
    return fields | {"accuracy": {metric: _unbounded(rule) for metric, rule in accuracy.items()}}


def _unbounded(rule: Any) -> Any:
    """A rule whose highest value is null in JSON where there is none."""
    match rule:
        case {"passing": [lowest, None]}:
            return rule | {"passing": [lowest, math.inf]}
    return rule
