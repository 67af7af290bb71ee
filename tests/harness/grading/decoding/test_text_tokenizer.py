"""The benchmark's tokenizer for text: which one, and none of another model."""

import hashlib
import shutil

import pytest

from harness.config.benchmark import load_benchmark
from harness.dataset import tokenizer as o200k
from harness.errors import ConfigError
from harness.files import ROOT
from harness.grading.decoding.text_tokenizer import text_tokenizer

SAMPLES = ROOT / "datasets/samples"


def test_that_of_gpt_oss_is_built_in(tmp_path):
    found = text_tokenizer(load_benchmark("gpt-oss-120b"), tmp_path / "x.parquet")
    assert (found.name, found.sha256) == ("o200k_harmony", o200k.RANKS_SHA256)


def test_that_beside_the_dataset_or_a_given_one(tmp_path):
    benchmark, dataset = load_benchmark("deepseek-r1"), SAMPLES / "r1_sample.parquet"
    file = SAMPLES / "r1_sample_tokenizer.json"
    found = text_tokenizer(benchmark, dataset)
    assert (found.name, found.sha256) == (str(file), hashlib.sha256(file.read_bytes()).hexdigest())
    assert found.open().encode("<think>", add_special_tokens=False).ids == [128798]
    shutil.copy(file, tmp_path / "tokenizer.json")
    given = text_tokenizer(benchmark, dataset, str(tmp_path))
    assert (given.name, given.sha256) == (str(tmp_path / "tokenizer.json"), found.sha256)


@pytest.mark.parametrize(
    ("benchmark", "asked", "said"),
    [
        ("deepseek-r1", None, "pass --tokenizer"),  # none is here
        ("deepseek-r1", "nobody/nothing", "--tokenizer nobody/nothing"),
        ("deepseek-r1", str(SAMPLES / "cnn_sample_tokenizer.json"), "pass --tokenizer"),  # another model's
        ("gpt-oss-120b", str(SAMPLES / "cnn_sample_tokenizer.json"), "omit --tokenizer"),
    ],
)
def test_none_or_another_models_is_one_line(tmp_path, monkeypatch, benchmark, asked, said):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=said) as error:
        text_tokenizer(load_benchmark(benchmark), tmp_path / "x.parquet", asked)
    assert "\n" not in str(error.value)
