"""llama3.1-8b's score: against the packages of its reference evaluator, and from the command line."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from msgspec import structs
from tokenizers import Tokenizer

from harness.config.benchmark import load_benchmark
from harness.config.rounds import benchmark_rules, current_round
from harness.errors import GradingError
from harness.grading.cli import main
from harness.grading.decoding.model_decoder import cleaned_up
from harness.grading.decoding.output import TextOutput
from harness.grading.graders import summaries as grader
from harness.grading.graders.rouge import ROUGE, by_line, compare
from harness.grading.score import total
from harness.submission.accuracy_files import parse_accuracy
from tests.harness.grading.conftest import Result, evaluated
from tests.harness.grading.graders.summaries import pairs
from tests.harness.grading.logs import array, entry
from tests.records import ENDED, with_plan

ROOT = Path(__file__).resolve().parents[4]
SAMPLES = ROOT / "datasets" / "samples"
REFERENCE, TOKENIZER = SAMPLES / "cnn_sample.json", SAMPLES / "cnn_sample_tokenizer.json"
# By nltk 3.8.1 with its english.pickle and rouge-score 0.1.2, on the pairs of summaries.py.
RECORDED = json.loads((ROOT / "tests/data/summaries/reference_evaluator.json").read_text("utf-8"))
ROWS = json.loads(REFERENCE.read_text("utf-8"))
END = 128009


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
    found = grader.Summaries(1).grade([grader.Summary(p.strip(), t) for p, t in pairs()], lambda *_: None)
    rows = [found[grader.Summary(p.strip(), t)].scores for p, t in pairs()]
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
    assert [by_line(text) for text, _ in RECORDED["texts"]] == [
        "\n".join(found) for _, found in RECORDED["texts"]
    ]
    import nltk

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
    assert list(grader.remarks(TextOutput(text, truncated=truncated), ARTICLE)) == expected


def kill_process(summaries: Sequence[grader.Summary]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_one_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grader, "_compare_all", kill_process)
    with pytest.raises(GradingError, match="killed"):
        grader.Summaries(1).grade([grader.Summary("a", str(n)) for n in range(300)], lambda *_: None)


def test_processes_give_the_same_scores():
    summaries = [grader.Summary(prediction, target) for prediction, target in dict.fromkeys(pairs(300))]
    assert len(summaries) > grader._FEW
    seen = []
    found = grader.Summaries(2).grade(summaries, lambda done, total, what: seen.append((done, total, what)))
    assert {task: grade.answer for task, grade in found.items()} == {s: by_line(s.text) for s in summaries}
    assert [found[s].scores["rougeLsum"] for s in summaries] == [
        compare(s.text, s.truth).fmeasure["rougeLsum"] for s in summaries
    ]
    assert seen[-1] == (len(found), len(found), "summaries")


def evaluate(log: Path, *flags: object, benchmark: str = "llama3.1-8b") -> Result:
    words = ["--benchmark", benchmark, "--mlperf-log", log]
    return evaluated(*words, "--reference-data", REFERENCE, "--tokenizer", TOKENIZER, *flags)


def ids_of(text: str) -> list[int]:
    return [*Tokenizer.from_file(str(TOKENIZER)).encode(text, add_special_tokens=False).ids, END]


def answers(count: int = len(ROWS)) -> list[list[int]]:
    """The references themselves, with the last two words left out."""
    return [ids_of(row["output"].rsplit(maxsplit=2)[0]) for row in ROWS[:count]]


def write(path: Path, outputs: Sequence[Sequence[int]], **form: object) -> Path:
    path.write_text(array(entry(index, ids, first="data", **form) for index, ids in enumerate(outputs)))
    return path


@pytest.fixture(params=["llama3.1-8b", "llama3.1-8b-edge"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def benchmark(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A definition whose bounds fit the samples: gen_len from 90 to 110 % of what ``answers`` have."""
    text = benchmark_rules(current_round(), name).read_text()
    length = sum(len(by_line(row["output"].rsplit(maxsplit=2)[0])) for row in ROWS)
    for metric, rule in load_benchmark(name).accuracy.items():
        shown = f"{rule.reference:g}" if metric != "gen_len" else str(int(rule.reference))
        begin = text.index(f"[accuracy.{metric}]")
        value = length if metric == "gen_len" else 50
        text = text[:begin] + text[begin:].replace(f"reference = {shown}", f"reference = {value}", 1)
    rules = tmp_path / f"{name}.toml"
    rules.write_text(text)
    monkeypatch.setattr("harness.config.benchmark.benchmark_rules", lambda round_name, benchmark: rules)
    return load_benchmark(name)


