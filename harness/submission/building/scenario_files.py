"""The files of one scenario in the tree and among the kept files: logs, accuracy.txt, user.conf."""

from pathlib import Path

from harness.compliance.registry import TESTS
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    DETAIL,
    PERFORMANCE,
    RUN_RECORD,
    SUMMARY,
    USER_CONF,
    sha256_of,
)
from harness.staging import copy_file, keep_file, write_file
from harness.submission.building.find_runs import ScenarioRuns
from harness.submission.tree.accuracy_files import truncated, without_hash
from harness.submission.tree.round_rules import RoundRules


def write_confs(run: ScenarioRuns, conf: Path, target: Path) -> dict[str, str]:
    """Write each user.conf of the scenario's runs once; returns where it is, by the run's folder."""
    copy_file(conf, target / USER_CONF)
    places = {conf.read_bytes(): USER_CONF}
    confs = {}
    for name, path in run.record_files().items():
        own = path.with_name(USER_CONF)
        has_own = name != PERFORMANCE.as_posix() and own.is_file()
        content = own.read_bytes() if has_own else conf.read_bytes()
        if content not in places:
            places[content] = f"{name}/{USER_CONF}"
            copy_file(own, target / name / USER_CONF)
        confs[name] = places[content]
    return confs


def write_logs(rules: RoundRules, run: ScenarioRuns, target: Path, kept: Path) -> None:
    """Logs and run.json of all runs; accuracy logs truncated, and complete among the kept files."""
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


def write_test(folder: Path, test: str, rules: RoundRules, target: Path, kept: Path) -> None:
    """The log of a test that logs random samples stays complete: reviewers verify it again."""
    _copy_logs(folder / PERFORMANCE, target / PERFORMANCE)
    verified = TESTS[test].verification_in(folder)
    copy_file(verified, target / verified.name)
    if not TESTS[test].every_sample:
        copy_file(folder / ACCURACY / ACCURACY_LOG, target / ACCURACY / ACCURACY_LOG)
    else:
        _shorten(folder / ACCURACY, target / ACCURACY, kept / ACCURACY, rules)


def _copy_logs(source: Path, target: Path) -> None:
    for name in (SUMMARY, DETAIL):
        if (source / name).is_file():
            copy_file(source / name, target / name)


def _shorten(source: Path, target: Path, kept: Path, rules: RoundRules) -> None:
    """Write the truncated log and accuracy.txt with the full log's hash; keep the full log."""
    log, text = source / ACCURACY_LOG, source / ACCURACY_TEXT
    written = without_hash(text.read_text(encoding="utf-8", errors="replace")) if text.is_file() else ""
    write_file(target / ACCURACY_TEXT, f"{written}\nhash={sha256_of(log)}\n".lstrip())
    write_file(target / ACCURACY_LOG, truncated(log, rules.files.shown_bytes))
    keep_file(log, kept / ACCURACY_LOG)
