"""llama3.1-8b's score: against the packages of its reference evaluator, and from the command line."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from harness.config import benchmark as definitions
from harness.config.benchmark import load_benchmark
from harness.config.rounds import benchmark_rules, current_round
from harness.errors import GradingError
from harness.grading.decoding.model_decoder import cleaned_up
from harness.grading.decoding.output import TextOutput
from harness.grading.graders import summaries as grader
from harness.grading.graders.summaries import ROUGE, by_line, compare
from harness.grading.scoring.accuracy_score import total
from harness.grading.scoring.grade import Reason
from harness.submission.tree.accuracy_files import parse_accuracy
from tests.harness.grading.conftest import Result, evaluated, quiet
from tests.harness.grading.graders.summaries import pairs
from tests.harness.grading.logs import array, entry, write_log

ROOT = Path(__file__).resolve().parents[4]
SAMPLES = ROOT / "datasets" / "samples"
REFERENCE, TOKENIZER = SAMPLES / "cnn_sample.json", SAMPLES / "cnn_sample_tokenizer.json"
# By nltk 3.8.1 with its english.pickle and rouge-score 0.1.2, on the pairs of summaries.py.
RECORDED = json.loads((ROOT / "tests/data/summaries/reference_evaluator.json").read_text("utf-8"))
ROWS = json.loads(REFERENCE.read_text("utf-8"))
END = 128009


@pytest.mark.engine
def test_each_score_is_that_of_rouge_score():
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(ROUGE, use_stemmer=True)
    assert len(pairs()) >= 200
    for prediction, target in pairs():
        found = compare(prediction, target)
        assert found.text == by_line(prediction)
        expected = scorer.score(by_line(target), found.text)
        assert found.fmeasure == {name: score.fmeasure for name, score in expected.items()}


def test_result_is_that_of_the_reference_evaluator():
    summaries = [grader.Summary(prediction.strip(), target) for prediction, target in pairs()]
    found = grader.SummaryRunner(1).grade(summaries, quiet)
    rows = [found[summary].scores for summary in summaries]
    totals = {name: f"{round(np.mean([row[name] for row in rows]) * 100, 4)}" for name in ROUGE}
    lengths = {name: int(sum(row[name] for row in rows)) for name in ("gen_len", "gen_num")}
    assert totals | lengths == RECORDED["result"]


# Means as fractions, and the string that str(round(100 * mean, 4)) gives, as in the reference evaluator.
@pytest.mark.parametrize(
    ("mean", "shown"),
    [(0.387792, "38.7792"), (0.401770, "40.177"), (0.4, "40.0"), (0.35793004, "35.793"), (1e-7, "0.0")],
)
def test_scores_are_printed_as_by_the_reference_evaluator(mean: float, shown: str):
    value = total(grader.METRICS["rouge1"], {"cnn": [mean]}, {})
    assert value.printed == f"'{shown}'"
    read = parse_accuracy(f"{{'rouge1': {value.printed}, 'gen_len': 7}}", ("rouge1", "gen_len"))
    assert (read.score("rouge1"), read.score("gen_len")) == (float(shown), 7)


def test_sentences_are_nltks():
    """90 recorded texts with abbreviations, quotes and other scripts; all others where nltk has its data."""
    import nltk

    for text, found in RECORDED["texts"]:
        assert by_line(text) == "\n".join(found)
    with contextlib.suppress(LookupError):
        for text in (text for pair in pairs() for text in pair):
            assert by_line(text) == "\n".join(nltk.sent_tokenize(text.strip()))


# By transformers 4.46.2.
CLEANED = json.loads((ROOT / "tests/data/summaries/cleaned_up.json").read_text("utf-8"))


@pytest.mark.parametrize(("text", "expected"), CLEANED)
def test_spaces_are_cleaned_up_as_by_transformers(text: str, expected: str):
    assert cleaned_up(text) == expected


ARTICLE = (
    "The bridge over the river was closed on Monday after engineers found cracks in two of its piers. "
    "Traffic is led over the old road, which takes half an hour longer, and ferries run at night. "
)
REMARKS = [
    ("", False, ["empty"]),
    ("   \n", False, ["empty"]),
    ("   \n", True, ["empty", "cut"]),
    ("The bridge has been closed, the council said.", False, []),
    ("The bridge has been closed, the", True, ["cut"]),
    (ARTICLE, False, ["copied"]),
    (ARTICLE.upper().replace(",", " -"), True, ["cut", "copied"]),
    (ARTICLE[:98] + "It will open again in May, says the town's council, which pays for it.", False, []),
    (
        "Summarize the following news article in 128 tokens. Please output the summary only.",
        False,
        ["copied"],
    ),
    ("Die Brücke ist seit Montag gesperrt, weil zwei Pfeiler Risse haben.", False, ["not_english"]),
    ("Le pont a été fermé lundi après la découverte de fissures dans deux piles.", False, ["not_english"]),
    ("橋は月曜日から閉鎖されている。二本の橋脚に亀裂が見つかった。", False, ["not_english"]),
    ("Bridge closed", False, []),
    ("12 34 56", False, []),
]


@pytest.mark.parametrize(("text", "truncated", "expected"), REMARKS)
def test_remarks(text: str, truncated: bool, expected: Sequence[str]):
    output = TextOutput(text, defect=Reason.TRUNCATED if truncated else None)
    assert list(grader.remarks(output, ARTICLE)) == expected


def kill_process(summary: grader.Summary) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.engine
def test_a_killed_process_is_one_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grader, "_compare", kill_process)
    with pytest.raises(GradingError) as ended:
        grader.SummaryRunner(1).grade([grader.Summary("a", str(n)) for n in range(300)], quiet)
    assert "--num-workers" in str(ended.value)


@pytest.mark.engine
def test_processes_give_the_same_scores():
    summaries = [grader.Summary(prediction, target) for prediction, target in dict.fromkeys(pairs(300))]
    assert len(summaries) > grader._FEW
    seen = []
    found = grader.SummaryRunner(2).grade(summaries, lambda *step: seen.append(step))
    assert len(found) == len(summaries)
    for summary, grade in found.items():
        assert (grade.answer, grade.scores["rougeLsum"]) == (
            by_line(summary.text),
            compare(summary.text, summary.truth).fmeasure["rougeLsum"],
        )
    assert seen[-1] == (len(found), len(found), "summaries")


def evaluate(log: Path, *flags: object, benchmark: str = "llama3.1-8b") -> Result:
    words = ["--benchmark", benchmark, "--mlperf-log", log, "--output-file", log.with_name("r.json")]
    return evaluated(*words, "--reference-data", REFERENCE, "--tokenizer", TOKENIZER, *flags)


def ids_of(text: str) -> list[int]:
    return [*Tokenizer.from_file(str(TOKENIZER)).encode(text, add_special_tokens=False).ids, END]


def answers() -> list[list[int]]:
    """The references themselves, with the last two words left out."""
    return [ids_of(row["output"].rsplit(maxsplit=2)[0]) for row in ROWS]


@pytest.fixture(params=["llama3.1-8b", "llama3.1-8b-edge"])
def benchmark(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A definition whose bounds fit the samples: gen_len from 90 to 110 % of what ``answers`` have."""
    text = benchmark_rules(current_round(), request.param).read_text()
    length = sum(len(by_line(row["output"].rsplit(maxsplit=2)[0])) for row in ROWS)
    for metric, rule in load_benchmark(request.param).accuracy.items():
        shown = f"{rule.reference:g}" if metric != "gen_len" else str(int(rule.reference))
        begin = text.index(f"[accuracy.{metric}]")
        value = length if metric == "gen_len" else 50
        text = text[:begin] + text[begin:].replace(f"reference = {shown}", f"reference = {value}", 1)
    rules = tmp_path / "rules.toml"
    rules.write_text(text)
    monkeypatch.setattr(definitions, "benchmark_rules", lambda round_name, benchmark: rules)
    return load_benchmark(request.param)


