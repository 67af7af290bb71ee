"""All runs of a full-size submission, with the commands of a submitter.

    python -m tests.harness.submission.full_runs FOLDER [--official]

leaves FOLDER/results in five minutes; with --official, which keeps min_duration too, in half an hour.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.scenario import Scenario
from tests.harness.submission.building import run_program
from tests.made_up.synthetic import Answer, AnsweringServer, long_answers, make_datasets, truth

CONF = """\
*.Offline.target_qps = 9.0
*.Offline.min_duration = {duration_ms}
*.Offline.min_query_count = 6396
*.Server.target_qps = {qps}
*.Server.min_duration = {duration_ms}
*.Server.min_query_count = 6396
"""
MLPERF, TEST = "run_mlperf.py", "run_compliance.py"
TOKENS = {"offline": 1278, "server": 1290, "interactive": 1301}
# What a run on a busy machine says that was over a limit; then its command is repeated, as it advises.
STOOD, ATTEMPTS = ("was suspended for", "the machine was busy"), 6


@dataclass(frozen=True)
class Pace:
    """How long the performance runs last. The other runs always go as fast as they can."""

    duration_ms: int
    qps: float  # of the Server performance run
    offline_delay_s: float  # of each Offline answer
    concurrency: int = 64


# Far below what this client carries, since the run must be VALID on a busy machine, too: if that stands for
# three seconds, fewer than one query in a hundred is late.
QUICK = Pace(duration_ms=0, qps=40, offline_delay_s=0)
OFFICIAL = Pace(duration_ms=600_000, qps=10.5, offline_delay_s=4, concurrency=40)


@dataclass(frozen=True)
class Runs:
    """One scenario's runs, each against a server of its own."""

    folder: Path
    benchmark: str
    scenario: Scenario

    def run(self, program: str, conf: str, file: Path, answer: Answer, *more: object, **server: Any) -> None:
        """A run of the program with further flags; ``server`` are settings of the server."""
        words = ["--benchmark", self.benchmark, "--scenario", self.scenario, "--input-file", file]
        words += ["--user-conf", self.folder / conf, "--output-dir", self.folder / "results", *more]
        for left in reversed(range(ATTEMPTS)):
            try:
                with AnsweringServer(answer, **server) as running:
                    run_program(self.folder, program, *words, "--server-url", running.url)
                return
            except RuntimeError as error:
                if not left or not any(text in str(error) for text in STOOD):
                    raise

    def grade(self, reference: Path, *more: object) -> None:
        """accuracy.txt."""
        folder = self.folder / "results" / self.scenario / "accuracy"
        words = ["--benchmark", self.benchmark, "--mlperf-log", folder / "mlperf_log_accuracy.json"]
        printed = run_program(folder, "eval_mlperf_accuracy.py", *words, "--reference-data", reference, *more)
        (folder / "accuracy.txt").write_text(printed)


def run_all(
    folder: Path,
    scenarios: tuple[Scenario, ...] = (Scenario.OFFLINE, Scenario.INTERACTIVE),
    pace: Pace = QUICK,
) -> Path:
    """Every run of a closed submission; returns the results' folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data = make_datasets(folder)
    (folder / "user.conf").write_text(CONF.format(duration_ms=pace.duration_ms, qps=pace.qps))
    (folder / "fast.conf").write_text(CONF.format(duration_ms=pace.duration_ms, qps=150))
    for turn, scenario in enumerate(scenarios):
        runs, answer = Runs(folder, "gpt-oss-120b", scenario), long_answers(TOKENS[scenario])
        delay, most = pace.offline_delay_s if scenario == Scenario.OFFLINE else 0, pace.concurrency
        file = data.performance
        runs.run(MLPERF, "user.conf", file, answer, "--max-concurrency", most, first_delay_s=delay)
        runs.run(TEST, "fast.conf", file, answer, "--test", "TEST09")
        right = truth(data.rows, wrong_each=6.1 + turn / 20)
        runs.run(MLPERF, "fast.conf", data.accuracy, right, "--accuracy")
        runs.grade(data.accuracy, "--lcb-data", data.release)
        right = truth(data.rows, wrong_each=2.9 + turn / 20)
        runs.run(TEST, "fast.conf", data.compliance, right, "--test", "TEST07")
    return folder / "results"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--official", action="store_true", help="runs of official length")
    given = parser.parse_args()
    run_all(given.folder.absolute(), pace=OFFICIAL if given.official else QUICK)
