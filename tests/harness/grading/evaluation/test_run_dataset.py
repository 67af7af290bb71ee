"""References are compared with the dataset that run.json names: by sha256, then by what both files have."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.config.benchmark import load_benchmark
from harness.files import sha256_of
from harness.grading.evaluation.run_dataset import other_dataset, true_answers
from harness.record.run_record import RunRecord
from tests.harness.grading.samples import REFERENCE
from tests.records import ENDED, with_plan

SAMPLE = pq.read_table(REFERENCE)
ROWS = len(SAMPLE)
PROMPTS = SAMPLE.select(["input_tokens"])
SWAPPED = SAMPLE.take([ROWS - 1, *range(1, ROWS - 1), 0])
NAMED = SAMPLE.set_column(SAMPLE.column_names.index("dataset"), "dataset", pa.array(["mine"] * ROWS))
UNANSWERED = SAMPLE.set_column(SAMPLE.column_names.index("ground_truth"), "ground_truth", pa.nulls(ROWS))
WITHOUT_PROMPTS = SAMPLE.drop_columns(["input_tokens"])

# The run's dataset, the references, and the difference that is named: none where the score is the run's.
CASES = {
    "the same file": (SAMPLE, SAMPLE, None),
    "the same answers in another file": (SAMPLE, WITHOUT_PROMPTS, None),
    "answers to a dataset without any": (PROMPTS, SAMPLE, None),
    "answers alone to a dataset without any": (PROMPTS, WITHOUT_PROMPTS, None),
    "answers to a dataset with names of its own": (NAMED, SAMPLE, None),
    "answers to a dataset with an empty column": (UNANSWERED, SAMPLE, None),
    "another order of those names": (NAMED, SWAPPED, "row 0 has another prompt, as 2 of 96 rows have"),
    "another order": (SAMPLE, SWAPPED, "row 0 has another true answer, as 2 of 96 rows have"),
    "another order of the prompts": (PROMPTS, SWAPPED, "row 0 has another prompt, as 2 of 96 rows have"),
    "a part": (SAMPLE, SAMPLE.slice(0, 90), "it has 90 rows, the dataset 96"),
    "answers to a part": (PROMPTS, WITHOUT_PROMPTS.slice(0, 90), "it has 90 rows, the dataset 96"),
}


def stored(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


def of_run(dataset: Path) -> RunRecord:
    return with_plan(ENDED, mode="accuracy", input_file=dataset, dataset_sha256=sha256_of(dataset))


def compared(record: RunRecord, references: Path) -> str:
    return other_dataset(record, references, load_benchmark("gpt-oss-120b"))


@pytest.mark.parametrize("name", CASES)
def test_references_are_those_of_the_run(name, tmp_path):
    dataset, references, difference = CASES[name]
    asked, given = stored(tmp_path / "asked.parquet", dataset), stored(tmp_path / "given.parquet", references)
    found = compared(of_run(asked), given)
    if difference is None:
        assert found == ""
    else:
        pattern = rf"{given} has sha256 {sha256_of(given)[:12]}, the run's dataset is {asked} with "
        assert re.fullmatch(rf"{pattern}{sha256_of(asked)[:12]}: {difference}; .* --reference-data", found)


@pytest.mark.parametrize(
    "change",
    [Path.unlink, lambda path: stored(path, SWAPPED), lambda path: (path.unlink(), path.mkdir())],
    ids=["gone", "replaced", "a folder now"],
)
def test_a_dataset_that_is_not_here_any_more(change, tmp_path):
    asked, given = stored(tmp_path / "a.parquet", SAMPLE), stored(tmp_path / "b.parquet", WITHOUT_PROMPTS)
    record = of_run(asked)
    assert compared(record, given) == ""
    change(asked)
    assert "that file is not here to compare their rows" in compared(record, given)
    assert compared(record, stored(tmp_path / "c.parquet", SAMPLE)) == ""


def test_a_dataset_that_was_replaced_since_the_run_is_named_once(tmp_path):
    """It is what a command without --reference-data reads."""
    asked = stored(tmp_path / "a.parquet", SAMPLE)
    record = of_run(asked)
    stored(asked, SWAPPED)
    said = compared(record, asked)
    assert said.startswith(f"{asked} was changed or replaced since the run: ")
    assert "no score of it counts" in said and said.count(str(asked)) == 1


def test_a_dataset_out_of_reach_is_not_here(tmp_path, monkeypatch):
    """As in another user's home folder; a name of 300 characters is refused to root, too."""
    record = with_plan(of_run(stored(tmp_path / "a.parquet", SAMPLE)), input_file=tmp_path / ("x" * 300))
    given = stored(tmp_path / "given.parquet", WITHOUT_PROMPTS)
    assert "that file is not here to compare their rows" in compared(record, given)
    rule = load_benchmark("gpt-oss-120b").dataset(accuracy=True)
    monkeypatch.chdir(tmp_path)
    official = Path("data", rule.file)
    official.parent.mkdir(parents=True)
    given.rename(official)
    assert true_answers(record, rule) == official
