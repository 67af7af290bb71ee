"""Is the run worth what LoadGen says? The one rule that turns a run's evidence into a verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.report.latency import Rows, Statistics, completed
from harness.report.loadgen_log import LoadgenSummary
from harness.report.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a run that LoadGen has ended. ``issued`` counts LoadGen's samples."""

    accuracy: bool
    samples: int
    issued: int
    rows: Rows
    statistics: Statistics
    loadgen: LoadgenSummary
    problems: Sequence[str] = ()


def judge(evidence: Evidence) -> Verdict:
    """VALID only when LoadGen says so, without an error, and every query has its whole answer."""
    faults = (
        *evidence.problems,
        *_outcome_reasons(evidence),
        *(_accuracy_reasons(evidence) if evidence.accuracy else ()),
    )
    reasons = (*faults, *_loadgen_reasons(evidence))
    complete = not faults and not evidence.loadgen.problem and not evidence.loadgen.errors
    return Verdict("INVALID" if reasons else "VALID", reasons, complete)


def _outcome_reasons(evidence: Evidence) -> Iterator[str]:
    statistics = evidence.statistics
    if statistics.failures:
        kinds = ", ".join(f"{kind} {count}" for kind, count in statistics.failures.items())
        yield f"{statistics.failed} of {statistics.queries} queries failed: {kinds}"
    if evidence.issued != statistics.queries:
        yield f"LoadGen issued {evidence.issued} queries, {statistics.queries} have an outcome"
    repeated = len(evidence.rows) - len(np.unique(evidence.rows["query_id"]))
    if repeated:
        yield f"{repeated} queries have more than one outcome"
    if not evidence.issued:
        yield "LoadGen issued no query"


def _loadgen_reasons(evidence: Evidence) -> Iterator[str]:
    loadgen = evidence.loadgen
    if loadgen.problem:
        yield f"LoadGen's summary is {loadgen.problem}"
        return
    if loadgen.errors:
        yield f"LoadGen logged {loadgen.errors} errors" + _single_tokens(evidence.rows)
    if evidence.accuracy:
        return
    if loadgen.result_valid is None:
        yield "LoadGen's summary has no result"
    elif not loadgen.result_valid:
        unmet = [name for name, met in loadgen.constraints.items() if not met]
        yield f"LoadGen says INVALID: {', '.join(unmet) or 'no constraint named'} not satisfied"
        yield from loadgen.recommendations


def _single_tokens(rows: Rows) -> str:
    singles = int((completed(rows)["osl"] == 1).sum())
    return f" ({singles} answers have a single token, of which LoadGen can make no TPOT)" if singles else ""


def _accuracy_reasons(evidence: Evidence) -> Iterator[str]:
    counts = np.bincount(completed(evidence.rows)["sample_index"], minlength=evidence.samples)
    missing, repeated = int((counts == 0).sum()), int((counts > 1).sum())
    if missing:
        yield f"{missing} of {evidence.samples} samples have no answer"
    if repeated:
        yield f"{repeated} samples were answered more than once"
