"""The closing summary on stdout: values in, text out."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.loadgen_logs.summary_and_detail import LoadgenSummary
from harness.record.verdict import Verdict
from harness.report.progress import milliseconds
from harness.report.statistics import PERCENTILES, Distribution, Statistics
from harness.text import printable

LABEL_WIDTH = 14
CELL_WIDTH = 9
_NOT_MEASURED = "-"
# Columns that a narrow terminal loses, the least important first.
_DROPPED = ("p97", "p95", "p99.9", "p90", "max", "p50", "mean")
_LIMIT = "p99 limit"
_OURS = "this client's own time, inside LoadGen's figures"
_LEGEND = {
    "issue delay": "from LoadGen's call until the request is sent",
    "client share": "from the arrival of a token until LoadGen is called",
    "schedule lag": "from LoadGen's scheduled time until its call, mean",
}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Everything that the closing summary shows.

    ``title``: "gpt-oss-120b, server, performance"; ``deviations``: of which the plan has shown each;
    ``doubts``: reasons not to believe the numbers; ``files``: what was written, by name; ``limits``: of TTFT
    and TPOT in ns at p99, None where there is none; ``next_step``: what to run now.
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
    limits: Mapping[str, int | None] = field(default_factory=dict)
    next_step: str = ""


def render_summary(summary: RunSummary, width: int | None = None) -> str:
    """The complete text, ending in a line break. ``width``: the terminal's columns, None for no limit."""
    blocks = [
        [printable(line) for line in summary.loadgen_lines],
        [printable(summary.title)],
        _throughput(summary.statistics),
        _latency_table(summary, width),
        _failures(summary.statistics),
        _listing("Reasons to doubt these numbers", summary.doubts),
        _loadgen(summary.loadgen),
        [_pair(name, path) for name, path in summary.files.items()],
        _verdict(summary.verdict, len(summary.deviations)),
        [printable(summary.next_step, 2000)] if summary.next_step else [],
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


def _latency_table(summary: RunSummary, width: int | None) -> list[str]:
    s, lag_ns = summary.statistics, summary.schedule_lag_mean_ns
    if s.latency is None and s.issue_delay is None and summary.client_share is None:
        return []
    of_answers = {"TTFT": s.ttft, "TPOT": s.tpot, "latency": s.latency} if s.latency is not None else {}
    ours = {"issue delay": s.issue_delay, "client share": summary.client_share}
    rows: dict[str, dict[str, str]] = {
        **{name: _cells(found) for name, found in of_answers.items()},
        **{name: _cells(found) for name, found in ours.items() if found is not None},
    }
    if lag_ns is not None:
        rows["schedule lag"] = {"mean": milliseconds(lag_ns)}
    for name, limit_ns in summary.limits.items():
        if name in rows and limit_ns is not None:
            rows[name][_LIMIT] = milliseconds(limit_ns)
    titles = _columns(any(_LIMIT in row for row in rows.values()), width)
    lines = [_table_line("ms", titles)]
    lines += [_table_line(name, [row.get(title, "") for title in titles]) for name, row in rows.items()]
    return [*lines, *_legend(rows, width)]


def _columns(limits: bool, width: int | None) -> list[str]:
    """The columns that fit into ``width``; p99 and the limits stay."""
    titles = ["mean", *(f"p{percent:g}" for percent in PERCENTILES), "max", *((_LIMIT,) if limits else ())]
    for title in _DROPPED:
        if width is None or LABEL_WIDTH + len(titles) * (CELL_WIDTH + 1) <= width:
            break
        titles.remove(title)
    return titles


def _legend(rows: Iterable[str], width: int | None) -> list[str]:
    known = [f"{name}: {_LEGEND[name]}" for name in rows if name in _LEGEND]
    text = f"{'; '.join(known)} ({_OURS})"
    return textwrap.wrap(text, min(width or 110, 110)) if known else []


def _cells(found: Distribution | None) -> dict[str, str]:
    """By column title; "-" where nothing was measured."""
    titles = ["mean", *(f"p{percent:g}" for percent in PERCENTILES), "max"]
    if found is None:
        return dict.fromkeys(titles, _NOT_MEASURED)
    values = [found.mean, *(found.percentiles[percent] for percent in PERCENTILES), found.max]
    return dict(zip(titles, map(milliseconds, values), strict=True))


def _table_line(label: str, cells: Sequence[str]) -> str:
    return (f"{label:<{LABEL_WIDTH}}" + "".join(f" {cell:>{CELL_WIDTH}}" for cell in cells)).rstrip()


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
    mark = (
        f", NOT OFFICIAL: {deviations} {noun} from the rules (see the plan, run.json)" if deviations else ""
    )
    return [f"Result: {verdict.result}{mark}", *(f"  - {printable(reason)}" for reason in verdict.reasons)]
