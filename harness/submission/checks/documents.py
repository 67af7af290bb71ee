"""Checks of what describes a result: systems/, src/, measurements.json, README.md, user.conf and run.json.

run.json is kept beside the tree and never submitted.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.analysis.run_warnings import names_same_answers, rule_warnings
from harness.compliance.registry import TESTS
from harness.config.loadgen_conf import ConfKey, read_conf
from harness.config.loadgen_settings import Number, settings_of
from harness.config.scenario import Scenario
from harness.dataset.published import names_other_file
from harness.errors import ConfigError
from harness.files import ACCURACY, ACCURACY_TEXT, DETAIL, PERFORMANCE, RUN_RECORD, USER_CONF
from harness.grading.reports.scorecard import mean_tokens
from harness.json_files import read_fields
from harness.record.run_record import RunRecord
from harness.submission.checks.context import CheckContext, Logs, read_logs
from harness.submission.checks.issue import Issue, missing
from harness.submission.checks.loadgen_logs import usable
from harness.submission.tree.layout import SystemDir
from harness.submission.tree.origins import PLACES, origin_differences, read_record
from harness.submission.tree.round_rules import SystemRule
from harness.submission.tree.system_description import (
    NameplateError,
    design_watts,
    nameplate_of,
    system_issues,
    whole_number,
)

_ROUNDED = 0.01  # a mean with two decimals differs by less


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
    path = context.dir.path / "measurements.json"
    if not path.is_file():
        yield context.missing(path)
        return
    fields = read_fields(path)
    if isinstance(fields, str):
        yield context.issue("malformed", path, fields)
        return
    required = context.rules.measurements.required
    empty = [name for name in required if not str(fields.get(name) or "").strip()]
    if empty:
        yield context.issue("measurements", path, f"missing or empty: {', '.join(empty)}")


def check_system(folder: SystemDir, rule: SystemRule) -> Iterator[Issue]:
    """The system description and src/, once for each system."""
    source = folder.org_path / "src"
    if not source.is_dir() or not any(source.iterdir()):
        yield missing(folder, source)
    yield from _nameplate(folder)
    path = folder.system_file
    if not path.is_file():
        yield missing(folder, path)
        return
    fields = read_fields(path)
    if isinstance(fields, str):
        yield Issue("malformed", folder.relative(path), fields)
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


def check_records(context: CheckContext) -> Iterator[Issue]:
    """Origin, deviations and verdicts of the runs whose run.json was kept."""
    if (kept := context.kept) is None:
        return
    records: dict[Path, RunRecord] = {}
    for folder in (PERFORMANCE, ACCURACY, *map(Path, TESTS)):
        try:
            record = read_record(kept / folder / RUN_RECORD)
        except ConfigError as error:
            yield context.issue("run-verdict", folder, str(error))
            continue
        if record is not None:
            records[folder] = record
    own = context.benchmark.name, context.scenario
    found = {(record.plan.client.benchmark.name, record.plan.scenario) for record in records.values()}
    for other in sorted(found - {own}):
        text = f"there are runs of {', '.join(other)} (run.json), expected {', '.join(own)}"
        yield context.issue("origin", Path(), text, remedy="build each result from runs of its own")
    for folder, record in records.items():
        if folder in (PERFORMANCE, ACCURACY):
            yield from _verdict(context, folder, record)
        if folder == PERFORMANCE:
            yield from _of_another_system(context, record)
        if context.closed:
            for deviation in record.deviations:
                yield context.issue("deviations", folder, deviation)
            for warning in (*rule_warnings(record), *filter(_is_of_rules, record.warnings)):
                yield context.issue("deviations", folder, warning, is_warning=True)
        yield from _of_another_run(context, folder, record)
    for what, text in origin_differences({folder.as_posix(): record for folder, record in records.items()}):
        yield context.issue("origin", Path(), text, is_warning=what in PLACES)


def _of_another_run(context: CheckContext, folder: Path, record: RunRecord) -> Iterator[Issue]:
    """A log or a score that is not of the run whose run.json was kept: its mean length is another."""
    mean = None if record.statistics is None else record.statistics.osl_mean
    if mean is None:
        return
    if folder == ACCURACY:
        path = context.dir.path / folder / ACCURACY_TEXT
        found = mean_tokens(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
        differs = found is not None and abs(found - mean) > _ROUNDED
    else:
        logs = read_logs(context, folder if folder == PERFORMANCE else folder / PERFORMANCE)
        path, found = logs.folder / DETAIL, logs.detail.mean_tokens
        differs = not logs.detail.has_mean_tokens(mean)
    if differs:
        text = f"mean output tokens are {found:.2f}, in the {RUN_RECORD} of this run {mean:.2f}"
        yield context.issue("cross-check", path, text)


def _of_another_system(context: CheckContext, record: RunRecord) -> Iterator[Issue]:
    """A system description that is not of the servers of the performance run, such as the last round's."""
    path = context.dir.system_file
    fields, used = read_fields(path), _gpus(record)
    if isinstance(fields, str):
        return
    nodes, each = (whole_number(fields.get(name)) for name in ("number_of_nodes", "accelerators_per_node"))
    if used and nodes and each and nodes * each != used:
        text = (
            f"the system has {nodes * each} accelerators, the servers of the run used {used} by their options"
        )
        yield context.issue("cross-check", path, text, is_warning=True)
    framework = str(fields.get("framework", ""))
    for version in sorted(
        {one.version.partition(" ")[0].strip("?") for one in record.servers if one.version}
    ):
        if version not in framework:
            text = f"framework is {framework!r}, the servers of the run reported version {version}"
            yield context.issue("cross-check", path, text, is_warning=True)


def _gpus(record: RunRecord) -> int | None:
    """The GPUs of all servers, by SGLang's options; None where one does not show them, or only its rank's."""
    found = []
    for server in record.servers:
        tp, pp, dp = (server.settings.get(name, 1) for name in ("tp_size", "pp_size", "dp_size"))
        if server.router or server.listener or "tp_size" not in server.settings:
            return None
        # Ranks of data-parallel attention share the GPUs of tp_size.
        found.append(int(tp) * int(pp) * (1 if server.settings.get("enable_dp_attention") else int(dp)))
    return sum(found)


def _is_of_rules(warning: str) -> bool:
    """Whether a warning that a run left is about the rules of the closed division."""
    return names_other_file(warning) or names_same_answers(warning)


def _verdict(context: CheckContext, folder: Path, record: RunRecord) -> Iterator[Issue]:
    verdict = record.verdict
    if verdict is None:
        yield context.issue("run-verdict", folder, f"{RUN_RECORD} has no verdict: the run did not finish")
    elif verdict.result != "VALID":
        text = f"the verdict in {RUN_RECORD} is {verdict.result}: {'; '.join(verdict.reasons)}"
        yield context.issue("run-verdict", folder, text)
