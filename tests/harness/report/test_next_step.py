"""The command that a run prints for what comes next."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from msgspec import structs

from harness.grading.evaluation_options import build_parser
from harness.record.repeated import resuming_command
from harness.record.run_record import EncodedAnswers, RunVerdict
from harness.report.next_step import next_step, scoring_command
from tests.records import ENDED, with_plan
from tests.runs import PERFORMANCE, ROOT

LOG = Path("mlperf_results/gpt-oss-120b/offline/accuracy/mlperf_log_accuracy.json")


def parsed(command):
    """The command's interpreter and script, and its flags as the evaluator reads them."""
    interpreter, script, *flags = shlex.split(str(command))
    return interpreter, script, build_parser().parse_args(flags)


def test_a_log_is_scored_as_pasted(monkeypatch):
    """run.json beside it has the rest, but for a tokenizer that the run was given."""
    monkeypatch.chdir(ROOT)
    interpreter, script, flags = parsed(scoring_command(LOG))
    assert (ROOT / interpreter).samefile(sys.executable)
    assert not Path(interpreter).is_absolute() or not Path(sys.executable).is_relative_to(ROOT)
    assert script == "eval_mlperf_accuracy.py"
    assert (flags.mlperf_log, flags.tokenizer) == (LOG, None)
    *_, flags = parsed(scoring_command(LOG, "a folder"))
    assert flags.tokenizer == "a folder"


def test_from_another_folder_the_paths_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    interpreter, script, _ = parsed(scoring_command(LOG))
    assert (interpreter, script) == (sys.executable, str(ROOT / "eval_mlperf_accuracy.py"))


@pytest.mark.parametrize("given", [[], ["--resume"], ["--restart"]])
def test_resuming_is_the_same_command(given, monkeypatch):
    monkeypatch.chdir(ROOT)
    flags = ["--accuracy", "--input-file", "a set.parquet"]
    words = shlex.split(str(resuming_command([str(ROOT / "run_mlperf.py"), *flags, *given])))
    assert words[1:] == ["run_mlperf.py", *flags, "--resume"]
    assert (ROOT / words[0]).samefile(sys.executable)


@pytest.mark.parametrize(("folder", "launcher"), [(".", "./mlperf"), ("docs", str(ROOT / "mlperf"))])
def test_commands_of_the_door(folder, launcher, monkeypatch):
    """Where the process was started by it, the scoring command is one of its own."""
    monkeypatch.chdir(ROOT / folder)
    door = str(ROOT / "mlperf")
    again = shlex.split(str(resuming_command([door, "eval", "--output", "a file"])))
    assert again[:4] == [launcher, "eval", "--output", "a file"]
    monkeypatch.setattr(sys, "argv", [door, "run", "--accuracy"])
    words = shlex.split(str(scoring_command(LOG)))
    assert words[:3] == [launcher, "score", "--mlperf-log"]


AGAIN = r"[Rr]epeat it with: \S+ run_mlperf\.py --accuracy"


@pytest.mark.parametrize(
    ("mode", "result", "completed", "failed", "line"),
    [
        ("accuracy", "INTERRUPTED", 5, 0, r"Resume it with: \S+ run_mlperf\.py --accuracy --resume"),
        ("accuracy", "INVALID", 5, 1, r"Resume it with: \S+ run_mlperf\.py --accuracy --resume"),
        ("accuracy", "INTERRUPTED", 0, 0, AGAIN),
        ("accuracy", "INVALID", 0, 1, f"Mend the cause, then {AGAIN}"),
        ("performance", "INTERRUPTED", 5, 0, AGAIN),
        ("performance", "INTERRUPTED", 5, 1, f"Mend the cause, then {AGAIN}"),
        ("performance", "INVALID", 5, 1, f"Mend the cause, then {AGAIN}"),
        ("performance", "INVALID", 6, 0, f"Mend the cause, then {AGAIN}"),
        ("performance", "VALID", 6, 0, ""),
        ("accuracy", "VALID", 6, 0, r"Score it with: .+/mlperf_log_accuracy\.json --tokenizer models/x"),
    ],
)
def test_the_step_after_a_run(tmp_path, monkeypatch, mode, result, completed, failed, line):
    """The cause of failed queries is mended first; what a run was ended by needs no mending."""
    monkeypatch.chdir(tmp_path)
    record = structs.replace(
        with_plan(ENDED, mode=mode, tokenizer="models/x"),
        verdict=RunVerdict(result),
        statistics=structs.replace(ENDED.statistics, queries=completed + failed, completed=completed),
        provenance=structs.replace(ENDED.provenance, command=("run_mlperf.py", "--accuracy")),
    )
    assert re.fullmatch(line, next_step(record)), next_step(record)


