"""The texts of a search on stdout: each measurement as it comes, the table and the result at the end."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.errors import EXIT_INVALID, EXIT_VALID
from harness.files import USER_CONF
from harness.peak.ladder.ladder_console import LadderConsole
from harness.peak.ladder.steps import NOT_A_RESULT, Step
from harness.peak.search.conclusion import Conclusion
from harness.peak.search.offline_rate import OfflineRate
from harness.peak.search.policy import Next, NextStep
from harness.peak.search.probe import Probe
from harness.peak.search.search_state import SEARCH_STATE, EarlierSearch, SearchState
from harness.progress.progress_line import ProgressPrinter, ProgressSnapshot
from harness.record.repeated import resuming_command
from harness.record.run_record import RunRecord
from harness.report.run_console import DRY_RUN, limits_text, render_plan
from harness.text import aligned, counted, duration, figure, labelled, milliseconds, show

SEARCH_PAGE = "search.html"

COLUMNS = (
    "target_qps",
    "datasets",
    "queries",
    "took",
    "TTFT p99",
    "TPOT p99",
    "over TTFT",
    "over TPOT",
    "may be",
    "tokens/s",
    "verdict",
    "folder",
)
_OUTCOMES = {
    "FOUND": "found",
    "AT_LEAST": "at least: no latency limit of the servers was reached",
    "NOTHING_PASSES": "no rate passes",
    "BUDGET": "the budget is spent",
    "STOPPED": "ended early",
    "INTERRUPTED": "interrupted",
    "ERROR": "ended by an error",
}


class SearchConsole:
    """Prints a search while it lasts."""

    def __init__(self, on_record: Callable[[RunRecord], None]) -> None:
        """``on_record`` gets the record of each run, such as to write its page."""
        self._on_record = on_record
        self._said: set[str] = set()  # warnings
        self._progress = ProgressPrinter()
        self._steps = LadderConsole()

    def earlier(self, found: EarlierSearch) -> None:
        """What the folder holds: the first line of the output."""
        show(found.first_line)

    def plan(self, record: RunRecord) -> None:
        """Everything is checked, nothing was sent yet."""
        print(render_plan(record, searched=True))
        if record.plan.scenario.poisson:
            least = duration(record.settled.loadgen_settings["min_duration_ms"] / 1000)
            print(f"search    runs of at least {least}, each with a rate of its own, not the conf file's")
            print(f"output    {record.plan.client.log_dir.parent.parent}", flush=True)

    def checked(self) -> int:
        """The end of a dry run; returns the program's exit code."""
        print(DRY_RUN)
        return EXIT_VALID

    def action(self, action: Next, spent_s: float) -> None:
        """Before each measurement."""
        if isinstance(action, NextStep):
            text = f"ladder: {counted(action.concurrency, 'request')} in flight ({NOT_A_RESULT})"
        else:
            text = f"run at target_qps = {action.rate:g}: {action.why}"
        show(f"[{duration(spent_s)}] {text}")

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Once a second of a run."""
        self._progress(snapshot)

    def step_progress(self, concurrency: int, elapsed_s: float, phase: str) -> None:
        """At each look at a step of the ladder."""
        self._steps.progress(concurrency, elapsed_s, phase)

    def record(self, record: RunRecord) -> None:
        """After each run: its warnings, such as of a prefix cache, which make its rate worthless."""
        self._progress.end()
        new = [one for one in record.warnings if one not in self._said]
        self._said.update(new)
        show(*labelled("WARNING", new))
        self._on_record(record)

    def measured(self, one: Step | Probe, limits_ns: Mapping[str, int]) -> None:
        """After each measurement."""
        self._steps.end_line()
        self._progress.end()
        self._progress = ProgressPrinter()
        show(f"    {step_line(one) if isinstance(one, Step) else probe_line(one, limits_ns)}")

    def finish(self, folder: Path, state: SearchState) -> int:
        """Print the table and the result; returns the program's exit code."""
        self._steps.end_line()
        self._progress.end()
        show("", *result_lines(state, folder, sys.argv))
        found = state.conclusion
        done = found is not None and found.outcome in ("FOUND", "AT_LEAST", "BUDGET") and found.rate
        return EXIT_VALID if done else EXIT_INVALID

    def finish_offline(self, found: OfflineRate | None) -> int:
        """Print the rate for Offline; returns the program's exit code."""
        self._progress.end()
        if found is None:
            return self.checked()
        show(*offline_lines(found))
        return EXIT_VALID


def step_line(step: Step) -> str:
    """A step in one line."""
    ttft, tpot = (milliseconds(one.p99_ns) if one else "-" for one in (step.ttft, step.tpot))
    return f"{figure(step.tokens_per_s)} tokens/s, TTFT p99 {ttft} ms, TPOT p99 {tpot} ms"


def probe_line(probe: Probe, limits_ns: Mapping[str, int]) -> str:
    """A probe in one line."""
    if probe.no_room:
        return f"{probe.verdict}: {probe.no_room}"
    times = {"TTFT": (probe.ttft_p99_ns, probe.over_ttft), "TPOT": (probe.tpot_p99_ns, probe.over_tpot)}
    parts = [
        f"{name} p99 {'-' if value is None else milliseconds(value)} of {milliseconds(limits_ns[name])} ms, "
        f"{over} over it"
        for name, (value, over) in times.items()
    ]
    ended = "" if probe.cut_after_s is None else f", ended after {duration(probe.cut_after_s)}"
    return f"{probe.verdict}{ended}: {'; '.join(parts)} ({max(probe.most_over, 0)} may be)"


