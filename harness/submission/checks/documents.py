"""Checks of systems/, src/, measurements.json, and that user.conf and README.md are there."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.files import USER_CONF
from harness.submission.checks.check_context import CheckContext
from harness.submission.checks.issue import Issue
from harness.submission.checks.misplaced import absence
from harness.submission.layout import SystemDir, read_fields
from harness.submission.nameplate import POWER_FIELD, NameplateError, design_watts, nameplate_of
from harness.submission.rules import SystemRule

_IS_NETWORK, _NODES = "is_network", "number_of_nodes"
_WRITTEN = (USER_CONF, "README.md")


def check_scenario_documents(context: CheckContext) -> Iterator[Issue]:
    """user.conf, README.md and measurements.json of one scenario."""
    for name in _WRITTEN:
        path = context.dir.path / name
        if not path.is_file():
            yield context.missing(path)
        elif not path.read_bytes().strip():
            yield context.issue("missing-file", path, "is empty")
    path = context.dir.path / "measurements.json"
    if not path.is_file():
        yield context.missing(path)
        return
    fields = read_fields(path)
    if isinstance(fields, str):
        yield context.issue("malformed", path, fields)
        return
    empty = [name for name in context.rules.measurements.required if _is_blank(fields.get(name))]
    if empty:
        yield context.issue("measurements", path, f"missing or empty: {', '.join(empty)}")


def check_system(folder: SystemDir, rule: SystemRule) -> Iterator[Issue]:
    """The system description and src/, once for each system."""
    source = folder.org_path / "src"
    if not source.is_dir() or not any(source.iterdir()):
        yield _absent(folder, source)
    yield from _nameplate(folder)
    path = folder.system_file
    if not path.is_file():
        yield _absent(folder, path)
        return
    fields = read_fields(path)
    if isinstance(fields, str):
        yield Issue("malformed", folder.relative(path), fields)
        return
    for what in system_issues(fields, rule, {"division": folder.division, "submitter": folder.org}):
        yield Issue("system", folder.relative(path), what)


def _absent(folder: SystemDir, path: Path) -> Issue:
    what, remedy = absence(folder, path)
    return Issue("missing-file", folder.relative(path), what, remedy=remedy)


def _nameplate(folder: SystemDir) -> Iterator[Issue]:
    """The official checker reads the list of power supplies and fails if it cannot add them up."""
    path = nameplate_of(folder.system_file)
    if not path.is_file():
        return
    try:
        if not design_watts(path):
            text = "lists no component with PSUs and Min PSUs Needed: 0 W"
            yield Issue("power", folder.relative(path), text, is_warning=True)
    except NameplateError as error:
        yield Issue("power", folder.relative(path), str(error), remedy="correct the list of power supplies")


def system_issues(fields: Mapping[str, Any], rule: SystemRule, folders: Mapping[str, str]) -> Iterator[str]:
    """Errors of a system description. ``folders`` holds folder names that the file must repeat."""
    wanted = (*rule.fields, *(rule.network if fields.get(_IS_NETWORK) else ()))
    missing = [name for name in wanted if name not in fields]
    if missing:
        yield f"missing: {', '.join(missing)}"
    # For the official checker the number 0 is empty and the text "0" is not.
    empty = [name for name in rule.meaningful if name in fields and not fields[name]]
    if empty:
        yield f"empty: {', '.join(empty)}"
    for name, expected in folders.items():
        if name in fields and str(fields[name]).lower() != expected.lower():
            yield f"{name} is {fields[name]!r}, its folder is {expected!r}"
    for name in rule.whole_numbers:
        if fields.get(name) and not str(fields[name]).strip().isdecimal():
            yield f"{name} is {str(fields[name])!r}, expected an integer"
    if str(fields.get(_NODES, "")).strip() == "0":
        yield f"{_NODES} is 0, expected 1 or more"
    for name, words in (("status", rule.status), ("system_type", rule.system_type)):
        found = str(fields.get(name) or "")
        if found and (found.lower() if name == "status" else found) not in words:
            yield f"{name} is {found!r}, expected one of {', '.join(words)}"
    watts = fields.get(POWER_FIELD, 1)
    if isinstance(watts, bool) or not isinstance(watts, int | float) or watts <= 0:
        yield f"{POWER_FIELD} is {watts!r}, expected a number of watts"
    yield from _network_issues(fields.get(_IS_NETWORK), folders.get("division", ""))


def _is_blank(value: object) -> bool:
    """Whether a field is empty, or white space."""
    return not value or (isinstance(value, str) and not value.strip())


def _network_issues(is_network: object, division: str) -> Iterator[str]:
    """The value must be the text "true" or "false"; the official checker fails on a JSON true."""
    if is_network is not None and not isinstance(is_network, str):
        yield f'{_IS_NETWORK} is {is_network!r}, expected the text "true" or "false"'
        return
    found = (is_network or "").lower() == "true"
    if division in ("closed", "network") and found != (division == "network"):
        expected = division == "network"
        yield f"{_IS_NETWORK} is {is_network!r}, expected {expected} in the division {division!r}"
