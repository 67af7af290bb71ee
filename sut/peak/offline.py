"""``find_peak.py search --scenario offline``: one short run, and the target_qps that follows."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.cli.signals import interruptible, require_no_signal, signals_kept
from harness.config.loadgen_conf import with_rows
from harness.errors import RunError
from harness.files import USER_CONF
from harness.peak.ladder.ladder_plan import FOLDER
from harness.peak.peak_options import SearchOptions
from harness.peak.search.cut_off import CutOff
from harness.peak.search.offline_rate import (
    SHORT_CONF,
    SHORT_RUN,
    OfflineRate,
    rate_by_run,
    withdraw_offline_rate,
    write_offline_rate,
)
from harness.progress.progress_files import ProgressLine
from harness.progress.progress_line import ProgressSnapshot
from harness.record.output_dir import locked, move_aside_existing
from harness.record.run_record import RunRecord
from harness.record.settled import running_limit
from sut.peak.prober import SearchWatcher, search_run
from sut.run import run

_WAVES = 4  # times what the servers run at once: the middle half of the answers comes from full servers
_LEAST_SAMPLES = 64

log = logging.getLogger("mlperf")


def find_offline_rate(
    options: SearchOptions, watcher: SearchWatcher, on_line: Callable[[ProgressLine], None]
) -> OfflineRate | None:
    """Measure; None after a dry run. ``on_line`` gets each line of progress.jsonl.

    Raises HarnessError, RunError where the short run was not complete.
    """
    folder = options.results.absolute() / FOLDER / options.scenario
    with interruptible():
        plan = search_run(options, folder, options.user_conf, dry_run=True)
        official = run(plan, rate_follows=True)
        watcher.plan(official)
        for flag in _unused(options):
            log.warning("%s is not used: Offline takes one short run", flag)
        if options.dry_run:
            return None
        with locked(folder / SHORT_RUN):
            withdraw_offline_rate(folder)
            move_aside_existing(folder / SHORT_RUN)
            conf = _short_conf(folder / SHORT_RUN, options.user_conf, official)
            plan = search_run(options, folder / SHORT_RUN, conf)
            cut_off = CutOff(options)

            def on_progress(snapshot: ProgressSnapshot) -> None:
                watcher.progress(snapshot)
                cut_off(snapshot)

            with signals_kept():
                record = run(plan, on_progress=on_progress, on_line=on_line)
            require_no_signal(record.interrupted_by)
            watcher.record(record)
    statistics, verdict = record.statistics, record.verdict
    assert verdict is not None
    if not verdict.complete or statistics is None or not statistics.samples_per_s:
        reasons = "; ".join(verdict.reasons)
        raise RunError(f"the short run in {plan.client.log_dir} shows no rate: {reasons}")
    found = rate_by_run(official, record, plan.client.log_dir)
    write_offline_rate(folder, found)
    return found


def _unused(options: SearchOptions) -> Iterator[str]:
    """Flags that were given and have no use."""
    default = SearchOptions()
    for name in ("budget", "tolerance", "start_qps", "ladder_seconds", "resume"):
        if getattr(options, name) != getattr(default, name):
            yield f"--{name.replace('_', '-')}"


def _short_conf(folder: Path, user_conf: Path, official: RunRecord) -> Path:
    """The user's file with rows behind it for a short run."""
    at_once = running_limit(official.servers)
    key = f"{official.plan.model_key}.Offline"
    count = max(_LEAST_SAMPLES, _WAVES * min(at_once, official.settled.concurrency or at_once))
    rows = {
        "min_query_count": count,
        "min_duration": 1,
        "target_qps": 1,
        "sample_concatenate_permutation": 0,
    }
    path = folder / USER_CONF
    more = (f"{key}.{name} = {value}" for name, value in rows.items())
    path.write_text(with_rows(user_conf.read_text("utf-8"), SHORT_CONF, more), "utf-8")
    return path
