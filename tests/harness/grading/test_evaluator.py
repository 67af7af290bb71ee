"""The evaluator from its command line: log in, score, files and exit code out."""

import contextlib
import functools
import gzip
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pandas as pd
import pyarrow.parquet as pq
import pytest
from msgspec import structs

import eval_accuracy
from harness.config.benchmark import load_benchmark
from harness.dataset import tokenizer
from harness.errors import GradingError
from harness.files import GRADING_PROGRESS, sha256_of
from harness.grading import evaluator
from harness.grading.evaluation.pass_criteria import check_target
from harness.grading.graders import programs as program_graders
from harness.grading.graders.grader import LIVECODEBENCH
from harness.grading.livecodebench import packages, program_journal
from harness.grading.livecodebench.run_solution import ProgramResult
from harness.grading.sandbox.tier_probe import choose_sandbox
from harness.grading.sandbox.tiers import Tier
from harness.grading.scoring.grade import Reason
from harness.progress.progress_files import read_grading
from harness.progress.progress_line import ProgressBar
from harness.record.run_record import RunRecord, RunVerdict
from tests.harness.grading.conftest import Result, evaluated
from tests.harness.grading.logs import array, entry, harmony_ids, write_log
from tests.harness.grading.samples import REFERENCE, RELEASE, references, right_answer
from tests.kit import full_disk, wait_until
from tests.records import ENDED, with_plan

ROOT = Path(__file__).resolve().parents[3]


Evaluate = Callable[..., Result]
JOURNAL = "r.programs.jsonl"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("lcb") / "release.jsonl"
    copy.write_bytes(RELEASE.read_bytes())
    return copy


@pytest.fixture(scope="module")
def one_probe() -> Iterator[None]:
    """The sandbox is chosen once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        chosen = functools.cache(choose_sandbox)
        patch.setattr(program_graders, "choose_sandbox", chosen)
        yield


@pytest.fixture(scope="module")
def judged(one_probe: None, release: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The journal of an evaluator that has run all right programs."""
    folder = tmp_path_factory.mktemp("judged")
    log = write_log(folder / "log.json", outputs())
    assert evaluated(*arguments(log, release), "--output-file", folder / "r.json").code == 0
    return (folder / JOURNAL).read_bytes()


@pytest.fixture
def evaluate(judged: bytes, tmp_path: Path, release: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    """Evaluate log.json, or ``ids``, and return how it ended; r.json is the result.

    Right programs are not run again unless r.programs.jsonl is removed.
    """
    monkeypatch.chdir(tmp_path)
    Path(JOURNAL).write_bytes(judged)

    def run(*flags: object, ids: list[list[int]] | None = None, log: str = "log.json") -> Result:
        if ids is not None:
            write_log(tmp_path / log, ids)
        workers = ("--num-lcb-workers", 1, "--output-file", "r.json")
        return evaluated(*arguments(tmp_path / log, release), *workers, *flags)

    return run


def arguments(log: Path, release: Path) -> list[str]:
    return list(map(str, ["--mlperf-log", log, "--reference-data", REFERENCE, "--lcb-data", release]))


def outputs(changed: dict[int, str] | None = None) -> list[list[int]]:
    """Right answers but for those that are ``changed``."""
    answers = dict(enumerate(map(right_answer, references()))) | (changed or {})
    return [harmony_ids(text) for text in answers.values()]


def programs() -> list[int]:
    return [index for index, row in enumerate(references()) if row.kind == LIVECODEBENCH]


def result_file() -> dict:
    return json.loads(Path("r.json").read_text())


def warned(result: Result) -> str:
    return "\n".join(line for line in result.stdout.splitlines() if line.startswith("WARNING: "))


LOG = "mlperf_log_accuracy.json"


def test_the_scorecard_is_kept_beside_the_log_and_the_target_is_seen(evaluate: Evaluate):
    result = evaluate(ids=outputs({0: "no answer"}), log=LOG)
    assert Path("accuracy.txt").read_text() == result.stdout
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("Target "))
    assert result.stderr.splitlines().count(line) == 1
    assert re.search(r"exact_match \d+\.\d+ is (below|at least) 82\.2987", line)


@pytest.mark.engine
def test_the_score_is_on_a_terminal_once(judged: bytes, release: Path, tmp_path: Path):
    log = write_log(tmp_path / LOG, outputs())
    log.with_suffix(".programs.jsonl").write_bytes(judged)
    terminal, other_end = pty.openpty()
    command = [sys.executable, ROOT / "eval_mlperf_accuracy.py", *arguments(log, release)]
    with (
        os.fdopen(terminal, "rb", buffering=0) as screen,
        subprocess.Popen(command, stdout=other_end, stderr=other_end),
    ):
        os.close(other_end)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while part := screen.read(1 << 16):
                shown += part
    assert shown.count(b"Target PASS") == 1


def test_a_text_that_cannot_be_replaced_is_a_warning(evaluate: Evaluate):
    kept = "'exact_match': 83.0\n\nhash=" + 64 * "0" + "\n"
    Path("accuracy.txt").write_text(kept)
    result = evaluate(ids=outputs(), log=LOG)
    assert result.code == 0 and Path("accuracy.txt").read_text() == kept
    assert "is not replaced" in result.stderr
    Path("accuracy.txt").unlink()
    Path("accuracy.txt").mkdir()
    result = evaluate(log=LOG)
    assert result.code == 0 and "accuracy.txt: cannot be written (Is a directory)" in result.stderr


