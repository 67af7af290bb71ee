"""All runs of closed submissions of llama3.1-8b, its edge form and deepseek-r1, as a submitter makes them.

    python -m tests.harness.submission.recorded_runs FOLDER [BENCHMARK...]

leaves FOLDER/<benchmark>/results of official length and FOLDER/<benchmark>/submission, in about a quarter of
an hour: the performance runs mostly wait, and go at the same time.
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.config.benchmark import load_benchmark
from harness.config.scenario import Scenario
from tests.harness.submission.building import run_program, write_info
from tests.harness.submission.full_runs import MLPERF, TEST, Runs
from tests.made_up import cnn as made_up_cnn
from tests.made_up import deepseek_r1 as made_up_r1
from tests.made_up.cnn import ANSWER, DATACENTER, EDGE, END_OF_TURN, MadeUp
from tests.made_up.deepseek_r1 import DEEPSEEK
from tests.made_up.synthetic import Answer
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


def _rows(benchmark: str) -> int:
    return load_benchmark(benchmark).dataset(accuracy=True).samples


def prepare(folder: Path, benchmark: str) -> MadeUp:
    """Write the data and conf files of a benchmark's runs."""
    folder.mkdir(parents=True)
    rows = _rows(benchmark)
    offline = int(rows / 660)  # one pass: LoadGen asks for 1.1 x 600 s x target_qps samples
    for name, server in (("user.conf", rows / 620), ("fast.conf", _FAST)):
        (folder / name).write_text(CONF.format(offline=offline, rows=rows, server=f"{server:.2f}"))
    return RECIPES[benchmark].write(folder)


def performance(runs: Runs, data: MadeUp) -> None:
    """A run of at least 600 s."""
    recipe, scenario = RECIPES[runs.benchmark], runs.scenario
    delay = _SINGLE_S if scenario.one_at_a_time else 0.0
    if scenario.one_query:
        delay = _LASTS_S * _IN_FLIGHT / _rows(runs.benchmark)
    server = {"first_delay_s": delay, "facts": recipe.facts}
    runs.run(MLPERF, "user.conf", data.dataset, recipe.answer, "--max-concurrency", _IN_FLIGHT, **server)


def others(runs: Runs, data: MadeUp) -> None:
    """The accuracy run and the compliance tests."""
    recipe = RECIPES[runs.benchmark]
    runs.run(MLPERF, "fast.conf", data.dataset, recipe.answer, "--accuracy", facts=recipe.facts)
    for test in load_benchmark(runs.benchmark).compliance:
        runs.run(TEST, "fast.conf", data.dataset, recipe.short_answer, "--test", test, facts=recipe.facts)


def run_all(folder: Path, benchmarks: Sequence[str]) -> None:
    """Every run of these benchmarks, their scores and trees."""
    made = {benchmark: prepare(folder / benchmark, benchmark) for benchmark in benchmarks}
    runs = [
        (Runs(folder / name, name, scenario), data)
        for name, data in made.items()
        for scenario in RECIPES[name].scenarios
    ]
    with ThreadPoolExecutor(len(runs)) as threads:
        waiting = [threads.submit(performance, *one) for one in runs]
        for one in runs:
            others(*one)
        for done in waiting:
            done.result()
    for scored, data in runs:
        programs = ["--lcb-data", data.release] if data.release else []
        scored.grade(data.dataset, "--tokenizer", data.tokenizer, *programs)
    for benchmark in benchmarks:
        build(folder / benchmark, benchmark)


def build(folder: Path, benchmark: str) -> None:
    """The tree of a benchmark's runs, which had a server each."""
    info = write_info(folder, system_type="edge" if benchmark == EDGE else "datacenter")
    words = ["build", "--benchmark", benchmark, "--results", folder / "results", "--submission", info]
    run_program(folder, "prepare_submission.py", *words, "--output", folder / "submission", "--servers-moved")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARK", default=list(RECIPES))
    given = parser.parse_args()
    run_all(given.folder.absolute(), given.benchmarks)
