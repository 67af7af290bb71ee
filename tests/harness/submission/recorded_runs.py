"""All runs of closed submissions of llama3.1-8b, its edge form and deepseek-r1, as a submitter makes them.

    python -m tests.harness.submission.recorded_runs FOLDER [BENCHMARK...]

leaves FOLDER/<benchmark>/results of official length and FOLDER/<benchmark>/submission, in about a quarter of
an hour: the performance runs mostly wait, and go at the same time.
"""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.config.benchmark import load_benchmark
from harness.config.scenario import Scenario
from tests.harness.submission.building import run_program, write_info
from tests.made_up import cnn as made_up_cnn
from tests.made_up import deepseek_r1 as made_up_r1
from tests.made_up.cnn import ANSWER, DATACENTER, EDGE, END_OF_TURN, MadeUp
from tests.made_up.deepseek_r1 import DEEPSEEK
from tests.made_up.synthetic import Answer, AnsweringServer
from tests.stub.protocol import Facts, expected_ids

FACTS = Facts(
    model="meta-llama/Llama-3.1-8B-Instruct", served_name="Llama-3.1-8B-Instruct", vocab_size=128256
)
CONF = """\
*.Offline.target_qps = {offline}
*.Offline.min_duration = 600000
*.Offline.min_query_count = {rows}
*.Server.target_qps = {server}
*.Server.min_duration = 600000
*.SingleStream.target_latency = 250
*.SingleStream.min_duration = 600000
"""
_FAST = 500  # queries per second of Server where the rate does not matter
_IN_FLIGHT = 32
_LASTS_S = 640  # of Offline; one pass of Server lasts about 620 s
_SINGLE_S = 0.126  # of each query: 5000 last 630 s; LoadGen asks for 2 x 600 s / target_latency, and fills up


def ending(tokens: int = ANSWER) -> Answer:
    """The stubs' ids, and an end of the turn as the last token."""
    return lambda prompt: [*expected_ids(prompt, tokens - 1), END_OF_TURN]


@dataclass(frozen=True)
class Recipe:
    """The dataset of a benchmark, its scenarios, and its server: what it answers in runs and in tests."""

    write: Callable[[Path], MadeUp]
    answer: Answer
    short_answer: Answer
    facts: Facts = FACTS
    scenarios: tuple[Scenario, ...] = (Scenario.OFFLINE, Scenario.SERVER, Scenario.INTERACTIVE)


RECIPES = {
    DATACENTER: Recipe(lambda folder: made_up_cnn.write(folder, DATACENTER), ending(), ending(20)),
    EDGE: Recipe(
        lambda folder: made_up_cnn.write(folder, EDGE),
        ending(),
        ending(20),
        scenarios=(Scenario.OFFLINE, Scenario.SINGLE_STREAM),
    ),
    DEEPSEEK.name: Recipe(
        made_up_r1.write,
        made_up_r1.answers(),
        made_up_r1.answers(tokens=32, spread=0),
        Facts(model=DEEPSEEK.model, served_name=DEEPSEEK.name, vocab_size=DEEPSEEK.vocabulary_size),
    ),
}


@dataclass(frozen=True)
class Runs:
    """The runs of one scenario."""

    folder: Path
    benchmark: str
    scenario: Scenario
    data: MadeUp

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.benchmark]

    def performance(self) -> None:
        """A run of at least 600 s."""
        delay = _SINGLE_S if self.scenario.one_at_a_time else 0.0
        if self.scenario.one_query:
            delay = _LASTS_S * _IN_FLIGHT / _rows(self.benchmark)
        with self._server(self.recipe.answer, delay) as server:
            self._run("run_mlperf.py", "user.conf", server.url, "--max-concurrency", _IN_FLIGHT)

    def others(self) -> None:
        """The accuracy run and the compliance tests."""
        with self._server(self.recipe.answer) as server:
            self._run("run_mlperf.py", "fast.conf", server.url, "--accuracy")
        with self._server(self.recipe.short_answer) as server:
            for test in load_benchmark(self.benchmark).compliance:
                self._run("run_compliance.py", "fast.conf", server.url, "--test", test)

    def grade(self) -> None:
        """accuracy.txt."""
        accuracy = self.folder / "results" / self.scenario / "accuracy"
        words = ["--benchmark", self.benchmark, "--mlperf-log", accuracy / "mlperf_log_accuracy.json"]
        words += ["--reference-data", self.data.dataset, "--tokenizer", self.data.tokenizer]
        words += ["--lcb-data", self.data.release] if self.data.release else []
        (accuracy / "accuracy.txt").write_text(run_program(accuracy, "eval_mlperf_accuracy.py", *words))

    def _server(self, answer: Answer, delay_s: float = 0.0) -> AnsweringServer:
        return AnsweringServer(answer, first_delay_s=delay_s, facts=self.recipe.facts)

    def _run(self, program: str, conf: str, url: str, *more: object) -> None:
        words = ["--benchmark", self.benchmark, "--scenario", self.scenario, "--server-url", url]
        words += ["--input-file", self.data.dataset, "--user-conf", self.folder / conf]
        run_program(self.folder, program, *words, "--output-dir", self.folder / "results", *more)


def _rows(benchmark: str) -> int:
    return load_benchmark(benchmark).dataset(accuracy=True).samples


def prepare(folder: Path, benchmark: str) -> tuple[Runs, ...]:
    """The data and conf files of a benchmark's runs, and the runs to make."""
    folder.mkdir(parents=True)
    data = RECIPES[benchmark].write(folder)
    rows = _rows(benchmark)
    offline = int(rows / 660)  # one pass: LoadGen asks for 1.1 x 600 s x target_qps samples
    for name, server in (("user.conf", rows / 620), ("fast.conf", _FAST)):
        (folder / name).write_text(CONF.format(offline=offline, rows=rows, server=f"{server:.2f}"))
    return tuple(Runs(folder, benchmark, scenario, data) for scenario in RECIPES[benchmark].scenarios)


def run_all(folder: Path, benchmarks: Sequence[str]) -> None:
    """Every run of these benchmarks, their scores and trees."""
    runs = [run for benchmark in benchmarks for run in prepare(folder / benchmark, benchmark)]
    with ThreadPoolExecutor(len(runs)) as threads:
        waiting = [threads.submit(run.performance) for run in runs]
        for run in runs:
            run.others()
        for done in waiting:
            done.result()
    for run in runs:
        run.grade()
    for benchmark in benchmarks:
        build(folder / benchmark, benchmark)


def build(folder: Path, benchmark: str) -> None:
    """The tree of a benchmark's runs, which had a server each."""
    info = write_info(folder, system_type="edge" if benchmark == EDGE else "datacenter")
    words = ["build", "--benchmark", benchmark, "--results", folder / "results", "--submission", info]
    run_program(folder, "prepare_submission.py", *words, "--output", folder / "submission", "--servers-moved")


if __name__ == "__main__":
    run_all(Path(sys.argv[1]).absolute(), sys.argv[2:] or list(RECIPES))