INVALID = RunVerdict("INVALID", ("3 of 96 queries failed: timeout 3",))


@pytest.mark.engine
@pytest.mark.parametrize(
    "verdict", [None, RunVerdict("INTERRUPTED"), INVALID], ids=["killed", "interrupted", "invalid"]
)
def test_the_log_of_an_incomplete_run_says_so_first(evaluate: Evaluate, tmp_path: Path, verdict):
    command = ("run_mlperf.py", "--accuracy", "--input-file", "a.parquet")
    record = structs.replace(
        with_plan(ENDED, mode="accuracy", dataset_sha256=sha256_of(REFERENCE)),
        verdict=verdict,
        provenance=structs.replace(ENDED.provenance, command=command),
    )
    record.write(tmp_path / "run.json")
    Path(JOURNAL).unlink()
    result = evaluate(ids=outputs(), log=LOG)
    first, *others = result.stderr.splitlines()
    assert result.code == 4 and "'exact_match': 100.000" in result.stdout
    assert first.startswith("INCOMPLETE: ") and shlex.join(command) in first
    assert any(line.startswith("Target ") for line in others)
    assert not Path("accuracy.txt").exists()
    assert Path("accuracy.NOT_OFFICIAL.txt").read_text() == result.stdout
    structs.replace(record, verdict=RunVerdict("VALID")).write(tmp_path / "run.json")
    again = evaluate(log=LOG)
    assert again.code == 0 and "INCOMPLETE" not in again.stderr
    assert Path("accuracy.txt").exists()


def test_the_log_of_a_performance_run_that_is_not_valid_has_no_remedy_that_is_refused(
    evaluate: Evaluate, tmp_path: Path
):
    """``--resume`` is, of a performance run, and its journal holds no answers to count."""
    record = with_plan(ENDED, mode="performance", dataset_sha256=sha256_of(REFERENCE))
    structs.replace(record, verdict=INVALID).write(tmp_path / "run.json")
    result = evaluate(ids=outputs(), log=LOG)
    (line,) = (one for one in result.stderr.splitlines() if one.startswith("INCOMPLETE: the run is INVALID"))
    assert result.code == 4
    assert "score the log of the accuracy run" in line
    assert "answered" not in line and "Continue" not in line
    structs.replace(with_plan(record, input_file=tmp_path / "gone.parquet"), verdict=INVALID).write(
        tmp_path / "run.json"
    )
    without = evaluated("--mlperf-log", LOG)
    first, last = without.stderr.splitlines()  # before a dataset is asked for that may be large
    assert first == line and "gone.parquet is not here" in last


@pytest.mark.engine
def test_a_score_by_references_of_another_dataset_does_not_count(evaluate: Evaluate, tmp_path: Path):
    run_record(tmp_path, "gpt-oss-120b")
    part = tmp_path / "part.parquet"
    pq.write_table(pq.read_table(REFERENCE).slice(0, 90), part)
    Path(JOURNAL).unlink()
    result = evaluate("--reference-data", part, ids=outputs()[:90], log=LOG)
    assert result.code == 4 and "FINAL SCORE: " in result.stdout
    for text in (result.stderr, warned(result)):
        assert re.match(rf"WARNING: {part} has sha256 \w+, the run's dataset is ", text)
    assert result_file()["warnings"][0].startswith(str(part))
    assert not Path("accuracy.txt").exists() and not Path("accuracy_result.json").exists()
    assert Path("accuracy.NOT_OFFICIAL.txt").read_text() == result.stdout
    assert evaluate(ids=outputs(), log=LOG).code == 0
    assert Path("accuracy.txt").exists() and Path("accuracy_result.json").exists()


@pytest.mark.engine
def test_the_score_of_another_log_than_the_run_left_does_not_count(evaluate: Evaluate, tmp_path: Path):
    Path(JOURNAL).unlink()
    assert evaluate(ids=outputs(), log=LOG).code == 0
    run_record(tmp_path, "gpt-oss-120b")
    own = structs.replace(RunRecord.read(tmp_path / "run.json"), accuracy_log_sha256=sha256_of(Path(LOG)))
    own.write(tmp_path / "run.json")
    Path("accuracy.txt").unlink()
    Path(JOURNAL).unlink()
    other = evaluate(ids=outputs({5: "I do not know."}), log=LOG)
    assert other.code == 4
    for text in (other.stderr, warned(other)):
        assert re.match(rf"WARNING: \S*{LOG} is not the log of the run in the run.json beside it", text)
    assert not Path("accuracy.txt").exists() and not Path("accuracy_result.json").exists()
    assert Path("accuracy.NOT_OFFICIAL.txt").read_text() == other.stdout
    again = evaluate(ids=outputs(), log=LOG)
    assert again.code == 0 and "is not the log of the run" not in again.stderr
    assert Path("accuracy.txt").exists() and Path("accuracy_result.json").exists()


