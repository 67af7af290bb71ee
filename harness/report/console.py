"""The closing summary on stdout: values in, text out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.report.latency import PERCENTILES, Distribution, Statistics
from harness.report.loadgen_log import LoadgenSummary
from harness.report.printable import printable
from harness.report.progress import milliseconds
from harness.report.verdict import Verdict

LABEL_WIDTH = 14
CELL_WIDTH = 9


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Everything that the closing summary shows.

    ``title``: "gpt-oss-120b, server, performance"; ``doubts``: reasons not to believe the numbers;
    ``files``: what was written, by name.
    """

    title: str
    verdict: Verdict
    statistics: Statistics
    loadgen: LoadgenSummary | None = None
    deviations: Sequence[str] = ()
    doubts: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    client_share: Distribution | None = None
    schedule_lag_mean_ns: float | None = None
    loadgen_lines: Sequence[str] = ()  # its summary's result, word for word
    next_command: str = ""  # what to run now


def render_summary(summary: RunSummary) -> str:
    """The whole text, ending in a line break."""
    blocks = [
        [printable(line) for line in summary.loadgen_lines],
        [printable(summary.title)],
        _throughput(summary.statistics),
        _latency_table(summary.statistics, summary.client_share, summary.schedule_lag_mean_ns),
        _failures(summary.statistics),
        _listing("Deviations from the benchmark's rules", summary.deviations),
        _listing("Reasons to doubt these numbers", summary.doubts),
        _loadgen(summary.loadgen),
        [_pair(name, path) for name, path in summary.files.items()],
        _verdict(summary.verdict, len(summary.deviations)),
        [f"Score it with: {printable(summary.next_command, 1000)}"] if summary.next_command else [],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _pair(label: str, value: str) -> str:
    return f"{printable(label):<{LABEL_WIDTH}} {printable(value)}"


def _throughput(s: Statistics) -> list[str]:
    lines = [_pair("queries", f"{s.queries}: {s.completed} completed, {s.failed} failed")]
    if s.samples_per_s is not None and s.tokens_per_s is not None and s.duration_ns is not None:
        rate = (
            f"{s.samples_per_s:.2f} samples/s, {s.tokens_per_s:.2f} tokens/s in {s.duration_ns / 1e9:.1f} s"
        )
        lines.append(_pair("throughput", rate))
    if s.isl_mean is not None and s.osl_mean is not None:
        lines.append(_pair("mean tokens", f"{s.isl_mean:.1f} in (ISL), {s.osl_mean:.1f} out (OSL)"))
    return lines


def _latency_table(s: Statistics, client_share: Distribution | None, lag_ns: float | None) -> list[str]:
    rows = {
        "TTFT": s.ttft,
        "TPOT": s.tpot,
        "latency": s.latency,
        "issue delay": s.issue_delay,
        "client share": client_share,
    }
    measured = {name: found for name, found in rows.items() if found is not None}
    if not measured:
        return []
    titles = ["mean", *(f"p{percent:g}" for percent in PERCENTILES), "max"]
    lines = [_table_line("ms", titles), *(_table_line(name, _cells(d)) for name, d in measured.items())]
    return lines if lag_ns is None else [*lines, _table_line("schedule lag", [milliseconds(lag_ns)])]


def _cells(d: Distribution) -> list[str]:
    values = [d.mean, *(d.percentiles[percent] for percent in PERCENTILES), d.max]
    return [milliseconds(value) for value in values]


def _table_line(label: str, cells: Sequence[str]) -> str:
    return f"{label:<{LABEL_WIDTH}}" + "".join(f" {cell:>{CELL_WIDTH}}" for cell in cells)


def _failures(s: Statistics) -> list[str]:
    if not s.failures:
        return []
    return ["Failed queries", *(f"  {printable(kind):<20} {count}" for kind, count in s.failures.items())]


def _listing(title: str, items: Sequence[str]) -> list[str]:
    return [title, *(f"  - {printable(item)}" for item in items)] if items else []


def _loadgen(log: LoadgenSummary | None) -> list[str]:
    if log is None:
        return []
    if log.problem:
        return [_pair("LoadGen", f"its summary is {log.problem}")]
    result = {True: "VALID", False: "INVALID", None: "no verdict (accuracy run)"}[log.result_valid]
    unmet = [name for name, met in log.constraints.items() if not met]
    text = f"{result}, {log.errors} errors, {log.warnings} warnings"
    return [_pair("LoadGen", text + (f"; not satisfied: {', '.join(unmet)}" if unmet else ""))]


def _verdict(verdict: Verdict, deviations: int) -> list[str]:
    noun = "deviation" if deviations == 1 else "deviations"
    mark = f", NOT OFFICIAL: {deviations} {noun} from the rules" if deviations else ""
    return [f"Result: {verdict.result}{mark}", *(f"  - {printable(reason)}" for reason in verdict.reasons)]
