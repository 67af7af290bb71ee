"""The synthetic submission of full size, and runs to build it from.

``tests/data/submission/made_up.tar.xz`` was built by ``full_runs --official`` and ``prepare_submission.py
build``, without src/: real logs of LoadGen 6.0.17, of runs of official length against a server that knew the
answers.
"""

import shutil
import socket
import tarfile
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from harness.config.scenario import Scenario
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
COMMIT = "77cbc39"  # of the recorded runs
SYSTEM = Path("closed/MyOrg/systems/made_up.json")


def unpack(folder: Path, *paths: Path) -> Path:
    """A fresh copy of the tree, or of the trees of other archives below one folder."""
    for path in paths or (ARCHIVE,):
        with tarfile.open(path) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # none before Python 3.11.4
            archive.extractall(folder)
    for results in (folder / "submission").rglob("closed/MyOrg/results"):
        source = results.with_name("src")
        source.mkdir()
        (source / "README.md").write_text("the code\n")
    return folder / "submission"


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder: the content of its small files alone, which takes a third of copyfile's time."""
    return shutil.copytree(
        source, target, copy_function=lambda one, to: Path(to).write_bytes(Path(one).read_bytes())
    )


def results_of(
    tree: Path,
    folder: Path,
    benchmark: str = "gpt-oss-120b",
    tests: Sequence[str] = ("TEST07", "TEST09"),
) -> Path:
    """The runs of such a tree, with accuracy logs of some KB instead of the full ones."""
    for scenario in ("Offline", "Interactive"):
        source, target = tree / RESULTS.with_name(benchmark) / scenario, folder / scenario.lower()
        shutil.copytree(source / "performance/run_1", target / "performance")
        shutil.copytree(source / "accuracy", target / "accuracy")
        for test in tests:
            shutil.copytree(source / test, target / test)
        for path in target.rglob("accuracy.txt"):
            path.write_text("".join(line for line in path.open() if not line.startswith("hash=")))
        for path in target.rglob("accuracy/mlperf_log_accuracy.json"):
            if "TEST06" in path.parts:  # submitted as it is
                continue
            path.write_text(accuracy_log(f"{benchmark}/{path.relative_to(folder).as_posix()}"))
        for name in ("performance", "accuracy", *(f"{test}/run" for test in tests)):
            path = target / name / "run.json"
            path.parent.mkdir(exist_ok=True)
            run_record(folder / "user.conf", name, benchmark, Scenario.parse(scenario)).write(path)
    shutil.copyfile(tree / RESULTS.with_name(benchmark) / "Offline/user.conf", folder / "user.conf")
    return folder


def accuracy_log(name: str, entries: int = 300) -> str:
    """A log in LoadGen's shape, different for each name."""
    data = name.encode().hex()
    rows = ",\n".join(f'{{ "seq_id" : {i}, "qsl_idx" : {i}, "data" : "{data}" }}' for i in range(entries))
    return f"[\n{rows}\n]\n"


def run_record(
    user_conf: Path,
    run: str = "performance",
    benchmark: str = "gpt-oss-120b",
    scenario: Scenario = Scenario.OFFLINE,
) -> RunRecord:
    """The recorded run, as if the full dataset had been run against SGLang on this machine.

    Its answers were others than those of the logs, so that their mean length and LoadGen's figures are left
    out.
    """
    command = ("/home/me/harness/run_mlperf.py", "--scenario", "offline", "--max-concurrency", "40")
    dataset = f"/data/{run.replace('/', '-')}.parquet"
    host = replace(ENDED.provenance.host, hostname=socket.gethostname())
    server = replace(
        ENDED.servers[0],
        url="http://localhost:30000",
        engine="SGLang",
        wire="sglang",
        version="0.5.23",
        model="openai/gpt-oss-120b",
        settings={"tp_size": 1, "dp_size": 8, "kv_cache_dtype": "fp8_e4m3"},
    )
    record = replace(
        ENDED,
        provenance=replace(
            ENDED.provenance,
            git=GitState(COMMIT, dirty=False),
            host=host,
            command=(*command, "--input-file", dataset),
        ),
        servers=(server,),
        deviations=(),
        verdict=RunVerdict("VALID", complete=True),
        statistics=ENDED.statistics and replace(ENDED.statistics, osl_mean=None),
        loadgen=None,
    )
    placement = replace(record.settled.placement, workers=4)
    record = with_plan(record, user_conf=user_conf, backend="sglang", samples=6396, placement=placement)
    record = with_plan(record, scenario=scenario, input_file=Path(dataset))
    return with_plan(record, benchmark=replace(record.plan.client.benchmark, name=benchmark))
