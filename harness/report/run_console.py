"""The texts of a run on stdout, from its record: the plan before the run, the summary after it.

Consoles of other programs share its lines about servers and limits.
"""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from harness.analysis.diagnosis import diagnosis_text
from harness.analysis.network_summary import first_token_line, network_line
from harness.analysis.ranks import rank_lines
from harness.analysis.replicas import stragglers_text
from harness.analysis.statistics import PERCENTILES
from harness.config.audit_config import test_named
from harness.config.benchmark import Benchmark
from harness.config.deadlines import Deadlines
from harness.config.generation import SamplingParameters
from harness.config.protocol import protocol_text
from harness.config.server_urls import folded
from harness.defects import Defects
from harness.errors import EXIT_VALID
from harness.grouping import by_key
from harness.loadgen_logs.summary_and_detail import LoadgenSummary, result_lines
from harness.progress.progress_line import ProgressPrinter, ProgressSnapshot
from harness.record.resume import EarlierRun
from harness.record.run_record import Distribution, RunRecord, RunVerdict, ServerLoad, Statistics
from harness.record.settled import ServerInfo
from harness.report.next_step import next_step
from harness.text import LONG_LINE, aligned, counted, duration, labelled, milliseconds, printable, show

DRY_RUN = "dry run: everything is checked, no query was sent"
_LABEL_WIDTH, _CELL_WIDTH = 14, 9
_LINE = 110  # characters; longer lines of text are hard to read
_NOT_MEASURED = "-"
_TITLES = ("mean", *(f"p{percent:g}" for percent in PERCENTILES), "max")
# Columns that are left out on a narrow terminal, the least important first.
_DROPPED = ("p97", "p95", "p99.9", "p90", "max", "p50", "mean")
_LIMIT = "p99 limit"
_KINDS, _URLS = 6, 4  # the most kinds of servers that a plan lists, and URLs of each
_EXAMPLE = 80  # characters of a failed query's evidence
_SCHEDULING = {"schedule_policy": "schedule", "chunked_prefill_size": "chunked prefill"}
_OURS = "this client's own time, inside LoadGen's figures"
_NOT_OFFICIAL = "of this client; official are LoadGen's figures"
_SLOT = "the wait for a slot of --max-concurrency, as all queries are issued at once"
_LEGEND = {
    "issue delay": "from LoadGen's call until the request is sent, connecting included",
    "client share": "from the arrival of a token until LoadGen is called",
    "schedule lag": "from LoadGen's scheduled time until its call, mean",
}


class RunConsole:
    """Prints a run to stdout while it runs: its plan, its progress, its result."""

    def __init__(self) -> None:
        self._progress = ProgressPrinter()
        self.is_complete = False
        """whether nothing was left to run"""

    def earlier(self, found: EarlierRun) -> None:
        """What the folder holds: the first line of the output."""
        self.is_complete = found.course == "complete"
        show(found.first_line)

    def plan(self, record: RunRecord) -> None:
        """Everything is checked, nothing was sent yet."""
        print(render_plan(record), flush=True)

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Once a second."""
        self._progress(snapshot)

    def finish(self, record: RunRecord) -> int:
        """Print the result; returns the program's exit code."""
        self._progress.end()
        if record.plan.client.dry_run:
            print(DRY_RUN)
            return EXIT_VALID
        with Defects().cost("summary; the result is in run.json and in report.html"):
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            lines = result_lines(Path(record.files["LoadGen"]))
            print(render_summary(record, width, lines, next_step(record)), flush=True)
        return record.exit_code