def probe_cells(probe: Probe) -> tuple[str, ...]:
    """A row of COLUMNS; times in ms."""
    cut = "" if probe.cut_after_s is None else " (cut)"
    return (
        f"{probe.rate:g}",
        str(probe.datasets or "-"),
        str(probe.queries),
        duration(probe.seconds) + cut,
        "-" if probe.ttft_p99_ns is None else milliseconds(probe.ttft_p99_ns),
        "-" if probe.tpot_p99_ns is None else milliseconds(probe.tpot_p99_ns),
        str(probe.over_ttft),
        str(probe.over_tpot),
        str(max(probe.most_over, 0)),
        "-" if probe.tokens_per_s is None else f"{probe.tokens_per_s:.1f}",
        probe.verdict,
        probe.folder,
    )


def result_lines(state: SearchState, folder: Path, command: Sequence[str]) -> Iterator[str]:
    """Everything that was found; ``command`` is the program's, given as sys.argv."""
    if state.history.probes:
        yield f"runs in the order of time; p99 limits: {limits_text(state.limits_ns)}"
        yield from aligned([COLUMNS, *(probe_cells(probe) for probe in state.history.probes)])
        yield ""
    conclusion = state.conclusion
    if conclusion is not None:
        yield from conclusion_lines(conclusion, folder)
    if conclusion is not None and conclusion.outcome in ("INTERRUPTED", "ERROR", "BUDGET"):
        larger = "; give a larger --budget" if conclusion.outcome == "BUDGET" else ""
        yield f"resume    what is measured is kept{larger}: {resuming_command(command)}"
    yield f"page      {folder / SEARCH_PAGE}"
    yield f"record    {folder / SEARCH_STATE}"


def conclusion_lines(conclusion: Conclusion, folder: Path) -> Iterator[str]:
    """The result and the evidence against it."""
    yield f"search    {outcome_text(conclusion)}: {conclusion.why}"
    yield from labelled("WARNING", conclusion.remarks)
    for label, text in conclusion_facts(conclusion):
        yield f"{label:<9} {text}"
    if conclusion.folder is not None:
        count = conclusion.deviations
        why = f" (NOT OFFICIAL, {counted(count, 'deviation')} from the rules)" if count else ""
        yield f"{'run' if count else 'submit':<9} {folder / conclusion.folder}{why}"
    for row in conclusion.conf_rows:
        yield f"{USER_CONF:<9} {row}"


def outcome_text(conclusion: Conclusion) -> str:
    """The end of the search."""
    if conclusion.outcome == "AT_LEAST" and conclusion.lowest_invalid is not None:
        return "at least"  # INVALID runs of which it is not known whether they were the servers'
    return _OUTCOMES[conclusion.outcome]


def conclusion_facts(found: Conclusion) -> Iterator[tuple[str, str]]:
    """Label and text of each fact about the rate."""
    if found.rate is not None:
        sure = "" if found.confirmed else ", not confirmed"
        yield "rate", f"{found.rate:g} queries/s, VALID in {found.valid} of {found.runs} runs{sure}"
    if found.lowest_invalid is not None:
        above = "" if found.rate is None else f", {100 * (found.lowest_invalid / found.rate - 1):.2f} % above"
        yield "INVALID", f"from {found.lowest_invalid:g} queries/s on{above}"
    if found.margin is not None and found.expected_peak is not None:
        left = f"{100 * found.margin:.2f} % of the rate" if found.margin > 0 else "none"
        failed = found.lowest_invalid is not None and found.expected_peak > found.lowest_invalid
        beyond = ", where a run did not pass" if failed else ""
        most = "at most " if failed else ""
        yield "margin", f"{most}{left}: a replay puts the peak at {found.expected_peak:.5g}{beyond}"
    if found.binding is not None:
        kind = {
            "smooth": ": it grows smoothly with the rate",
            "cliff": ": a queue grows once the servers are full, so that a little more is far too slow",
            None: "",
        }[found.boundary]
        yield "limit", f"{found.binding}{kind}"
    if (spread := found.tokens_per_s) is not None:
        width = 100 * (spread.highest / spread.lowest - 1)
        yield (
            "tokens/s",
            f"{spread.mean:.1f} completed in the mean of {spread.runs}, {spread.lowest:.1f} to "
            f"{spread.highest:.1f} ({width:.1f} % apart)",
        )


def offline_lines(found: OfflineRate) -> Iterator[str]:
    """The rate for Offline and the run that it makes."""
    yield ""
    yield (
        f"measured  {figure(found.measured)} samples/s in a short run of {found.measured_samples} samples, "
        f"{figure(found.with_ends)} with its first and last answers"
    )
    yield (
        f"official  {found.samples} samples in one query, about {duration(found.seconds)}; it has to last "
        f"{duration(found.least_s)}"
    )
    yield f"{USER_CONF:<9} {found.conf_row}"
