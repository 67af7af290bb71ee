#!/usr/bin/env python3
"""Searches for the peak rate on servers whose peak is known: find_peak.py's, LoadGen's, plain bisection.

    python benchmarks/peak/search.py [--noises 3] [--only NAME ...] [--small] [--processes 2] [--reuse]

Everything runs in virtual time against the model of benchmarks/peak/server_model.py, with LoadGen's schedule
and verdict. The true peak is the largest rate whose official run is VALID (benchmarks/peak/truth.py); on a
server that gets slower it is that of the server at the end of find_peak.py's search. Settings with noise are
searched --noises times, each time with another noise (the others once). LoadGen's search and bisection begin
at about half of the true peak, which find_peak.py does not know. A run that is cut off counts by its share
of the schedule.
"""

import json
import multiprocessing
import sys
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.bench import RESULTS, print_table, program_parser, save
from benchmarks.peak.searches import Found, bisection, loadgen, ours
from benchmarks.peak.settings import FULL_SIZE, SMALL, Setting
from benchmarks.peak.truth import FINE, true_peak

RESULTS_NAME = "peak_search"
OURS = "find_peak.py"
METHODS = {"LoadGen": loadgen, "bisection": bisection}
WITHIN, AT_MOST_RUNS = 0.02, 5.0
_STARTS = (0.45, 0.7)  # of the true peak: where LoadGen's search and bisection begin


@dataclass(frozen=True)
class Compared:
    """The searches of one setting with one noise."""

    setting: Setting
    peak: float
    found: dict[str, Found]

    def error(self, name: str) -> float:
        """Of the found rate, as a share of the true one."""
        return self.found[name].rate / self.peak - 1


def main() -> None:
    """Compare and print two tables: each search, and each method over all."""
    parser = program_parser(__doc__)
    parser.add_argument("--noises", type=int, default=3, help="searches of each setting with noise")
    parser.add_argument("--only", nargs="+", help="names of settings")
    parser.add_argument("--small", action="store_true", help="the settings that the tests use")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--reuse", action="store_true", help="take all but find_peak.py's from the last results"
    )
    arguments = parser.parse_args()
    chosen = list(SMALL if arguments.small else FULL_SIZE)
    if arguments.only:
        chosen = [one for one in chosen if one.name in arguments.only]
    kept = _kept() if arguments.reuse else {}
    tasks = [(one, arguments.noises, kept.get(one.name, [])) for one in chosen]
    rows: list[Compared] = []
    with multiprocessing.Pool(arguments.processes) as pool:
        for group in pool.imap_unordered(_compared, tasks):
            rows += group
            print(*map(_line, group), sep="\n", flush=True)
            save(RESULTS_NAME, [_saved(row) for row in rows], quiet=True)
    rows.sort(key=lambda row: [one.name for one in chosen].index(row.setting.name))
    _print(rows)
    save(RESULTS_NAME, [_saved(row) for row in rows])


def _compared(task: tuple[Setting, int, list[dict[str, Any]]]) -> list[Compared]:
    """All searches of a setting, each with ``noises`` noises; ``kept`` are rows of earlier results."""
    setting, noises, kept = task
    seeds = range(noises if setting.server.noise else 1)
    ages = setting.server.drift > 0
    peak = 0.0 if ages else kept[0]["peak"] if kept else true_peak(setting.server, setting.workload())
    rows = []
    for seed in seeds:
        mine, _ = ours(setting, seed)
        if ages:
            peak = true_peak(setting.server, setting.workload(), age_s=mine.seconds)
        found = {OURS: mine, **_others(setting, seed, peak, kept[seed] if seed < len(kept) else {})}
        rows.append(Compared(setting, peak, found))
    return rows


def _others(setting: Setting, seed: int, peak: float, kept: dict[str, Any]) -> dict[str, Found]:
    """The other searches, with the first noise alone: they take long to simulate."""
    if kept:
        return {name: Found(*kept[name]) for name in METHODS if name in kept}
    if seed:
        return {}
    start = float(np.random.default_rng([seed, zlib.crc32(setting.name.encode())]).uniform(*_STARTS)) * peak
    return {name: method(setting, start, seed) for name, method in METHODS.items()}


def _kept() -> dict[str, list[dict[str, Any]]]:
    """Rows of the last results by setting, in the order of their noises."""
    kept: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in json.loads((RESULTS / f"{RESULTS_NAME}.json").read_text()):
        kept[row["setting"]].append(row)
    return kept


def _line(row: Compared) -> str:
    parts = [f"{row.setting.name}: peak {row.peak:.4g}"]
    for name, found in row.found.items():
        parts.append(
            f"{name} {100 * row.error(name):+.2f} % {found.full}+{found.cut} runs {found.end}".strip()
        )
    return "; ".join(parts)


def _print(rows: Sequence[Compared]) -> None:
    """A line for each setting with the means over its noises, then one for each method."""
    by_setting: dict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        by_setting[row.setting.name].append(row)
    names = [OURS, *METHODS]
    columns = ["kind: setting", "true qps", *(f"{name}: error %, runs, h" for name in names)]
    table: list[list[object]] = []
    for group in by_setting.values():
        cells = [_cell([one for one in group if name in one.found], name) for name in names]
        peak = float(np.mean([one.peak for one in group]))
        table.append([f"{group[0].setting.kind}: {group[0].setting.name}", peak, *cells])
    print_table("peak_search: worst error, mean of the runs and of the hours of each setting", columns, table)
    columns = ["method", "searches", "within 2 %", "at most 5 runs", "mean runs", "mean h", "too high"]
    print_table("peak_search: all", columns, [_total(rows, name) for name in names])


def _cell(group: Sequence[Compared], name: str) -> str:
    worst = max((one.error(name) for one in group), key=abs)
    found = [one.found[name] for one in group]
    full, cut = np.mean([one.full for one in found]), np.mean([one.cut for one in found])
    hours = np.mean([one.seconds for one in found]) / 3600
    return f"{100 * worst:+.1f}, {full:.3g}+{cut:.3g} cut, {hours:.1f}"


def _total(rows: Sequence[Compared], name: str) -> list[object]:
    chosen = [row for row in rows if name in row.found]
    errors = np.array([row.error(name) for row in chosen])
    runs = np.array([row.found[name].in_full for row in chosen])
    hours = float(np.mean([row.found[name].seconds for row in chosen])) / 3600
    close, few = float(np.mean(np.abs(errors) <= WITHIN)), float(np.mean(runs <= AT_MOST_RUNS))
    shares = f"{100 * close:.0f} %", f"{100 * few:.0f} %"
    return [name, len(chosen), *shares, float(runs.mean()), hours, int((errors > FINE).sum())]


def _saved(row: Compared) -> dict[str, object]:
    kept: dict[str, object] = {"setting": row.setting.name, "kind": row.setting.kind, "peak": row.peak}
    for name, one in row.found.items():
        kept[name] = [one.rate, one.full, one.cut, one.in_full, one.seconds, one.end]
    return kept


if __name__ == "__main__":
    main()
