"""The command that scores a table of answers."""

import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.config.benchmark import load_benchmark
from harness.grading.evaluation_options import build_parser
from harness.rows.table_scoring import table_scoring_command
from tests.runs import ACCURACY, ROOT, SAMPLES

GPT_OSS, LLAMA, R1 = map(load_benchmark, ("gpt-oss-120b", "llama3.1-8b", "deepseek-r1"))
NAMES = ["aime25", "livecodebench_v6", "gpqa_diamond"]


def parquet(path, names):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"dataset": names, "input_tokens": [[1]] * len(names)}), path)
    return path


def of_table(dataset, benchmark=GPT_OSS, tokenizer=None, rows=slice(None)):
    """The flags of the command for a table that has answers to the dataset."""
    _, _, *flags = shlex.split(table_scoring_command(ACCURACY, dataset, benchmark, tokenizer, rows))
    return build_parser().parse_args(flags)


@pytest.mark.parametrize(
    ("names", "rows", "expected"),
    [
        (NAMES, slice(0, 3), True),
        (NAMES, slice(0, 1), False),
        (NAMES, slice(1, 2), True),
        (NAMES, slice(2, 3), False),
        (NAMES[:1], slice(0, 1), False),
        ([None, "LiveCodeBench"], slice(0, 2), True),
    ],
)
def test_tests_of_programs_are_named_where_there_are_programs(tmp_path, names, rows, expected):
    """Else the evaluator says of them that they have no effect."""
    flags = of_table(parquet(tmp_path / "acc/set.parquet", names), rows=rows)
    found = None if flags.lcb_data is None else flags.lcb_data.absolute()
    assert found == (ROOT / "data/livecodebench" if expected else None)


def test_the_download_beside_the_dataset_is_used(tmp_path):
    path = parquet(tmp_path / "elsewhere/acc/acc_eval_ref.parquet", NAMES)
    (tmp_path / "elsewhere/livecodebench").mkdir()
    assert of_table(path).lcb_data == tmp_path / "elsewhere/livecodebench"


def test_a_dataset_that_is_gone_has_no_programs(tmp_path):
    flags = of_table(tmp_path / "set.parquet", R1)
    assert (flags.lcb_data, flags.benchmark) == (None, "deepseek-r1")


@pytest.mark.parametrize(
    ("benchmark", "there", "named"),
    [
        (LLAMA, "cnn_eval_tokenizer.json", True),
        (LLAMA, "models/Llama-3.1-8B-Instruct/tokenizer.json", True),
        (LLAMA, "models/gpt-oss-120b/tokenizer.json", False),
        (LLAMA, None, False),
        (GPT_OSS, "cnn_eval_tokenizer.json", False),
    ],
)
def test_a_tokenizer_that_is_there_is_named(tmp_path, benchmark, there, named):
    """gpt-oss's is built in."""
    dataset = tmp_path / "cnn_eval.json"
    if there:
        (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / there).write_text("{}")
    flags = of_table(dataset, benchmark)
    assert (flags.tokenizer is not None) is named
    if named:
        assert tmp_path / there in (Path(flags.tokenizer), Path(flags.tokenizer) / "tokenizer.json")


def test_a_table_of_outputs_is_scored_by_itself(tmp_path, monkeypatch):
    """It has the true answers."""
    monkeypatch.chdir(tmp_path)
    flags = of_table(SAMPLES / "r1_sample.parquet", R1)
    assert (flags.mlperf_log, flags.reference_data, flags.benchmark) == (ACCURACY, None, R1.name)
    assert Path(flags.tokenizer) == SAMPLES / "r1_sample_tokenizer.json"
    assert flags.lcb_data == SAMPLES / "code_sample.jsonl"
    assert of_table(SAMPLES / "r1_sample.parquet", R1, "asked").tokenizer == "asked"
