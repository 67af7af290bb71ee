"""The target_qps of Offline: for a run that is valid and not much longer than necessary."""

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from harness.analysis.statistics import completed
from harness.config.expected_queries import expected_queries
from harness.config.loadgen_settings import Setting
from harness.files import JOURNAL_DIR
from harness.json_files import read_json, write_json
from harness.peak.search.schedule import bisected, rounded
from harness.record.journal import Rows, read_journal
from harness.record.run_record import RunRecord

SLACK = 1.03  # The official run is planned to last so much longer than it must: it may be faster.
_MIDDLE = (0.25, 0.75)  # The server is full while this part of the short run's answers ends.
_PRECISION = 1e-5  # The digits of a rate in a conf file resolve this.
SHORT_RUN = "short"  # the folder of the short run
SHORT_CONF = "NOT OFFICIAL: a short run of find_peak.py"  # above the short run's rows in its conf file
OFFLINE_RATE = "offline_rate.json"  # the found rate, beside the short run's folder


class OfflineRate(msgspec.Struct, frozen=True):
    """The `target_qps` of Offline, the run that it makes, and the short run that it was found by."""

    rate: float
    samples: int
    """samples of the official run"""
    seconds: float
    """time that the official run is expected to take"""
    least_s: float
    """time that it has to take"""
    measured: float
    """samples/s of the short run while the server was full"""
    with_ends: float
    """samples/s of the complete short run"""
    measured_samples: int
    """samples of the short run"""
    conf_row: str = ""


def write_offline_rate(folder: Path, found: OfflineRate) -> None:
    """Write the file for other programs. Raises OSError."""
    write_json(folder / OFFLINE_RATE, found)


def withdraw_offline_rate(folder: Path) -> None:
    """Put the rate of the earlier short run, if there is one, to that run. Raises OSError."""
    if (folder / OFFLINE_RATE).is_file() and (folder / SHORT_RUN).is_dir():
        (folder / OFFLINE_RATE).replace(folder / SHORT_RUN / OFFLINE_RATE)


def read_offline_rate(folder: Path) -> float | None:
    """The rate in a folder; None where none was found yet. Raises ConfigError for a damaged file."""
    path = folder / OFFLINE_RATE
    return read_json(path, OfflineRate, "remove it to search again").rate if path.exists() else None


def rate_by_run(official: RunRecord, measured: RunRecord, folder: Path) -> OfflineRate:
    """The rate of a run with the settings of ``official``, by a complete one in a folder. Raises OSError."""
    assert measured.statistics is not None and measured.statistics.samples_per_s is not None
    found = offline_rate(
        official.settled.loadgen_settings,
        official.settled.samples,
        full_rate(read_journal(folder / JOURNAL_DIR).rows),
        measured.statistics.samples_per_s,
        measured.statistics.completed,
    )
    row = f"{official.plan.model_key}.Offline.target_qps = {found.rate:g}"
    return msgspec.structs.replace(found, conf_row=row)


def full_rate(rows: Rows) -> float:
    """Samples per second in the middle of a run, while the server was full."""
    ends = np.sort(completed(rows)["last_byte_ns"])
    low, high = (int(share * (len(ends) - 1)) for share in _MIDDLE)
    return (high - low) / max(float(ends[high] - ends[low]) / 1e9, 1e-9)


def offline_rate(
    settings: Mapping[str, Setting], samples: int, measured: float, with_ends: float, measured_samples: int
) -> OfflineRate:
    """The rate whose query has the fewest samples that keep a server of this speed busy for min_duration.

    LoadGen fills up to complete datasets of ``samples`` rows; it asks for 1.1 times what target_qps makes in
    min_duration, so that many rates make the same query: the one nearest to what was measured is taken.
    """
    least_s = float(settings["min_duration_ms"]) / 1000
    fastest = max(measured, with_ends)
    needed = math.ceil(least_s * fastest * SLACK)
    low, high = fastest / 2, fastest * 2
    if _count(settings, samples, low) < needed:
        _, low = bisected(low, high, lambda rate: _count(settings, samples, rate) < needed, _PRECISION)
        low = rounded(low * (1 + _PRECISION))
    wanted = _count(settings, samples, low)
    # Up to the highest rate with the same query, but not above what was measured.
    highest, _ = bisected(low, high, lambda rate: _count(settings, samples, rate) <= wanted, _PRECISION)
    rate = max(low, min(fastest, rounded(highest)))
    return OfflineRate(rate, wanted, wanted / measured, least_s, measured, with_ends, measured_samples)


def _count(settings: Mapping[str, Setting], samples: int, rate: float) -> int:
    return expected_queries(
        {**settings, "offline_expected_qps": rate}, "Offline", samples, accuracy=False
    ).samples
