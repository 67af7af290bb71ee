"""What is asked of the documents beside the logs: systems/, measurements.json, user.conf, README.md, src/."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.compliance.submission.complaint import Complaint
from harness.compliance.submission.evidence import Subject
from harness.compliance.submission.rules import SystemRule
from harness.compliance.submission.tree import Place

_WRITTEN = ("user.conf", "README.md")


def check_scenario_documents(subject: Subject) -> Iterator[Complaint]:
    """user.conf, README.md and measurements.json of one scenario."""
    for name in _WRITTEN:
        path = subject.place.path / name
        if not path.is_file() or not path.stat().st_size:
            yield subject.complaint("missing-file", path, "is missing or empty")
    path = subject.place.path / "measurements.json"
    fields = _read(path)
    if isinstance(fields, str):
        yield subject.complaint("missing-file", path, fields)
        return
    empty = [name for name in subject.rules.measurements.required if not fields.get(name)]
    if empty:
        yield subject.complaint("measurements", path, f"missing or empty: {', '.join(empty)}")


def check_system(place: Place, rule: SystemRule) -> Iterator[Complaint]:
    """The system's description and src/, once for each system."""
    source = place.org_path / "src"
    if not source.is_dir() or not any(source.iterdir()):
        yield Complaint("missing-file", place.name(source), "is missing or empty")
    path = place.system_file
    fields = _read(path)
    if isinstance(fields, str):
        yield Complaint("missing-file", place.name(path), fields)
        return
    for what in system_problems(fields, rule, {"division": place.division, "submitter": place.org}):
        yield Complaint("system", place.name(path), what)


def is_edge(place: Place) -> bool:
    """A system that is not submitted as a datacenter's."""
    fields = _read(place.system_file)
    return not isinstance(fields, str) and fields.get("system_type") == "edge"


def system_problems(fields: Mapping[str, Any], rule: SystemRule, place: Mapping[str, str]) -> Iterator[str]:
    """``place`` holds what the folders say and the file must repeat."""
    missing = [name for name in rule.fields if name not in fields]
    if missing:
        yield f"missing: {', '.join(missing)}"
    empty = [name for name in rule.meaningful if name in fields and fields[name] in ("", None)]
    if empty:
        yield f"empty: {', '.join(empty)}"
    for name, expected in place.items():
        if name in fields and str(fields[name]).lower() != expected.lower():
            yield f"{name} is {fields[name]!r}, its folder says {expected!r}"
    for name in rule.whole_numbers:
        found = str(fields.get(name, ""))
        if found and not found.isdigit():
            yield f"{name} is {found!r}, expected a whole number"
    for name, words in (("status", rule.status), ("system_type", rule.system_type)):
        found = str(fields.get(name) or "")
        if found and (found.lower() if name == "status" else found) not in words:
            yield f"{name} is {found!r}, expected one of {', '.join(words)}"


def _read(path: Path) -> dict[str, Any] | str:
    """The file's object, or what is wrong with it."""
    if not path.is_file():
        return "is missing"
    try:
        fields = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError as error:
        return f"is not JSON: {error}"
    return fields if isinstance(fields, dict) else "is not a JSON object"
