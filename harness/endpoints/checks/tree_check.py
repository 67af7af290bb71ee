"""All checks of an Endpoints tree, of a rehearsal's folder, or of run folders alone."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.endpoints.checks.checked_point import PointFiles, point_in_tree, point_of_run
from harness.endpoints.checks.curve_rules import check_curve
from harness.endpoints.checks.finding import Finding, finding
from harness.endpoints.checks.log_rules import check_log
from harness.endpoints.checks.official_checker import check_officially
from harness.endpoints.checks.point_rules import check_files
from harness.endpoints.numbers.event_reader import silent
from harness.endpoints.official_files import read_table, table
from harness.endpoints.run_folder import TREE, TREE_RECORD, point_folders, runs_in
from harness.errors import ConfigError
from harness.grading.scoring.grade import Progress

_RESULTS = "results"
_LOOKS = "a folder with results/, a rehearsal's folder, or run folders with config.yaml"


def check_tree(path: Path, *, officially: bool = True, progress: Progress = silent) -> Sequence[Finding]:
    """Findings by place, with ``officially`` also those of MLCommons's checker.

    Raises ConfigError where ``path`` holds neither a tree nor run folders.
    """
    try:
        return list(_checked(path.resolve(), progress, officially=officially))
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: {error.strerror}; make it readable") from error


def _checked(path: Path, progress: Progress, *, officially: bool) -> Iterator[Finding]:
    if not path.is_dir():
        what = "is no folder" if path.exists() else "does not exist"
        raise ConfigError(f"{path}: {what}, expected {_LOOKS}")
    tree = submission_root(path)
    curves = _curves(tree) if tree is not None else [[point_of_run(path, one) for one in runs_in(path)]]
    if not any(curves):
        raise ConfigError(f"{path}: holds no point, expected {_LOOKS}")
    for points in curves:
        for one in points:
            yield from check_files(one)
            yield from () if one.scored_alone else check_log(one, progress)
        yield from check_curve(points)
    if officially and tree is not None:
        yield from _officially(tree, [found for points in curves for one in points for found in one.problems])


def _officially(tree: Path, problems: Sequence[Finding]) -> Iterator[Finding]:
    """MLCommons's checker reads YAML without limits."""
    refused = next((one for one in problems if one.rule == "unreadable" and one.path.endswith(".yaml")), None)
    if refused is None:
        yield from check_officially(tree)
    else:
        text = f"MLCommons's checker was not run, because {refused.path} cannot be read"
        yield finding("official-checker", ".", text, remedy="mend the file first")


def submission_root(path: Path) -> Path | None:
    """The folder that holds results/: this one, a rehearsal's tree, or the only one below it."""
    for folder in (path, path / TREE):
        if (folder / _RESULTS).is_dir():
            return folder
        found = [
            one.parent for pattern in ("*", "*/*") for one in sorted(folder.glob(f"{pattern}/{_RESULTS}"))
        ]
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            raise ConfigError(
                f"{folder}: holds {len(found)} submissions; pass one of them, such as {found[0]}"
            )
    return None


def _curves(tree: Path) -> Sequence[Sequence[PointFiles]]:
    """The points of each system and model, by concurrency."""
    models = [one for one in sorted((tree / _RESULTS).glob("*/*")) if one.is_dir()]
    return [[*_curve(tree, model)] for model in models]


def _curve(tree: Path, model: Path) -> Iterator[PointFiles]:
    runs = _run_folders(tree, model)
    for folder in point_folders(model):
        yield point_in_tree(tree, folder, runs.get(folder.name))


def _run_folders(tree: Path, model: Path) -> Mapping[str, Path]:
    """The run folders of which a curve was built, by its points' names; none where nothing says it."""
    for folder in (tree, *tree.parents[:2]):
        record = read_table(folder / TREE_RECORD)
        if not isinstance(record, str) and Path(str(record.get("curve"))).parts[-2:] == model.parts[-2:]:
            points = table(record, "points")
            return {name: Path(os.path.normpath(folder / str(path))) for name, path in points.items()}
    return {}
