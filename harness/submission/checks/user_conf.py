"""Checks of user.conf against the log of the performance run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.config.loadgen_conf import ConfKey, read_conf
from harness.config.loadgen_settings import Number, settings_of
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import PERFORMANCE, USER_CONF
from harness.submission.checks.check_context import CheckContext, Logs, read_logs
from harness.submission.checks.issue import Issue
from harness.submission.checks.loadgen_logs import usable


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
        is_ours = bool(settings) or any(_settings(path, context, scenario) for scenario in others)
    except ConfigError as error:
        text = str(error).removeprefix(f"{path}:")
        yield context.issue("user-conf", path, f"LoadGen does not read it as it is: {text}", is_warning=True)
        return
    if not settings:
        text = f"no row of it is for {context.scenario.folder} of {context.benchmark.name}"
        yield context.issue("user-conf", path, text, is_warning=is_ours)
    differ = [
        f"{key} is {value}, in the run {logs.values[name]}"
        for key, value in settings.items()
        for name, given in _as_given(key, value, logs)
        if given != logs.values[name]
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
        if name in logs.values:
            logged = setting.value(value)
            yield name, float(f"{logged:.6g}") if isinstance(logged, float) else logged
