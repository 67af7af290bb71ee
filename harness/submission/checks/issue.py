"""One line of ``check``: where, what, rule, remedy. Rules and remedies are written here once."""

from dataclasses import dataclass

from harness.text import printable

RULES: dict[str, tuple[str, str]] = {
    "missing-file": (
        "every file of the submission structure exists",
        "add it, or build the folder again",
    ),
    "log-damaged": ("LoadGen's logs are complete", "copy them again, or repeat the run"),
    "logs-disagree": ("summary and detail log are of one run and unedited", "repeat the run"),
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
        "repeat it with run_compliance.py",
    ),
    "accuracy": (
        "accuracy and output lengths are within their bounds",
        "read the evaluator's report, repeat the accuracy run",
    ),
    "hash": ("accuracy.txt ends with hash=<sha256 of the full log>", "build the folder again"),
    "not-truncated": ("accuracy logs are cut to their first and last 4 KiB", "build the folder again"),
    "test06-log": (
        "the accuracy log of TEST06 is complete and holds answers",
        "repeat TEST06, and do not edit its log",
    ),
    "test-missing": (
        "closed results have every compliance test",
        "run run_compliance.py, then build the folder again",
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
        "repeat the run; never edit a log or a verify file",
    ),
    "system": (
        "systems/<system>.json has its 35 fields",
        "complete the submission's TOML, then build the folder again",
    ),
    "measurements": (
        "measurements.json has its 5 fields",
        "complete the submission's TOML, then build the folder again",
    ),
    "repeat": ("no two runs have the same log", "find the run that was copied into two folders"),
    "secret": (
        "no password, key or token is published",
        "remove it and revoke it; a line without one may end in kingfisher:ignore",
    ),
    "files": ("plain files without spaces or leading dots, at most 50 MB", "rename or remove it"),
    "deviations": ("a closed result comes from a run without deviations", "repeat the run by the rules"),
    "origin": (
        "all runs of a scenario come from one server, version and commit",
        "repeat the runs that differ",
    ),
    "run-verdict": ("the verdict in run.json is VALID", "repeat the run"),
}


@dataclass(frozen=True, slots=True)
class Issue:
    """``code`` is a key of RULES; ``where`` is relative to the tree. A warning needs no action."""

    code: str
    where: str
    what: str
    is_warning: bool = False

    def __str__(self) -> str:
        rule, remedy = RULES[self.code]
        what = f"{printable(self.where)}: [{self.code}] {printable(self.what)}"
        return f"warning: {what}" if self.is_warning else f"{what}; rule: {rule}; remedy: {remedy}"
