"""The page of a search: its measurements and their result."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

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
    Cell,
    Chart,
    Limit,
    Page,
    PageTable,
    Section,
    Series,
    Style,
    Tile,
    write_page,
)
from harness.report.run_console import limits_text
from harness.text import counted, duration, milliseconds

_CUT = "INVALID, cut"
_GREEN, _RED = 2, 8
_KINDS: Mapping[str, tuple[int, Style]] = {
    "VALID": (_GREEN, "points"),
    "INVALID": (_RED, "crosses"),
    _CUT: (_RED, "open points"),
}
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
        badges.append(Badge(f"NOT OFFICIAL: {counted(found.deviations, 'deviation')}", "warn"))
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
        footer="Every run that shows something about its rate is listed, in the order of time.",
    )


def _figures(found: Conclusion) -> list[Tile]:
    if found.rate is None:
        return []
    figures = [
        Tile(f"{found.rate:g}", "queries/s, target_qps"),
        Tile(f"{found.valid} of {found.runs}", "runs VALID at this rate"),
    ]
    if found.margin is not None and found.margin > 0:
        figures.append(Tile(f"{100 * found.margin:.2f} %", "margin of the rate"))
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
    header = [f"{name}, ms" if name.endswith("p99") else name for name in COLUMNS]
    least = duration(state.identity.loadgen_settings["min_duration_ms"] / 1000)
    line = (
        f"Runs of at least {least} in the order of time; p99 limits: {limits_text(state.limits_ns)}. A run "
        "was ended (cut) once more queries were over a limit than a VALID run may have: it is INVALID, "
        "has no score, and its p99 is of the answers until then."
    )
    return Section(
        "runs",
        "Runs",
        lines=(line,),
        charts=[_by_rate(probes, name, state.limits_ns) for name in state.limits_ns],
        tables=[PageTable(header, [_row(one) for one in probes])],
    )


def _row(probe: Probe) -> list[str | Cell]:
    """The cells of the terminal's table, with colours and links."""
    cells = dict(zip(COLUMNS, probe_cells(probe), strict=True))
    row: dict[str, str | Cell] = {**cells}
    if probe.cut_after_s is not None:
        row |= {name: f"{cells[name]} so far" for name in ("TTFT p99", "TPOT p99") if cells[name] != "-"}
    row["verdict"] = Cell(cells["verdict"], "good" if probe.verdict == "VALID" else "bad")
    row["folder"] = Cell(cells["folder"], link=f"{quote(probe.folder)}/{REPORT}" if probe.folder else "")
    return list(row.values())


def _by_rate(probes: Sequence[Probe], name: str, limits_ns: Mapping[str, int]) -> Chart:
    """One p99 as a part of its limit, by rate; VALID, INVALID and cut runs by colour and shape.

    A run that was cut for this limit has a p99 above it, whatever that of its first answers is.
    """
    ordered = sorted(probes, key=lambda one: one.rate)
    shares = np.array([_share(one, name, limits_ns) for one in ordered])
    kinds = np.array([_kind(one) for one in ordered])
    series = [
        Series(kind, np.where(kinds == kind, shares, np.nan), color, style)
        for kind, (color, style) in _KINDS.items()
        if (kinds == kind).any()
    ]
    return Chart(
        f"rates-{name.lower()}",
        f"{name} p99 of the runs, % of its limit",
        np.array([one.rate for one in ordered]),
        series,
        x_axis="number",
        y_axis="number",
        x_label="target_qps",
        limits=[Limit("limit", 100.0)],
        note=_note(probes, name),
    )


def _note(probes: Sequence[Probe], name: str) -> str:
    """How runs that were cut are drawn."""
    cut = [one for one in probes if one.cut_after_s is not None]
    if any(_is_cut_for(one, name) for one in cut):
        return f"a run cut for {name} is drawn at the limit or above: its p99 is at least that"
    return "of runs cut for another limit, the answers until then" if cut else ""


def _is_cut_for(probe: Probe, name: str) -> bool:
    over = probe.over_ttft if name == "TTFT" else probe.over_tpot
    return probe.cut_after_s is not None and over > max(probe.most_over, 0)


def _share(probe: Probe, name: str, limits_ns: Mapping[str, int]) -> float:
    """Percent of the limit; NaN where nothing was measured."""
    share = 100 * probe.p99_shares(limits_ns).get(name, np.nan)
    return float(np.fmax(share, 100.0)) if _is_cut_for(probe, name) else share


def _kind(probe: Probe) -> str:
    if probe.verdict == "VALID":
        return "VALID"
    return "INVALID" if probe.cut_after_s is None else _CUT


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
        limits=[Limit("limit of its p99", limits_ns["TPOT"] / 1e6)],
    )
    header = ("in flight", "tokens/s", "requests/s", "TTFT p99, ms", "TPOT p99, ms", "steady")
    line = f"Requests in flight at a fixed number, without LoadGen: {NOT_A_RESULT}."
    return Section("ladder", "Ladder", lines=(line,), charts=[chart], tables=[PageTable(header, rows)])
