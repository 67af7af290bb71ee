"""All runs of a submission, of full size, as a submitter makes them.

    python -m tests.compliance.submission.full_runs FOLDER [--official]

leaves FOLDER/results in three minutes; with --official, which keeps min_duration too, in half an hour.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.compliance.submission.synthetic import (
    AnsweringServer,
    Datasets,
    long_answers,
    make_datasets,
    truth,
)
from tests.runs import ROOT

CONF = """\
*.Offline.target_qps = 9.0
*.Offline.min_duration = {duration_ms}
*.Offline.min_query_count = 6396
*.Server.target_qps = {qps}
*.Server.min_duration = {duration_ms}
*.Server.min_query_count = 6396
"""
AUDIT = """\
*.*.mode = 2
*.*.accuracy_log_rng_seed = 720381539243781796
*.*.accuracy_log_sampling_target = 10000
*.*.min_query_count = {samples}
*.*.min_duration = 0
*.*.performance_issue_unique = 1
*.*.sample_concatenate_permutation = 0
"""
TOKENS = {"offline": 1278, "server": 1290, "interactive": 1301}
VALID, INVALID = 0, 4


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

    def mlperf(self, conf: str, url: str, file: Path, *more: object, output: str = "results") -> None:
        words = ["run_mlperf.py", "--output-dir", self.folder / output, "--scenario", self.scenario]
        words += ["--user-conf", self.folder / conf, "--server-url", url, "--input-file", file, *more]
        _program(self.folder, {VALID} if output == "results" else {VALID, INVALID}, *words)


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
            _test09(runs, server.url)
        with AnsweringServer(truth(data.rows, wrong_each=6.1 + turn / 20)) as server:
            runs.mlperf("fast.conf", server.url, data.accuracy, "--accuracy")
        _grade(runs.results / "accuracy", data.accuracy, data)
        with AnsweringServer(truth(data.rows, wrong_each=2.9 + turn / 20)) as server:
            _test07(runs, server.url)
    return folder / "results"


def _program(folder: Path, codes: set[int], program: str, *words: object) -> str:
    command = [sys.executable, str(ROOT / program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode not in codes:
        raise RuntimeError(
            f"{program} exited {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout


def _grade(accuracy: Path, reference: Path, data: Datasets, codes: frozenset[int] = frozenset({0})) -> str:
    log = accuracy / "mlperf_log_accuracy.json"
    text = _program(
        accuracy,
        set(codes),
        "eval_mlperf_accuracy.py",
        *("--mlperf-log", log, "--reference-data", reference, "--lcb-data", data.release),
        *("--mode", "official"),
    )
    (accuracy / "accuracy.txt").write_text(text)
    return text


def _audited(runs: Runs, test: str, url: str, file: Path, samples: int) -> None:
    """A run with the test's audit settings; its logs in the test's structure."""
    audit = runs.folder / "audit.config"
    audit.write_text(AUDIT.format(samples=samples))
    runs.mlperf("fast.conf", url, file, "--audit-config", audit, output=test)
    source, target = runs.folder / test / runs.scenario / "performance", runs.results / test
    (target / "accuracy").mkdir(parents=True)
    (target / "performance/run_1").mkdir(parents=True)
    (source / "mlperf_log_accuracy.json").rename(target / "accuracy/mlperf_log_accuracy.json")
    for name in ("mlperf_log_summary.txt", "mlperf_log_detail.txt"):
        (source / name).rename(target / "performance/run_1" / name)


def _test07(runs: Runs, url: str) -> None:
    _audited(runs, "TEST07", url, runs.data.compliance, 990)
    folder = runs.results / "TEST07"
    text = _grade(folder / "accuracy", runs.data.compliance, runs.data, frozenset({0, 5}))
    score = text.rpartition("'exact_match': ")[2].split()[0]
    end = f"Accuracy score: {score}\nAccuracy threshold: 60.698\nAccuracy check pass: True\nTEST PASS\n"
    (folder / "verify_accuracy.txt").write_text(text + end)


def _test09(runs: Runs, url: str) -> None:
    _audited(runs, "TEST09", url, runs.data.performance, 6396)
    text = f"Total samples: 6396\nMean output tokens: {TOKENS[runs.scenario]:.2f}\n\nTEST PASS\n"
    (runs.results / "TEST09/verify_output_len.txt").write_text(text)


if __name__ == "__main__":
    run_all(Path(sys.argv[1]).absolute(), pace=OFFICIAL if "--official" in sys.argv else QUICK)