def test_a_perfect_log_scores_100_in_both_modes(evaluate: Evaluate):
    Path(JOURNAL).unlink()
    flags = ("--save-outputs", "outputs.parquet", "--report", "report.html", "--verbose")
    result = evaluate(*flags, ids=outputs())
    assert result.code == 0, result.stderr
    assert result.stdout.endswith("\n'exact_match': 100.000\n")
    assert re.search(r"^FINAL SCORE: 100\.00% \(18\.00/18\.00\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^aime25 +48 +48 +8 +6\.00 +100\.00%$", result.stdout, re.MULTILINE)
    assert "\naime25: 8 repeats, mean 100.00%, standard deviation 0.00, standard error " in result.stdout
    said = warned(result)
    assert "not comparable" in said and "another order" not in said and "no token" not in said
    written = result_file()
    assert written["summary"]["final_score_percentage"] == 100
    assert written["modes"]["strict"]["total_correct"] == 96
    table = pq.read_table("outputs.parquet").to_pylist()
    for rows in (written["detailed_results"], table):
        assert [(row["qsl_idx"], row["seq_id"]) for row in rows] == [(index, index) for index in range(96)]
    assert table[5]["output_token_ids"] == outputs()[5]
    assert table[5]["model_output"].startswith("<|channel|>analysis<|message|>Let me think.<|end|>")
    assert answers_of("report.html") == {}


def answers_of(page: str) -> dict[int, str]:
    """The HTML of each sample on the page, by qsl_idx."""
    found = re.findall(
        r'<details class="answer" id="s(\d+)"(.*?)</dl>\s*</details>', Path(page).read_text(), re.DOTALL
    )
    return {int(index): text for index, text in found}


def words_of(answer: str) -> list[str]:
    """The rules and the reasons in a sample's heading."""
    return re.findall(r'<span class="word \w+">(.*?)</span>', answer)


def test_below_the_target_the_exit_code_is_5(evaluate: Evaluate):
    wrong = dict.fromkeys(range(30), "I do not know.")
    result = evaluate("--save-outputs", "outputs.pkl", ids=outputs(wrong))
    assert result.code == 5
    # 18 of 48 over 8 repeats, 30 over 5, 18 over 3: (2.25 + 6 + 6) / 18
    assert "'exact_match': 79.167" in result.stdout
    assert "\nStrict score: 79.17% (14.25/18.00)\n" in result.stdout
    assert pd.read_pickle("outputs.pkl")["is_correct"].tolist() == [index not in wrong for index in range(96)]


def test_missing_samples_are_listed_and_wrong_as_empty_ones_are(evaluate: Evaluate):
    """An empty output is what a failed query leaves in the log."""
    logged = {index: [] if index in (1, 60, 90) else ids for index, ids in enumerate(outputs())}
    Path("log.json").write_text(array(entry(i, ids) for i, ids in logged.items() if i not in (3, 95)))
    result = evaluate("--verbose")
    written = result_file()
    assert (written["missing"], written["summary"]["total_samples"]) == ([3, 95], 96)
    assert [mode["total_correct"] for mode in written["modes"].values()] == [91, 91]
    right = "".join("0" if index in (1, 3, 60, 90, 95) else "1" for index in range(96))
    assert written["right"] == {"official": right, "strict": right}
    assert [line for line in warned(result).splitlines() if line.endswith(": 3, 95")]
    wrong = [row for row in written["detailed_results"] if not row["is_correct"]]
    assert [row["qsl_idx"] for row in wrong] == [1, 60, 90]
    assert {row["strict"]["reason"] for row in wrong} == {"empty"}


@pytest.mark.parametrize(("first", "warns"), [("token_data", True), ("both", False), ("data", False)])
def test_first_tokens_that_the_official_evaluator_does_not_read_are_a_warning(
    first: str, warns: bool, evaluate: Evaluate
):
    """It decodes ``data`` alone (decode_hex_to_tokens)."""
    logged = dict(enumerate(outputs()))
    Path("log.json").write_text(
        array(entry(i, ids, first=first if i == 7 else "both") for i, ids in logged.items())
    )
    result = evaluate()
    assert result.code == 0
    assert ("1 output with the first token in token_data alone" in warned(result)) is warns


@pytest.mark.parametrize(("width", "warns"), [(8, True), (4, False)])
def test_ids_of_int64_that_the_official_evaluator_reads_as_int32_are_a_warning(
    width: int, warns: bool, evaluate: Evaluate
):
    """It unpacks ``<i`` (decode_hex_to_tokens)."""
    Path("log.json").write_text(array(entry(i, ids, width=width) for i, ids in enumerate(outputs())))
    result = evaluate()
    assert result.code == 0
    assert ("the log has its ids as int64" in warned(result)) is warns


@pytest.mark.engine
def test_the_next_call_takes_outcomes_from_the_journal(evaluate: Evaluate):
    path = Path(JOURNAL)
    path.unlink()
    first = evaluate(ids=outputs())
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["reason"] for row in rows} == {"correct"}
    damage = ["", "7", "[]", '"key"', '{"key": "x", "reason": "wrong", "failed_test": "?"}', '{"key": "cut b']
    forged = [json.dumps({**row, "reason": "wrong"}) for row in rows]
    path.write_text("\n".join([*forged, *damage]))
    again = evaluate()
    assert "livecodebench_v6                 0 " in again.stdout
    assert f"r.programs.jsonl: {len(rows)} of its {len(rows)} " in again.stderr
    assert path.read_text().splitlines()[: len(forged)] == forged
    assert evaluate("--restart").stdout == first.stdout
    assert len(path.read_text().splitlines()) == len(rows)


