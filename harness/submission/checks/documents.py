"""What is asked of the documents beside the logs: systems/, measurements.json, user.conf, README.md, src/."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from harness.submission.checks.check_context import Subject
from harness.submission.checks.issue import Complaint
from harness.submission.layout import Place, read_fields
from harness.submission.rules import SystemRule

_IS_NETWORK = "is_network"
_WRITTEN = ("user.conf", "README.md")


def check_scenario_documents(subject: Subject) -> Iterator[Complaint]:
    """user.conf, README.md and measurements.json of one scenario."""
    for name in _WRITTEN:
        path = subject.place.path / name
        if not path.is_file() or not path.stat().st_size:
            yield subject.complaint("missing-file", path, "is missing or empty")
    path = subject.place.path / "measurements.json"
    fields = read_fields(path)
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
    yield from _nameplate(place)
    path = place.system_file
    fields = read_fields(path)
    if isinstance(fields, str):
        yield Complaint("missing-file", place.name(path), fields)
        return
    for what in system_problems(fields, rule, {"division": place.division, "submitter": place.org}):
        yield Complaint("system", place.name(path), what)


def _nameplate(place: Place) -> Iterator[Complaint]:
    """The official checker reads the list of power supplies, and fails on one that is no YAML."""
    path = place.system_file.with_name(f"{place.system}_power.yaml")
    if not path.is_file():
        return
    try:
        yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        yield Complaint("power", place.name(path), f"is not YAML: {str(error).splitlines()[0]}")


def system_problems(fields: Mapping[str, Any], rule: SystemRule, place: Mapping[str, str]) -> Iterator[str]:
    """``place`` holds what the folders say and the file must repeat."""
    wanted = (*rule.fields, *(rule.network if fields.get(_IS_NETWORK) else ()))
    missing = [name for name in wanted if name not in fields]
    if missing:
        yield f"missing: {', '.join(missing)}"
    # The official checker takes the number 0 for empty, and the text "0" not.
    empty = [name for name in rule.meaningful if name in fields and not fields[name]]
    if empty:
        yield f"empty: {', '.join(empty)}"
    for name, expected in place.items():
        if name in fields and str(fields[name]).lower() != expected.lower():
            yield f"{name} is {fields[name]!r}, its folder says {expected!r}"
    for name in rule.whole_numbers:
        found = str(fields.get(name, "")).strip()
        if found and not found.isdigit():
            yield f"{name} is {found!r}, expected a whole number"
    for name, words in (("status", rule.status), ("system_type", rule.system_type)):
        found = str(fields.get(name) or "")
        if found and (found.lower() if name == "status" else found) not in words:
            yield f"{name} is {found!r}, expected one of {', '.join(words)}"
    yield from _network_problems(fields.get(_IS_NETWORK), place.get("division", ""))


def _network_problems(is_network: object, division: str) -> Iterator[str]:
    """ "true" or "false" as text: the official checker fails on a JSON true."""
    if is_network is not None and not isinstance(is_network, str):
        yield f'{_IS_NETWORK} is {is_network!r}, expected the text "true" or "false"'
        return
    found = (is_network or "").lower() == "true"
    if division in ("closed", "network") and found != (division == "network"):
        yield f"{_IS_NETWORK} is {is_network!r}, in the division {division!r}"
