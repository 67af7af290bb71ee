"""A finding of a check: rule, place, got, expected, remedy. Our rules are written here once.

Sections are those of the MLPerf Endpoints rules, version 1.0.
"""

from enum import StrEnum

import msgspec

from harness.text import printable

OURS, OFFICIAL = "ours", "official"
_MOST_CHARACTERS = 600


class Severity(StrEnum):
    """How much a finding weighs."""

    ERROR = "error"
    WARNING = "warning"
    REHEARSED = "too short to tell"
    """an error of a short rehearsal, whose points were never meant to be long enough"""
    UNKNOWN = "not checked"
    """the files that say whether the rule is kept are not there"""


class Finding(msgspec.Struct, frozen=True):
    """One line of the check."""

    rule: str
    """a key of RULES, or the name that MLCommons's checker gives it"""
    path: str
    """relative to what is checked"""
    got: str
    expected: str
    remedy: str
    severity: Severity
    section: str
    """of the rules, such as ``§6.2``"""
    source: str = OURS

    def __str__(self) -> str:
        name = f"{self.rule} {self.section}".rstrip()
        line = f"{self.path}: [{name}] {self.got}"
        line += f", expected {self.expected}" if self.expected else ""
        line += f"; {self.remedy}" if self.remedy else ""
        return printable(line, _MOST_CHARACTERS)


class Rule(msgspec.Struct, frozen=True):
    """What must be so, and what to do where it is not."""

    section: str
    expected: str
    """"" where each finding has its own, such as a number"""
    remedy: str
    severity: Severity = Severity.ERROR


_AGAIN = "run the point again"

RULES: dict[str, Rule] = {
    "missing": Rule("§8.1", "", "add it; build the tree again from the run folders"),
    "unreadable": Rule("§8.1", "a file that can be read", "write the file again"),
    "log": Rule("§4.4", "a complete log of the run", "copy events.jsonl again, or run the point again"),
    "issue-time": Rule("§6.2", "the minimum duration of issue time", "run the point again, longer"),
    "min-duration": Rule("§6.2", "", f"set it and {_AGAIN}"),
    "whole-passes": Rule("§6.4", "a multiple of the dataset", f"{_AGAIN}; issue ends with a pass"),
    "super-passes": Rule(
        "§4.4",
        "",
        "run the point for more passes; until then the numbers of the complete run are official",
    ),
    "failures": Rule("§6.4", "0 failed requests", f"find the cause and {_AGAIN}"),
    "incomplete": Rule("§8.1", "a run that ended by its rule, with all answers counted", _AGAIN),
    "log-differs": Rule("§4.1", "", "copy both files from one run"),
    "salt": Rule("§2.9.5.1", "", f"switch the salt on and {_AGAIN}"),
    "warm-up": Rule(
        "§6.3.1",
        "true where the client warms up, which it does with the performance dataset",
        f"set it, or switch the warm-up off (prompts of token ids cannot be salted), and {_AGAIN}",
    ),
    "accuracy-salt": Rule("§2.9.5.1", "accuracy prompts without salt", "run accuracy again without salt"),
    "accuracy": Rule(
        "§4.3",
        "a score of the complete accuracy dataset that meets its targets",
        "run the accuracy dataset of the point again",
    ),
    "streaming": Rule("§6.5", "streamed answers", f"switch it on and {_AGAIN}"),
    "output-tokens": Rule("§4.1", "a number above 0", "write the summary again from the run's log"),
    "ttft": Rule("§4.1", "a block ttft with a p90 above 0", "write the summary again from the run's log"),
    "tpot": Rule("§4.1", "a block tpot with a p90 above 0", "write the summary again from the run's log"),
    "config-differs": Rule("§9.1", "", "copy config.yaml from the run folder of the point"),
    "sampling": Rule("§2.9.1", "", f"set it under model_params and {_AGAIN}"),
    "copied": Rule("§8.1", "a file of this point's own run", "copy it from the run folder of the point"),
    "load-pattern": Rule("§6.1", "concurrency, or max_throughput of a dedicated Offline run", _AGAIN),
    "steady-state": Rule(
        "§4.4",
        "the block steady_state with the verdict STEADY STATE",
        f"let the server warm up, {_AGAIN}, or declare the numbers of the complete run and the drift",
    ),
    "steady-state-differs": Rule(
        "§4.4", "the steady state that follows from the log", "build the tree again from the run folder"
    ),
    "points-differ": Rule("§9.1", "", "correct it, or run the points with one model"),
    "folder-name": Rule("§8.1", "", "rename the folder"),
    "tps-utilization": Rule("§8.2", "", "build the tree again from all run folders"),
    "offline-throughput": Rule("§5.7.2", "", "run Offline again, or elect the C_max point"),
    "offline-concurrency": Rule("§5.7.1", "", "issue all samples at once"),
    "not-recomputed": Rule(
        "§4.4",
        "",
        "check it beside its run folders, or put events.jsonl into the point's folder",
        Severity.UNKNOWN,
    ),
    "official-checker": Rule(
        "§9.1", "", "pip install endpoints-submission-cli, then run this again", Severity.UNKNOWN
    ),
}


def finding(
    rule: str,
    path: str,
    got: str,
    *,
    expected: str = "",
    remedy: str | None = None,
    severity: Severity | None = None,
) -> Finding:
    """A finding of one of our rules; its words are the rule's where none are given."""
    about = RULES[rule]
    return Finding(
        rule,
        path,
        got,
        expected or about.expected,
        about.remedy if remedy is None else remedy,
        severity or about.severity,
        about.section,
    )
