"""A probe from the record of its run, and the conf file that a probe is run with."""

from pathlib import Path

from harness.config.loadgen_conf import with_rows
from harness.errors import RunError
from harness.files import USER_CONF
from harness.loadgen_logs.summary_and_detail import LoadgenSummary
from harness.peak.search.probe import NO_ROOM, Probe, ProbeVerdict
from harness.peak.search.schedule import ScheduledRun
from harness.progress.progress_line import Over, ProgressSnapshot
from harness.record.run_record import Distribution, RunRecord

_CLIENT_BOUND = 0.05  # A run counts as bound by this client above this part of its time.
FOUND_RATE = "Found by find_peak.py"  # above the row of a probe in its conf file


def write_conf(folder: Path, user_conf: Path, model_key: str, rate: float) -> Path:
    """The user's conf file with the rate of a probe: LoadGen takes the last of the most exact rows."""
    row = f"{model_key}.Server.target_qps = {rate:g}"
    path = folder / USER_CONF
    path.write_text(with_rows(user_conf.read_text("utf-8"), FOUND_RATE, [row]), "utf-8")
    return path


def probe_of(
    record: RunRecord,
    run: ScheduledRun,
    cut: ProgressSnapshot | None,
    over: Over,
    cost_s: float,
    folder: str,
    failures: tuple[str, ...],
) -> Probe:
    """The probe that a run was; ``cut``: where it was ended; ``failures``: why a server was not usable then.

    A run in which this client had no room for a connection is INVALID and has no times. Raises RunError for
    one that shows nothing about its rate: other queries failed, a process or server was lost, or its files
    could not be read.
    """
    cut_after_s = None if cut is None else cut.elapsed_s
    statistics, loadgen, verdict = record.statistics, record.loadgen, record.verdict
    assert verdict is not None
    decided = _verdict(record, cut_after_s)
    if failures or statistics is None or decided is None:
        reasons = "; ".join((*failures, *verdict.reasons))
        raise RunError(
            f"the run at {run.rate:g} in {record.plan.client.log_dir} shows nothing about its rate: {reasons}"
        )
    has_room = NO_ROOM not in statistics.failures
    summary = loadgen if cut_after_s is None and has_room else None
    ttft, tpot = (statistics.ttft, statistics.tpot) if has_room else (None, None)
    taken_s = statistics.duration_s
    return Probe(
        rate=run.rate,
        datasets=run.datasets,
        queries=run.queries,
        planned_s=run.seconds,
        seconds=taken_s if cut_after_s is None else cut_after_s,
        cost_s=cost_s,
        verdict=decided,
        reasons=verdict.reasons,
        cut_after_s=cut_after_s,
        ttft_p99_ns=_p99_ns("TTFT", summary, ttft),
        tpot_p99_ns=_p99_ns("TPOT", summary, tpot),
        over_ttft=over.ttft,
        over_tpot=over.tpot,
        most_over=run.most_over,
        tokens_per_s=None if summary is None else summary.tokens_per_s,
        client_bound=not has_room or _client_bound(record, taken_s),
        deviations=len(record.deviations),
        folder=folder,
        started=record.started.isoformat(),
    )


def _verdict(record: RunRecord, cut_after_s: float | None) -> ProbeVerdict | None:
    """A cut run is INVALID; None for one that was not VALID for another reason than its times or no room."""
    assert record.verdict is not None
    if record.statistics is None:
        return None
    failures = record.statistics.failures
    if any(server.answers for server in record.changed) or failures.keys() - {NO_ROOM}:
        return None
    if cut_after_s is not None or failures:
        return "INVALID"
    if record.verdict.result == "VALID":
        return "VALID"
    return "INVALID" if record.verdict.complete else None


def _p99_ns(name: str, summary: LoadgenSummary | None, ours: Distribution | None) -> float | None:
    """LoadGen's, or ours where it has none."""
    found = None if summary is None else summary.percentile_ns(name)
    return found or (None if ours is None else ours.percentiles["99"])


def _client_bound(record: RunRecord, taken_s: float) -> bool:
    if record.client_load is None:
        return False
    seconds = sum(one.to_s - one.from_s for one in record.client_load.bottlenecks)
    return seconds > _CLIENT_BOUND * max(taken_s, 1.0)
