"""The page of a search: its measurements and their result."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from harness.analysis.run_outcome import Status
from harness.files import REPORT
from harness.peak.ladder.steps import NOT_A_RESULT, Step
from harness.peak.search.conclusion import Conclusion
from harness.peak.search.probe import Probe
from harness.peak.search.search_console import (
    COLUMNS,
    SEARCH_PAGE,
    conclusion_facts,
    outcome_text,
    probe_cells,
)
from harness.peak.search.search_state import SEARCH_STATE, SearchState
from harness.report.html.page import (
    Badge,
    Chart,
    Limit,
    Page,
    PageTable,
    Section,
    Series,
    Tile,
    write_page,
)
from harness.report.run_console import limits_text
from harness.text import counted, milliseconds

_VERDICTS: Mapping[str, Status] = {
    "FOUND": "good",
    "AT_LEAST": "warn",
    "BUDGET": "warn",
    "NOTHING_PASSES": "bad",
}


def write_peak_page(folder: Path, state: SearchState) -> None:
    """Write search.html. Raises OSError."""
    write_page(folder / SEARCH_PAGE, peak_page(state))


def peak_page(state: SearchState) -> Page:
    """The page of a search, also of one that was interrupted."""
    found = state.conclusion
    badges = [] if found is None else [Badge(outcome_text(found), _VERDICTS.get(found.outcome, "bad"))]
    if found is not None and found.rate is not None and not found.confirmed:
        badges.append(Badge("NOT CONFIRMED", "warn"))
    if found is not None and found.deviations:
        badges.append(Badge(f"NOT OFFICIAL: {found.deviations} deviations", "warn"))
    identity = state.identity
    return Page(
        title=f"Peak rate: {identity.benchmark}, {identity.scenario}",
        subtitle=f"{counted(len(identity.servers), 'server')}, {identity.samples} samples",
        badges=badges,
        reasons=() if found is None else (found.why, *found.remarks),
        figures=() if found is None else _figures(found),
        sections=(
            _result(found),
            _probes(state),
            _ladder(state.history.steps, state.limits_ns),
            Section("files", "Files", links={"all measurements": SEARCH_STATE}),
        ),
        footer="Every run of the search is listed, in the order of time; none is left out.",
    )


def _figures(found: Conclusion) -> list[Tile]:
    if found.rate is None:
        return []
    figures = [
        Tile(f"{found.rate:g}", "queries/s, target_qps"),
        Tile(f"{found.valid} of {found.runs}", "runs VALID at this rate"),
    ]
    if found.margin is not None and found.margin > 0:
        figures.append(Tile(f"{100 * found.margin:.1f} %", "margin of the rate"))
    if found.tokens_per_s is not None:
        figures.append(Tile(f"{found.tokens_per_s.mean:,.1f}", "completed tokens/s, mean"))
    return figures


def _result(found: Conclusion | None) -> Section:
    if found is None:
        return Section("result", "Result")
    rows = [*conclusion_facts(found), *(("user.conf", row) for row in found.conf_rows)]
    link = "the first VALID run at this rate" if found.deviations else "the run that can be submitted"
    links = {} if found.folder is None else {link: f"{found.folder}/{REPORT}"}
    tables = [PageTable(("", ""), rows)] if rows else []
    return Section("result", "Result", tables=tables, links=links)


def _probes(state: SearchState) -> Section:
    probes = state.history.probes
    if not probes:
        return Section("runs", "Runs")
    line = (
        f"Runs of official length in the order of time; p99 limits: {limits_text(state.limits_ns)}. A run "
        "was ended (cut) once more queries were over a limit than a VALID run may have; it is INVALID and "
        "has no score."
    )
    failed = frozenset(number for number, one in enumerate(probes) if one.verdict != "VALID")
    return Section(
        "runs",
        "Runs",
        lines=(line,),
        charts=[_by_rate(probes, state.limits_ns)],
        tables=[PageTable(COLUMNS, [probe_cells(one) for one in probes], failed)],
    )


def _by_rate(probes: Sequence[Probe], limits_ns: Mapping[str, int]) -> Chart:
    """Each p99 over its limit, by rate."""
    ordered = sorted(probes, key=lambda one: one.rate)
    series = []
    for color, (name, limit_ns) in enumerate(limits_ns.items()):
        values = [one.ttft_p99_ns if name == "TTFT" else one.tpot_p99_ns for one in ordered]
        shares = np.array([np.nan if value is None else value / limit_ns for value in values])
        series.append(Series(f"{name} p99 over its limit", shares, color, "points"))
    return Chart(
        "rates",
        "p99 over its limit, by target_qps",
        np.array([one.rate for one in ordered]),
        series,
        x_axis="number",
        y_axis="number",
        x_label="target_qps",
        limits=[Limit("limit", 1.0)],
        note="Of runs that were cut, the answers until then.",
    )


def _ladder(steps: Sequence[Step], limits_ns: Mapping[str, int]) -> Section:
    if not steps:
        return Section("ladder", "Ladder")
    ordered = sorted(steps, key=lambda step: step.concurrency)
    tpot = [np.nan if step.tpot is None else step.tpot.p50_ns / 1e6 for step in ordered]
    rows = [
        (
            str(step.concurrency),
            f"{step.tokens_per_s:,.1f}",
            f"{step.queries_per_s:,.2f}",
            *("-" if one is None else milliseconds(one.p99_ns) for one in (step.ttft, step.tpot)),
            "yes" if step.steady else "no",
        )
        for step in ordered
    ]
    chart = Chart(
        "tpot",
        "Median TPOT by requests in flight, ms",
        np.array([float(step.concurrency) for step in ordered]),
        [Series("TPOT p50", np.array(tpot))],
        x_axis="number",
        x_label="requests in flight",
        limits=[Limit("limit of its p99", limits_ns["TPOT"] / 1e6)] if "TPOT" in limits_ns else (),
    )
    header = ("in flight", "tokens/s", "requests/s", "TTFT p99, ms", "TPOT p99, ms", "steady")
    line = f"Requests in flight at a fixed number, without LoadGen: {NOT_A_RESULT}."
    return Section("ladder", "Ladder", lines=(line,), charts=[chart], tables=[PageTable(header, rows)])
