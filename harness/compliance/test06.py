"""TEST06: whether first token, end of sequence and token count of each logged output are consistent."""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import numpy as np

from harness.compliance.compliance_test import ComplianceTest, JudgedRun, TestResult, VerifiedFigures
from harness.config.scenario import needs_first_tokens
from harness.errors import ConfigError
from harness.loadgen_logs.accuracy_log import AccuracyLog, LogEntry

_MOST_ENDS = 1


class ConsistencyTest(ComplianceTest, frozen=True, kw_only=True):
    """TEST06. ``eos_token_ids`` are the model's ends of sequence."""

    name: ClassVar[str] = "TEST06"
    pass_line: ClassVar[str] = "TEST06 verification complete"
    every_sample: ClassVar[bool] = False
    unusual_log: ClassVar[str] = (
        "the log has {form}; the official script needs an array, and -d int64 for int64"
    )

    eos_token_ids: tuple[int, ...] = ()

    def judge(self, log: AccuracyLog, run: JudgedRun) -> TestResult:
        """Check every logged output. Raises ConfigError where the scenario is unknown."""
        if run.scenario is None:
            raise ConfigError(
                "TEST06 checks first tokens except in Offline, and no log names the scenario; pass --scenario"
            )
        return judge_consistency(log, run.scenario, self.eos_token_ids)

    def read(self, text: str) -> VerifiedFigures:
        """The official script ends with one line for a pass, and another for a failure."""
        return VerifiedFigures(self.pass_line in text)

    def recheck(self, text: str) -> Iterator[str]:
        """The checks, of three, that the file does not report as passed."""
        lines = {line.strip() for line in text.splitlines()}
        for check, good in (
            ("First token check pass", ("True", "Skipped")),
            ("EOS check pass", ("True",)),
            ("Sample length check pass", ("True",)),
        ):
            if not lines.intersection(f"{check}: {word}" for word in good):
                yield f"{check} is not {' or '.join(good)}"


def judge_consistency(
    entries: Iterable[LogEntry], scenario: str, eos_token_ids: tuple[int, ...]
) -> TestResult:
    """Check all entries. ``scenario`` is LoadGen's; Offline reports no first tokens and skips that check."""
    needs_first = needs_first_tokens(scenario)
    count = 0
    first = ends = counts = True
    for entry in entries:
        count += 1
        first = first and (not needs_first or first_token_agrees(entry))
        ends = ends and ends_once(entry, eos_token_ids)
        counts = counts and entry.token_count == len(entry.data_ids)
    passed = first and ends and counts
    lines = [
        f"First token check pass: {first if needs_first else 'Skipped'}",
        f"EOS check pass: {ends}",
        f"Sample length check pass: {counts}",
        f"TEST06 verification {'complete' if passed else 'failed'}",
    ]
    return TestResult(passed, f"{count} outputs; " + "; ".join(lines[:3]), "\n".join(lines) + "\n")


def first_token_agrees(entry: LogEntry) -> bool:
    """Whether the output begins with the reported first token; an entry without one does not pass."""
    if not entry.has_first:
        return False
    shared = min(len(entry.first_ids), len(entry.data_ids))
    return bool(np.array_equal(entry.first_ids[:shared], entry.data_ids[:shared]))


def ends_once(entry: LogEntry, eos_token_ids: tuple[int, ...]) -> bool:
    """Whether at most one end-of-sequence token is at the end; the first token of an output never counts."""
    is_end = np.isin(entry.data_ids[1:][::-1], eos_token_ids)
    trailing = len(is_end) if is_end.all() else int(np.argmin(is_end))
    return trailing <= _MOST_ENDS
