"""The tree that would be submitted, from run folders of either client.

``OUTPUT/<submitter>/<submission>/`` holds src/, docs/ and results/<system>/<model>/r<N>/. A tree with points
of this client is labelled: it is no result. tree.json beside it says which run folder became which point.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.endpoints.accuracy import scored_parts
from harness.endpoints.planning.cohorts import cohort_number
from harness.endpoints.planning.seed_sets import read_seed_sets
from harness.endpoints.run_folder import (
    ACCURACY,
    CONFIG,
    NOT_A_RESULT_FILE,
    POINT_YAML,
    SUMMARY,
    SYSTEM_DESC,
    SYSTEM_POWER,
    TREE_RECORD,
)
from harness.endpoints.tree.documents import documents, unwritten
from harness.endpoints.tree.missing_fields import missing, why_no_submission
from harness.endpoints.tree.point_files import CurveFacts, curve_facts, point_yaml, system_description
from harness.endpoints.tree.power import system_power
from harness.endpoints.tree.run_facts import RunFacts, read_runs, run_folders
from harness.endpoints.tree.starter import placeholders
from harness.endpoints.tree.system_file import SystemFile, document
from harness.errors import ConfigError
from harness.files import atomic_write
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.staging import Move, staging, take_place
from harness.yaml_files import write_yaml

SERVER_CONFIGS = "server_configs"
_SHORT = "short_rehearsal"
_COUNTS = ("unit_samples", "num_repeats", "total_samples")
_EARLIER = ".earlier"  # a file of a run folder that was there before


class Tree(msgspec.Struct, frozen=True):
    """What was built."""

    submission: Path
    """holds src/, docs/ and results/; what the official checker takes"""
    curve: Path
    """holds the points' folders"""
    points: Mapping[str, Path]
    """the run folder of each point, by the point's name"""
    label: str | None
    """None where the official client ran every point"""
    missing: tuple[str, ...]
    """what the rules ask for and nothing gives, each with its remedy"""
    unwritten: tuple[str, ...]
    """skeletons for the submitter to complete"""
    unwritable: tuple[str, ...]
    """run folders that did not take their point.yaml"""


def build_tree(
    folders: Iterable[Path],
    stated: SystemFile | None,
    output: Path,
    *,
    seed_sets: Path | None = None,
    target_cohort: str | None = None,
) -> Tree:
    """Build ``output`` from run folders, or from a rehearsal's folder. Raises ConfigError, OSError.

    Without ``stated`` everything in it is missing. ``seed_sets`` is a file of published ones, None for the
    built-in; ``target_cohort`` goes before that of the TOML. An earlier tree there is replaced once the new
    one is complete. The run folders get their point.yaml, system_desc.json and system_power.json, too, as
    the official upload of a run asks for.
    """
    given = None if seed_sets is None else read_seed_sets(seed_sets)
    _refuse_others(output)
    runs = read_runs(run_folders(folders))
    published = given or runs[0].rules.seed_sets
    if all(one.dedicated for one in runs):
        raise ConfigError(
            f"{runs[0].folder}: an Offline run alone; a curve has points at fixed concurrency, too"
        )
    system = stated or placeholders(runs)
    system = msgspec.structs.replace(system, target_cohort=target_cohort or system.target_cohort)
    if system.target_cohort:
        cohort_number(system.target_cohort)  # it is one
    of = curve_facts(system, runs, published)
    submission = _submission(of)
    curve = submission / "results" / system.system_id / _model_folder(runs, of)
    found = Tree(
        submission=output / submission,
        curve=output / curve,
        points={one.name: one.folder for one in runs},
        label=of.label,
        missing=tuple(missing(runs, of)),
        unwritten=tuple(unwritten(of)),
        unwritable=tuple(line for one in runs if (line := _complete_run_folder(one, of))),
    )
    with staging(output) as folder:
        tree = folder / "tree"
        _write_all(tree / submission, documents(runs, of))
        _write_all(tree / curve.parent, _power_file(of))
        for one in runs:
            _write_point(tree / curve / one.name, one, of)
        _write_all(tree, {TREE_RECORD: _json(_record(found, output))})
        if of.label:
            _write_all(tree, {NOT_A_RESULT_FILE: _label(runs, found).encode()})
        take_place(Move(tree, output), folder / "replaced")
    return found


