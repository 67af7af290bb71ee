"""The fields of run.json and those of a record: of this version and of earlier ones.

The file has the parts of a plan side by side under ``plan``, where programs of other people look for them; a
record holds them apart. All versions so far have schema 1: what a version added has a default.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harness.config.plans import ClientPlan
from harness.record.settled import Settled

SCHEMA = 1

_LIKE = "like"  # an earlier version wrote equal values of many servers once


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
    if "doubts" in fields:
        fields.setdefault("warnings", fields["doubts"])
    if isinstance(servers := fields.get("servers"), list):
        fields["servers"] = [_completed(one, servers) for one in servers]
    if isinstance(plan := fields.get("plan"), dict):
        plan = plan | {"benchmark": _benchmark(plan.get("benchmark"))}
        fields["plan"] = plan | {"client": _part(plan, ClientPlan.__struct_fields__)}
        fields["settled"] = _part(plan, Settled.__struct_fields__)
    return fields


def in_file(message: str) -> str:
    """A message about a record with the places of the file: ``$.plan`` for ``$.plan.client``."""
    return message.replace("$.plan.client", "$.plan").replace("$.settled", "$.plan")


def _part(fields: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def _benchmark(fields: Any) -> Any:
    """The benchmark's definition, which at first named no round, or null."""
    if not isinstance(fields, dict):
        return fields
    accuracy = fields.get("accuracy") or {}
    if isinstance(accuracy, dict):
        rules = msgspec.convert(accuracy, _OneRule).metrics() if "ratio" in accuracy else accuracy
        accuracy = {metric: _unbounded(rule) for metric, rule in rules.items()}
    return fields | {"round": fields.get("round") or "", "accuracy": accuracy}


class _OneRule(msgspec.Struct):
    """The metrics of a version that had one lowest ratio for all, and absolute bounds of others."""

    reference: dict[str, float]
    ratio: float
    published: Any = None
    bounds: dict[str, tuple[float, float]] = {}

    def metrics(self) -> dict[str, Any]:
        """A rule for each metric."""
        passing = [self.ratio, None]
        found = {
            metric: {"reference": reference, "passing": passing, "published": self.published}
            for metric, reference in self.reference.items()
        }
        for metric, (lowest, highest) in self.bounds.items():
            found[metric] = {"reference": highest, "passing": [lowest / (highest or 1.0), 1.0]}
        return found


def _unbounded(rule: Any) -> Any:
    """A rule whose highest value is null in JSON where there is none."""
    match rule:
        case {"passing": [lowest, None]}:
            return rule | {"passing": [lowest, math.inf]}
    return rule


def _completed(one: Any, servers: Sequence[Any]) -> Any:
    """A server in full. Raises ValueError for one that is like a server that is not there."""
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