def test_outcomes_of_another_grader_sandbox_or_python_are_not_reused(monkeypatch: pytest.MonkeyPatch):
    keys = {program_journal.task_key("strict", 60.0, "digest", "code", tier) for tier in Tier}
    program_journal._judges.cache_clear()
    monkeypatch.setattr(sys, "version", "4.0")
    keys.add(program_journal.task_key("strict", 60.0, "digest", "code", Tier.BUBBLEWRAP))
    program_journal._judges.cache_clear()
    assert len(keys) == len(Tier) + 1
    modules = {path.name for path in program_journal.judging_modules()}
    assert modules >= {"compare.py", "run_solution.py", "warden.py", "official.py", "strict.py", "tiers.py"}


def test_outcomes_of_programs_depend_on_the_packages_that_they_can_import(monkeypatch: pytest.MonkeyPatch):
    def keys(*entries: str) -> list[str]:
        for made in (packages._installed, packages._state):
            made.cache_clear()
        monkeypatch.setattr(packages, "_entries", lambda: entries)
        codes = ("print(1)", "from scipy import optimize")
        return [program_journal.task_key("strict", 60.0, "digest", code, Tier.BUBBLEWRAP) for code in codes]

    try:
        absent = keys("numpy", "numpy-2.0.dist-info")
        found = [keys("numpy", "numpy-2.0.dist-info", "scipy", f"scipy-1.{n}.dist-info") for n in (7, 8)]
    finally:
        for made in (packages._installed, packages._state):
            made.cache_clear()
    assert absent[0] == found[0][0] == found[1][0]
    assert len({absent[1], found[0][1], found[1][1]}) == 3


def test_programs_that_pass_with_a_package_of_this_machine_alone_are_a_warning(evaluate: Evaluate):
    """The official evaluator of b66003e1 has mpmath, and fails a program that imports msgspec."""
    index = programs()[0]
    right = right_answer(references()[index])
    imports = "import mpmath as m, msgspec; import httptools\n"
    with_packages = right.replace("```python\n", f"```python\n{imports}")
    result = evaluate(ids=outputs({index: with_packages}))
    assert result.code == 0
    (line,) = (line for line in warned(result).splitlines() if "not known to have" in line)
    assert "1 program passed" in line and line.endswith(": httptools 1, msgspec 1") and line in result.stderr
    assert "not known to have" not in warned(evaluate(ids=outputs()))


def test_the_absence_of_a_package_is_said_first(evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch):
    index = programs()[0]
    lacking = outputs({index: "```python\nimport no_such_package.part\n```"})
    result = evaluate(ids=lacking)
    assert "no_such_package 1" in result.stderr
    assert "no_such_package 1" in warned(result) and "./setup.sh" not in warned(result)
    written = result_file()["programs"]
    assert written["absent_modules"] == {"no_such_package": 1}
    assert written["packages"]["numpy"] == numpy.__version__
    monkeypatch.setattr(packages, "OFFICIAL", {"no_such_package": "no-such-package"})
    result = evaluate()
    assert "no_such_package: run ./setup.sh" in warned(result)
    assert "no-such-package NOT INSTALLED" in result.stderr


def test_setup_installs_the_packages_of_the_official_environment():
    lock = "".join((ROOT / f"requirements/{name}.txt").read_text() for name in ("run", "programs"))
    assert [name for name in packages.OFFICIAL.values() if f"\n{name}==" not in lock] == []


def test_a_second_evaluator_waits_for_the_journal_and_has_its_verdicts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    first = program_journal.ResultJournal(tmp_path / "j")
    said = ""
    with ThreadPoolExecutor(1) as executor:
        second = executor.submit(program_journal.ResultJournal, tmp_path / "j", restart=False)

        def waits() -> bool:
            nonlocal said
            said += capfd.readouterr().err
            return str(tmp_path / "j") in said

        wait_until(waits)
        first.add("key", ProgramResult(Reason.CORRECT, None, ""))
        first.close()
    assert second.result().known.keys() == {"key"}
    second.result().close()


def test_a_link_in_the_journals_place_is_not_followed(evaluate: Evaluate):
    Path("precious").write_text("mine")
    Path(JOURNAL).unlink()
    Path(JOURNAL).symlink_to("precious")
    assert evaluate(ids=outputs()).code == 2
    assert Path("precious").read_text() == "mine"


def test_a_full_disk_is_named_with_the_file_and_a_remedy(tmp_path: Path):
    """/dev/full is a disk without room."""
    journal = program_journal.ResultJournal(tmp_path / JOURNAL)
    with Path("/dev/full").open("wb", buffering=0) as full:
        os.dup2(full.fileno(), journal._file.fileno())
    with pytest.raises(GradingError, match=f"{JOURNAL}: .*No space left on device.*--output"):
        journal.add("key", ProgramResult(Reason.CORRECT, None, ""))
    journal.close()


def test_eval_accuracy_keeps_verdicts_beside_its_output(evaluate: Evaluate, tmp_path: Path, release: Path):
    """The folder of the log may be another's, and may not be written to."""
    (tmp_path / "run").mkdir()
    (tmp_path / "mine").mkdir()
    log = write_log(tmp_path / "run" / "log.json", outputs())
    words = ("--benchmark", "gpt-oss-120b", "--input-file", log, "--dataset-file", REFERENCE)
    Path(JOURNAL).rename(tmp_path / "mine" / JOURNAL)
    ended = evaluated(
        *words,
        "--lcb-data",
        release,
        "--output-file",
        tmp_path / "mine" / "r.pkl",
        program=eval_accuracy.main,
    )
    assert ended.code == 0 and "verdicts are reused" in ended.stderr
    assert list((tmp_path / "run").iterdir()) == [log]


