"""deepseek-r1's outputs in the ids of its sample's tokenizer: parts, defects, and logs of other models."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from harness.config.benchmark import load_benchmark
from harness.dataset.model_tokenizer import load_tokenizer
from harness.errors import ConfigError, GradingError
from harness.grading.decoding.model_decoder import ModelDecoder
from harness.grading.decoding.output_decoder import open_decoder
from harness.grading.scoring.grade import Reason
from harness.loadgen_logs.accuracy_log import AccuracyLog, LogEntry
from tests.harness.grading.conftest import evaluated
from tests.harness.grading.logs import write_log

SAMPLES = Path(__file__).parents[4] / "datasets" / "samples"
TOKENIZER, LLAMA = SAMPLES / "r1_sample_tokenizer.json", SAMPLES / "cnn_sample_tokenizer.json"
R1, LLAMA_8B = load_benchmark("deepseek-r1"), load_benchmark("llama3.1-8b")
END = 1
LIMIT = 100
LOOP = "it" + " is so, it is it" * 2000  # its last token is elsewhere in it, too


@pytest.fixture(scope="module")
def decoder() -> ModelDecoder:
    found = open_decoder(R1, str(TOKENIZER), LIMIT)
    assert isinstance(found, ModelDecoder)
    return found


def encoded(text: str) -> list[int]:
    return list(load_tokenizer(TOKENIZER).encode(text).ids)


@pytest.fixture
def logged(tmp_path: Path) -> Callable[[list[int]], LogEntry]:
    """The entry of these ids in a log."""
    return lambda ids: next(iter(AccuracyLog(write_log(tmp_path / "log.json", [ids]))))


@pytest.mark.parametrize(
    ("text", "ids", "whole", "final", "defect"),
    [
        ("Hm.\n</think>\n\nIt is 4.", [END], "Hm.\n</think>\n\nIt is 4.", "It is 4.", None),
        ("<think>\nHm.</think>4", [END], "<think>\nHm.</think>4", "4", None),
        ("Hm </think> no </think> 4 ", [END], "Hm </think> no </think> 4", "4", None),
        ("Hm.</think>", [END], "Hm.</think>", "", None),
        ("It is 4.", [END], "It is 4.", None, None),
        ("", [END], "", None, Reason.EMPTY),
        ("", [], "", None, Reason.EMPTY),
        (" \n", [END], "", None, Reason.EMPTY),
        ("Hm.</think>4", [0, 2, END, END], "Hm.</think>4", "4", None),  # special tokens are no text
        ("Hm.<｜User｜>4", [END], "Hm.<｜User｜>4", None, None),  # those of the template are, officially
        ("a" * 3 * LIMIT, [], "a" * 3 * LIMIT, None, Reason.TRUNCATED),
        (LOOP, [], LOOP.strip(), None, Reason.LOOPING),
        (LOOP, [END], LOOP.strip(), None, None),
    ],
)
def test_parts_of_an_output(decoder, logged, text, ids, whole, final, defect):
    ids = encoded(text) + ids
    output = decoder.output(logged(ids))
    assert (output.text, output.official_final, output.strict_final) == (whole, whole, final)
    assert output.has_final is (final is not None)
    assert output.tokens == len(ids)
    assert output.defect is defect


@pytest.mark.parametrize("token", [-1, R1.vocabulary_size, 200002])
def test_ids_of_another_model(decoder, logged, token):
    """Beyond the vocabulary."""
    with pytest.raises(GradingError, match=f"qsl_idx 0 .* {token}, "):
        decoder.output(logged([5, token, 6]))


def test_ids_without_a_token_are_scored_as_officially(tmp_path):
    """The model has 129280 ids, its tokenizer fewer.

    Texts, lengths and score of language/deepseek-r1/eval_accuracy.py (b66003e) on this log and tokenizer,
    with transformers 4.46.2.
    """
    strange = [100_000, 128_814, 129_279]
    answers = {  # the ids, the text that is left of them, the data set, the truth
        "boxed": ([*encoded("x</think>\\boxed{4"), strange[0], *encoded("2}"), END], "aime1983", "42"),
        "before": ([*encoded("x</think>"), *strange, *encoded("ANSWER: B"), END], "gpqa", "B"),
        "within": ([*encoded("x</think>ANSWER"), strange[2], *encoded(": C"), END], "mmlu_pro", "C"),
        "alone": (strange, "gpqa", "A"),
        "none": ([*encoded("ANSWER: A"), END], "gpqa", "B"),
    }
    texts = ["x</think>\\boxed{42}", "x</think>ANSWER: B", "x</think>ANSWER: C", "", "ANSWER: A"]
    log = write_log(tmp_path / "log.json", [ids for ids, *_ in answers.values()])
    frame = pd.DataFrame(
        [(name, truth) for _, name, truth in answers.values()], columns=["dataset", "ground_truth"]
    )
    frame.to_parquet(tmp_path / "r.parquet")
    result = evaluated(
        *("--benchmark", "deepseek-r1", "--mlperf-log", log, "--reference-data", tmp_path / "r.parquet"),
        *("--tokenizer", TOKENIZER, "--output-file", tmp_path / "r.json"),
    )
    assert result.code == 5, result.stderr  # exact_match is below the target
    metrics = json.loads((tmp_path / "r.json").read_text())["summary"]["metrics"]
    assert metrics == {"exact_match": 60.0, "tokens_per_sample": 7.0, "num-samples": 5}
    decoder = open_decoder(R1, str(TOKENIZER), LIMIT)
    assert [decoder.output(entry).text for entry in AccuracyLog(log)] == texts
    assert "WARNING: the tokenizer has no token for 8 ids in 4 outputs" in result.stdout


def renamed(folder: Path, source: Path, old: str, new: str) -> Path:
    """The folder of a sample's tokenizer with another name for a token."""
    folder.mkdir()
    (folder / "tokenizer.json").write_text(source.read_text().replace(json.dumps(old), json.dumps(new)))
    return folder


