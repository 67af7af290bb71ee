"""An issue of a submission: where, what, rule, remedy, cost. Rules and remedies are written here once.

The remedies are for submitters of any harness: they name the file and what it must be.
"""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from harness.endpoints.official_files import Fields, read_table
from harness.submission.tree.cost import Cost
from harness.submission.tree.layout import REHEARSAL, SystemDir, absence
from harness.text import printable

# The names of all fields of a system description take half of it.
_MOST_CHARACTERS = 1500


class Rule(msgspec.Struct, frozen=True):
    """What must be so, and what to do where it is not."""

    text: str
    remedy: str
    cost: Cost
    """of the remedy"""
    of_official_runs: bool = False
    """only they must keep it: the runs of a rehearsal are short, of sample data or of another day's code"""


def _official(text: str, remedy: str, cost: Cost = Cost.GPU_HOURS) -> Rule:
    """A rule that only official runs must keep; another run mends most of them."""
    return Rule(text, remedy, cost, of_official_runs=True)


RULES: dict[str, Rule] = {
    "missing-file": Rule("every file of the submission structure exists", "add it", Cost.MINUTES),
    "malformed": Rule("JSON and YAML files can be read and hold a table", "correct the file", Cost.EDIT),
    "log-damaged": Rule("LoadGen's logs are complete", "copy them again, or repeat the run", Cost.MINUTES),
    "logs-disagree": Rule(
        "summary and detail log are of one run and unedited",
        "copy both logs of the run again, or repeat it",
        Cost.MINUTES,
    ),
    "loadgen-errors": Rule(
        "LoadGen logged no error, even in a VALID run", "find the cause and repeat the run", Cost.GPU_HOURS
    ),
    "failed-requests": Rule(
        "no request of a run with Endpoints logs failed", "find the cause and repeat the run", Cost.GPU_HOURS
    ),
    "endpoints-benchmark": Rule(
        "Endpoints logs are taken for some benchmarks of some rounds only",
        "run the scenario with LoadGen",
        Cost.GPU_HOURS,
    ),
    "invalid": _official("LoadGen's result is VALID", "repeat the run with settings that the system holds"),
    "mode": Rule(
        "accuracy and performance logs lie in their own folders", "put the run into its folder", Cost.MINUTES
    ),
    "scenario": Rule("logs lie in the folder of their scenario", "put the run into its folder", Cost.MINUTES),
    "seeds": Rule(
        "the seeds are the round's",
        "repeat the run with the round's LoadGen, or name its --round",
        Cost.GPU_HOURS,
    ),
    "settings": _official(
        "the benchmark's settings are as the rules lock them", "repeat the run without overriding them"
    ),
    "sample-count": _official(
        "every sample of the dataset is used", "repeat the run with the complete dataset"
    ),
    "min-duration": _official(
        "a performance run lasts 600 s or longer", "repeat the run with the official min_duration"
    ),
    "early-stopping": _official(
        "LoadGen's early stopping is met", "repeat the run with more queries or less load"
    ),
    "latency": _official(
        "p99 of TTFT and TPOT are within the limits", "repeat the run with a lower target_qps"
    ),
    "samples-per-query": _official(
        "a closed Offline query holds every sample of the dataset",
        "raise target_qps or min_query_count and repeat the run",
    ),
    "mean-tokens": _official(
        "mean output tokens of the performance run are within TEST09's bounds",
        "check the generation settings and the dataset, repeat the run",
    ),
    "audit-in-force": Rule(
        "an ordinary run takes no settings from an audit.config",
        "remove audit.config from the working directory and repeat the run",
        Cost.GPU_HOURS,
    ),
    "audit-not-in-force": _official(
        "a compliance test runs with its audit.config",
        "repeat the test with the round's audit.config in force",
    ),
    "accuracy": _official(
        "accuracy and output lengths are within their bounds",
        "read the evaluator's report, repeat the accuracy run",
    ),
    "hash": Rule(
        "accuracy.txt ends with hash=<sha256 of the full log>",
        "truncate the full log again; that writes the hash",
        Cost.MINUTES,
    ),
    "not-truncated": Rule(
        "accuracy logs are cut to their first and last 4 KiB",
        "truncate the full log again, with MLCommons's truncate_accuracy_log.py or this harness",
        Cost.MINUTES,
    ),
    "test06-log": _official(
        "the accuracy log of TEST06 is complete and holds answers", "repeat TEST06, and do not edit its log"
    ),
    "test-missing": Rule(
        "closed results have every compliance test",
        "add the test's folder; run the test if it was not run (with this harness: ./mlperf comply)",
        Cost.GPU_HOURS,
    ),
    "test-failed": _official("compliance tests pass", "read the verify file, repeat the test"),
    "scenarios": Rule(
        "a closed result has the scenarios of its benchmark and no others",
        "run the missing scenario, remove any other",
        Cost.GPU_HOURS,
    ),
    "benchmark": Rule(
        "folders are named after a benchmark of the round", "rename or remove the folder", Cost.EDIT
    ),
    "encoding": Rule("text files are UTF-8", "write the file again as UTF-8", Cost.EDIT),
    "power": Rule(
        "a result with a folder performance/power has all power files and no others",
        "complete or remove the power measurements",
        Cost.MINUTES,
    ),
    # LoadGen's rates are of different spans, which shows in runs of a few queries.
    "cross-check": _official(
        "figures that follow from each other agree",
        "copy the files of one run again, or repeat the run; never edit a log or a verify file",
        Cost.MINUTES,
    ),
    "system": Rule(
        "systems/<system>.json has its 35 fields",
        "correct the file (with this harness: the submission's TOML, then build again)",
        Cost.EDIT,
    ),
    "measurements": Rule(
        "measurements.json has its 5 fields",
        "correct the file (with this harness: the submission's TOML, then build again)",
        Cost.EDIT,
    ),
    "user-conf": Rule(
        "user.conf holds the settings of the performance run",
        "submit the user.conf that the run had",
        Cost.EDIT,
    ),
    "repeat": Rule(
        "no two runs have the same log",
        "remove the copy, or the folders of a system's former name in results/ and systems/; another system "
        "needs runs of its own",
        Cost.MINUTES,
    ),
    "secret": Rule(
        "no password, key or token is published",
        "remove it and revoke it; a line without one may end in kingfisher:ignore",
        Cost.EDIT,
    ),
    "files": Rule(
        "readable plain files without spaces or leading dots, at most 50 MB, none left over from a run",
        "rename or remove it",
        Cost.EDIT,
    ),
    "deviations": _official(
        "a closed result comes from a run without deviations", "repeat the run by the rules"
    ),
    "origin": _official(
        "all runs of a scenario are of it, and have one benchmark, server, model, dataset, tokenizer, "
        "version and commit",
        "repeat the runs that differ",
    ),
    "run-verdict": _official("the verdict in run.json is VALID", "repeat the run"),
}