def test_an_output_that_is_the_working_directory(tmp_path: Path, release: Path):
    result = evaluated(*arguments(write_log(tmp_path / "log.json", outputs()), release), "--output", ".")
    assert result.code == 2 and ".: is a folder, expected the name of a file" in result.stderr


@pytest.mark.parametrize("name", ["page.html", "page.md", "saved.parquet", "saved.pkl"])
def test_a_file_that_cannot_be_written_completely_is_not_there(name: str, evaluate: Evaluate, monkeypatch):
    flag = "--disagreements" if name.startswith("page") else "--save-outputs"
    assert evaluate(flag, name, ids=outputs()).code == 0
    earlier = Path(name).read_bytes()
    monkeypatch.setattr(os, "fsync", full_disk)
    result = evaluate(flag, name, ids=outputs())
    assert result.code == 2 and f"{name}: cannot be written" in result.stderr
    assert "Target " in result.stdout  # the score is not lost with it
    assert Path(name).read_bytes() == earlier


@pytest.mark.engine
def test_a_signal_ends_with_what_is_kept(tmp_path: Path, release: Path):
    """One program hangs; the others are in the journal. tests/harness/cli/test_main.py has each signal."""
    log = write_log(tmp_path / "log.json", outputs({programs()[0]: "```python\nwhile True: pass\n```"}))
    journal = tmp_path / "log.programs.jsonl"
    command = [sys.executable, str(ROOT / "eval_mlperf_accuracy.py"), *arguments(log, release)]
    command += ["--num-lcb-workers", "3"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
    )
    wait_until(lambda: process.poll() or (journal.exists() and journal.read_bytes().count(b"\n") >= 2))
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    ending = said.splitlines()[-1]
    assert "SIGTERM" in ending and str(journal) in ending and "Traceback" not in said
    assert str(journal.read_bytes().count(b"\n")) in ending


@pytest.mark.engine
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
    assert evaluated("--mlperf-log", log, "--reference-data", f"anywhere/{paths['acc']}").code == 0
    Path("reference.parquet").write_bytes(REFERENCE.read_bytes())
    Path("anywhere").rename("data")
    assert evaluated("--mlperf-log", log, "--reference-data", "reference.parquet").code == 0


def test_the_true_answers_are_those_of_the_run_or_of_the_download(
    nothing_downloaded: None, release: Path, tmp_path: Path
):
    log = write_log(tmp_path / LOG, outputs())
    words = ("--mlperf-log", log, "--lcb-data", release, "--num-lcb-workers", 1, "--output-file", "r.json")
    absent = evaluated(*words)
    assert (absent.code, absent.stdout) == (2, "")
    assert "add --reference-data" in absent.stderr and "datasets/download.sh --benchmark gpt" in absent.stderr
    official = tmp_path / "data" / load_benchmark("gpt-oss-120b").dataset(accuracy=True).file
    assert f"{official.relative_to(tmp_path)} is not here" in absent.stderr
    official.parent.mkdir(parents=True)
    official.write_bytes(REFERENCE.read_bytes())
    run_record(tmp_path, "gpt-oss-120b")
    record = RunRecord.read(tmp_path / "run.json")
    for dataset, expected in (("absent.parquet", official.relative_to(tmp_path)), (REFERENCE, REFERENCE)):
        with_plan(record, input_file=Path(dataset)).write(tmp_path / "run.json")
        scored = evaluated(*words)
        assert scored.code == 0 and f"true answers: {expected}\n" in scored.stderr


def run_record(folder: Path, benchmark: str, limit: int = 32768) -> None:
    """The run.json of a VALID run of ``benchmark`` on the sample dataset."""
    rules = structs.replace(ENDED.plan.client.benchmark, name=benchmark)
    parameters = structs.replace(ENDED.plan.client.parameters, max_new_tokens=limit)
    valid = structs.replace(ENDED, verdict=RunVerdict("VALID"))
    plan = {"benchmark": rules, "parameters": parameters}
    with_plan(valid, **plan, dataset_sha256=sha256_of(REFERENCE)).write(folder / "run.json")


def test_no_log_is_scored_by_another_benchmarks_rules(evaluate: Evaluate, tmp_path: Path):
    assert evaluate("--benchmark", "deepseek-r1", ids=outputs()).code == 2
    run_record(tmp_path, "deepseek-r1")
    refused = evaluate("--benchmark", "gpt-oss-120b")
    assert (refused.code, refused.stdout) == (2, "")
    assert "--benchmark deepseek-r1" in refused.stderr
    for text in ("", '{"plan": {"benchmark": 7}}'):
        Path("run.json").write_text(text)
        assert evaluate().code == 0


@pytest.mark.engine
def test_the_benchmark_is_that_of_the_run(evaluate: Evaluate, tmp_path: Path):
    """Without a flag, in both programs; their defaults differ where nothing names it."""
    words = ("--input-file", tmp_path / "log.json", "--dataset-file", REFERENCE)
    assert evaluate(ids=outputs()).code == 0
    assert evaluated(*words, program=eval_accuracy.main).code == 2  # deepseek-r1's rules
    run_record(tmp_path, "gpt-oss-120b")
    assert evaluated(*words, program=eval_accuracy.main).code == 0