def test_a_log_is_scored(benchmark, tmp_path: Path):
    """The sample's log, decoded with its tokenizer, against the scores of the texts themselves."""
    log = write_log(tmp_path / "log.json", answers())
    result = evaluate(log, "--save-outputs", tmp_path / "o.parquet", "--verbose", benchmark=benchmark.name)
    assert result.code == 0, result.stderr + result.stdout
    assert f"Total samples evaluated: {len(ROWS)}" in result.stdout
    expected = [compare(cleaned_up(row["output"].rsplit(maxsplit=2)[0]), row["output"]) for row in ROWS]
    printed = parse_accuracy(result.stdout, benchmark.accuracy)
    assert printed.score("gen_len") == sum(len(one.text) for one in expected)
    for metric in ROUGE:
        mean = 100 * sum(one.fmeasure[metric] for one in expected) / len(expected)
        assert printed.score(metric) == round(mean, 4)
    assert result.stdout.splitlines()[-1].startswith("{'rouge1': '")
    assert result.stdout.splitlines()[-1].endswith(f", 'gen_num': {len(ROWS)}}}")
    assert "no prompts as text" not in result.stdout
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["remarks"]["empty"]["samples"] == []
    assert [row["scores"]["rougeL"] for row in written["detailed_results"]] == pytest.approx(
        [one.fmeasure["rougeL"] for one in expected]
    )
    table = pq.read_table(tmp_path / "o.parquet").to_pydict()
    assert table["rouge2"] == pytest.approx([one.fmeasure["rouge2"] for one in expected])
    assert table["extracted_answer"] == [one.text for one in expected]