class Issue(msgspec.Struct, frozen=True):
    """One line of ``check``."""

    code: str
    """a key of RULES"""
    where: str
    """a path relative to the tree"""
    what: str
    is_warning: bool = False
    """it needs no action"""
    remedy: str = ""
    """takes the place of the rule's where another one fits this issue"""
    cost: Cost | None = None
    """of that remedy, where it is not the rule's"""

    @property
    def rule(self) -> Rule:
        """The rule that is not kept."""
        return RULES[self.code]

    @property
    def costs(self) -> Cost:
        """What the remedy costs."""
        return self.cost or self.rule.cost

    @property
    def is_rehearsed(self) -> bool:
        """Whether every rehearsal may have it: only runs by the rules mend it."""
        division = self.where.partition("/")[0]
        return division.endswith(REHEARSAL) and self.rule.of_official_runs

    @property
    def needs_action(self) -> bool:
        """Whether it must be mended before the tree can be used for what it is."""
        return not self.is_warning and not self.is_rehearsed

    def fields(self) -> dict[str, Any]:
        """Everything about it, as values of JSON."""
        cost = None if self.is_warning else self.costs.value
        own = {"remedy": self.remedy or self.rule.remedy, "cost": cost, "is_rehearsed": self.is_rehearsed}
        return asdict(self) | {"rule": self.rule.text} | own

    def __str__(self) -> str:
        text = f"{printable(self.where)}: [{self.code}] {printable(self.what, _MOST_CHARACTERS)}"
        if self.is_warning:
            return f"warning: {text}"
        return f"{text}; rule: {self.rule.text}; remedy: {self.remedy or self.rule.remedy}"


def unreadable(where: str, reason: str) -> Issue:
    """The issue of an entry that cannot be read."""
    return Issue("files", where, f"cannot be read: {reason}", remedy="put a readable file in its place")


def missing(folder: SystemDir, path: Path, code: str = "missing-file") -> Issue:
    """The issue of a file that is not there, or only under another name."""
    what, remedy = absence(folder, path)
    return Issue(code, folder.relative(path), what, remedy=remedy, cost=Cost.EDIT if remedy else None)


def table_in(folder: SystemDir, path: Path) -> Generator[Issue, None, Fields | None]:
    """The table in a JSON or YAML file; the issue of a file without one, and None."""
    if not path.is_file():
        yield missing(folder, path)
        return None
    found = read_table(path)
    if isinstance(found, str):
        yield Issue("malformed", folder.relative(path), found)
        return None
    return found