def test_a_run_of_an_unknown_round_is_scored_by_no_other_unasked(evaluate: Evaluate, tmp_path: Path):
    assert evaluate(ids=outputs()).code == 0
    run_record(tmp_path, "gpt-oss-120b")
    record = RunRecord.read(tmp_path / "run.json")
    rules = structs.replace(record.plan.client.benchmark, round="v5.0")
    with_plan(record, benchmark=rules).write(tmp_path / "run.json")
    refused = evaluate()
    assert (refused.code, refused.stdout) == (2, "")
    assert "has no round v5.0; name one of v6.1, v6.0" in refused.stderr
    assert evaluate("--round", "v6.0").code == 0


def test_truncated_means_the_limit_of_the_run(evaluate: Evaluate, tmp_path: Path):
    run_record(tmp_path, "gpt-oss-120b", limit=20)
    result = evaluate(ids=[harmony_ids("x" * 50)[:20], *outputs()[1:]])
    written = result_file()
    assert written["reasons"]["strict"]["aime25"]["truncated"] == 1, result.stderr
    assert written["output_tokens"]["truncated_share"] == 1 / 96


@pytest.mark.engine
@pytest.mark.parametrize("beside", ["log", "output file", None])
def test_grading_of_a_run_is_seen_from_outside(beside, evaluate: Evaluate, tmp_path: Path, monkeypatch):
    (folder := tmp_path / "run").mkdir()
    if beside:
        run_record(folder, "gpt-oss-120b")
    seen = set()
    monkeypatch.setattr(ProgressBar, "show", lambda *_: seen.add(read_grading(folder)))
    log = "run/log.json" if beside == "log" else "log.json"
    assert evaluate("--output-file", folder / "r.json", ids=outputs(), log=log).code == 0
    assert any(one and one.stage == "outputs" for one in seen) is bool(beside)
    assert list(tmp_path.rglob(GRADING_PROGRESS)) == []


def test_a_tokenizer_must_be_the_benchmarks(evaluate: Evaluate, tmp_path: Path):
    write_log(tmp_path / "log.json", outputs())
    for changed, code in ((None, 0), (200005, 2), (200008, 2)):
        words = {**tokenizer.NAMED_SPECIAL, **({changed: "<|another model|>"} if changed else {})}
        added = [{"id": token, "content": word} for token, word in words.items()]
        Path("tokenizer.json").write_text(json.dumps({"added_tokens": added}))
        assert evaluate("--tokenizer", tmp_path).code == code
        assert evaluate("--tokenizer", tmp_path / "tokenizer.json").code == code
    for broken in (b"{", b'{"added_tokens": "\xff"}', b'{"model": ' + b"[" * 100_000):
        Path("tokenizer.json").write_bytes(broken)
        code, _, stderr = evaluate("--tokenizer", tmp_path)
        assert (code, "tokenizer.json: not a tokenizer: " in stderr) == (2, True)
    assert evaluate("--tokenizer", "openai/gpt-oss-120b").code == 0


def test_the_tokenizer_is_found_beside_the_reference_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    log = write_log(tmp_path / "log.json", [[128009]] * 24)
    reference = REFERENCE.with_name("cnn_sample.json")
    words = ("--mlperf-log", log, "--benchmark", "llama3.1-8b", "--reference-data")
    assert evaluated(*words, reference).code == 5
    alone = tmp_path / "cnn_sample.json"
    alone.write_bytes(reference.read_bytes())
    assert evaluated(*words, alone).code == 2


@pytest.mark.parametrize(("name", "runs"), [("gpt-oss-120b", 63), ("deepseek-r1", 39), ("llama3.1-8b", 68)])
def test_published_runs_belong_to_a_benchmark_and_passed_its_bounds(name: str, runs: int):
    rules = [rule for rule in load_benchmark(name).accuracy.values() if rule.published]
    assert {rule.published.runs for rule in rules} == {runs}
    for rule in rules:
        assert rule.bounds[0] < rule.published.lowest < rule.published.highest < rule.bounds[1]


def test_a_reader_sees_why_samples_are_wrong(evaluate: Evaluate, release: Path):
    changed = {0: r"\boxed{999}", 1: "I do not know.", programs()[0]: "```python\nprint('nonsense')\n```"}
    rows = [json.loads(line) for line in release.read_text().splitlines()]
    Path("r.jsonl").write_text("".join(json.dumps({**row, "difficulty": "hard"}) + "\n" for row in rows))
    result = evaluate("--lcb-data", "r.jsonl", "--report", "r.md", ids=outputs(changed))
    for mode in ("official", "strict"):
        assert re.search(
            f"^aime25, {mode}: (wrong 1, no_answer 1|no_answer 1, wrong 1)$", result.stdout, re.M
        )
        assert f"gpqa_diamond, {mode}: all are correct\nlivecodebench" in result.stdout or mode == "official"
        assert f"livecodebench_v6, {mode}: wrong 1\n" in result.stdout
    assert "of 6 questions 5 always solved, 6 at least once; pass@k 1: 95.83%" in result.stdout
    assert "programs by difficulty: hard 94.44% of 18" in result.stdout
    report = Path("r.md").read_text()
    first_test = json.loads(rows[0]["public_test_cases"])[0]
    assert (
        report.startswith("# ")
        and "nonsense" in report
        and "Wrong by all requested rules (3 samples)" in report
    )
    truth = references()[programs()[0]].truth
    assert truth != rows[0]["question_id"] or first_test["input"].split("\n")[0] in report
    part = result_file()["summary"]["per_dataset"]["aime25"]
    assert sorted(part["solved_repeats_per_question"]) in ([6, 8, 8, 8, 8, 8], [7, 7, 8, 8, 8, 8])
    assert part["pass_at_k"][-1] == 100
    wrong = [references()[index].repeat for index in (0, 1)]
    by_repeat = [100 * (6 - wrong.count(number)) / 6 for number in range(8)]
    assert part["per_repeat_accuracy"] == pytest.approx(by_repeat)


