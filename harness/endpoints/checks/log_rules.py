"""Our rules that the log of a point decides: issue time, passes, counts, failures, tokens, steady state."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.endpoints.checks.checked_point import PointFiles
from harness.endpoints.checks.finding import Finding, Severity, finding
from harness.endpoints.checks.point_rules import (
    block_differences,
    by_length,
    check_salt,
    steady_block,
    too_few_passes,
    whole_passes,
)
from harness.endpoints.checks.recompute import recomputed_block, recounted
from harness.endpoints.checks.request_log import LogError, RequestLog, read_log
from harness.endpoints.official_files import at, number, percentile_of, steady_window, whole
from harness.endpoints.run_folder import EVENTS, SUMMARY
from harness.endpoints.samples import Samples, tpot_ns
from harness.endpoints.steady.super_passes import percentile
from harness.grading.scoring.grade import Progress

_SPAN_TOLERANCE_S = 1.0  # of a duration that is written in whole seconds
_TIME_TOLERANCE = 0.01  # of percentiles that come from a histogram
_TOKEN_TOLERANCE = 0.001


def check_log(files: PointFiles, progress: Progress) -> Iterator[Finding]:
    """What the log says, and what cannot be known without one. ``progress`` of counting its tokens."""
    path = files.log
    if path is None:
        yield finding(
            "not-recomputed",
            files.where(),
            f"no {EVENTS}: issue time, passes, failures, tokens, steady state",
        )
        yield from check_salt(files)
        return
    where = _where(files, path)
    try:
        log = read_log(path)
    except LogError as error:
        yield finding("log", where, str(error))
        yield from check_salt(files)
        return
    yield from check_salt(files, len(log.samples), log.prompts)
    yield from _counts(files, log, where)
    yield from _issue_time(files, log, where)
    if not files.is_offline:
        yield from _fragments(log.samples, where)
        yield from _ttft(files, log, where)
        yield from _window(files, log)
    shown = f"bytes of {files.folder.name}"
    counted = recounted(path.parent, lambda done, total: progress(done, total, shown))
    if isinstance(counted, str):
        what = "tokens" if files.is_offline else "tokens, status and verdict of steady_state"
        yield finding("not-recomputed", files.where(), f"{what}: {counted}", remedy="")
        return
    yield from _tokens(files, counted, where)
    if not files.is_offline:
        yield from _steady_state(files, counted)


def _where(files: PointFiles, path: Path) -> str:
    if path.is_relative_to(files.root):
        return path.relative_to(files.root).as_posix()
    return f"{path.parent.name}/{path.name}"


def _counts(files: PointFiles, log: RequestLog, where: str) -> Iterator[Finding]:
    samples = log.samples
    issued, failed = len(samples), int(samples["failed"].sum())
    lost = int(((samples["complete_ns"] == 0) & ~samples["failed"]).sum())
    if failed or lost:
        text = f"{failed:,} of {issued:,} requests failed" + (f", {lost:,} never ended" if lost else "")
        yield finding("failures", where, text)
    if issued != whole(files.summary.get("n_samples_issued")):
        yield from whole_passes(files, where, issued)
    pairs = (("n_samples_issued", issued), ("n_samples_failed", failed))
    for name, counted in pairs:
        stated = whole(files.summary.get(name))
        if stated is not None and stated != counted:
            yield _differs(files, f"{name} is {stated:,}", f"{counted:,}", where)
    duration_ns = number(files.summary.get("duration_ns"))
    if duration_ns is not None and duration_ns < (log.elapsed_s - _SPAN_TOLERANCE_S) * 1e9:
        yield _differs(files, f"duration_ns is {duration_ns / 1e9:.1f} s", f"{log.elapsed_s:.1f} s", where)


def _differs(files: PointFiles, text: str, found: str, where: str) -> Finding:
    """Of a number in the summary that is not the log's."""
    return finding("log-differs", files.where(SUMMARY), text, expected=f"{found} as in {where}")


