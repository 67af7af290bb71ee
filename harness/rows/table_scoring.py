"""The command that scores a table of answers."""

from itertools import islice
from pathlib import Path

from harness.cli.commands import shown
from harness.config.benchmark import Benchmark
from harness.config.choices import DEFAULT_BENCHMARK
from harness.dataset.table import open_table
from harness.errors import DatasetError
from harness.grading.decoding.output_decoder import tokenizer_beside
from harness.grading.livecodebench.release import DEFAULT_RELEASE, find_release
from harness.report.next_step import scoring_command

_DATASET, _CODE = "dataset", "livecodebench"


def table_scoring_command(
    table: Path, dataset: Path, benchmark: Benchmark, tokenizer: str | None, rows: slice
) -> str:
    """The evaluator's command for the answers to these rows of a dataset, ready to paste.

    The answers are rows of the dataset, but may lie in another folder than what belongs to it: the tests of
    its programs, and the tokenizer, whose flag has the value ``tokenizer``.
    """
    if tokenizer is None and (beside := tokenizer_beside(dataset, benchmark)) is not None:
        tokenizer = str(shown(Path(beside)))
    more = [] if benchmark.name == DEFAULT_BENCHMARK else ["--benchmark", benchmark.name]
    if _has_code(dataset, rows):
        more += ["--lcb-data", str(shown(find_release(dataset) or DEFAULT_RELEASE))]
    return str(scoring_command(table, tokenizer, more))


def _has_code(dataset: Path, rows: slice) -> bool:
    """Whether any of the rows is a LiveCodeBench problem.

    A file without names of data sets cannot be graded.
    """
    try:
        names = islice(open_table(dataset).column(_DATASET), rows.start, rows.stop)
    except DatasetError:
        return False
    return any(isinstance(name, str) and _CODE in name.lower() for name in names)