def test_a_score_of_nothing_says_why(evaluate: Evaluate):
    perfect = outputs()
    plain = [[token for token in ids if token < 199_998] for ids in perfect]
    shuffled = [*perfect[8:48], *perfect[:8], *perfect[48:]]
    for name, ids, words in (
        ("empty", [[]] * 96, ("96 of 96 outputs have no token",)),
        ("stripped", plain, ("96 of 96", "final channel", "skip_special_tokens")),
        ("order", shuffled, ("another order", "--reference-data")),
    ):
        result = evaluate(ids=ids)
        said = warned(result)
        assert all(word in said for word in words), name
        assert ("another order" in result.stderr) is (name == "order")
        assert ("another order" in said, "no token" in said) == (name == "order", name == "empty")


@pytest.mark.engine
def test_programs_that_a_limit_or_a_race_decided_are_counted(evaluate: Evaluate):
    memory, output, *_ = programs()
    changed = {memory: "x = bytearray(64 << 30)", output: "print('x' * (70 << 20))"}
    fenced = {index: f"```python\n{code}\n```" for index, code in changed.items()}
    said = warned(evaluate(ids=outputs(fenced)))
    assert "2 programs" in said and "memory_limit 1, output_limit 1" in said


def test_a_data_set_that_the_benchmark_does_not_have_is_a_warning(evaluate: Evaluate):
    frame = pd.read_parquet(REFERENCE).replace({"dataset": {"aime25": "aime24"}})
    frame.to_parquet("reference.parquet")
    result = evaluate("--reference-data", "reference.parquet", ids=outputs())
    assert "WARNING: aime24" in warned(result)


def test_the_report_shows_every_disagreement(evaluate: Evaluate):
    changed = {index: f"The answer is {references()[index].truth}." for index in range(48, 52)}
    result = evaluate("--report", "report.html", ids=outputs(changed))
    assert "The two modes disagree on 4 samples; see report.html\n" in result.stdout
    assert "4 samples; --disagreements FILE.html shows them" in evaluate(ids=outputs(changed)).stdout
    answers = answers_of("report.html")
    assert list(answers) == [48, 49, 50, 51]
    for index, answer in answers.items():
        assert words_of(answer) == ["official: no_answer", "strict: correct"]
        assert '<p class="difference">' in answer
        truth = references()[index].truth
        marked = re.findall(r'<mark class="strict"[^>]*>(.*?)</mark>', answer)
        assert "".join(marked) == f"The answer is <b>{truth}</b>."


def test_the_page_and_the_result_show_what_was_read(evaluate: Evaluate):
    first, second = (index for index in programs()[:2])
    assert references()[first].question == references()[second].question
    code = "```python\nprint('nonsense' * 2)\n```"
    changed = {48: "The answer is C.", 49: "I do not know.", first: code, second: code}
    evaluate("--report", "report.html", "--verbose", ids=outputs(changed))
    page, answers = Path("report.html").read_text(), answers_of("report.html")
    assert sorted(answers) == sorted(changed)
    assert page.count("nonsense&#39; * 2") == 1 and f"the same program as in sample {first}" in page
    assert words_of(answers[second]) == ["official and strict: wrong"]
    assert "wrong: test 1" in answers[second] and "repeat 2" in answers[second]
    assert page.count('<article class="card">') == 2  # repeats of a question are beside each other
    assert page.count("An electron is confined") == 2  # folded: its beginning and the complete text
    assert "rules read" not in page
    assert {"correct", "wrong", "no_answer"} <= set(re.findall(r">([a-z_]+)</td>", page))
    rows = {row["qsl_idx"]: row for row in json.loads(Path("r.json").read_text())["detailed_results"]}
    assert (rows[48]["read"], rows[49]["strict"]["read"]) == (None, None)
    assert "C" in rows[48]["strict"]["read"] and references()[50].truth in rows[50]["read"]
    assert "nonsense" in rows[first]["read"] and "nonsense" in rows[first]["strict"]["read"]
    assert all(row["evaluation_details"] and row["strict"]["detail"] for row in rows.values())


@pytest.mark.parametrize("said", ["Answer: C", "**Answer:** C"])
def test_the_page_shows_what_was_read_far_before_the_end(said: str, evaluate: Evaluate):
    evaluate("--report", "report.html", ids=outputs({53: said + "\nSo it is." * 200}))
    (answer,) = answers_of("report.html").values()
    shown = " ".join(re.findall("where the ([a-z ]+) rules read", answer))
    assert {"official", "strict"} <= set(shown.split())


