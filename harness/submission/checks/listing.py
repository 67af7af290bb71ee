"""The issues of a tree as lines for a terminal: the dearest first, the number of each cost at the end."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.submission.checks.issue import Issue
from harness.submission.tree.cost import by_cost
from harness.submission.tree.layout import is_rehearsal
from harness.text import counted


def issue_lines(
    tree: Path, issues: Sequence[Issue], table: Sequence[str], unchecked: int, unrecorded: int
) -> Iterator[str]:
    """Results, issues and their count, which stays on the screen; what every rehearsal has only as a number.

    ``unchecked`` results were not checked, and ``unrecorded`` ones without the run.json of each run.
    """
    rehearsal = is_rehearsal(tree)
    if rehearsal:
        yield "REHEARSAL: nothing in this folder can be submitted"
    yield from table
    yield from (str(issue) for issue in issues if issue.is_warning)
    rehearsed = Counter(issue.code for issue in issues if issue.is_rehearsed and not issue.is_warning)
    if rehearsed:
        counts = ", ".join(f"{code} {count}" for code, count in rehearsed.most_common())
        text = "as in every rehearsal, until the runs are made by the rules"
        yield f"{text}: {counts} (check --json lists them)"
    wrong = [issue for issue in issues if issue.needs_action]
    groups = list(by_cost(wrong, lambda issue: issue.costs))
    for cost, alike in groups:
        yield f"to mend with {cost} ({len(alike)}):"
        yield from map(str, alike)
    each = ", ".join(f"{cost}: {len(alike)}" for cost, alike in groups)
    parts = [f"{counted(len(wrong), 'issue')} ({each})" if wrong else "no issues"]
    if warnings := sum(issue.is_warning for issue in issues):
        parts.append(counted(warnings, "warning"))
    if unchecked:
        parts.append(f"{counted(unchecked, 'result')} not checked")
    if unrecorded:
        results = counted(unrecorded, "result")
        parts.append(f"{results} checked without run.json of each run, which shows deviations and origin")
    yield ("REHEARSAL: " if rehearsal else "") + ", ".join(parts)