def render_summary(
    record: RunRecord, width: int | None = None, loadgen_lines: Sequence[str] = (), next_step: str = ""
) -> str:
    """The closing summary of a run that has ended, ending in a line break.

    ``width`` is the number of the terminal's columns, None for no limit; ``loadgen_lines`` the result in
    LoadGen's summary, word for word; ``next_step`` a line with the command to run next.
    """
    if record.verdict is None:
        raise ValueError("the record of a run that has not ended")
    stats = record.statistics  # None where a defect kept the run's files from being read
    blocks = [
        [printable(line) for line in loadgen_lines],
        [printable(record.plan.title)],
        [*_throughput(record, stats), *_replicas(record)] if stats else [],
        _latency_table(record, stats, width) if stats else [],
        _network(record, width),
        _failures(stats, record.failure_examples) if stats else [],
        _ranks(record.server_load),
        _listing("What the course of the run shows", [diagnosis_text(one) for one in record.diagnoses]),
        _listing("What the servers' metrics say", record.server_load.notes if record.server_load else ()),
        _listing("Warnings: reasons to distrust these numbers", record.warnings),
        _loadgen(record.loadgen, record.loadgen_messages),
        [_pair(name, path) for name, path in record.files.items()],
        _verdict(record, record.verdict),
        [printable(next_step, sys.maxsize)] if next_step else [],  # a command is complete, or of no use
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _pair(label: str, value: str) -> str:
    return f"{printable(label):<{_LABEL_WIDTH}} {printable(value)}"


def _throughput(record: RunRecord, s: Statistics) -> list[str]:
    unanswered = record.unanswered or 0
    queries = f"{s.queries + unanswered}: {s.completed} completed, {s.failed} failed"
    lines = [_pair("queries", f"{queries}, {unanswered} without an answer" if unanswered else queries)]
    if s.samples_per_s is not None and s.tokens_per_s is not None:
        rate = f"{s.samples_per_s:.2f} samples/s, {s.tokens_per_s:.2f} tokens/s in {s.duration_s:.1f} s"
        lines.append(_pair("throughput", rate if record.plan.accuracy else f"{rate} ({_NOT_OFFICIAL})"))
    if s.isl_mean is not None and s.osl_mean is not None:
        lines.append(_pair("mean tokens", f"{s.isl_mean:.1f} in (ISL), {s.osl_mean:.1f} out (OSL)"))
    return lines


def _replicas(record: RunRecord) -> list[str]:
    balance = record.balance
    if balance is None or balance.imbalance is None:
        return []
    seconds = 0.0 if record.statistics is None else record.statistics.duration_s
    spread = f"imbalance {balance.imbalance:.3f} (largest mean in flight over that of all)"
    return [_pair("replicas", f"{len(balance.replicas)}: {spread}, {stragglers_text(balance, seconds)}")]


def _ranks(load: ServerLoad | None) -> list[str]:
    """The least busy data-parallel ranks, where servers report several."""
    lines = [] if load is None else [*rank_lines(load.ranks)]
    return _listing("Data-parallel ranks, the least busy first", lines)


def _latency_table(record: RunRecord, s: Statistics, width: int | None) -> list[str]:
    lag_ns = record.schedule_lag_mean_ns
    if s.latency is None and s.issue_delay is None and record.client_share is None:
        return []
    of_answers = {"TTFT": s.ttft, "TPOT": s.tpot, "latency": s.latency} if s.latency is not None else {}
    ours = {"issue delay": s.issue_delay, "client share": record.client_share}
    rows: dict[str, dict[str, str]] = {
        **{name: _cells(found) for name, found in of_answers.items()},
        **{name: _cells(found) for name, found in ours.items() if found is not None},
    }
    if lag_ns is not None:
        rows["schedule lag"] = {"mean": milliseconds(lag_ns)}
    for name, limit_ns in record.p99_limits_ns.items():
        if name in rows and not record.plan.accuracy:
            rows[name][_LIMIT] = milliseconds(limit_ns)
    titles = _columns(any(_LIMIT in row for row in rows.values()), width)
    rows = {name: row for name, row in rows.items() if not row.keys().isdisjoint(titles)}
    cells = [[name, *(row.get(title, "") for title in titles)] for name, row in rows.items()]
    lines = aligned([["ms", *titles], *cells], "<>", least=(_LABEL_WIDTH, _CELL_WIDTH), gap=" ")
    return [*lines, *_legend(rows, width, waits=_waits(record))]


def _columns(limits: bool, width: int | None) -> list[str]:
    """The columns that fit into ``width``; p99 and the limits stay."""
    titles = [*_TITLES, *((_LIMIT,) if limits else ())]
    for title in _DROPPED:
        if width is None or _LABEL_WIDTH + len(titles) * (_CELL_WIDTH + 1) <= width:
            break
        titles.remove(title)
    return titles


def _waits(record: RunRecord) -> bool:
    """Whether the issue delay is mostly the wait for a request to end: all queries are issued at once."""
    concurrency, statistics = record.settled.concurrency, record.statistics
    if not record.plan.scenario.one_query or concurrency is None or statistics is None:
        return False
    return statistics.queries > concurrency


def _legend(rows: Iterable[str], width: int | None, *, waits: bool) -> list[str]:
    texts = _LEGEND | ({"issue delay": _SLOT} if waits else {})
    known = [f"{name}: {texts[name]}" for name in rows if name in texts]
    ours = [name for name in rows if name in texts and not (waits and name == "issue delay")]
    end = f" ({_OURS})" if len(ours) == len(known) else f", {_OURS}" if ours else ""
    return textwrap.wrap("; ".join(known) + end, _line(width)) if known else []


def _line(width: int | None) -> int:
    """The characters of a line of wrapped text on a terminal of this width."""
    return min(width or _LINE, _LINE)


def _cells(found: Distribution | None) -> dict[str, str]:
    """By column title; "-" where nothing was measured."""
    if found is None:
        return dict.fromkeys(_TITLES, _NOT_MEASURED)
    values = [found.mean, *(found.percentiles[f"{percent:g}"] for percent in PERCENTILES), found.max]
    return dict(zip(_TITLES, map(milliseconds, values), strict=True))


def _network(record: RunRecord, width: int | None) -> list[str]:
    texts = {"network": network_line(record.network), "first token": first_token_line(record)}
    indent = " " * (_LABEL_WIDTH + 1)
    wrapped = (
        textwrap.wrap(_pair(name, text), _line(width), subsequent_indent=indent)
        for name, text in texts.items()
        if text
    )
    return [line for lines in wrapped for line in lines]


def _failures(s: Statistics, examples: Mapping[str, Sequence[str]]) -> list[str]:
    """Each kind with its number, and the evidence of one query: a status alone may be 401, 429 or 500."""
    lines = []
    for kind, count in s.failures.items():
        example = next(iter(examples.get(kind, ())), "")
        lines.append(f"  {printable(kind):<20} {count:<6} {printable(example, _EXAMPLE)}".rstrip())
    return ["Failed queries", *lines] if lines else []


def _listing(title: str, items: Sequence[str]) -> list[str]:
    return [title, *_items(items)] if items else []


def _items(texts: Sequence[str]) -> list[str]:
    """A warning ends in its remedy."""
    return [f"  - {printable(text, LONG_LINE)}" for text in texts]


def _loadgen(log: LoadgenSummary | None, messages: Sequence[str]) -> list[str]:
    if log is None:
        return []
    if log.problem:
        return [_pair("LoadGen", f"its summary is {log.problem}")]
    result = {True: "VALID", False: "INVALID", None: "no verdict (accuracy run)"}[log.result_valid]
    unmet = [name for name, met in log.constraints.items() if not met]
    counts = ((log.errors, "error"), (log.warnings, "warning"))
    shown = [counted(count, noun) for count, noun in counts if count is not None]
    text = ", ".join([result, *shown]) + (f"; not satisfied: {', '.join(unmet)}" if unmet else "")
    return [_pair("LoadGen", text), *(f"  - {printable(message)}" for message in messages)]


def _verdict(record: RunRecord, verdict: RunVerdict) -> list[str]:
    count = len(record.deviations)
    text = counted(count, "deviation")
    if any(server.has_dummy_weights for server in record.servers):
        text = f"random weights, one of {text}" if count > 1 else "random weights, a deviation"
    mark = f", NOT OFFICIAL: {text} from the rules (see the plan, run.json)" if count else ""
    return [f"Result: {verdict.result}{mark}", *_items(verdict.reasons)]


def render_plan(record: RunRecord, *, searched: bool = False) -> str:
    """The plan as the user reads it before the run; ``searched``: for runs whose rates are not known."""
    plan, settled, parameters = record.plan, record.settled, record.plan.client.parameters
    in_flight = "as LoadGen issues them" if settled.concurrency is None else f"{settled.concurrency} at once"
    follows = searched and plan.scenario.poisson and plan.client.num_workers is None
    client = "as many worker processes as the rate of each run needs" if follows else settled.placement
    lines = [
        f"{plan.title}: {counted(settled.samples, 'sample')} of {plan.client.input_file}",
        f"LoadGen   model key {plan.model_key}, settings of {plan.user_conf}",
        *_audit_line(record),
        *(() if searched else (f"issues    {_issue_line(record)}",)),
        f"requests  {in_flight}{_guess(record)}, {_bounds(plan.client.deadlines)}",
        f"client    {client}",
        f"answers   {sampling_text(parameters)}, {'streamed' if parameters.stream else 'not streamed'}",
        *labelled("api", api_lines(record.servers)),
        *labelled(
            "server", server_lines(record.servers, lambda server: _served(server, plan.client.benchmark))
        ),
        *(() if searched else (f"logs      {plan.client.log_dir}",)),
    ]
    said = [
        *labelled("DEVIATION", record.deviations),
        *labelled("WARNING", (*record.warnings, *settled.conf_warnings)),
    ]
    return "\n".join([*map(printable, lines), *(printable(line, LONG_LINE) for line in said)])


def sampling_text(parameters: SamplingParameters) -> str:
    """``1 to 128 tokens, temperature 0, top_p 1, top_k 1``."""
    least = f"{parameters.min_new_tokens} to" if parameters.min_new_tokens else "at most"
    text = (
        f"{least} {parameters.max_new_tokens} tokens, temperature {parameters.temperature:g}, "
        f"top_p {parameters.top_p:g}, top_k {parameters.top_k}"
    )
    return text if parameters.seed is None else f"{text}, seed {parameters.seed}"


def _issue_line(record: RunRecord) -> str:
    """``6396 queries, the dataset once, scheduled over 10m40s``."""
    issue, scenario = record.settled.expected, record.plan.scenario
    times = issue.samples / issue.dataset
    share = f", {times:g} x the dataset" if times.is_integer() else ""
    count = f"{issue.samples} {'samples in one query' if scenario.one_query else 'queries'}{share}"
    if issue.scheduled:
        return f"{count}, scheduled over {duration(issue.seconds or 0)}"
    if issue.seconds is None:
        return count
    least = "" if issue.exact else "at least "
    return f"{least}{count}, about {duration(issue.seconds)} at the {scenario.rate_key} asked for"


def _audit_line(record: RunRecord) -> list[str]:
    """``settings of FILE (TEST07): mode 2, min_duration 0``."""
    settings = record.settled.audit_settings
    if settings is None:
        return []
    shown = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in settings.items()
    )
    audit = record.plan.audit
    test = test_named(settings) or (audit.test if audit is not None else "of no known test")
    file = record.plan.audit_config if audit is None else audit.file
    return [f"audit     settings of {file or 'the rules'} ({test}): {shown}"]


