"""TEST06: whether first token, end of sequence and token count of each logged output are consistent."""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import numpy as np

from harness.compliance.base import ComplianceTest, JudgedRun, TestResult, VerifiedFigures
from harness.config.scenario import needs_first_tokens
from harness.errors import ConfigError
from harness.loadgen_logs.accuracy_log import AccuracyLog, LogEntry

_MOST_ENDS = 1
_DEFAULT_END = (2,)  # the end of sequence that the official script looks for unless -e names another
_FIRST, _ENDS, _COUNTS = "First token check pass", "EOS check pass", "Sample length check pass"
_BY_DEFAULT = (
    "an output ends with token 2 twice, which is no end of sequence of this model; "
    "MLCommons's script without -e takes it for one and says FAIL"
)


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

    def recheck(self, text: str, scenario: str) -> Iterator[str]:
        """Those of the three checks that the file does not report as passed.

        Offline may skip first tokens.
        """
        stated = [line.strip().rpartition(": ") for line in text.splitlines()]
        first = ("True",) if needs_first_tokens(scenario) else ("Skipped", "True")
        for check, good in ((_FIRST, first), (_ENDS, ("True",)), (_COUNTS, ("True",))):
            words = tuple(dict.fromkeys(word for name, _, word in stated if name == check))
            if len(words) != 1 or words[0] not in good:
                yield f"{check} is {' and '.join(words) or 'not in the file'}, expected {' or '.join(good)}"


def judge_consistency(
    entries: Iterable[LogEntry], scenario: str, eos_token_ids: tuple[int, ...]
) -> TestResult:
    """Check all entries. ``scenario`` is LoadGen's; Offline reports no first tokens and skips that check."""
    needs_first = needs_first_tokens(scenario)
    count = 0
    first = ends = counts = default = True
    for entry in entries:
        count += 1
        first = first and (not needs_first or first_token_agrees(entry))
        ends = ends and ends_once(entry, eos_token_ids)
        default = default and ends_once(entry, _DEFAULT_END)
        counts = counts and entry.token_count == len(entry.data_ids)
    passed = first and ends and counts
    lines = [
        f"{_FIRST}: {first if needs_first else 'Skipped'}",
        f"{_ENDS}: {ends}",
        f"{_COUNTS}: {counts}",
        f"TEST06 verification {'complete' if passed else 'failed'}",
    ]
    summary = f"{count} outputs; " + "; ".join(lines[:3])
    return TestResult(
        passed, summary, "\n".join(lines) + "\n", warnings=(_BY_DEFAULT,) if passed and not default else ()
    )


def first_token_agrees(entry: LogEntry) -> bool:
    """Whether the output begins with the reported first token; an entry without one does not pass."""
    if not entry.has_first:
        return False
    shared = min(len(entry.first_ids), len(entry.data_ids))
    return bool(np.array_equal(entry.first_ids[:shared], entry.data_ids[:shared]))


def ends_once(entry: LogEntry, eos_token_ids: tuple[int, ...]) -> bool:
    """Whether at most one end-of-sequence token is at the end; the first token of an output never counts."""
    last = entry.data_ids[1:][-_MOST_ENDS - 1 :].tolist()
    return len(last) <= _MOST_ENDS or not set(last) <= set(eos_token_ids)
