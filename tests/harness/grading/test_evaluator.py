"""The evaluator from its command line: log in, score, files and exit code out."""

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from harness.config.benchmark import load_benchmark
from harness.dataset import tokenizer
from harness.files import GRADING_PROGRESS
from harness.grading.cli import main
from harness.grading.graders import LIVECODEBENCH
from harness.grading.reports import progress
from harness.grading.sandbox.tiers import Tier
from tests.harness.grading.conftest import Result, evaluated
from tests.harness.grading.logs import array, entry, harmony_ids, write_log
from tests.harness.grading.samples import REFERENCE, RELEASE, references, right_answer
from tests.records import ENDED, with_plan

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lcb")
    copy = folder / "release.jsonl"
    copy.write_bytes(RELEASE.read_bytes())
    return copy


def outputs(wrong: set[int] = frozenset()) -> list[list[int]]:  # type: ignore[assignment]
    return [
        harmony_ids("I do not know." if i in wrong else right_answer(row))
        for i, row in enumerate(references())
    ]


def arguments(log: Path, release: Path, *flags: object) -> list[str]:
    return list(map(str, ["--mlperf-log", log, "--reference-data", REFERENCE, "--lcb-data", release, *flags]))


def evaluate(log: Path, release: Path, *flags: object) -> Result:
    with contextlib.chdir(log.parent):
        return evaluated(*arguments(log, release, *flags))