def _refuse_others(output: Path) -> None:
    if output.is_dir() and any(output.iterdir()) and not (output / TREE_RECORD).is_file():
        raise ConfigError(f"--output {output}: it holds other files than a tree; name another folder")
    if output.exists() and not output.is_dir():
        raise ConfigError(f"--output {output}: it is a file, expected a folder")


def _submission(of: CurveFacts) -> Path:
    """``<submitter>/<submission>``; the name of a rehearsal's says what it is."""
    system = of.system
    suffix = f"-{of.label.replace(' ', '-')}" if of.label else ""
    return Path(system.submitter) / f"{system.submission_id}{suffix}"


def _model_folder(runs: Sequence[RunFacts], of: CurveFacts) -> str:
    named = of.system.model.model_name or runs[0].model_name
    if not named:
        raise ConfigError(
            f"{runs[0].folder / CONFIG}: the benchmark's model is not known from it; write model_name into "
            "[model] of the TOML, such as gpt-oss-120b"
        )
    if "/" in named or named.startswith("."):
        raise ConfigError(f"model_name is {named!r}, expected the rules' name such as llama3_1-8b")
    return named


def _write_point(folder: Path, one: RunFacts, of: CurveFacts) -> None:
    files = _described(one, of) | {
        CONFIG: (one.folder / CONFIG).read_bytes(),
        Path(SUMMARY).name: (one.folder / SUMMARY).read_bytes(),
        **{f"{SERVER_CONFIGS}/{path.name}": document(path) for path in of.system.docs.server_configs},
    }
    if one.run is not None:
        servers = msgspec.json.format(msgspec.json.encode(one.run.servers))
        files[f"{SERVER_CONFIGS}/servers.json"] = servers
        if command := one.run.provenance.server_command:
            files[f"{SERVER_CONFIGS}/command.txt"] = f"{command}\n".encode()
    if one.accuracy is not None:
        accuracy = one.accuracy.read_bytes()
        files[Path(ACCURACY).name] = _without_scores(accuracy) if one.is_short else accuracy
    _write_all(folder, files)


def _without_scores(accuracy: bytes) -> bytes:
    """The accuracy file of a short rehearsal: its metrics and counts are not the benchmark's by name, either.

    By their names the official checker would gate the score of a few samples.
    """
    found = msgspec.json.decode(accuracy)
    for entry in scored_parts(found):
        score = entry.get("score")
        named = score if isinstance(score, dict) else {"score": score}
        entry["score"] = {f"{_SHORT}_{name}": value for name, value in named.items()}
        for name in _COUNTS:
            entry[f"{_SHORT}_{name}"] = entry.pop(name, None)
    return _json(found)


def _complete_run_folder(one: RunFacts, of: CurveFacts) -> str | None:
    """Write what the official upload wants beside the client's files; what was there is kept."""
    try:
        for name, data in (_described(one, of) | _power_file(of)).items():
            path = one.folder / name
            earlier = path.with_name(f"{name}{_EARLIER}")
            if path.is_file() and path.read_bytes() != data and not earlier.exists():
                path.rename(earlier)
            with atomic_write(path) as file:
                file.write(data)
    except OSError as error:
        return f"{one.folder}: {error.strerror}; its {POINT_YAML} and {SYSTEM_DESC} are in the tree only"
    return None


def _described(one: RunFacts, of: CurveFacts) -> dict[str, bytes]:
    return {
        POINT_YAML: write_yaml(point_yaml(one, of)).encode(),
        SYSTEM_DESC: _json(system_description(one, of)),
    }


def _power_file(of: CurveFacts) -> dict[str, bytes]:
    """Of other divisions than Standardized only where it has a total: an incomplete one is an error."""
    if of.power.gaps and of.system.division != "Standardized":
        return {}
    return {SYSTEM_POWER: _json(system_power(of.system, of.power))}


def _record(found: Tree, output: Path) -> dict[str, Any]:
    return {
        "label": found.label,
        "submission": str(found.submission.relative_to(output)),
        "curve": str(found.curve.relative_to(output)),
        "points": {
            name: os.path.relpath(path.resolve(), output.resolve()) for name, path in found.points.items()
        },
        "missing": found.missing,
        "unwritten": found.unwritten,
    }


def _label(runs: Sequence[RunFacts], found: Tree) -> str:
    lines = why_no_submission(runs, [*found.missing, *found.unwritten])
    return "\n- ".join([f"This is {NOT_A_RESULT}, and no submission to MLPerf Endpoints:", *lines]) + "\n"


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Files of the tree that is not in its place yet."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
