"""A made-up benchmark with a text metric: a definition, a grader and a tokenizer are all that it takes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.config import choices
from harness.grading.decoding.output import Output, TextOutput
from harness.grading.decoding.output_decoder import DECODERS
from harness.grading.graders.grader import DatasetKind, Grader
from harness.grading.graders.grader_sets import GRADERS, GraderSet
from harness.grading.scoring.grade import (
    OF_LOGGED,
    AccuracyMetric,
    Grade,
    GradingMode,
    Task,
    Total,
    answered,
    scored,
)
from harness.loadgen_logs.accuracy_log import LogEntry, TokenIds
from harness.submission.tree.accuracy_files import parse_accuracy
from tests.harness.grading.conftest import Result, evaluated
from tests.harness.grading.logs import write_log

DEFINITION = (Path(__file__).parent / "made_up.toml").read_text()
KIND = DatasetKind("texts")
TRUTHS = ["one two three", "four", "five six"]


def overlap(text: str, truth: str) -> Grade:
    words = truth.split()
    share = sum(word in text.split() for word in words) / len(words)
    return scored({"overlap": share, "length": len(text), "number": 1}, text)


class Overlap(Grader):
    """The share of a reference's words that are in the output, and the characters of all outputs."""

    def check_reference(self, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError("a text")
        return value

    def official(self, output: Output, truth: str) -> Grade | Task:
        return overlap(output.text, truth)

    def strict(self, output: Output, truth: str) -> Grade | Task:
        raise AssertionError("it has no strict rules")


class Same(Overlap):
    """Right or wrong."""

    def official(self, output: Output, truth: str) -> Grade | Task:
        return answered(output.text, output.text == truth)


METRICS = {
    "overlap": AccuracyMetric(Total.PERCENT, 4),
    "length": AccuracyMetric(Total.SUM, 0),
    "number": AccuracyMetric(Total.SUM, 0),
}


def only(grader: Grader, metrics: Mapping[str, AccuracyMetric]) -> GraderSet:
    """A grader of official rules alone; samples without an entry are left out."""
    return GraderSet({KIND: grader}, metrics, missing_are_wrong=False, modes=(GradingMode.OFFICIAL,))


class Bytes:
    """The tokenizer: a token is a byte of UTF-8."""

    def output(self, entry: LogEntry) -> Output:
        return TextOutput(self.decode(entry.token_ids), len(entry.token_ids))

    def decode(self, ids: TokenIds) -> str:
        return bytes(ids.tolist()).decode()


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "made-up.toml").write_text(DEFINITION)
    monkeypatch.setattr(choices, "CONFIG_DIR", tmp_path)
    monkeypatch.setitem(GRADERS, "made-up", only(Overlap(), METRICS))
    monkeypatch.setitem(DECODERS, "bytes", lambda benchmark, tokenizer, limit: Bytes())
    pq.write_table(pa.table({"output": TRUTHS}), tmp_path / "reference.parquet")
    return tmp_path


def evaluate(folder: Path, texts: Sequence[str], *flags: object) -> Result:
    log = write_log(folder / "log.json", [list(text.encode()) for text in texts])
    words = ["--benchmark", "made-up", "--mlperf-log", log, "--reference-data", folder / "reference.parquet"]
    return evaluated(*words, *flags)


def test_a_log_is_scored_by_its_own_metrics_and_bounds(made_up: Path, monkeypatch: pytest.MonkeyPatch):
    flags = ("--output-file", "r.json", "--save-outputs", "outputs.parquet", "--disagreements", "look.md")
    monkeypatch.chdir(made_up)
    texts = ("two one and three", "no", "six or five, no: six")
    code, printed, _ = evaluate(made_up, texts, *flags, "--verbose")
    # 3 of 3, 0 of 1, 1 of 2; 17 + 2 + 20 characters
    assert code == 5
    assert printed.splitlines()[-1] == "{'overlap': 50.0000, 'length': 39, 'number': 3}"
    assert "9 published v0 runs: -2.0 standard deviations" in printed
    found = json.loads((made_up / "r.json").read_text())
    assert found["summary"] == {"total_samples": 3, "metrics": {"overlap": 50, "length": 39, "number": 3}}
    assert [found["target"]["metrics"][name]["met"] for name in ("overlap", "length")] == [False, True]
    assert (found["target"]["threshold"], found["target"]["metrics"]["overlap"]["highest"]) == (54, None)
    assert [row["scores"]["overlap"] for row in found["detailed_results"]] == [1, 0, 0.5]
    assert {row["is_correct"] for row in found["detailed_results"]} == {None}
    table = pq.read_table(made_up / "outputs.parquet").to_pydict()
    assert (table["overlap"], table["length"]) == ([1, 0, 0.5], [17, 2, 20])
    assert table["is_correct"] == [None] * 3


RIGHT_OF_LOGGED = """
[accuracy.exact_match]
reference = 60
passing = [1, inf]

[accuracy.tokens_per_sample]
reference = 8
passing = [0.9, 1.1]        # 7.2 to 8.8
"""


@pytest.mark.parametrize(
    ("texts", "right", "tokens", "code"),
    [
        (("one two three", "four", "5"), 2, 18, 5),  # too short
        (("one two three", "four", "five 6"), 2, 23, 0),
        (("one two three", "two", "five 6"), 1, 22, 5),
        (("one two three", "four", "five six seven"), 2, 31, 5),  # too long
        (("one two three", "four"), 2, 17, 5),  # one is missing
        (("two", "four seven"), 0, 13, 5),
    ],
)
def test_a_mean_over_the_log_is_printed_to_the_last_digit(
    texts: tuple[str, ...], right: int, tokens: int, code: int, made_up: Path, monkeypatch: pytest.MonkeyPatch
):
    """As upstream prints a dict; the checker reads every digit. A log that lacks a sample does not pass."""
    head, _, _ = DEFINITION.partition("[accuracy.overlap]")
    (made_up / "made-up.toml").write_text(head + RIGHT_OF_LOGGED)
    monkeypatch.setitem(GRADERS, "made-up", only(Same(), OF_LOGGED))  # as deepseek-r1's evaluator counts
    got, printed, _ = evaluate(made_up, texts)
    count = len(texts)
    expected = {"exact_match": 100 * right / count, "tokens_per_sample": tokens / count, "num-samples": count}
    assert printed.splitlines()[-1] == repr(expected)
    asked = ("exact_match", "tokens_per_sample")
    assert parse_accuracy(printed, asked).scores == {metric: (expected[metric],) for metric in asked}
    assert got == code
    said = "1 sample without an entry, left out, so that the target is not met: "
    assert (said in printed) is (count == 2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('tokenizer = "bytes"\n', "", "tokenizer of nobody/made-up"),
        ('tokenizer = "bytes"', 'tokenizer = "runes"', "tokenizer of nobody/made-up"),
        ("[accuracy.overlap]", "[accuracy.rouge1]", "rouge1"),
        ('["summary", "output"]', '["ground_truth"]', "no column ground_truth"),
    ],
)
def test_what_is_missing_is_said_in_one_line(old: str, new: str, said: str, made_up: Path):
    assert old in DEFINITION
    (made_up / "made-up.toml").write_text(DEFINITION.replace(old, new))
    code, printed, errors = evaluate(made_up, "abc")
    assert (code, printed, len(errors.splitlines())) == (2, "", 1)
    assert said in errors


def test_no_strict_rules_are_made_up(made_up: Path):
    code, _, errors = evaluate(made_up, "abc", "--mode", "strict")
    assert code == 2 and "--mode strict" in errors
