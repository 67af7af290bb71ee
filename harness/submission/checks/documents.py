"""Checks of what describes a result: systems/, src/, measurements.json, README.md and user.conf."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.config.loadgen_conf import ConfKey, read_conf
from harness.config.loadgen_settings import Number, settings_of
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import PERFORMANCE, USER_CONF
from harness.submission.checks.context import CheckContext, Logs, read_logs
from harness.submission.checks.issue import Issue, missing, table_in
from harness.submission.checks.loadgen_logs import usable
from harness.submission.tree.layout import MEASUREMENTS, SystemDir
from harness.submission.tree.round_rules import SystemRule
from harness.submission.tree.system_description import (
    NameplateError,
    design_watts,
    nameplate_of,
    system_issues,
)


def check_scenario_documents(
    context: CheckContext, written: Sequence[str] = (USER_CONF, "README.md")
) -> Iterator[Issue]:
    """measurements.json of one scenario, and the files that must be ``written``."""
    for name in written:
        path = context.dir.path / name
        if not path.is_file():
            yield context.missing(path)
        elif not path.read_bytes().strip():
            yield context.issue("missing-file", path, "is empty")
    path = context.dir.path / MEASUREMENTS
    fields = yield from table_in(context.dir, path)
    if fields is None:
        return
    required = context.rules.measurements.required
    empty = [name for name in required if not str(fields.get(name) or "").strip()]
    if empty:
        yield context.issue("measurements", path, f"missing or empty: {', '.join(empty)}")
    retraining = str(fields.get("retraining") or "").strip()
    if context.closed and retraining.lower().startswith("yes"):
        text = f"retraining is {retraining!r}, but the closed division allows none"
        yield context.issue("measurements", path, text, is_warning=True)


def check_system(folder: SystemDir, rule: SystemRule) -> Iterator[Issue]:
    """The system description and src/, once for each system."""
    source = folder.org_path / "src"
    if not source.is_dir() or not any(source.iterdir()):
        yield missing(folder, source)
    yield from _nameplate(folder)
    path = folder.system_file
    fields = yield from table_in(folder, path)
    if fields is None:
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
        yield Issue("power", folder.relative(path), str(error), remedy="correct the list of power supplies")


def check_user_conf(context: CheckContext) -> Iterator[Issue]:
    """Whether user.conf has rows for this result, and the values that LoadGen had in the performance run.

    Many published results have the settings of another of their runs in it, so that is a warning.
    """
    path = context.dir.path / USER_CONF
    logs = read_logs(context, PERFORMANCE)
    if not path.is_file() or not path.read_bytes().strip() or not usable(logs):
        return
    try:
        settings = _settings(path, context, context.scenario)
        others = () if settings else (one for one in context.benchmark.scenarios if one != context.scenario)
        is_ours = any(_settings(path, context, scenario) for scenario in others)
    except ConfigError as error:
        text = str(error).removeprefix(f"{path}:").lstrip()
        yield context.issue("user-conf", path, f"LoadGen does not read it as it is: {text}", is_warning=True)
        return
    if not settings:
        text = f"no row of it is for {context.scenario.folder} of {context.benchmark.name}"
        yield context.issue("user-conf", path, text, is_warning=is_ours)
    differ = [
        f"{key} is {value}, in the run {logs.detail.values[name]}"
        for key, value in settings.items()
        for name, given in _as_given(key, value, logs)
        if given != logs.detail.values[name]
    ]
    if differ:
        text = f"is not that of the performance run: {'; '.join(differ)}"
        yield context.issue("user-conf", path, text, is_warning=True)


def _settings(path: Path, context: CheckContext, scenario: Scenario) -> dict[str, Number]:
    """What the file sets in a scenario of the benchmark. Raises ConfigError."""
    key = context.benchmark.model_key(scenario)
    return read_conf(path, ConfKey(key, scenario.loadgen, scenario is Scenario.INTERACTIVE)).settings


def _as_given(key: str, value: float, logs: Logs) -> Iterator[tuple[str, Any]]:
    """The rows of the detail log for what LoadGen was given by a key of user.conf, and the key's value."""
    for setting in settings_of(key, logs.detail.effective.get("scenario")):
        name = f"requested_{setting.requested_name}"
        if name in logs.detail.values:
            logged = setting.value(value)
            yield name, float(f"{logged:.6g}") if isinstance(logged, float) else logged
