"""The table of results: a row for each system, benchmark and scenario, compared with an earlier tree."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, fields

from harness.config.loadgen_settings import NS_PER_MS
from harness.endpoints.accuracy import read_accuracy
from harness.endpoints.official_files import Fields, is_number, read_table, system_tps
from harness.errors import ConfigError
from harness.files import ACCURACY, ACCURACY_TEXT, PERFORMANCE, explained_write, require_own
from harness.json_files import read_fields
from harness.loadgen_logs.summary_and_detail import LoadgenDetail
from harness.submission.checks import endpoints_run
from harness.submission.checks.context import CheckContext, read_logs
from harness.submission.checks.performance_run import TPOT_P99, TTFT_P99
from harness.submission.tree.accuracy_files import read_accuracy_text
from harness.submission.tree.layout import is_readable
from harness.submission.tree.system_description import whole_number
from harness.text import aligned, printable

_SAMPLES_PER_S = "result_qps_without_loadgen_overhead"  # of which MLCommons's checker infers Offline


class ResultRow(msgspec.Struct, frozen=True):
    """One result. The logs do not have a value that is None."""

    division: str
    submitter: str
    system: str
    benchmark: str
    scenario: str
    """the name of the folder"""
    valid: bool
    result: float | None
    """tokens/s; for SingleStream the 90th percentile latency in ms"""
    unit: str
    ttft_p99_ms: float | None
    tpot_p99_ms: float | None
    accuracy: str
    """every score without an upper bound"""
    tests: str
    """every compliance test with its verdict and figure"""
    accelerator: str
    accelerators: int | None

    @property
    def each(self) -> float | None:
        """The result per accelerator."""
        if self.result is None or not self.accelerators or self.unit != "tokens/s":
            return None
        return self.result / self.accelerators


class ComparedRow(msgspec.Struct, frozen=True):
    """A row and an earlier one."""

    row: ResultRow
    earlier: ResultRow | None = None
    share: float | None = None
    """new / old"""
    by: str = ""
    """the quantity that is compared"""


def summarize(contexts: Sequence[CheckContext]) -> tuple[ResultRow, ...]:
    """One row for each result, in the order of the tree."""
    return tuple(map(_row, contexts))


def _row(context: CheckContext) -> ResultRow:
    folder = context.dir
    description = read_fields(folder.system_file)
    system = {} if isinstance(description, str) else description
    return ResultRow(
        division=folder.division,
        submitter=folder.org,
        system=folder.system,
        benchmark=context.benchmark.name,
        scenario=folder.folder,
        **(_of_endpoints(context) if context.is_of_endpoints else _of_loadgen(context)),
        accelerator=str(system.get("accelerator_model_name") or ""),
        accelerators=_product(system.get("number_of_nodes"), system.get("accelerators_per_node")),
    )


def _of_loadgen(context: CheckContext) -> dict[str, Any]:
    logs = read_logs(context, PERFORMANCE)
    latency = context.scenario.poisson  # LoadGen logs them in every scenario; limits exist only here
    result, unit = logs.detail.number(context.scenario.result), "tokens/s"
    if context.is_inferred:
        result, unit = logs.detail.number(_SAMPLES_PER_S), "samples/s"
    elif context.scenario.one_at_a_time:
        result, unit = _ms(logs.detail, context.scenario.result), "ms"
    return {
        "valid": logs.summary.result_valid is True,
        "result": result,
        "unit": unit,
        "ttft_p99_ms": _ms(logs.detail, TTFT_P99) if latency else None,
        "tpot_p99_ms": _ms(logs.detail, TPOT_P99) if latency else None,
        "accuracy": _accuracy(context),
        "tests": ", ".join(_tests(context)),
    }


def _of_endpoints(context: CheckContext) -> dict[str, Any]:
    """A result of the client of Endpoints."""
    found = read_table(context.dir.path / endpoints_run.SUMMARY)
    summary: Fields = {} if isinstance(found, str) else found
    single, latency = context.scenario.one_at_a_time, context.scenario.poisson
    return {
        "valid": not any(issue.needs_action for issue in endpoints_run.faults(context, summary)),
        "result": _estimate_ms(summary, "latency", 90) if single else _tokens_per_s(summary),
        "unit": "ms" if single else "tokens/s",
        "ttft_p99_ms": _estimate_ms(summary, "ttft", 99) if latency else None,
        "tpot_p99_ms": _estimate_ms(summary, "tpot", 99) if latency else None,
        "accuracy": _endpoints_accuracy(context),
        "tests": "",
    }


def _estimate_ms(summary: Fields, name: str, percent: int) -> float | None:
    found = endpoints_run.estimate(summary, name, percent)
    return found / NS_PER_MS if is_number(found) else None


def _tokens_per_s(summary: Fields) -> float | None:
    """The client's own figure: in Server its window ends with the answer to the last query, as LoadGen's."""
    return rate if is_number(rate := summary.get("tps")) else system_tps(summary)


def _endpoints_accuracy(context: CheckContext) -> str:
    """The scores, without the metrics that only bound lengths."""
    try:
        found = read_accuracy(context.dir.path, context.benchmark)
    except ConfigError:
        return ""
    metrics = {} if found is None else found.metrics
    rules = context.benchmark.accuracy
    return ", ".join(f"{name} {one.value:.3f}" for name, one in metrics.items() if rules[name].is_score)


def _ms(detail: LoadgenDetail, key: str) -> float | None:
    found = detail.number(key)
    return None if found is None else found / NS_PER_MS


def _product(nodes: object, each: object) -> int | None:
    one, other = whole_number(nodes), whole_number(each)
    return None if one is None or other is None else one * other


def _accuracy(context: CheckContext) -> str:
    """The scores, without the metrics that only bound lengths."""
    path = context.dir.path / ACCURACY / ACCURACY_TEXT
    if not is_readable(path):
        return ""
    metrics = [name for name, rule in context.benchmark.accuracy.items() if rule.is_score]
    found = read_accuracy_text(path, metrics)
    scores = {metric: found.score(metric) for metric in metrics}
    return ", ".join(f"{metric} {score:.3f}" for metric, score in scores.items() if score is not None)


def _tests(context: CheckContext) -> Iterator[str]:
    """Each test with its verdict and figure."""
    for test in context.tests:
        if (text := context.read_verified(test)) is not None:
            found = test.read(text)
            figure = f" {'-' if found.figure is None else f'{found.figure:g}'}" if test.threshold_keys else ""
            yield f"{test.name} {'PASS' if found.passed else 'FAIL'}{figure}"


def compare(rows: Sequence[ResultRow], earlier: Sequence[ResultRow]) -> tuple[ComparedRow, ...]:
    """Each row with that of the same system, or else the best per accelerator of the same model."""
    return tuple(_compare(row, [old for old in earlier if old.valid]) for row in rows)


def _compare(row: ResultRow, earlier: Sequence[ResultRow]) -> ComparedRow:
    task = row.benchmark, row.scenario.lower(), row.unit  # an inferred result has another unit
    alike = [old for old in earlier if (old.benchmark, old.scenario.lower(), old.unit) == task]
    for old in alike:
        is_same = (old.submitter, old.system) == (row.submitter, row.system)
        if is_same and row.result and old.result:
            return ComparedRow(row, old, row.result / old.result, "result")
    cards = [old for old in alike if old.each and old.accelerator.lower() == row.accelerator.lower() != ""]
    best = max(cards, key=lambda old: old.each or 0.0, default=None)
    if best is None or not row.each or not best.each:
        return ComparedRow(row)
    return ComparedRow(row, best, row.each / best.each, "result per accelerator")


def table(rows: Sequence[ComparedRow]) -> Iterator[str]:
    """Lines for the terminal; the division and the comparison only where rows differ in them."""
    against = any(one.earlier for one in rows)
    divisions = len({one.row.division for one in rows}) > 1
    names = ["division"] * divisions + ["submitter", "system", "benchmark", "scenario", "result"]
    cells = [[*names, "TTFT p99", "TPOT p99", "accuracy", "tests", *(["earlier", "change"] * against)]]
    for one in rows:
        row = one.row
        line = [row.division] * divisions + [printable(row.submitter), printable(row.system)]
        line += [row.benchmark, row.scenario, _result(row)]
        line += [_shown(row.ttft_p99_ms), _shown(row.tpot_p99_ms), row.accuracy or "-", row.tests or "-"]
        cells.append(line + (_change(one) if against else []))
    yield from aligned(cells)


def _result(row: ResultRow) -> str:
    shown = "-" if row.result is None else f"{row.result:,.1f} {row.unit}"
    return shown if row.valid else f"{shown} INVALID"


def _shown(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.1f} ms"


def _change(one: ComparedRow) -> list[str]:
    if one.earlier is None or one.share is None:
        return ["-", "-"]
    old, change = one.earlier, f"{one.share - 1:+.1%}"
    if one.by == "result":
        return [_result(old), change]
    return [f"{_result(old)} ({printable(f'{old.submitter} {old.system}')})", f"{change} per accelerator"]


def write_csv(path: Path, rows: Sequence[ComparedRow]) -> None:
    """Write all fields of every row. Raises ConfigError when the file cannot be written."""
    more = ("earlier_submitter", "earlier_system", "earlier_result", "new_over_earlier", "compared_by")
    names = [field.name for field in fields(ResultRow)]
    require_own(path, f"{names[0]},".encode(), "table of results", "--csv")
    # The name of a folder may be no UTF-8.
    with (
        explained_write(path, "--csv"),
        path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        writer = csv.writer(file)
        writer.writerow([*names, *more])
        for one in rows:
            old = one.earlier
            tail = [old.submitter, old.system, old.result] if old else ["", "", ""]
            share = "" if one.share is None else f"{one.share:.6f}"
            writer.writerow([*asdict(one.row).values(), *tail, share, one.by])
