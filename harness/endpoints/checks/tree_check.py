"""All checks of an Endpoints tree, of a rehearsal's folder, or of run folders alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.endpoints.checks.checked_point import PointFiles, point_in_tree, point_of_run
from harness.endpoints.checks.curve_rules import check_curve
from harness.endpoints.checks.finding import Finding, finding
from harness.endpoints.checks.log_rules import Recompute, check_log
from harness.endpoints.checks.official_checker import check_officially
from harness.endpoints.checks.point_rules import check_files
from harness.endpoints.checks.recompute import recomputed_block
from harness.endpoints.run_folder import RUNS, TREE, runs_in
from harness.errors import ConfigError

_RESULTS = "results"
_LOOKS = "a folder with results/, a rehearsal's folder, or run folders with config.yaml"


def check_tree(
    path: Path, *, recompute: Recompute | None = recomputed_block, officially: bool = True
) -> Sequence[Finding]:
    """Findings by place. ``recompute`` gives the steady state of a run folder; with None it is not checked.

    Raises ConfigError where ``path`` holds neither a tree nor run folders.
    """
    try:
        return list(_checked(path.resolve(), recompute, officially=officially))
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: {error.strerror}; make it readable") from error


def _checked(path: Path, recompute: Recompute | None, *, officially: bool) -> Iterator[Finding]:
    if not path.is_dir():
        what = "is no folder" if path.exists() else "does not exist"
        raise ConfigError(f"{path}: {what}, expected {_LOOKS}")
    tree = submission_root(path)
    curves = (
        curves_of(tree, _runs(path, tree))
        if tree is not None
        else [[point_of_run(path, one) for one in runs_in(path)]]
    )
    if not any(curves):
        raise ConfigError(f"{path}: holds no point, expected {_LOOKS}")
    for points in curves:
        for one in points:
            yield from check_files(one)
            yield from () if one.scored_alone else check_log(one, recompute)
        yield from check_curve([one for one in points if not one.scored_alone])
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


def _runs(path: Path, tree: Path) -> Path | None:
    """The run folders of a rehearsal, to which the tree belongs."""
    near = [path, *list(tree.parents)[:3]]
    return next((folder / RUNS for folder in near if (folder / RUNS).is_dir()), None)


def curves_of(tree: Path, runs: Path | None) -> Sequence[Sequence[PointFiles]]:
    """The points of each system and model, by concurrency."""
    models = [one for one in sorted((tree / _RESULTS).glob("*/*")) if one.is_dir()]
    return [[point_in_tree(tree, folder, runs) for folder in _point_folders(model)] for model in models]


def _point_folders(model: Path) -> Sequence[Path]:
    found = [(int(one.name[1:]), one) for one in model.glob("r*") if one.is_dir() and _is_level(one.name)]
    return [folder for _, folder in sorted(found)]


def _is_level(name: str) -> bool:
    return name[1:].isascii() and name[1:].isdigit() and len(name) < 20