def test_a_log_is_scored(benchmark, tmp_path: Path):
    """The sample's log, decoded with its tokenizer, against the scores of the texts themselves."""
    log = write(tmp_path / "log.json", answers())
    files = ("--output-file", tmp_path / "r.json", "--save-outputs", tmp_path / "o.parquet")
    result = evaluate(log, *files, "--verbose", benchmark=benchmark.name)
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
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["remarks"]["empty"]["samples"] == []
    assert [row["scores"]["rougeL"] for row in written["detailed_results"]] == pytest.approx(
        [one.fmeasure["rougeL"] for one in expected]
    )
    table = pq.read_table(tmp_path / "o.parquet").to_pydict()
    assert table["rouge2"] == pytest.approx([one.fmeasure["rouge2"] for one in expected])
    assert table["extracted_answer"] == [one.text for one in expected]


@pytest.mark.parametrize(("words", "code"), [(0, 0), (5, 5), (-5, 5)])
def test_length_has_two_ends(words: int, code: int, benchmark, tmp_path: Path):
    """Five more words, or five fewer, for each summary: ROUGE stays above its bounds."""
    outputs = [
        ids_of(
            " ".join([*row["output"].split(), *["more"] * max(0, words)][: words - 2 if words < 1 else None])
        )
        for row in ROWS
    ]
    result = evaluate(write(tmp_path / "log.json", outputs), benchmark=benchmark.name)
    assert result.code == code, result.stdout
    assert ("gen_len FAIL" in result.stdout) == bool(code)
    assert all(f"{metric} FAIL" not in result.stdout for metric in ROUGE)


@pytest.mark.parametrize("name", ["llama3.1-8b"])
def test_each_form_of_a_log_gives_one_result(benchmark, tmp_path: Path):
    lines = {
        evaluate(write(tmp_path / f"{width}.json", answers(), width=width)).stdout.splitlines()[-1]
        for width in (4, 8)
    }
    assert len(lines) == 1


@pytest.mark.parametrize("name", ["llama3.1-8b"])
def test_missing_and_repeated_samples_are_named(benchmark, tmp_path: Path):
    """Missing ones are left out and no target is met; of several entries the first counts, as officially."""
    rows = [entry(index, ids) for index, ids in enumerate(answers())]
    log = tmp_path / "log.json"
    log.write_text(array([*rows, entry(3, ids_of("something else"))]))
    again = evaluate(log, "--output-file", tmp_path / "r.json")
    assert again.code == 0
    assert json.loads((tmp_path / "r.json").read_text())["repeated"] == [3]
    assert any(
        line.startswith("WARNING: 1 samples") and line.endswith(": 3") for line in again.stdout.splitlines()
    )
    log.write_text(array(row for index, row in enumerate(rows) if index != 5))
    result = evaluate(log, "--output-file", tmp_path / "r.json")
    assert result.code == 5
    assert json.loads((tmp_path / "r.json").read_text())["missing"] == [5]
    assert f"Total samples evaluated: {len(ROWS) - 1}\n" in result.stdout
    assert any(
        line.startswith("WARNING: 1 samples") and line.endswith(": 5") for line in result.stdout.splitlines()
    )
    metrics = json.loads((tmp_path / "r.json").read_text())["target"]["metrics"]
    assert all(metric["met"] for metric in metrics.values())


@pytest.mark.parametrize("name", ["llama3.1-8b"])
def test_outputs_that_need_a_look_are_counted_and_shown(benchmark, tmp_path: Path):
    outputs = answers()
    outputs[2], outputs[4], outputs[7] = [END], [*ids_of(ROWS[4]["input"] * 2)[:127], 13], ids_of("Ja. " * 20)
    log, report = write(tmp_path / "log.json", outputs), tmp_path / "look.md"
    result = evaluate(log, "--output-file", tmp_path / "r.json", "--report", report)
    remarks = json.loads((tmp_path / "r.json").read_text())["remarks"]
    assert {name: found["samples"] for name, found in remarks.items()} == {
        "empty": [2],
        "cut": [4],
        "copied": [4],
        "not_english": [7],
    }
    assert f"copied: 1 of {len(ROWS)}" in result.stdout and "    qsl_idx 4: " in result.stdout
    assert "scored (cut, copied)" in report.read_text()


def damaged(path: Path, change) -> Path:
    rows = json.loads(REFERENCE.read_text())
    path.write_text(change(rows))
    return path


def test_copies_that_could_not_be_looked_for_are_a_warning(tmp_path: Path):
    log = write(tmp_path / "log.json", answers())
    reference = damaged(
        tmp_path / "r.json", lambda rows: json.dumps([{"output": row["output"]} for row in rows])
    )
    assert "no prompts as text" not in evaluate(log).stdout
    assert "no prompts as text" in evaluate(log, "--reference-data", reference).stdout


