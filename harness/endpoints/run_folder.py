"""The files of a run folder: one point of a curve, in the layout that the official client writes.

A folder of the official client has the first group only. Everything that reads run folders works without
the second group, and says what it could not know.
"""

import re
from pathlib import Path

from harness.record.output_dir import is_aside

# Of the official client, relative to the run folder.
CONFIG = "config.yaml"
EVENTS = "events.jsonl"
SUMMARY = "performance/result_summary.json"
ACCURACY = "accuracy/accuracy_results.json"

# Of this client besides.
POINT_RUN = "point_run.json"  # harness/endpoints/point_run.py
WARM_UP_REQUESTS = "warm_up.parquet"  # as requests.parquet, which holds the counted ones alone

# Of a point that is to be submitted besides; in a tree its other files lie beside these, without folders.
POINT_YAML = "point.yaml"
SYSTEM_DESC = "system_desc.json"
SYSTEM_POWER = "system_power.json"  # in a tree it is the system's, above its models

# In a rehearsal's folder.
RUNS = "runs"  # a run folder for each point, named as the point
REHEARSAL = "rehearsal.json"  # the plan
TREE = "tree"
TREE_RECORD = "tree.json"  # in it, above the submission: which run folder became which point
PAGE = "endpoints.html"
NOT_A_RESULT_FILE = "NOT_A_RESULT.txt"

_POINT = re.compile(r"r\d{1,18}", re.ASCII)  # of a point in a tree, by its requests in flight


def runs_in(path: Path) -> list[Path]:
    """A run folder itself, or those in a folder, or in its runs/; none where there is none.

    Not an earlier run of a point, moved aside before the point was run again.
    """
    for folders in ([path], sorted(path.glob("*")), sorted((path / RUNS).glob("*"))):
        found = [one for one in folders if (one / CONFIG).is_file() or (one / SUMMARY).is_file()]
        if found := [one for one in found if one == path or not is_aside(one)]:
            return found
    return []


def point_folders(curve: Path) -> list[Path]:
    """The folders r<N> of a curve in a tree, by N."""
    named = [one for one in curve.glob("r*") if _POINT.fullmatch(one.name) and one.is_dir()]
    return sorted(named, key=lambda one: (int(one.name[1:]), one.name))


def is_scored_alone(folder: Path) -> bool:
    """Whether it has an accuracy run and no performance run: it belongs to the point of its concurrency."""
    return (folder / ACCURACY).is_file() and not (folder / SUMMARY).is_file()
