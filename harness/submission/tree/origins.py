"""run.json of the runs of a submission: where they were made, and whether that is one place."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeGuard
from urllib.parse import urlsplit

from harness.cli.commands import shown
from harness.config.benchmark import DatasetRule
from harness.errors import ConfigError
from harness.files import RUN_RECORD
from harness.record.run_record import RunRecord
from harness.record.server_changes import HASH, folder_name, is_other_size

ADDRESS, FOLDER = "server", "folder of the model"
PLACES = (ADDRESS, FOLDER)
BESIDE = "MLPERF_BESIDE"  # the variable by which a campaign names the folders of a scenario's other runs
_REVISION, _WEIGHTS = "revision of the weights", "GB of weights"
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def read_record(path: Path) -> RunRecord | None:
    """The record, None where there is none. Raises ConfigError for a damaged one."""
    try:
        return RunRecord.read(path)
    except FileNotFoundError:
        return None


def origin_differences(records: Mapping[str, RunRecord]) -> Iterator[tuple[str, str]]:
    """Differences in origin between the runs of one scenario, as (field, text).

    ``records`` are by the name of the run. What is in ``PLACES`` may change while server and model do not.
    """
    known: dict[str, tuple[str, str | float]] = {}
    for name, record in records.items():
        for what, value in _origin(record).items():
            if not value:
                continue
            first_name, first = known.setdefault(what, (name, value))
            if _differ(first, value):
                yield what, f"{what} of {first_name} is {first}, of {name} {value}"
    yield from _path_differences(records)


def require_one_origin(record: RunRecord) -> None:
    """Raise ConfigError for a run that cannot be submitted with those that a campaign has of its scenario."""
    folders = [Path(one) for one in os.environ.get(BESIDE, "").split(os.pathsep) if one]
    found = {str(shown(folder)): read_record(folder / RUN_RECORD) for folder in folders}
    records = {name: one for name, one in found.items() if one is not None}
    differing = origin_differences({**records, "this run": record})
    if texts := [text for what, text in differing if what not in PLACES]:
        raise ConfigError(
            f"{'; '.join(texts)}: a submission takes no runs of one scenario that have different origins; "
            "use the servers, files and commit of the others, or begin all its runs anew: add --restart "
            f"{record.plan.client.benchmark.name}/{record.plan.scenario} to the campaign"
        )


def _differ(one: str | float, other: str | float) -> bool:
    """Whether two values differ; the memory of weights is measured, with an error."""
    if isinstance(one, float) and isinstance(other, float):
        return is_other_size(one, other)
    return one != other


def _origin(record: RunRecord) -> dict[str, str | float]:
    """The origin by field, "" or 0 where the record has none."""
    embedded, git = record.plan.client.backend == "embedded", record.provenance.git
    servers, rule = record.servers, _dataset_rule(record)
    # Equal servers count once: an accuracy run may do without some (--min-replicas).
    settings = {json.dumps(one.settings, sort_keys=True) for one in servers if one.settings}
    urls = {*(one.url for one in servers), *record.left_out}
    # vLLM, and SGLang without --served-model-name, call the path their model.
    models = {str(one.model) for one in servers if one.model is None or one.model != one.model_path}
    return {
        # An embedded server has another port in each run.
        ADDRESS: "" if embedded else _listed(urls),
        "engine": _listed({one.software for one in servers}),
        "model": _listed(models),
        _REVISION: _listed({one.revision for one in servers if _is_hash(one.revision)}),
        "weight version": _listed({one.weight_version for one in servers if one.weight_version}),
        _WEIGHTS: max((one.weights_gb for one in servers if one.weights_gb), default=0.0),
        "server settings": _listed(settings),
        "commit of the harness": "" if git is None else str(git),
        f"sha256 of the dataset ({rule.file})": record.settled.dataset_sha256,
        "sha256 of the tokenizer of texts": record.tokenizer_sha256,
    }


def _is_hash(revision: str | None) -> TypeGuard[str]:
    """Whether it names the weights for good, unlike a branch or a tag."""
    return revision is not None and HASH.fullmatch(revision) is not None


def _dataset_rule(record: RunRecord) -> DatasetRule:
    """The dataset that the rules have for a run."""
    plan = record.plan
    return plan.client.benchmark.dataset(accuracy=plan.accuracy) if plan.audit is None else plan.audit.dataset


def _path_differences(records: Mapping[str, RunRecord]) -> Iterator[tuple[str, str]]:
    """Runs whose servers have their model at other paths: in another folder, or another model."""
    by_run = {
        name: {one.model_path for one in run.servers if one.model_path} for name, run in records.items()
    }
    paths = [(name, found) for name, found in by_run.items() if found]
    for name, found in paths[1:]:
        first_name, first = paths[0]
        if first <= found or found <= first:  # an accuracy run may do without some servers
            continue
        before, now = records[first_name], records[name]
        alike = {folder_name(path) for path in first} == {folder_name(path) for path in found}
        what = FOLDER if alike or _same_weights(before, now) else "model path"
        if what != FOLDER or not any(one.router for one in (*before.servers, *now.servers)):
            yield what, f"{what} of {first_name} is {_listed(first)}, of {name} {_listed(found)}"


def _same_weights(before: RunRecord, now: RunRecord) -> bool:
    """Whether revision or memory of the weights are known of both runs and equal."""
    first, second = _origin(before), _origin(now)
    return any(
        first[what] and second[what] and not _differ(first[what], second[what])
        for what in (_REVISION, _WEIGHTS)
    )


def _listed(paths: Iterable[str]) -> str:
    return ", ".join(sorted(paths))


def servers_elsewhere(record: RunRecord, hostname: str) -> bool:
    """Whether the client or a server of the run was on another machine than this one."""
    here = all(is_here(server.url, hostname) for server in record.servers)
    return record.provenance.host.hostname != hostname or not here


def is_here(url: str, hostname: str) -> bool:
    """Whether a URL is plainly one of the machine of this name."""
    try:
        return urlsplit(url).hostname in (*_LOCAL, hostname.lower())
    except ValueError:  # of several machines in one: http://node[1-2]:30000
        return False