def _guess(record: RunRecord) -> str:
    """A remark where Offline's concurrency is a guess: what all servers run at once is not known."""
    if record.settled.concurrency is None or record.plan.client.max_concurrency is not None:
        return ""
    if any(server.max_running_requests is None for server in record.servers):
        why = "not every server reports how many requests it runs at once"
    elif any(server.router and server.router.servers is None for server in record.servers):
        why = "it is that of one server, and a router does not list those behind it"
    else:
        return ""
    return f" (a guess: {why}; --max-concurrency N sets it)"


def _bounds(deadlines: Deadlines) -> str:
    """``3600 s each at most, 600 s between events``."""
    parts = [f"{deadlines.request_s:g} s each at most"]
    if deadlines.first_token_s is not None:
        parts.append(f"{deadlines.first_token_s:g} s to the first token")
    if deadlines.stall_s is not None and deadlines.stall_s < deadlines.request_s:
        parts.append(f"{deadlines.stall_s:g} s between events")
    return ", ".join(parts)


def server_lines(servers: Sequence[ServerInfo], served: Callable[[ServerInfo], str]) -> list[str]:
    """``URL: TEXT`` with what ``served`` says of the server; replicas with the same text share a line."""
    groups = by_key((served(server), server.url) for server in servers)
    found = sorted(groups.items(), key=lambda group: -len(group[1]))
    lines = [
        f"{f'{len(urls)} x ' if len(urls) > 1 else ''}{folded(urls, _URLS)}: {text}"
        for text, urls in found[:_KINDS]
    ]
    hidden = sum(len(urls) for _, urls in found[_KINDS:])
    return [*lines, f"and {hidden} more, of {len(found) - _KINDS} other kinds"] if hidden else lines


