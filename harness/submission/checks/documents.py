"""Checks of systems/, src/, measurements.json, user.conf, README.md and the files of power measurements."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.config.loadgen_conf import Target, read_conf
from harness.config.loadgen_settings import settings_of
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import PERFORMANCE, USER_CONF
from harness.submission.checks.check_context import CLOCK_FORMAT, CheckContext, Logs, read_logs
from harness.submission.checks.issue import Issue
from harness.submission.checks.loadgen_logs import usable
from harness.submission.checks.misplaced import absence
from harness.submission.layout import SystemDir, read_fields
from harness.submission.nameplate import POWER_FIELD, NameplateError, design_watts, nameplate_of
from harness.submission.rules import SystemRule

_IS_NETWORK, _NODES = "is_network", "number_of_nodes"
_WRITTEN = (USER_CONF, "README.md")
_POWER, _RANGING = Path("performance/power"), Path("performance/ranging")
_SAMPLES = "spl.txt"  # of the power meter


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
    empty = [name for name in context.rules.measurements.required if is_blank(fields.get(name))]
    if empty:
        yield context.issue("measurements", path, f"missing or empty: {', '.join(empty)}")


def check_user_conf(context: CheckContext) -> Iterator[Issue]:
    """Whether user.conf has rows for this result, and the values that LoadGen had in the performance run.

    Many published results have the settings of another of their runs in it, so that is a warning.
    """
    path = context.dir.path / USER_CONF
    logs = read_logs(context, PERFORMANCE)
    if not path.is_file() or not path.read_bytes().strip() or not usable(logs):
        return
    targets = {
        scenario: Target(
            context.benchmark.model_key(scenario), scenario.loadgen, scenario is Scenario.INTERACTIVE
        )
        for scenario in context.benchmark.scenarios
    }
    try:
        rows = {scenario: read_conf(path, target).settings for scenario, target in targets.items()}
    except ConfigError as error:
        text = str(error).removeprefix(f"{path}:")
        yield context.issue("user-conf", path, f"LoadGen does not read it as it is: {text}", is_warning=True)
        return
    settings = rows.get(context.scenario, {})
    if not settings:
        text = f"no row of it is for {context.scenario.folder} of {context.benchmark.name}"
        yield context.issue("user-conf", path, text, is_warning=any(rows.values()))
    differ = [
        f"{key} is {value}, in the run {logs.values[name]}"
        for key, value in settings.items()
        for name, given in _as_given(key, value, logs)
        if given != logs.values[name]
    ]
    if differ:
        text = f"is not that of the performance run: {'; '.join(differ)}"
        yield context.issue("user-conf", path, text, is_warning=True)


def _as_given(key: str, value: float, logs: Logs) -> Iterator[tuple[str, Any]]:
    """The rows of the detail log for what LoadGen was given by a key of user.conf, and the key's value."""
    for setting in settings_of(key, logs.detail.effective.get("scenario")):
        name = f"requested_{setting.requested_name}"
        if name in logs.values:
            logged = setting.value(value)
            yield name, float(f"{logged:.6g}") if isinstance(logged, float) else logged


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
        found = str(fields.get(name, "")).strip()
        if found and not found.isdecimal():
            yield f"{name} is {found!r}, expected an integer"
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


def is_blank(value: object) -> bool:
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


def check_power(context: CheckContext) -> Iterator[Issue]:
    """The files of a result with power measurements, if it has any; the measurements are not checked."""
    if not (context.dir.path / _POWER).exists():
        for path in (_RANGING, PERFORMANCE / _SAMPLES):
            if (context.dir.path / path).exists():
                text = f"is there, but {_POWER.as_posix()} is not"
                yield context.issue("power", path, text)
        return
    rule = context.rules.power
    for folder, expected in ((PERFORMANCE, rule.run), (_RANGING, rule.run), (_POWER, rule.power)):
        path = context.dir.path / folder
        names = {entry.name for entry in path.iterdir() if entry.is_file()} if path.is_dir() else set()
        if missing := [name for name in expected if name not in names]:
            yield context.issue("power", folder, f"missing: {', '.join(missing)}")
        if more := sorted(names.difference(expected, rule.optional)):
            yield context.issue("power", folder, f"not expected: {', '.join(more)}")
    yield from _power_contents(context)
    text = "power measurements are not checked, only their files: run MLCommons's power checker"
    fields = read_fields(context.dir.system_file)
    stated = not isinstance(fields, str) and POWER_FIELD in fields
    if not stated and not nameplate_of(context.dir.system_file).is_file():
        text += f"; the design power is missing: no {POWER_FIELD} and no list of power supplies in systems/"
    yield context.issue("power", _POWER, text, is_warning=True)


def _power_contents(context: CheckContext) -> Iterator[Issue]:
    """Each file has its form, and the power meter has a sample of the run."""
    for name in context.rules.power.power:
        path = context.dir.path / _POWER / name
        if path.is_file() and path.suffix == ".json" and isinstance(fields := read_fields(path), str):
            yield context.issue("malformed", path, fields)
        elif path.is_file() and not path.read_bytes().strip():
            yield context.issue("power", path, "is empty")
    path, logs = context.dir.path / PERFORMANCE / _SAMPLES, read_logs(context, PERFORMANCE)
    begin, end = logs.clock
    if path.is_file() and begin is not None and end is not None:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if not any(begin < when < end and watts > 0 for when, watts in _watts(lines)):
            yield context.issue("power", path, "has no sample between power_begin and power_end of the run")


def _watts(lines: list[str]) -> Iterator[tuple[datetime, float]]:
    """Time and power of each sample: ``Time,<time>,Watts,<number>,...``."""
    for line in lines:
        cells = line.split(",")
        try:
            if cells[0] == "Time":
                yield datetime.strptime(cells[1], CLOCK_FORMAT), float(cells[3])
        except (ValueError, IndexError):
            continue
