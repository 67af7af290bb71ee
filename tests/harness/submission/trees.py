"""The synthetic submission of full size, and edits of its files.

``tests/data/submission/made_up.tar.xz`` was built by ``full_runs --official`` and ``prepare_submission.py
build``, without src/: real logs of LoadGen 6.0.17, of runs of official length against a server that knew the
answers.
"""

import json
import shutil
import socket
import tarfile
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness.record.provenance import GitState
from harness.record.run_record import RunRecord, RunVerdict
from tests.records import ENDED, with_plan
from tests.runs import ROOT

ARCHIVE = ROOT / "tests/data/submission/made_up.tar.xz"
# Trees of llama3.1-8b and llama3.1-8b-edge by benchmark, of recorded_runs, made likewise.
CNN_ARCHIVE = ROOT / "tests/data/submission/made_up_cnn.tar.xz"
# The tree of deepseek-r1 by its name, likewise.
R1_ARCHIVE = ROOT / "tests/data/submission/made_up_r1.tar.xz"
RESULTS = Path("closed/MyOrg/results/made_up/gpt-oss-120b")
SYSTEM = Path("closed/MyOrg/systems/made_up.json")
PREFIX = ":::MLLOG "


def unpack(folder: Path, *paths: Path) -> Path:
    """A fresh copy of the tree, or of the trees of other archives below one folder."""
    for path in paths or (ARCHIVE,):
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
    for results in (folder / "submission").rglob("closed/MyOrg/results"):
        source = results.with_name("src")
        source.mkdir()
        (source / "README.md").write_text("the code\n")
    return folder / "submission"


def results_of(tree: Path, folder: Path) -> Path:
    """The runs of such a tree, with accuracy logs of some KB instead of the full ones."""
    for scenario in ("Offline", "Interactive"):
        source, target = tree / RESULTS / scenario, folder / scenario.lower()
        shutil.copytree(source / "performance/run_1", target / "performance")
        shutil.copytree(source / "accuracy", target / "accuracy")
        for test in ("TEST07", "TEST09"):
            shutil.copytree(source / test, target / test)
        for path in target.rglob("accuracy.txt"):
            path.write_text("".join(line for line in path.open() if not line.startswith("hash=")))
        for path in target.rglob("accuracy/mlperf_log_accuracy.json"):
            path.write_text(accuracy_log(path.relative_to(folder).as_posix()))
        for name in ("performance", "accuracy", "TEST07/run", "TEST09/run"):
            path = target / name / "run.json"
            path.parent.mkdir(exist_ok=True)
            run_record(folder / "user.conf", name).write(path)
    (folder / "user.conf").write_text("*.Offline.min_query_count = 6396\n")
    return folder


def accuracy_log(name: str, entries: int = 300) -> str:
    """A log in LoadGen's shape, different for each name."""
    data = name.encode().hex()
    rows = ",\n".join(f'{{ "seq_id" : {i}, "qsl_idx" : {i}, "data" : "{data}" }}' for i in range(entries))
    return f"[\n{rows}\n]\n"


def run_record(user_conf: Path, run: str = "performance") -> RunRecord:
    """The recorded run, as if the full dataset had been run against SGLang on this machine."""
    command = ("/home/me/harness/run_mlperf.py", "--scenario", "offline", "--max-concurrency", "40")
    host = replace(ENDED.provenance.host, hostname=socket.gethostname())
    server = replace(
        ENDED.servers[0],
        url="http://localhost:30000",
        engine="SGLang",
        version="0.5.23",
        model="openai/gpt-oss-120b",
        settings={"tp_size": 1, "dp_size": 8, "kv_cache_dtype": "fp8_e4m3"},
    )
    record = replace(
        ENDED,
        provenance=replace(
            ENDED.provenance,
            git=GitState("77cbc39", dirty=False),
            host=host,
            command=(*command, "--input-file", f"/data/{run.replace('/', '-')}.parquet"),
        ),
        servers=(server,),
        deviations=(),
        verdict=RunVerdict("VALID", complete=True),
    )
    placement = replace(record.plan.placement, workers=4)
    return with_plan(record, user_conf=user_conf, backend="sglang", samples=6396, placement=placement)


def edit_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path.name} has no {old!r}"
    path.write_text(text.replace(old, new))


def edit_rows(path: Path, **values: Any) -> None:
    """Set values of a detail log by key; ``_`` in a name stands for itself, ``__`` for a dot."""
    wanted = {key.replace("__", "."): value for key, value in values.items()}
    lines = []
    for line in path.read_text().splitlines():
        row = json.loads(line.removeprefix(PREFIX))
        if row["key"] in wanted:
            row["value"] = wanted[row["key"]]
        lines.append(PREFIX + json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    keys = {json.loads(line.removeprefix(PREFIX))["key"] for line in lines}
    assert set(wanted) <= keys, set(wanted) - keys


def add_error(path: Path, message: str) -> None:
    """One more row, marked as an error, before the last."""
    lines = path.read_text().splitlines()
    row = json.loads(lines[-2].removeprefix(PREFIX))
    row |= {"key": "error_runtime", "value": message}
    row["metadata"]["is_error"] = True
    path.write_text("\n".join([*lines[:-1], PREFIX + json.dumps(row), lines[-1]]) + "\n")


def repeat_row(path: Path, key: str, value: Any, *, before: bool) -> None:
    """A second row of one key beside the first."""
    lines = path.read_text().splitlines()
    (at,) = (
        number for number, line in enumerate(lines) if json.loads(line.removeprefix(PREFIX))["key"] == key
    )
    row = json.loads(lines[at].removeprefix(PREFIX)) | {"value": value}
    lines.insert(at if before else at + 1, PREFIX + json.dumps(row))
    path.write_text("\n".join(lines) + "\n")


def edit_json(path: Path, **fields: Any) -> None:
    """Set fields; None removes one."""
    found = json.loads(path.read_text())
    found |= fields
    path.write_text(json.dumps({name: value for name, value in found.items() if value is not None}))
