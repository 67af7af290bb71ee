"""All runs of a full-size submission, with the commands of a submitter.

    python -m tests.harness.submission.full_runs FOLDER [--official]

leaves FOLDER/results in three minutes; with --official, which keeps min_duration too, in half an hour.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.harness.submission.building import run_program
from tests.made_up.synthetic import AnsweringServer, Datasets, long_answers, make_datasets, truth

CONF = """\
*.Offline.target_qps = 9.0
*.Offline.min_duration = {duration_ms}
*.Offline.min_query_count = 6396
*.Server.target_qps = {qps}
*.Server.min_duration = {duration_ms}
*.Server.min_query_count = 6396
"""
TOKENS = {"offline": 1278, "server": 1290, "interactive": 1301}


@dataclass(frozen=True)
class Pace:
    """How long the performance runs last. The other runs always go as fast as they can."""

    duration_ms: int
    qps: float  # of the Server performance run
    offline_delay_s: float  # of each Offline answer
    concurrency: int = 64


QUICK = Pace(duration_ms=0, qps=150, offline_delay_s=0)
OFFICIAL = Pace(duration_ms=600_000, qps=10.5, offline_delay_s=4, concurrency=40)


@dataclass(frozen=True)
class Runs:
    """One scenario's runs."""

    folder: Path
    scenario: str
    data: Datasets

    @property
    def results(self) -> Path:
        return self.folder / "results" / self.scenario

    def mlperf(self, conf: str, url: str, file: Path, *more: object) -> None:
        self._program("run_mlperf.py", conf, url, file, *more)

    def test(self, name: str, url: str, file: Path) -> None:
        self._program("run_compliance.py", "fast.conf", url, file, "--test", name)

    def _program(self, program: str, conf: str, url: str, file: Path, *more: object) -> None:
        words = ["--output-dir", self.folder / "results", "--scenario", self.scenario]
        words += ["--user-conf", self.folder / conf, "--server-url", url, "--input-file", file, *more]
        run_program(self.folder, program, *words)


def run_all(
    folder: Path, scenarios: tuple[str, ...] = ("offline", "interactive"), pace: Pace = QUICK
) -> Path:
    """Every run of a closed submission; returns the results' folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data = make_datasets(folder)
    (folder / "user.conf").write_text(CONF.format(duration_ms=pace.duration_ms, qps=pace.qps))
    (folder / "fast.conf").write_text(CONF.format(duration_ms=pace.duration_ms, qps=150))
    for turn, scenario in enumerate(scenarios):
        runs = Runs(folder, scenario, data)
        answer, delay = long_answers(TOKENS[scenario]), pace.offline_delay_s if scenario == "offline" else 0
        with AnsweringServer(answer, first_delay_s=delay) as server:
            runs.mlperf("user.conf", server.url, data.performance, "--max-concurrency", pace.concurrency)
        with AnsweringServer(answer) as server:
            runs.test("TEST09", server.url, data.performance)
        with AnsweringServer(truth(data.rows, wrong_each=6.1 + turn / 20)) as server:
            runs.mlperf("fast.conf", server.url, data.accuracy, "--accuracy")
        _grade(runs.results / "accuracy", data)
        with AnsweringServer(truth(data.rows, wrong_each=2.9 + turn / 20)) as server:
            runs.test("TEST07", server.url, data.compliance)
    return folder / "results"


def _grade(accuracy: Path, data: Datasets) -> None:
    log = accuracy / "mlperf_log_accuracy.json"
    words = ("--mlperf-log", log, "--reference-data", data.accuracy, "--lcb-data", data.release)
    (accuracy / "accuracy.txt").write_text(run_program(accuracy, "eval_mlperf_accuracy.py", *words))


if __name__ == "__main__":
    run_all(Path(sys.argv[1]).absolute(), pace=OFFICIAL if "--official" in sys.argv else QUICK)
