"""Checks of systems/, src/, measurements.json, user.conf, README.md and the files of power measurements."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.files import PERFORMANCE, USER_CONF
from harness.submission.checks.check_context import CheckContext
from harness.submission.checks.issue import Issue
from harness.submission.layout import SystemDir, read_fields
from harness.submission.nameplate import POWER_FIELD, NameplateError, design_watts, nameplate_of
from harness.submission.rules import SystemRule

_IS_NETWORK = "is_network"
_WRITTEN = (USER_CONF, "README.md")
_POWER, _RANGING = Path("performance/power"), Path("performance/ranging")


def check_scenario_documents(context: CheckContext) -> Iterator[Issue]:
    """user.conf, README.md and measurements.json of one scenario."""
    for name in _WRITTEN:
        path = context.dir.path / name
        if not path.is_file() or not path.stat().st_size:
            yield context.issue("missing-file", path, "is missing or empty")
    path = context.dir.path / "measurements.json"
    fields = read_fields(path)
    if isinstance(fields, str):
        yield context.issue("missing-file", path, fields)
        return
    empty = [name for name in context.rules.measurements.required if not fields.get(name)]
    if empty:
        yield context.issue("measurements", path, f"missing or empty: {', '.join(empty)}")


def check_system(folder: SystemDir, rule: SystemRule) -> Iterator[Issue]:
    """The system description and src/, once for each system."""
    source = folder.org_path / "src"
    if not source.is_dir() or not any(source.iterdir()):
        yield Issue("missing-file", folder.relative(source), "is missing or empty")
    yield from _nameplate(folder)
    path = folder.system_file
    fields = read_fields(path)
    if isinstance(fields, str):
        yield Issue("missing-file", folder.relative(path), fields)
        return
    for what in system_issues(fields, rule, {"division": folder.division, "submitter": folder.org}):
        yield Issue("system", folder.relative(path), what)


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
        yield Issue("power", folder.relative(path), str(error))


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
        found = str(fields.get(name, "")).strip()
        if found and not found.isdigit():
            yield f"{name} is {found!r}, expected an integer"
    for name, words in (("status", rule.status), ("system_type", rule.system_type)):
        found = str(fields.get(name) or "")
        if found and (found.lower() if name == "status" else found) not in words:
            yield f"{name} is {found!r}, expected one of {', '.join(words)}"
    watts = fields.get(POWER_FIELD, 1)
    if isinstance(watts, bool) or not isinstance(watts, int | float) or watts <= 0:
        yield f"{POWER_FIELD} is {watts!r}, expected a number of watts"
    yield from _network_issues(fields.get(_IS_NETWORK), folders.get("division", ""))


def _network_issues(is_network: object, division: str) -> Iterator[str]:
    """The value must be the text "true" or "false"; the official checker fails on a JSON true."""
    if is_network is not None and not isinstance(is_network, str):
        yield f'{_IS_NETWORK} is {is_network!r}, expected the text "true" or "false"'
        return
    found = (is_network or "").lower() == "true"
    if division in ("closed", "network") and found != (division == "network"):
        expected = division == "network"
        yield f"{_IS_NETWORK} is {is_network!r}, expected {expected} in the division {division!r}"


def check_power(context: CheckContext) -> Iterator[Issue]:
    """The files of a result with power measurements, if it has any; the measurements are not checked."""
    if not (context.dir.path / _POWER).exists():
        return
    rule = context.rules.power
    for folder, expected in ((PERFORMANCE, rule.run), (_RANGING, rule.run), (_POWER, rule.power)):
        path = context.dir.path / folder
        names = {entry.name for entry in path.iterdir() if entry.is_file()} if path.is_dir() else set()
        if missing := [name for name in expected if name not in names]:
            yield context.issue("power", folder, f"missing: {', '.join(missing)}")
        if more := sorted(names.difference(expected, rule.optional)):
            yield context.issue("power", folder, f"not expected: {', '.join(more)}")
    text = "power measurements are not checked, only that their files exist"
    fields = read_fields(context.dir.system_file)
    stated = not isinstance(fields, str) and POWER_FIELD in fields
    if not stated and not nameplate_of(context.dir.system_file).is_file():
        text += f"; the design power is missing: no {POWER_FIELD} and no list of power supplies in systems/"
    yield context.issue("power", _POWER, text, is_warning=True)
