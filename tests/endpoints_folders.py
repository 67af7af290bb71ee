"""Made-up folders of a curve, as its page and comparisons read them: a rehearsal, run folders, a tree."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from harness.endpoints.curve import Curve
from harness.endpoints.numbers.count_cache import Cached, count_key, write_cached
from harness.endpoints.rehearsal_record import Rehearsal, write_rehearsal
from harness.endpoints.run_folder import EVENTS, RUNS, SUMMARY
from harness.endpoints.samples import SAMPLE
from harness.endpoints.tree.build_tree import build_tree
from harness.endpoints.tree.system_file import read_system
from tests import endpoints_kit as kit
from tests.kit import parameters

S, MS = 10**9, 10**6


def rehearsal(root: Path, points: Iterable[str] | None = None, **changes: Any) -> Path:
    """A rehearsal with the run folders of these points; of all without names."""
    plan = kit.curve(**changes)
    write_plan(root, plan)
    for point in plan.points:
        if points is None or point.name in points:
            kit.write_run(root / RUNS / point.name, kit.point_run(point, plan))
    return root


def write_plan(root: Path, plan: Curve) -> None:
    """rehearsal.json alone."""
    run = kit.point_run(plan.points[0], plan)
    made = Rehearsal(
        curve=plan,
        input_file=run.input_file,
        dataset_sha256=run.dataset_sha256,
        parameters=parameters(),
        engine="sglang",
        started=run.started,
    )
    write_rehearsal(root, made)


def run_folders(root: Path, **changes: Any) -> Path:
    """Run folders of the official client."""
    return kit.write_runs(root, official=True, **changes)[0].parent


def tree(root: Path, **changes: Any) -> Path:
    """A tree that was built of a rehearsal; its curve is the one folder of a model."""
    return built(rehearsal(root / "rehearsed", **changes), root / "tree")


def built(folder: Path, output: Path, submitter: str = "MyOrg") -> Path:
    """The submission of a rehearsal in a tree; MyOrg is the example's name."""
    system = kit.write_system(folder, kit.SYSTEM.replace('"MyOrg"', f'"{submitter}"'))
    return build_tree([folder], read_system(system), output).submission


def change(folder: Path, how: Callable[[dict[str, Any]], None]) -> None:
    """Change the result_summary.json of a run folder, or of a point in a tree."""
    path = next(one for one in (folder / SUMMARY, folder / Path(SUMMARY).name) if one.is_file())
    found = json.loads(path.read_text())
    how(found)
    path.write_text(json.dumps(found))


def count(folder: Path, tpot_ms: Iterable[float], size: int, pass_s: float = 300.0) -> None:
    """Requests with counted tokens: one super-pass for each TPOT, a tenth up and down around it."""
    levels = list(tpot_ms)
    rows = np.zeros(len(levels) * size, np.dtype([*SAMPLE.descr, ("isl", "<i8"), ("finish", "<i8")]))
    spread = np.tile(np.linspace(0.9, 1.1, size), len(levels))
    rows["issued_ns"] = kit.EPOCH_NS + np.arange(len(rows)) * int(pass_s * S / size)
    rows["first_ns"] = rows["issued_ns"] + 100 * MS
    rows["output_tokens"], rows["suffix_tokens"] = 501, 500
    rows["complete_ns"] = rows["first_ns"] + (np.repeat(levels, size) * spread * MS * 500).astype(int)
    (folder / EVENTS).touch()
    write_cached(
        folder, count_key(folder / EVENTS, ()), Cached(rows, int(pass_s * S * len(levels)), True, "")
    )