def test_a_log_cut_by_a_crash_is_graded_as_far_as_it_goes(evaluate: Evaluate, tmp_path: Path):
    log = write_log(tmp_path / "log.json", outputs())
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    result = evaluate()
    cut = result_file()["log_cut"]
    assert (result.code, 0 < cut["offset"] <= log.stat().st_size) == (5, True)
    assert f" {cut['offset']}: {cut['reason']}" in warned(result)


# harmony_ids("x"): the encoder takes seconds to load, which a collection of tests does not need
X = [200005, 35644, 200008, 12845, 668, 2411, 13, 200007, 200006, 173781, 200005, 17196, 200008, 87, 200002]
ROWS = [entry(index, X) for index in range(3)]
BROKEN_LOGS = {
    "duplicate": (array([*ROWS, ROWS[1]]), "log.json: qsl_idx 1 twice"),
    "beyond": (array([*ROWS, entry(96, X)]), "log.json: qsl_idx 96, expected 0..95"),
    "performance": ("[\n]\n", "log.json: no entries"),
    "empty": ("", "no entries"),
    "submission": (array(ROWS)[:700] + "\n\n...\n\n" + array(ROWS)[-300:], "truncated for submission"),
    "not a log": ("seq_id,qsl_idx\n1,2\n", "log.json, byte 0: "),
    "other json": ('[{"a": 1}]', "qsl_idx"),
    "half a token": (array([ROWS[0].replace('"data" : "', '"data" : "4500')]), "multiple of 4"),
    "no hex": (array([ROWS[0].replace('"data" : "', '"data" : "xyz0')]), "log.json, byte "),
    "foreign token": (array([entry(0, [300_000] * 9)]), "log.json: qsl_idx 0 holds token 300000"),
    "gzip": (gzip.compress(array(ROWS).encode()), "is compressed by gzip; unpack it"),
    "byte order mark": (array(ROWS).encode("utf-8-sig"), "begins with a byte order mark"),
    "two bytes a character": (array(ROWS).encode("utf-16"), "is UTF-16 text"),
}


@pytest.mark.parametrize("name", BROKEN_LOGS)
def test_broken_logs_are_refused_in_one_line(name: str, evaluate: Evaluate):
    text, said = BROKEN_LOGS[name]
    Path("log.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    result = evaluate()
    assert (result.code, result.stdout) == (2, "")
    (error,) = (line for line in result.stderr.splitlines() if ": error: " in line)
    assert said in error


def test_a_score_is_not_written_beside_the_log_of_another_run(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
):
    """A run with --restart moves the folder aside while its log is scored."""

    def replaced(*arguments: Any) -> Any:
        Path("log.json").rename("aside.json")
        write_log(Path("log.json"), outputs({0: "I do not know."}))
        return check_target(*arguments)

    monkeypatch.setattr(evaluator, "check_target", replaced)
    result = evaluate(ids=outputs())
    assert (result.code, result.stdout, Path("r.json").exists()) == (2, "", False)
    (error,) = (line for line in result.stderr.splitlines() if ": error: " in line)
    assert "log.json was moved or replaced while it was scored" in error


BAD_FLAGS = {
    "no log": (["--mlperf-log", "absent.json"], "absent.json"),
    "no reference": (["--reference-data", "absent.parquet"], "absent.parquet"),
    "release without the problems": (["--lcb-data", "other.jsonl"], "sample-lamp-row"),
    "no release": (["--lcb-data", "absent"], "absent: "),
    "no graders": (["--benchmark", "deepseek-r1"], "--benchmark deepseek-r1"),
    "tokenizer": (["--tokenizer", "/nowhere/at/all"], "--tokenizer /nowhere/at/all"),
    "no folder to write in": (["--output-file", "absent/r.json"], "folder absent;"),
    "nowhere to write": (["--output-file", "/proc/r.json"], "/proc/r.json"),
    "a folder to write in": (["--disagreements", "."], ".: is a folder, expected the name of a file"),
    "no name of a table": (["--save-outputs", "rows.csv"], "--save-outputs rows.csv: expected .pkl or "),
}


@pytest.mark.parametrize("name", BAD_FLAGS)
def test_bad_input_is_named_in_one_line(name: str, evaluate: Evaluate):
    flags, said = BAD_FLAGS[name]
    row = json.loads(RELEASE.read_text().splitlines()[0])
    Path("other.jsonl").write_text(json.dumps({**row, "question_id": "other"}) + "\n")
    result = evaluate(*flags, ids=outputs())
    assert (result.code, result.stdout) == (2, "")
    assert [line for line in result.stderr.splitlines() if said in line and ": error: " in line]
    assert "Traceback" not in result.stderr
    assert not Path("absent").exists()


@pytest.mark.engine
def test_heavy_packages_are_loaded_where_they_are_used():
    """Help needs none of them; what model output leads sympy to do happens in a sandbox alone."""
    code = """
import sys, harness.grading.evaluation_options as c
c.build_parser()
print({"numpy", "pandas", "pyarrow", "transformers"} & sys.modules.keys())
import harness.grading.evaluator
print({"sympy", "pylatexenc"} & sys.modules.keys())"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "set()\nset()\n", done.stderr