def _issue_time(files: PointFiles, log: RequestLog, where: str) -> Iterator[Finding]:
    """A dedicated Offline run issues everything at once, so its time counts to the last completion."""
    seconds, what = (log.elapsed_s, "the run") if files.is_offline else (log.issue_s, "issue")
    if files.required_s and seconds < files.required_s:
        text = f"{what} lasts {seconds:.1f} s"
        yield by_length(files, "issue-time", where, text, expected=f"{files.required_s:.0f} s or more")
    size = files.dataset_size
    if size and not files.is_offline and len(log.samples) < files.rules.window_passes * size:
        text = f"the run has {len(log.samples) // size} complete passes"
        yield too_few_passes(files, where, text)


def _fragments(samples: Samples, where: str) -> Iterator[Finding]:
    """An answer whose only fragment is its end was not streamed."""
    answered = samples[~samples["failed"] & (samples["complete_ns"] > 0)]
    without = int((answered["first_ns"] == 0).sum())
    if without:
        text = f"{without:,} of {len(answered):,} answers have no first fragment"
        yield finding("streaming", where, text, severity=Severity.ERROR if without > 1 else Severity.WARNING)


def _ttft(files: PointFiles, log: RequestLog, where: str) -> Iterator[Finding]:
    """Two runs of a point have the same counts, and not the same times."""
    stated, found = percentile_of(files.summary, "ttft", 90), log.ttft_p90_ns
    if stated is not None and abs(stated - found) > _TIME_TOLERANCE * found:  # never true of nan
        yield _differs(files, f"the p90 of ttft is {stated / 1e6:.1f} ms", f"{found / 1e6:.1f} ms", where)


def _tokens(files: PointFiles, counted: Samples, where: str) -> Iterator[Finding]:
    """A summary with more tokens, or less time for each, than its answers have.

    The official client may count fewer: gpt-oss's thoughts are no tokens there.
    """
    total = number(at(files.summary, "output_sequence_lengths", "total"))
    found = counted["output_tokens"].sum()
    if total is not None and total > (1 + _TOKEN_TOLERANCE) * found:
        yield _differs(files, f"output_sequence_lengths.total is {total:,.0f}", f"{found:,}", where)
    stated, p90 = percentile_of(files.summary, "tpot", 90), percentile(tpot_ns(counted), 0.9)
    if stated is not None and not files.is_offline and stated < (1 - _TIME_TOLERANCE) * p90:
        yield _differs(files, f"the p90 of tpot is {stated / 1e6:.2f} ms", f"{p90 / 1e6:.2f} ms", where)


def _window(files: PointFiles, log: RequestLog) -> Iterator[Finding]:
    """The claimed window's issue time, whatever made it a window."""
    block, where = steady_block(files)
    window = steady_window(block)
    first, last, size, claimed = window.first, window.last, window.size, window.duration_s
    if first is None or last is None or not size or first < 0 or last < first:
        return
    if (last + 1) * size > len(log.samples):
        return  # a finding of the files
    issue_s = log.issue_s_of(first, last, size)
    if claimed is not None and abs(claimed - issue_s) > max(_SPAN_TOLERANCE_S, 0.005 * issue_s):
        text = f"duration_s is {claimed:.1f}"
        yield finding("steady-state-differs", where, text, expected=f"{issue_s:.1f} as in the log")


def _steady_state(files: PointFiles, counted: Samples) -> Iterator[Finding]:
    """The complete block, recomputed."""
    stated, where = steady_block(files)
    size, concurrency = files.dataset_size, files.concurrency
    if not stated:
        return
    if size is None or concurrency is None:
        found: Mapping[str, Any] | str = "the dataset's size or the concurrency is not known"
    else:
        found = recomputed_block(counted, size, files.rules.least_issue_s(concurrency))
    if isinstance(found, str):
        yield finding("not-recomputed", where, f"status and verdict of steady_state: {found}", remedy="")
        return
    for name, got, expected in block_differences(stated, found):
        yield finding("steady-state-differs", where, f"{name} is {got}", expected=f"{expected} as in the log")
