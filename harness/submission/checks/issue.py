"""An issue of a submission: where, what, rule, remedy. Rules and remedies are written here once.

The remedies are for submitters of any harness: they name the file and what it must be.
"""

from dataclasses import dataclass
from pathlib import Path

from harness.submission.tree.layout import SystemDir, absence
from harness.text import printable

# The names of all fields of a system description take half of it.
_MOST_CHARACTERS = 1500

# The rule and the remedy of each code.
RULES: dict[str, tuple[str, str]] = {
    "missing-file": (
        "every file of the submission structure exists",
        "add it",
    ),
    "malformed": ("JSON and YAML files can be read and hold a table", "correct the file"),
    "log-damaged": ("LoadGen's logs are complete", "copy them again, or repeat the run"),
    "logs-disagree": (
        "summary and detail log are of one run and unedited",
        "copy both logs of the run again, or repeat it",
    ),
    "loadgen-errors": ("LoadGen logged no error, even in a VALID run", "find the cause and repeat the run"),
    "invalid": ("LoadGen's result is VALID", "repeat the run with settings that the system holds"),
    "mode": ("accuracy and performance logs lie in their own folders", "put the run into its folder"),
    "scenario": ("logs lie in the folder of their scenario", "put the run into its folder"),
    "seeds": ("the seeds are the round's", "repeat the run with the round's LoadGen, or name its --round"),
    "settings": (
        "the benchmark's settings are as the rules lock them",
        "repeat the run without overriding them",
    ),
    "sample-count": ("every sample of the dataset is used", "repeat the run with the complete dataset"),
    "min-duration": (
        "a performance run lasts 600 s or longer",
        "repeat the run with the official min_duration",
    ),
    "early-stopping": ("LoadGen's early stopping is met", "repeat the run with more queries or less load"),
    "latency": ("p99 of TTFT and TPOT are within the limits", "repeat the run with a lower target_qps"),
    "samples-per-query": (
        "a closed Offline query holds every sample of the dataset",
        "raise target_qps or min_query_count and repeat the run",
    ),
    "mean-tokens": (
        "mean output tokens of the performance run are within TEST09's bounds",
        "check the generation settings and the dataset, repeat the run",
    ),
    "audit-in-force": (
        "an ordinary run takes no settings from an audit.config",
        "remove audit.config from the working directory and repeat the run",
    ),
    "audit-not-in-force": (
        "a compliance test runs with its audit.config",
        "repeat the test with the round's audit.config in force",
    ),
    "accuracy": (
        "accuracy and output lengths are within their bounds",
        "read the evaluator's report, repeat the accuracy run",
    ),
    "hash": (
        "accuracy.txt ends with hash=<sha256 of the full log>",
        "truncate the full log again; that writes the hash",
    ),
    "not-truncated": (
        "accuracy logs are cut to their first and last 4 KiB",
        "truncate the full log again, with MLCommons's truncate_accuracy_log.py or this harness",
    ),
    "test06-log": (
        "the accuracy log of TEST06 is complete and holds answers",
        "repeat TEST06, and do not edit its log",
    ),
    "test-missing": (
        "closed results have every compliance test",
        "add the test's folder; run the test if it was not run (with this harness: run_compliance.py)",
    ),
    "test-failed": ("compliance tests pass", "read the verify file, repeat the test"),
    "scenarios": (
        "a closed result has the scenarios of its benchmark and no others",
        "run the missing scenario, remove any other",
    ),
    "benchmark": ("folders are named after a benchmark of the round", "rename or remove the folder"),
    "encoding": ("text files are UTF-8", "write the file again as UTF-8"),
    "power": (
        "a result with a folder performance/power has all power files and no others",
        "complete or remove the power measurements",
    ),
    "cross-check": (
        "figures that follow from each other agree",
        "copy the files of one run again, or repeat the run; never edit a log or a verify file",
    ),
    "system": (
        "systems/<system>.json has its 35 fields",
        "correct the file (with this harness: the submission's TOML, then build again)",
    ),
    "measurements": (
        "measurements.json has its 5 fields",
        "correct the file (with this harness: the submission's TOML, then build again)",
    ),
    "user-conf": (
        "user.conf holds the settings of the performance run",
        "submit the user.conf that the run had",
    ),
    "repeat": ("no two runs have the same log", "find the run that was copied into two folders"),
    "secret": (
        "no password, key or token is published",
        "remove it and revoke it; a line without one may end in kingfisher:ignore",
    ),
    "files": (
        "readable plain files without spaces or leading dots, at most 50 MB, none left over from a run",
        "rename or remove it",
    ),
    "deviations": ("a closed result comes from a run without deviations", "repeat the run by the rules"),
    "origin": (
        "all runs of a scenario come from one benchmark, server, version and commit",
        "repeat the runs that differ",
    ),
    "run-verdict": ("the verdict in run.json is VALID", "repeat the run"),
}


@dataclass(frozen=True, slots=True)
class Issue:
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

    def __str__(self) -> str:
        rule, remedy = RULES[self.code]
        what = f"{printable(self.where)}: [{self.code}] {printable(self.what, _MOST_CHARACTERS)}"
        return (
            f"warning: {what}"
            if self.is_warning
            else f"{what}; rule: {rule}; remedy: {self.remedy or remedy}"
        )


def unreadable(where: str, reason: str) -> Issue:
    """The issue of an entry that cannot be read."""
    return Issue("files", where, f"cannot be read: {reason}", remedy="put a readable file in its place")


def missing(folder: SystemDir, path: Path, code: str = "missing-file") -> Issue:
    """The issue of a file that is not there, or only under another name."""
    what, remedy = absence(folder, path)
    return Issue(code, folder.relative(path), what, remedy=remedy)