BAD_REFERENCES = {
    "half a file": (lambda rows: json.dumps(rows)[:5000], "JSON"),
    "no column": (lambda rows: json.dumps([{"input": row["input"]} for row in rows]), "no column output"),
    "numbers": (lambda rows: json.dumps([{**row, "output": 7} for row in rows]), "row 0: output 7"),
    "shorter": (lambda rows: json.dumps(rows[:4]), "qsl_idx 4"),
    "no array": (lambda rows: json.dumps({"output": ["a"]}), "JSON"),
}


@pytest.mark.parametrize("name", BAD_REFERENCES)
def test_bad_references_are_one_line(name: str, tmp_path: Path):
    change, said = BAD_REFERENCES[name]
    reference = damaged(tmp_path / "reference.json", change)
    result = evaluate(write(tmp_path / "log.json", answers()), "--reference-data", reference)
    assert (result.code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert said in result.stderr


BAD_LOGS = {
    "ids beyond the vocabulary": (lambda: entry(0, [5, 128256]), "token 128256"),
    "int64 among int32": (
        lambda: entry(0, answers(1)[0]) + ",\n" + entry(1, answers(1)[0], width=8),
        "int64",
    ),
}


@pytest.mark.parametrize("name", BAD_LOGS)
def test_bad_logs_are_one_line(name: str, tmp_path: Path):
    make, said = BAD_LOGS[name]
    (tmp_path / "log.json").write_text(array([make()]))
    result = evaluate(tmp_path / "log.json")
    assert (result.code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert said in result.stderr


def test_a_log_of_another_benchmark_is_refused(tmp_path: Path):
    log = write(tmp_path / "mlperf_log_accuracy.json", answers())
    edge = structs.replace(ENDED.plan.benchmark, name="llama3.1-8b-edge")
    with_plan(ENDED, benchmark=edge).write(tmp_path / "run.json")
    result = evaluate(log)
    assert result.code == 2 and "--benchmark llama3.1-8b-edge" in result.stderr


def cached_in(folder: Path, model: str, source: Path, revision: str = "0e9e39f2") -> None:
    snapshot = folder / "hub" / f"models--{model.replace('/', '--')}" / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_bytes(source.read_bytes())


@pytest.mark.parametrize(
    "model", ["meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B-Instruct"]
)
def test_the_tokenizer_is_found_in_the_cache(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    words = ["--benchmark", "llama3.1-8b", "--mlperf-log", str(write(tmp_path / "log.json", answers()))]
    words += ["--reference-data", str(REFERENCE)]
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert main(words) == 2
    assert len(errors.getvalue().splitlines()) == 1 and "--tokenizer" in errors.getvalue()
    cached_in(tmp_path, model, TOKENIZER)
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(words) == 5  # scored; a sample of the dataset is too short


def test_another_models_tokenizer_is_refused(tmp_path: Path):
    other = TOKENIZER.read_text().replace("<|eot_id|>", "</s>")
    (tmp_path / "tokenizer.json").write_text(other)
    (tmp_path / "half.json").write_text(other[:3000])
    log = write(tmp_path / "log.json", answers())
    for given, said in (
        (tmp_path, "128009"),
        (tmp_path / "half.json", "half.json"),
        ("nobody/nothing", "--tokenizer nobody/nothing"),
    ):
        result = evaluate(log, "--tokenizer", given)
        assert (result.code, len(result.stderr.splitlines())) == (2, 1), given
        assert said in result.stderr


def is_worker(process: "psutil.Process") -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def test_nothing_is_left_running_after_an_interrupt(tmp_path: Path):
    """Ctrl-C reaches all processes of the terminal; the evaluator ends as interrupted, without tracebacks."""
    rows = [{**row, "output": f"{number}: {row['output']}"} for number in range(40) for row in ROWS]
    (tmp_path / "reference.json").write_text(json.dumps(rows))
    log = write(tmp_path / "log.json", answers() * 40)
    words = ["--benchmark", "llama3.1-8b", "--tokenizer", TOKENIZER, "--mlperf-log", log]
    words += ["--reference-data", tmp_path / "reference.json", "--num-lcb-workers", "2"]
    program = subprocess.Popen(
        [sys.executable, ROOT / "eval_mlperf_accuracy.py", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children: list[psutil.Process] = []
    while len(children) < 2 and program.poll() is None:
        children = [child for child in psutil.Process(program.pid).children() if is_worker(child)]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    if program.returncode in (0, 5):
        pytest.skip("it was faster than the interrupt")
    assert program.returncode == 130
    assert "Traceback" not in errors
    assert psutil.wait_procs(children, timeout=60)[1] == []
