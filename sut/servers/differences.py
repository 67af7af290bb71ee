"""Differences between the replicas of a run."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from harness.config.server_urls import folded
from harness.errors import ServerError
from harness.record.resolved_plan import ServerInfo
from sut.servers.pages import Reported

# Fields that differ by nature or with time, and those that may hold a secret, such as the start command.
# The names are those of SGLang 0.5.23.
_OWN = re.compile(
    r"(.*_)?(url|host|ip|ports?|addr|seed|gpu_id|worker_id|ipc_name|throughput|(start|up)?time)|node_rank|"
    r".*(key|secret|password|credential|command).*|(hf|auth|access)_token"
)
_NOT_COMPARED = ("url", "trial_s", "settings", "differs")
_MOST_VALUES = 4
# What all replicas that name it have in common, besides protocol, model and version.
_ALIKE = ("revision", "weight_version", "vocabulary_size", "context_length")
_HASH = re.compile(r"[0-9a-f]{40}")
_REMEDY = "one run needs equal replicas: start those that differ like the others, or do not name them"


def check_alike(facts: Sequence[ServerInfo]) -> None:
    """Raise ServerError unless all replicas serve the same model with the same version and context."""
    groups: dict[tuple[str, str | None, str | None], list[ServerInfo]] = {}
    for fact in facts:
        groups.setdefault((fact.wire, fact.model, fact.version), []).append(fact)
    if len(groups) > 1:
        # The most frequent first, in the order of the URLs among equals.
        found = sorted(groups.values(), key=lambda group: -len(group))
        shown = ", ".join(
            f"{folded(fact.url for fact in group)} {'serves ' if place == 0 else ''}"
            f"{group[0].model or 'a model without a name'} "
            f"({group[0].engine} {group[0].version or 'without a version'})"
            for place, group in enumerate(found)
        )
        raise ServerError(f"replicas differ: {shown}; {_REMEDY}")
    for name in _ALIKE:
        named = [(fact, value) for fact in facts if (value := _compared(fact, name)) is not None]
        for text in _difference(name, [fact for fact, _ in named], [value for _, value in named]):
            raise ServerError(f"{text}; {_REMEDY}")


def _compared(fact: ServerInfo, name: str) -> Any:
    """A value that can be compared: a branch or a part of a hash may be the same revision as another."""
    value = getattr(fact, name)
    return None if name == "revision" and value is not None and not _HASH.fullmatch(value) else value


def with_differences(answers: Sequence[tuple[ServerInfo, Reported]]) -> tuple[ServerInfo, ...]:
    """The servers, each with its values of /server_info that are not the same at all replicas."""
    facts = tuple(fact for fact, _ in answers)
    reports = [reported for _, reported in answers]
    names = dict.fromkeys(name for reported in reports for name in reported)
    differing = []
    for name in names:
        values = [reported.get(name) for reported in reports]
        if name in facts[0].settings or _OWN.fullmatch(name) or hasattr(facts[0], name):
            continue
        distinct = len(set(values))
        is_identity = distinct == len(values) > 2 and any(isinstance(value, str) for value in values)
        if distinct > 1 and not is_identity:
            differing.append(name)
    if not differing:
        return facts
    return tuple(
        msgspec.structs.replace(
            fact, differs={name: reported[name] for name in differing if name in reported}
        )
        for fact, reported in zip(facts, reports, strict=True)
    )


def replica_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning for each field in which replicas of the same model and version differ."""
    fields = [name for name in ServerInfo.__struct_fields__ if name not in _NOT_COMPARED]
    for name in fields:
        yield from _difference(name, facts, [getattr(fact, name) for fact in facts])
    for part in ("settings", "differs"):
        found: list[dict[str, Any]] = [getattr(fact, part) for fact in facts]
        for name in dict.fromkeys(name for values in found for name in values):
            if name not in fields:
                yield from _difference(name, facts, [values.get(name) for values in found])


def _difference(name: str, facts: Sequence[ServerInfo], values: Sequence[Any]) -> Iterator[str]:
    counts = Counter(values)
    if len(counts) <= 1:
        return
    urls: dict[Any, list[str]] = {value: [] for value in counts}
    for fact, value in zip(facts, values, strict=True):
        urls[value].append(fact.url)
    shown = [f"{value} at {folded(urls[value])}" for value, _ in counts.most_common(_MOST_VALUES)]
    more = len(counts) - len(shown)
    if more and all(type(value) in (int, float) for value in counts):
        low, high = min(counts), max(counts)
        text = f"{len(counts)} values from {low} at {folded(urls[low])} to {high} at {folded(urls[high])}"
    else:
        text = ", ".join(shown) + (f" and {more} other values" if more else "")
    yield f"replicas differ in {name.replace('_', ' ')}: {text}"