def test_the_program_as_it_is_called(tmp_path: Path, release: Path):
    log = write_log(tmp_path / "log.json", outputs())
    command = [sys.executable, str(ROOT / "eval_mlperf_accuracy.py"), *arguments(log, release)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n'exact_match': 100.000\n")


def test_a_perfect_log_scores_100_in_both_modes(tmp_path: Path, release: Path):
    log = write_log(tmp_path / "mlperf_log_accuracy.json", outputs())
    saved, report = tmp_path / "outputs.parquet", tmp_path / "report.html"
    result = evaluate(log, release, "--output-file", tmp_path / "r.json", "--save-outputs", saved,
                      "--report", report, "--verbose")  # fmt: skip
    assert result.code == 0, result.stderr
    assert re.search(r"^'exact_match': 100\.000$", result.stdout, re.MULTILINE)
    assert re.search(r"^FINAL SCORE: 100\.00% \(18\.00/18\.00\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^aime25 +48 +48 +8 +6\.00 +100\.00%$", result.stdout, re.MULTILINE)
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["summary"]["final_score_percentage"] == 100
    assert written["modes"]["strict"]["total_correct"] == 96
    assert [row["qsl_idx"] for row in written["detailed_results"]] == list(range(96))
    table = pq.read_table(saved).to_pylist()
    assert [row["qsl_idx"] for row in table] == list(range(96))
    assert table[5]["output_token_ids"] == outputs()[5]
    assert table[5]["model_output"].startswith("<|channel|>analysis<|message|>Let me think.<|end|>")
    assert "0 samples" in report.read_text()


def test_below_the_target_the_exit_code_is_5(tmp_path: Path, release: Path):
    wrong = set(range(30))
    log = write_log(tmp_path / "log.json", outputs(wrong))
    result = evaluate(
        log, release, "--save-outputs", tmp_path / "outputs.pkl", "--output-file", tmp_path / "r.json"
    )
    assert result.code == 5
    # 18 of 48 over 8 repeats, 30 over 5, 18 over 3: (2.25 + 6 + 6) / 18
    assert "'exact_match': 79.167" in result.stdout
    frame = pd.read_pickle(tmp_path / "outputs.pkl")
    assert frame["is_correct"].tolist() == [index not in wrong for index in range(96)]


def test_missing_samples_count_as_wrong_and_are_listed(tmp_path: Path, release: Path):
    log = tmp_path / "log.json"
    log.write_text(array(entry(i, ids) for i, ids in enumerate(outputs()) if i not in (3, 95)))
    result = evaluate(log, release, "--output-file", tmp_path / "r.json")
    assert "2 samples have no entry and count as wrong: 3, 95" in result.stdout
    assert json.loads((tmp_path / "r.json").read_text())["missing"] == [3, 95]
    assert "Total samples evaluated: 96" in result.stdout


def test_an_empty_output_is_wrong_and_no_error(tmp_path: Path, release: Path):
    """What a failed query leaves in the log."""
    log = write_log(
        tmp_path / "log.json", [[] if index in (1, 60, 90) else ids for index, ids in enumerate(outputs())]
    )
    result = evaluate(log, release, "--output-file", tmp_path / "r.json", "--verbose")
    rows = json.loads((tmp_path / "r.json").read_text())["detailed_results"]
    assert [row["qsl_idx"] for row in rows if not row["is_correct"]] == [1, 60, 90]
    assert {rows[index]["strict"]["reason"] for index in (1, 60, 90)} == {"empty"}
    assert "Output tokens: mean" in result.stdout


def test_the_next_call_takes_outcomes_from_the_journal(tmp_path: Path, release: Path):
    log = write_log(tmp_path / "log.json", outputs())
    first = evaluate(log, release)
    journal = tmp_path / "log.programs.jsonl"
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {row["reason"] for row in rows} == {"correct"}
    damage = ["", "7", "[]", '"key"', '{"key": "x", "reason": "wrong", "failed_test": "?"}', '{"key": "cut b']
    forged = [json.dumps({**row, "reason": "wrong"}) for row in rows]
    journal.write_text("\n".join([*forged, *damage]))
    again = evaluate(log, release)
    assert "livecodebench_v6                 0 " in again.stdout
    kept = journal.read_text().splitlines()
    assert kept[: len(forged)] == forged
    assert evaluate(log, release, "--restart").stdout == first.stdout
    assert len(journal.read_text().splitlines()) == len(rows)


def test_outcomes_of_another_grader_sandbox_or_python_are_not_reused(monkeypatch: pytest.MonkeyPatch):
    from harness.grading.livecodebench import journal

    keys = {journal.task_key("strict", 60.0, "digest", "code", tier) for tier in Tier}
    journal._judges.cache_clear()
    monkeypatch.setattr(sys, "version", "4.0")
    keys.add(journal.task_key("strict", 60.0, "digest", "code", Tier.BUBBLEWRAP))
    journal._judges.cache_clear()
    assert len(keys) == len(Tier) + 1
    modules = {path.name for path in journal.judging_modules()}
    assert modules >= {"compare.py", "run_solution.py", "warden.py", "official.py", "strict.py"}


def test_a_link_in_the_journals_place_is_not_followed(tmp_path: Path, release: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "log.programs.jsonl").symlink_to(tmp_path / "precious")
    assert evaluate(write_log(tmp_path / "log.json", outputs()), release).code == 2
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_signal_ends_with_what_is_kept(tmp_path: Path, release: Path):
    """One program hangs; the others are in the journal. tests/harness/cli/test_main.py has each signal."""
    hangs = next(i for i, row in enumerate(references()) if row.kind == LIVECODEBENCH)
    texts = [right_answer(row) for row in references()]
    texts[hangs] = "```python\nwhile True: pass\n```"
    log = write_log(tmp_path / "log.json", [harmony_ids(text) for text in texts])
    journal = tmp_path / "log.programs.jsonl"
    command = [sys.executable, str(ROOT / "eval_mlperf_accuracy.py")]
    command += arguments(log, release, "--num-lcb-workers", 3)
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    ending = said.splitlines()[-1]
    assert "SIGTERM" in ending and str(journal) in ending and "Traceback" not in said
    assert str(journal.read_bytes().count(b"\n")) in ending


def test_the_release_is_found_where_the_download_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The layout of datasets/manifest.tsv, below any --to."""
    rows = [line.split("\t") for line in (ROOT / "datasets" / "manifest.tsv").read_text().splitlines()]
    paths = {row[1]: row[3] for row in rows if row[0] == "gpt-oss-120b"}
    for name, source in (("acc", REFERENCE), ("livecodebench", RELEASE)):
        place = tmp_path / "anywhere" / paths[name]
        place.parent.mkdir(parents=True)
        place.write_bytes(source.read_bytes())
    log = write_log(tmp_path / "log.json", outputs())
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        assert main(["--mlperf-log", str(log), "--reference-data", f"anywhere/{paths['acc']}"]) == 0
    assert stdout.getvalue().endswith("'exact_match': 100.000\n")
    (tmp_path / "reference.parquet").write_bytes(REFERENCE.read_bytes())
    (tmp_path / "anywhere").rename(tmp_path / "data")
    assert main(["--mlperf-log", str(log), "--reference-data", "reference.parquet"]) == 0


def run_record(folder: Path, benchmark: str, limit: int = 32768) -> None:
    """The run.json of a run of ``benchmark``."""
    rules = structs.replace(ENDED.plan.benchmark, name=benchmark)
    parameters = structs.replace(ENDED.plan.parameters, max_new_tokens=limit)
    with_plan(ENDED, benchmark=rules, parameters=parameters).write(folder / "run.json")


def test_no_log_is_scored_by_another_benchmarks_rules(tmp_path: Path, release: Path):
    log = write_log(tmp_path / "log.json", outputs())
    assert evaluate(log, release, "--benchmark", "deepseek-r1").code == 2
    run_record(tmp_path, "deepseek-r1")
    refused = evaluate(log, release)
    assert (refused.code, refused.stdout) == (2, "")
    assert "--benchmark deepseek-r1" in refused.stderr
    for text in ("", "{}", '{"plan": "x"}', "[1]", '{"plan": {"benchmark": 7}}'):
        (tmp_path / "run.json").write_text(text)
        assert evaluate(log, release).code == 0


def test_truncated_means_the_limit_of_the_run(tmp_path: Path, release: Path):
    texts = outputs()
    texts[0] = harmony_ids("x" * 50)[:20]
    log = write_log(tmp_path / "log.json", texts)
    run_record(tmp_path, "gpt-oss-120b", limit=20)
    result = evaluate(log, release, "--output-file", tmp_path / "r.json")
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["reasons"]["strict"]["aime25"]["truncated"] == 1, result.stderr
    assert written["output_tokens"]["truncated_share"] == 1 / 96


@pytest.mark.parametrize("beside", ["log", "output file", None])
def test_grading_of_a_run_is_seen_from_outside(beside, tmp_path: Path, release: Path, monkeypatch):
    (folder := tmp_path / "run").mkdir()
    if beside:
        run_record(folder, "gpt-oss-120b")
    log = write_log((folder if beside == "log" else tmp_path) / "log.json", outputs())
    seen = set()
    monkeypatch.setattr(progress.ProgressBar, "show", lambda *_: seen.add(progress.read_grading(folder)))
    assert evaluate(log, release, "--output-file", folder / "r.json").code == 0
    assert any(one and one.stage == "outputs" for one in seen) is bool(beside)
    assert list(tmp_path.rglob(GRADING_PROGRESS)) == []


@pytest.mark.parametrize("token", [200005, 200008])
def test_a_tokenizer_must_be_the_benchmarks(token: int, tmp_path: Path, release: Path):
    log = write_log(tmp_path / "log.json", outputs())
    words = {**tokenizer.NAMED_SPECIAL}
    for folder, expected in (("same", 0), ("other", 2)):
        (tmp_path / folder).mkdir()
        added = [{"id": id, "content": word} for id, word in words.items()]
        (tmp_path / folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
        assert evaluate(log, release, "--tokenizer", tmp_path / folder).code == expected
        words[token] = "<|another model|>"
    assert evaluate(log, release, "--tokenizer", "openai/gpt-oss-120b").code == 0


@pytest.mark.parametrize(
    ("name", "metric", "runs"),
    [
        ("gpt-oss-120b", "exact_match", 63),
        ("deepseek-r1", "exact_match", 39),
        ("deepseek-r1", "tokens_per_sample", 39),
        ("llama3.1-8b", "rouge1", 68),
        ("llama3.1-8b", "gen_len", 68),
    ],
)
def test_published_runs_belong_to_a_benchmark_and_passed_its_bounds(name: str, metric: str, runs: int):
    rule = load_benchmark(name).accuracy[metric]
    assert rule.published is not None and rule.published.runs == runs
    assert rule.bounds[0] < rule.published.lowest < rule.published.highest < rule.bounds[1]


def test_a_reader_sees_why_samples_are_wrong(tmp_path: Path, release: Path):
    texts = [right_answer(row) for row in references()]
    code = next(i for i, row in enumerate(references()) if row.kind == LIVECODEBENCH)
    texts[0], texts[1], texts[code] = r"\boxed{999}", "I do not know.", "```python\nprint('nonsense')\n```"
    rows = [json.loads(line) for line in release.read_text().splitlines()]
    (tmp_path / "r.jsonl").write_text(
        "".join(json.dumps({**row, "difficulty": "hard"}) + "\n" for row in rows)
    )
    log = write_log(tmp_path / "log.json", [harmony_ids(text) for text in texts])
    result = evaluate(
        log, tmp_path / "r.jsonl", "--report", tmp_path / "r.md", "--output-file", tmp_path / "r.json"
    )
    assert re.search("^aime25: (wrong 1, no_answer 1|no_answer 1, wrong 1)$", result.stdout, re.MULTILINE)
    assert "livecodebench_v6: wrong 1" in result.stdout
    assert "of 6 questions 5 always solved, 6 at least once; pass@k 1: 95.83%" in result.stdout
    assert "programs by difficulty: hard 94.44% of 18" in result.stdout
    report = (tmp_path / "r.md").read_text()
    first_test = json.loads(rows[0]["public_test_cases"])[0]
    assert "nonsense" in report and "3 samples." in report
    assert references()[code].truth != rows[0]["question_id"] or first_test["input"].split("\n")[0] in report
    part = json.loads((tmp_path / "r.json").read_text())["summary"]["per_dataset"]["aime25"]
    assert sorted(part["solved_repeats_per_question"]) in ([6, 8, 8, 8, 8, 8], [7, 7, 8, 8, 8, 8])
    assert part["pass_at_k"][-1] == 100


def warned(result: Result) -> str:
    return "\n".join(line for line in result.stdout.splitlines() if line.startswith("WARNING: "))


def test_a_score_of_nothing_says_why(tmp_path: Path, release: Path):
    perfect = outputs()
    plain = [[token for token in ids if token < 199_998] for ids in perfect]
    shuffled = [*perfect[8:48], *perfect[:8], *perfect[48:]]
    for name, ids, words in (
        ("empty", [[]] * 96, ("96 of 96", "empty")),
        ("stripped", plain, ("96 of 96", "final channel", "skip_special_tokens")),
        ("order", shuffled, ("another order", "--reference-data")),
        ("perfect", perfect, ("not comparable",)),
    ):
        result = evaluate(write_log(tmp_path / f"{name}.json", ids), release)
        assert all(word in warned(result) for word in words), name
        assert ("another order" in warned(result)) == (name == "order")
        assert ("empty" in warned(result)) == (name == "empty")


def test_programs_that_a_limit_or_a_race_decided_are_counted(tmp_path: Path, release: Path):
    texts = [right_answer(row) for row in references()]
    code = [i for i, row in enumerate(references()) if row.kind == LIVECODEBENCH]
    texts[code[0]] = "```python\nx = bytearray(64 << 30)\n```"
    texts[code[1]] = "```python\nprint('x' * (70 << 20))\n```"
    result = evaluate(write_log(tmp_path / "log.json", [harmony_ids(text) for text in texts]), release)
    assert "2 programs" in warned(result) and "memory_limit 1, output_limit 1" in warned(result)


def test_a_data_set_that_the_benchmark_does_not_have_is_a_warning(tmp_path: Path, release: Path):
    frame = pd.read_parquet(REFERENCE)
    frame["dataset"] = frame["dataset"].replace("aime25", "aime24")
    frame.to_parquet(tmp_path / "reference.parquet")
    log = write_log(tmp_path / "log.json", outputs())
    result = evaluate(log, release, "--reference-data", tmp_path / "reference.parquet")
    assert any(line.startswith("WARNING: aime24") for line in result.stdout.splitlines())


def test_the_report_shows_every_disagreement(tmp_path: Path, release: Path):
    texts = [right_answer(row) for row in references()]
    answers = [f"The answer is {row.truth}." for row in references()]
    mixed = [harmony_ids(answers[i] if 48 <= i < 52 else text) for i, text in enumerate(texts)]
    log = write_log(tmp_path / "log.json", mixed)
    for name in ("report.md", "report.html"):
        result = evaluate(log, release, "--report", tmp_path / name)
        text = (tmp_path / name).read_text()
        assert "4 samples." in text
        assert "The two modes disagree on 4 samples" in result.stdout
        assert "no_answer" in text and "The answer is C." in text


def test_a_log_cut_by_a_crash_is_graded_as_far_as_it_goes(tmp_path: Path, release: Path):
    log = write_log(tmp_path / "log.json", outputs())
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) // 2])
    result = evaluate(log, release)
    assert result.code == 5
    assert re.search(r"WARNING: the log is cut off at byte \d+: the last entry", result.stdout)


# harmony_ids("x"): the encoder takes seconds to load, which a collection of tests does not need
X = [200005, 35644, 200008, 12845, 668, 2411, 13, 200007, 200006, 173781, 200005, 17196, 200008, 87, 200002]
ROWS = [entry(index, X) for index in range(3)]
BROKEN_LOGS = {
    "duplicate": (array([*ROWS, ROWS[1]]), "qsl_idx 1 twice"),
    "beyond": (array([*ROWS, entry(96, X)]), "qsl_idx 96, expected 0..95"),
    "negative": (array([*ROWS, entry(-1, X)]), "qsl_idx -1, expected 0..95"),
    "performance": ("[\n]\n", "no entries"),
    "empty": ("", "no entries"),
    "submission": (array(ROWS)[:700] + "\n\n...\n\n" + array(ROWS)[-300:], "truncated for submission"),
    "not a log": ("seq_id,qsl_idx\n1,2\n", "not LoadGen's mlperf_log_accuracy.json"),
    "other json": ('[{"a": 1}]', "qsl_idx"),
    "half a token": (array([ROWS[0].replace('"data" : "', '"data" : "4500')]), "multiple of 4"),
    "no hex": (array([ROWS[0].replace('"data" : "', '"data" : "xyz0')]), "hex"),
    "foreign token": (array([entry(0, [300_000] * 9)]), "holds token 300000"),
}


@pytest.mark.parametrize("name", BROKEN_LOGS)
def test_broken_logs_are_refused_in_one_line(name: str, tmp_path: Path, release: Path):
    text, said = BROKEN_LOGS[name]
    log = tmp_path / "log.json"
    log.write_text(text)
    result = evaluate(log, release)
    assert (result.code, result.stdout) == (2, "")
    errors = [line for line in result.stderr.splitlines() if ": error: " in line]
    assert len(errors) == 1
    assert said in errors[0]


BAD_FLAGS = {
    "no log": (["--mlperf-log", "absent.json"], "no such file"),
    "no reference": (["--reference-data", "absent.parquet"], "no such file"),
    "release without the problems": (
        ["--lcb-data", "other.jsonl"],
        "problems are not in this LiveCodeBench release",
    ),
    "no release": (["--lcb-data", "absent"], "no LiveCodeBench release found"),
    "no graders": (["--benchmark", "deepseek-r1"], "--benchmark deepseek-r1"),
    "tokenizer": (["--tokenizer", "/nowhere/at/all"], "--tokenizer /nowhere/at/all"),
    "nowhere to write": (["--output-file", "/proc/nowhere/r.json"], "cannot be written"),
}


@pytest.mark.parametrize("name", BAD_FLAGS)
def test_bad_input_is_named_in_one_line(name: str, tmp_path: Path, release: Path):
    flags, said = BAD_FLAGS[name]
    log = write_log(tmp_path / "log.json", outputs())
    row = json.loads(RELEASE.read_text().splitlines()[0])
    (tmp_path / "other.jsonl").write_text(json.dumps({**row, "question_id": "other"}) + "\n")
    result = evaluate(log, release, *flags)
    assert (result.code, result.stdout) == (2, "")
    assert [line for line in result.stderr.splitlines() if said in line and ": error: " in line]
    assert "Traceback" not in result.stderr


def test_references_as_a_pickle_give_the_same_score(tmp_path: Path, release: Path):
    pd.read_parquet(REFERENCE).to_pickle(tmp_path / "reference.pkl")
    log = write_log(tmp_path / "log.json", outputs({0, 50, 80}))
    scores = [evaluate(log, release, *flags).stdout.rpartition("'exact_match': ")[2]
              for flags in ((), ("--reference-data", tmp_path / "reference.pkl"))]  # fmt: skip
    assert scores[0] == scores[1] != ""


def test_help_answers_without_heavy_imports():
    code = "import sys, harness.grading.cli as c; c.build_parser(); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout
    assert not any(f"'{name}'" in loaded for name in ("numpy", "pandas", "pyarrow", "transformers"))