def api_lines(servers: Sequence[ServerInfo]) -> Iterable[str]:
    """How the servers are asked, as in ``POST /generate, input_ids; ids in, ids out``."""
    return dict.fromkeys(
        protocol_text(server.protocol, tried=server.trial_s is not None) for server in servers
    )


def served_by(server: ServerInfo) -> str:
    """``SGLang 0.5.23 serves PATH as NAME``."""
    return f"{server.software} serves {server.names}"


def _served(server: ServerInfo, benchmark: Benchmark) -> str:
    """``SGLang 0.5.23 serves PATH as NAME (context 131072, dp 8)``."""
    scheduling = {_SCHEDULING[name]: value for name, value in server.settings.items() if name in _SCHEDULING}
    facts = {
        "context": server.context_length,
        "dp": server.dp_size,
        "runs at once": server.max_running_requests,
        "stream interval": server.stream_interval,
        "revision": server.revision or ("not reported" if benchmark.model_revision else None),
        **scheduling,
    }
    shown = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    return f"{served_by(server)} ({shown})"


def limits_text(limits_ns: Mapping[str, int]) -> str:
    """``TTFT 3000 ms, TPOT 80.00 ms``."""
    return ", ".join(f"{name} {milliseconds(limit)} ms" for name, limit in limits_ns.items())
