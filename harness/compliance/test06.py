"""TEST06: first token, end of sequence and token count of each logged output agree with each other."""

from collections.abc import Iterable

import numpy as np

from harness.compliance.rules import ComplianceVerdict
from harness.config.scenario import needs_first_tokens
from harness.loadgen_logs.accuracy_log import LogEntry

_MOST_ENDS = 1


def judge_consistency(
    entries: Iterable[LogEntry], scenario: str, eos_token_ids: tuple[int, ...]
) -> ComplianceVerdict:
    """``scenario`` is LoadGen's; Offline reports no first token, so that check is left out there."""
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
    return ComplianceVerdict(passed, f"{count} outputs; " + "; ".join(lines[:3]), "\n".join(lines) + "\n")


def first_token_agrees(entry: LogEntry) -> bool:
    """What was reported as the first token begins the output; an entry without a report does not pass."""
    if not entry.has_first:
        return False
    shared = min(len(entry.first_ids), len(entry.data_ids))
    return bool(np.array_equal(entry.first_ids[:shared], entry.data_ids[:shared]))


def ends_once(entry: LogEntry, eos_token_ids: tuple[int, ...]) -> bool:
    """At most one end-of-sequence token at the end; the first token of an output is never counted."""
    is_end = np.isin(entry.data_ids[1:][::-1], eos_token_ids)
    trailing = len(is_end) if is_end.all() else int(np.argmin(is_end))
    return trailing <= _MOST_ENDS
