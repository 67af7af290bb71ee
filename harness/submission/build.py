"""Makes the submission folder from runs: everything is checked first, then written aside, then renamed."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.benchmark import Benchmark, Scenario
from harness.errors import ConfigError
from harness.loadgen_logs.summary_and_detail import read_detail, read_summary
from harness.submission.accuracy_text import without_hash
from harness.submission.checks.check import kept_beside
from harness.submission.checks.check_context import Logs
from harness.submission.checks.run_record import (
    ADDRESS,
    RUN_RECORD,
    origin_differences,
    read_record,
    servers_elsewhere,
)
from harness.submission.find_runs import ScenarioRuns, find_runs
from harness.submission.layout import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    DETAIL,
    FOLDER_OF,
    PERFORMANCE,
    SUMMARY,
    VERIFY_FILE,
)
from harness.submission.readme import scenario_readme
from harness.submission.rules import Rules
from harness.submission.secret_text import refuse_secrets
from harness.submission.source_code import copy_source
from harness.submission.staging import (
    Move,
    copy_file,
    digest,
    keep_file,
    put_in_place,
    refuse_existing,
    staging,
    truncated,
    write_file,
)
from harness.submission.submitter_info import Statement
from harness.submission.system_description import measurements, system_fields


@dataclass(frozen=True, slots=True)
class Order:
    """What to build. ``user_conf`` overrides the file that the performance run names.

    ``servers_moved`` says that runs of one scenario name the same servers by other addresses.
    """

    benchmark: Benchmark
    statement: Statement
    results: Path
    output: Path
    only: tuple[Scenario, ...]
    user_conf: Path | None
    force: bool
    servers_moved: bool = False

    @property
    def org(self) -> Path:
        """``<division>/<org>``, in the tree and among the kept files."""
        return Path(self.statement.division, self.statement.submitter)

    @property
    def runs_folder(self) -> Path:
        """The folder of this benchmark's scenarios."""
        return self.org / "results" / self.statement.system_id / self.benchmark.name


@dataclass(frozen=True, slots=True)
class Built:
    """What was built. ``from_machine`` are fields of the description that this machine filled in.

    ``elsewhere`` is True where the servers are on other machines, so that none was.
    """

    runs: tuple[ScenarioRuns, ...]
    from_machine: tuple[str, ...]
    elsewhere: bool
    changed_source: bool  # the harness had local changes in a run


def build(order: Order, machine: Mapping[str, str], rules: Rules) -> Built:
    """Write the tree and the kept files beside it. Raises ConfigError before anything is written."""
    division = order.statement.division
    suite_name, suite = rules.suite_of(order.benchmark.name)
    _refuse_type(order, suite_name)
    runs = find_runs(order.results, order.benchmark, suite, division, order.only)
    records = [record for run in runs for record in run.records().values()]
    _refuse_mixed(order, runs)
    elsewhere = any(servers_elsewhere(record, platform.node()) for record in records)
    machine = {} if elsewhere else machine
    system = system_fields(order.statement, machine, records, rules)
    measured = measurements(order.statement, order.benchmark, rules)
    confs = {run.scenario: _user_conf(order, run) for run in runs}
    kept, system_file = kept_beside(order.output), order.org / "systems" / f"{order.statement.system_id}.json"
    refuse_existing([order.output / order.runs_folder, kept / order.runs_folder], order.force)
    with staging(order.output) as folder:
        for run in runs:
            target = Path(order.runs_folder, FOLDER_OF[run.scenario])
            _write_scenario(order, run, rules, folder / "tree" / target, folder / "kept" / target)
            write_file(folder / "tree" / target / "measurements.json", _json(measured))
            copy_file(confs[run.scenario], folder / "tree" / target / "user.conf")
        write_file(folder / "tree" / system_file, _json(system))
        copy_source(folder / "tree" / order.org / "src" / order.benchmark.name)
        refuse_secrets(folder / "tree")
        put_in_place(list(_moves(order, folder, system_file, kept)), folder, order.force)
    used = tuple(name for name in machine if not order.statement.system.get(name))
    return Built(runs, used, elsewhere, any(map(_has_changes, records)))


def _has_changes(record: Mapping[str, Any]) -> bool:
    return bool(((record.get("provenance") or {}).get("git") or {}).get("dirty"))