def test_flags_of_programs_have_no_effect_on_summaries(tmp_path: Path):
    """--restart has what it asks for: every summary is graded again."""
    flags = ("--lcb-data nowhere", "--allow-unsandboxed")
    result = evaluate(write_log(tmp_path / "log.json", answers()), *" ".join(flags).split(), "--restart")
    said = [line for line in result.stderr.splitlines() if "has no effect: there is no program" in line]
    assert [line.removeprefix("WARNING: ").partition(" has")[0] for line in said] == list(flags)


def test_missing_and_repeated_samples_are_named(tmp_path: Path):
    """Missing ones are left out and no target is met; of several entries the first counts, as officially."""
    rows = [entry(index, ids) for index, ids in enumerate(answers()) if index != 5]
    log = tmp_path / "log.json"
    log.write_text(array([*rows, entry(3, ids_of("something else"))]))
    result = evaluate(log, "--verbose")
    written = json.loads((tmp_path / "r.json").read_text())
    assert (written["repeated"], written["missing"]) == ([3], [5])
    third = cleaned_up(ROWS[3]["output"].rsplit(maxsplit=2)[0])
    assert written["detailed_results"][3]["scores"]["gen_len"] == len(by_line(third))
    assert f"Total samples evaluated: {len(ROWS) - 1}\n" in result.stdout
    warnings = [line for line in result.stdout.splitlines() if line.startswith("WARNING: 1 sample ")]
    assert {warning[-3:] for warning in warnings} == {": 3", ": 5"}


def test_outputs_that_need_a_look_are_counted_and_shown(tmp_path: Path):
    outputs = answers()
    outputs[2], outputs[4], outputs[7] = [END], [*ids_of(ROWS[4]["input"] * 2)[:127], 13], ids_of("Ja. " * 20)
    log, report = write_log(tmp_path / "log.json", outputs), tmp_path / "look.md"
    result = evaluate(log, "--report", report)
    remarks = json.loads((tmp_path / "r.json").read_text())["remarks"]
    assert {name: found["samples"] for name, found in remarks.items()} == {
        "empty": [2],
        "cut": [4],
        "copied": [4],
        "not_english": [7],
    }
    assert f"copied: 1 of {len(ROWS)}" in result.stdout and "    qsl_idx 4, 128 tokens: " in result.stdout
    assert "    qsl_idx 2, 1 token: no text" in result.stdout
    assert "trict" not in result.stdout
    assert "cnn_dailymail: cut, copied (1)" in report.read_text()


# What a reference becomes, the exit code, and what is printed about it.
REFERENCES = {
    "no prompts": (
        lambda rows: json.dumps([{"output": row["output"]} for row in rows]),
        "no prompts as text",
    ),
    "half a file": (lambda rows: json.dumps(rows)[:5000], "JSON"),
    "no column": (lambda rows: json.dumps([{"input": row["input"]} for row in rows]), "no column output"),
    "numbers": (lambda rows: json.dumps([{**row, "output": 7} for row in rows]), "row 0: output 7"),
    "shorter": (lambda rows: json.dumps(rows[:4]), "qsl_idx 4"),
    "no array": (lambda rows: json.dumps({"output": ["a"]}), "JSON"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_references_that_are_not_as_they_should_be(name: str, tmp_path: Path):
    """Copies that cannot be looked for are a warning; anything else is refused in one line."""
    change, said = REFERENCES[name]
    reference = tmp_path / "reference.json"
    reference.write_text(change(ROWS))
    result = evaluate(write_log(tmp_path / "log.json", answers()), "--reference-data", reference)
    if name == "no prompts":
        assert result.code == 5 and said in result.stdout
    else:
        assert (result.code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
        assert said in result.stderr


def workers(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [child for child in process.children() if "spawn_main" in " ".join(child.cmdline())]
    return []


@pytest.mark.engine
def test_nothing_is_left_running_after_an_interrupt(tmp_path: Path):
    """Ctrl-C reaches all processes of the terminal; the evaluator ends as interrupted, without tracebacks."""
    rows = [{**row, "output": f"{number}: {row['output']}"} for number in range(40) for row in ROWS]
    (tmp_path / "reference.json").write_text(json.dumps(rows))
    log = write_log(tmp_path / "log.json", answers() * 40)
    words = ["--benchmark", "llama3.1-8b", "--tokenizer", TOKENIZER, "--mlperf-log", log]
    words += ["--reference-data", tmp_path / "reference.json", "--num-lcb-workers", "1"]
    program = psutil.Popen(
        [sys.executable, ROOT / "eval_mlperf_accuracy.py", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children: list[psutil.Process] = []
    while not children and program.poll() is None:
        children = workers(program)
    for child in children:
        blocked = re.findall(r"SigBlk:\s(\w+)", Path(f"/proc/{child.pid}/status").read_text())
        assert int(blocked[0], 16) >> signal.SIGINT - 1 & 1
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    if program.returncode in (0, 5):
        pytest.skip("it was faster than the interrupt")
    assert program.returncode == 130
    assert "Traceback" not in errors
    assert psutil.wait_procs(children, timeout=60)[1] == []