def test_tokenizers_of_other_models(tmp_path):
    """DeepSeek-V3's has no tokens of a thought."""
    deepseek_v3 = renamed(tmp_path / "v3", TOKENIZER, "</think>", "<｜place▁holder▁no▁799｜>")
    llama_3 = renamed(tmp_path / "llama", LLAMA, "<|eot_id|>", "</s>")
    (half := tmp_path / "half.json").write_text(LLAMA.read_text()[:3000])
    for benchmark, other, said in (
        (R1, deepseek_v3, "128799 .*deepseek-ai/DeepSeek-R1"),
        (R1, LLAMA, "deepseek-ai/DeepSeek-R1"),
        (LLAMA_8B, llama_3, "128009 .*'</s>'"),
        (LLAMA_8B, half, "half.json"),
        (LLAMA_8B, "nobody/nothing", "--tokenizer nobody/nothing"),
    ):
        with pytest.raises(ConfigError, match=said):
            open_decoder(benchmark, str(other), LIMIT)


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME"])
@pytest.mark.parametrize(
    ("benchmark", "name", "own", "other"),
    [
        (R1, "deepseek-ai--DeepSeek-R1", TOKENIZER, LLAMA),
        (LLAMA_8B, "meta-llama--Llama-3.1-8B-Instruct", LLAMA, TOKENIZER),
        (LLAMA_8B, "meta-llama--Meta-Llama-3.1-8B-Instruct", LLAMA, TOKENIZER),
    ],
    ids=["R1", "Llama", "Meta-Llama"],
)
def test_without_a_tokenizer(benchmark, name, own, other, variable, tmp_path, monkeypatch):
    """It is looked for in Hugging Face's cache, at the revision of the rules first."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(ConfigError, match=rf"{benchmark.model}.*tokenizer\.json.*--what model"):
        open_decoder(benchmark, None, LIMIT)
    snapshots = tmp_path / ("" if variable == "HF_HUB_CACHE" else "hub") / f"models--{name}" / "snapshots"
    for revision, file in (("0" * 40, other), (benchmark.model_revision, own)):
        (snapshots / revision).mkdir(parents=True)
        (snapshots / revision / "tokenizer.json").symlink_to(file)
    open_decoder(benchmark, None, LIMIT)
