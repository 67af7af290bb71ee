"""``check`` of run_endpoints.py: print the findings, return the exit code."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import asdict, replace

from harness.cli.streams import require_stdout
from harness.endpoints.checks.finding import OFFICIAL, Finding, Severity
from harness.endpoints.checks.tree_check import check_tree
from harness.endpoints.endpoints_options import CheckOptions
from harness.errors import EXIT_THRESHOLD, EXIT_VALID
from harness.grouping import by_key
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.progress.progress_line import ProgressBar
from harness.text import counted, show

_NOUNS = {Severity.ERROR: "error", Severity.WARNING: "warning"}
_BY = " (MLCommons's checker)"


def check(options: CheckOptions) -> int:
    """Check and print: 0 without errors, 5 with some. Raises ConfigError where nothing can be checked."""
    with ProgressBar(sys.stderr) as bar:
        found = check_tree(options.tree, progress=bar.show)
    if options.json:
        print(json.dumps({"label": NOT_A_RESULT, "findings": list(map(asdict, found))}, indent=2))
        require_stdout()
    else:
        show(*finding_lines(found))
    return EXIT_THRESHOLD if has_errors(found) else EXIT_VALID


def has_errors(found: Sequence[Finding]) -> bool:
    """Whether anything must be mended."""
    return any(one.severity is Severity.ERROR for one in found)


def finding_lines(found: Sequence[Finding]) -> Iterator[str]:
    """The findings, errors last, and their number; alike ones of several places are one line."""
    if rehearsed := [one.rule for one in found if one.severity is Severity.REHEARSED]:
        yield f"{Severity.REHEARSED} ({len(rehearsed)}): {', '.join(sorted(set(rehearsed)))}"
    for severity in (Severity.UNKNOWN, Severity.WARNING, Severity.ERROR):
        listed = [one for one in found if one.severity is severity]
        if listed:
            yield f"{severity} ({len(listed)}):"
        yield from (f"  {_line(alike)}" for alike in by_key((_kind(one), one) for one in listed).values())
    of_each = Counter(one.severity for one in found)
    counts = [counted(of_each[severity], noun) for severity, noun in _NOUNS.items()]
    officially = sum(one.source == OFFICIAL and one.severity is Severity.ERROR for one in found)
    counts[0] += f" ({officially} of MLCommons's checker)" if officially else ""
    others = (Severity.REHEARSED, Severity.UNKNOWN)
    counts += [f"{of_each[severity]} {severity}" for severity in others if of_each[severity]]
    yield f"{', '.join(counts)}; {NOT_A_RESULT}"


def _kind(one: Finding) -> Finding:
    """What alike findings have in common: MLCommons's checker names the point in its sentences."""
    got = re.sub(r"[\d.]+", "", one.got) if one.source == OFFICIAL else one.got
    return replace(one, path="", got=got)


def _line(alike: Sequence[Finding]) -> str:
    first, others = alike[0], len(alike) - 1
    path = f"{first.path} and {counted(others, 'other place')}" if others else first.path
    return f"{replace(first, path=path)}{_BY if first.source == OFFICIAL else ''}"