@pytest.mark.parametrize(
    ("mode", "result"), [("accuracy", "INTERRUPTED"), ("performance", "INTERRUPTED"), ("accuracy", "VALID")]
)
def test_a_step_with_relative_paths_names_their_folder(tmp_path, monkeypatch, mode, result):
    """On a page, and on the terminal in another folder; on that of the run itself nothing is added."""
    ran = tmp_path / "the run's"
    ran.mkdir()
    command = ("run_mlperf.py", "--input-file", "in/d.parquet")
    record = structs.replace(
        with_plan(ENDED, mode=mode, log_dir=ran / "out"),
        verdict=RunVerdict(result),
        provenance=structs.replace(ENDED.provenance, command=command, folder=str(ran)),
    )
    monkeypatch.chdir(ran)
    here, page = next_step(record), next_step(record, elsewhere=True)
    words, _, step = here.partition(" with: ")
    assert page == f"{words} with: cd {shlex.quote(str(ran))} && {step}"
    monkeypatch.chdir(tmp_path)
    if result == "VALID":  # not by the run's command: the log lies where the record says
        assert shlex.split(next_step(record))[-1] == "the run's/out/mlperf_log_accuracy.json"
    else:
        assert next_step(record) == page


@pytest.mark.parametrize(("complete", "step"), [(True, False), (False, True)])
def test_a_compliance_run_that_is_only_too_slow_is_not_repeated(complete, step):
    """Its test looks at the answers; and of a search the next run is its own choice."""
    record = structs.replace(
        with_plan(ENDED, audit_text="*.*.mode = 2\n"),
        verdict=RunVerdict("INVALID", complete=complete),
        provenance=structs.replace(ENDED.provenance, command=("run_compliance.py", "TEST07")),
    )
    assert bool(next_step(record)) is step
    search = structs.replace(ENDED.provenance, command=("find_peak.py", "search"))
    assert next_step(structs.replace(record, provenance=search)) == ""
    unknown = structs.replace(ENDED.provenance, command=())
    assert next_step(structs.replace(record, provenance=unknown)) == ""


HALF = EncodedAnswers(tokenizer="t", tokenizer_sha256="0", answers=9, ids=4500, counted=9000)


@pytest.mark.parametrize(("unanswered", "flag"), [(0, "--restart"), (1, "--resume")])
@pytest.mark.parametrize(("errors", "encoded"), [(2, None), (0, HALF)])
def test_a_run_whose_answers_are_wrong_begins_anew(unanswered, flag, errors, encoded):
    """LoadGen counts an answer of one token as an error, and a resumed run has all answers again."""
    record = structs.replace(
        with_plan(ENDED, mode="accuracy", input_file=PERFORMANCE),
        verdict=RunVerdict("INVALID"),
        unanswered=unanswered,
        statistics=structs.replace(ENDED.statistics, completed=ENDED.statistics.queries, failures={}),
        loadgen=structs.replace(ENDED.loadgen, errors=errors),
        encoded=encoded,
        provenance=structs.replace(ENDED.provenance, command=("run_mlperf.py", "--accuracy")),
    )
    assert next_step(record).endswith(f"run_mlperf.py --accuracy {flag}")