def _refuse_mixed(order: Order, runs: Sequence[ScenarioRuns]) -> None:
    """A result, its accuracy and its tests are of one system only when one server gave them."""
    for run in runs:
        found = origin_differences(run.records())
        texts = [text for what, text in found if not (order.servers_moved and what == ADDRESS)]
        if texts:
            raise ConfigError(
                f"{order.results / run.scenario}: its runs do not belong together: {'; '.join(texts)}; "
                "repeat those that differ (--servers-moved: the same servers had other addresses)"
            )


def _refuse_type(order: Order, suite: str) -> None:
    """The official checker fails on a benchmark that the system's type does not have."""
    types = str(order.statement.system.get("system_type", ""))
    if order.statement.division == "closed" and types and suite not in types.split(","):
        raise ConfigError(
            f"system_type is {types!r}, and {order.benchmark.name} is a {suite} benchmark; "
            f"write {suite!r} into [system] of the submission's TOML"
        )


def _moves(order: Order, folder: Path, system_file: Path, kept: Path) -> Iterator[Move]:
    """The results last: a tree that has them has everything."""
    tree, source = folder / "tree", order.org / "src" / order.benchmark.name
    yield Move(tree / source, order.output / source, keep=True)
    yield Move(tree / system_file, order.output / system_file, keep=True)
    yield Move(folder / "kept" / order.runs_folder, kept / order.runs_folder)
    yield Move(tree / order.runs_folder, order.output / order.runs_folder)


def _user_conf(order: Order, run: ScenarioRuns) -> Path:
    path = order.user_conf or _own_user_conf(run)
    if path is None or not path.is_file() or not path.stat().st_size:
        shown = "no run.json names one" if path is None else f"{path} is missing or empty"
        raise ConfigError(f"user.conf of {run.scenario}: {shown}; pass --user-conf")
    return path


def _own_user_conf(run: ScenarioRuns) -> Path | None:
    """As the run had it; the file that it names may have changed since."""
    kept = run.performance / "user.conf"
    if kept.is_file():
        return kept
    record = read_record(run.performance / RUN_RECORD) or {}
    named = (record.get("plan") or {}).get("user_conf")
    return Path(named) if named else None


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


def _write_scenario(order: Order, run: ScenarioRuns, rules: Rules, target: Path, kept: Path) -> None:
    _copy_logs(run.performance, target / PERFORMANCE)
    if (log := run.performance / ACCURACY_LOG).is_file():
        copy_file(log, target / PERFORMANCE / ACCURACY_LOG)
    _copy_logs(run.accuracy, target / ACCURACY)
    _shorten(run.accuracy, target / ACCURACY, kept / ACCURACY, rules)
    for test in run.tests:
        write_test(run.path / test, test, rules, target / test, kept / test)
    for name, path in run.record_files().items():
        if path.is_file():
            copy_file(path, kept / name / RUN_RECORD)
    logs = Logs(PERFORMANCE, read_summary(run.performance / SUMMARY), read_detail(run.performance / DETAIL))
    write_file(target / "README.md", scenario_readme(order.benchmark, run, logs))


def write_test(folder: Path, test: str, rules: Rules, target: Path, kept: Path) -> None:
    """TEST06's log stays complete: reviewers verify it again."""
    if (folder / PERFORMANCE).is_dir():
        _copy_logs(folder / PERFORMANCE, target / PERFORMANCE)
    copy_file(folder / VERIFY_FILE[test], target / VERIFY_FILE[test])
    if test == "TEST06":
        copy_file(folder / ACCURACY / ACCURACY_LOG, target / ACCURACY / ACCURACY_LOG)
    else:
        _shorten(folder / ACCURACY, target / ACCURACY, kept / ACCURACY, rules)


def _copy_logs(source: Path, target: Path) -> None:
    for name in (SUMMARY, DETAIL):
        if (source / name).is_file():
            copy_file(source / name, target / name)


def _shorten(source: Path, target: Path, kept: Path, rules: Rules) -> None:
    """The log's ends, the hash of the whole in accuracy.txt, and the whole kept aside."""
    log, text = source / ACCURACY_LOG, source / ACCURACY_TEXT
    written = without_hash(text.read_text(encoding="utf-8", errors="replace")) if text.is_file() else ""
    write_file(target / ACCURACY_TEXT, f"{written}\nhash={digest(log)}\n".lstrip())
    write_file(target / ACCURACY_LOG, truncated(log, rules.files.shown_bytes))
    keep_file(log, kept / ACCURACY_LOG)
