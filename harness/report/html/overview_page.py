"""The overview of many runs: verdict, score against target, compliance, margins, links to their pages."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.analysis.run_outcome import RunOutcome, limit_status, result_folder
from harness.files import REPORT
from harness.report.html.page import Badge, Cell, Page, PageTable, Section, Tile
from harness.text import counted

_HEADER = (
    "scenario",
    "run",
    "verdict",
    "figure",
    "TTFT p99, of limit",
    "TPOT p99, of limit",
    "official",
    "started (UTC)",
    "first reason",
)


def overview_page(
    outcomes: Sequence[RunOutcome],
    at: Path,
    *,
    title: str = "Runs",
    subtitle: str = "",
    badges: Sequence[Badge] = (),
    reasons: Sequence[str] = (),
    figures: Sequence[Tile] = (),
    before: Sequence[Section] = (),
) -> Page:
    """One page of many runs, to be written into the folder ``at``, to which its links are relative.

    ``before`` are sections above the tables of runs. Without ``badges`` there is one with the number of runs
    that passed.
    """
    return Page(
        title,
        subtitle or f"{counted(len(outcomes), 'run')} below {at}",
        badges or tuple(_badges(outcomes)),
        reasons,
        figures,
        [*before, *_benchmarks(outcomes, at)],
        footer="Verdict: of an accuracy run its score, of a compliance test its verification, else the run's "
        "own. TTFT and TPOT p99 are LoadGen's, as parts of their limits.",
    )


def _badges(outcomes: Sequence[RunOutcome]) -> Iterator[Badge]:
    good = sum(one.passed for one in outcomes)
    yield Badge(f"{good} OF {len(outcomes)} PASSED", "good" if good == len(outcomes) else "bad")
    unofficial = sum(not one.official for one in outcomes)
    if unofficial:
        yield Badge(f"{unofficial} NOT OFFICIAL", "warn")


def _benchmarks(outcomes: Sequence[RunOutcome], at: Path) -> Iterator[Section]:
    """A section for each benchmark, and one for the records that cannot be read."""
    names = sorted({one.record.plan.client.benchmark.name for one in outcomes if one.record is not None})
    for name in names:
        runs = [one for one in outcomes if one.record and one.record.plan.client.benchmark.name == name]
        yield Section(f"runs-{name}", name, tables=[_table(runs, at)])
    damaged = [one for one in outcomes if one.record is None]
    if damaged:
        rows = [(Cell("DAMAGED", "bad"), str(one.folder)) for one in damaged]
        yield Section("damaged", "Records that cannot be read", tables=[PageTable(("", "folder"), rows)])


def _table(runs: Sequence[RunOutcome], at: Path) -> PageTable:
    ordered = sorted(runs, key=_order)
    names = _names(ordered, at)
    return PageTable(_HEADER, [_row(one, name, at) for one, name in zip(ordered, names, strict=True)])


def _names(runs: Sequence[RunOutcome], at: Path) -> list[str]:
    """Folders, of runs of a scenario that have the same name."""
    named = [(one.record.plan.scenario if one.record else None, _name(one)) for one in runs]
    counts = Counter(named)
    return [
        os.path.relpath(result_folder(one.folder), at) if counts[name] > 1 else name[1]
        for one, name in zip(runs, named, strict=True)
    ]


def _order(one: RunOutcome) -> tuple[str, bool, str, str]:
    """By scenario; performance and accuracy before the tests."""
    assert one.record is not None
    kind = "" if one.record.plan.mode == "performance" else one.record.plan.mode
    return (
        one.record.plan.scenario,
        one.compliance is not None,
        kind if one.compliance is None else one.compliance.test,
        one.record.started.isoformat(),
    )


def _row(one: RunOutcome, name: str, at: Path) -> tuple[str | Cell, ...]:
    assert one.record is not None
    link = _link(one.folder / REPORT, at)
    reasons = one.record.verdict.reasons if one.record.verdict is not None else ()
    return (
        one.record.plan.scenario.value,
        Cell(name, link=link),
        Cell(one.verdict.text, one.verdict.status),
        Cell(one.figure, one.verdict.status if one.score or one.compliance else "plain"),
        *(_part(one, name) for name in ("TTFT", "TPOT")),
        "yes" if one.official else Cell("NO", "warn"),
        f"{one.record.started:%Y-%m-%d %H:%M}",
        reasons[0] if reasons else "",
    )


def _part(one: RunOutcome, name: str) -> str | Cell:
    part = one.p99_parts.get(name)
    if part is None:
        return "-"
    return Cell(f"{part:.1%}", limit_status(part))


def _name(one: RunOutcome) -> str:
    """``performance``, ``accuracy`` or the compliance test; of one that was moved aside its folder's name."""
    assert one.record is not None
    audit = one.record.plan.audit
    kind = one.record.plan.mode if audit is None else audit.test
    folder = result_folder(one.folder).name
    return folder if folder.startswith(f"{kind}.") else kind


def _link(page: Path, at: Path) -> str:
    """The page from the folder, for an href; "" where there is none."""
    from urllib.parse import quote

    return quote(os.path.relpath(page, at)) if page.is_file() else ""
