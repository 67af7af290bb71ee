"""``run_compliance.py verify``: logs that exist already, also those of other harnesses, and broken ones."""

import errno
import gzip
import os
import re
import shutil

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from harness.config.benchmark import load_benchmark
from harness.config.plans import ComplianceSettings
from harness.files import sha256_of
from harness.record.output_dir import locked
from harness.record.run_record import RunVerdict
from tests import records
from tests.harness.compliance import cases
from tests.harness.compliance.program import LOW09, TEST07_ROWS, TEST09_ROWS, audit, dataset, run_here
from tests.harness.compliance.test_verdicts import SUBMISSIONS
from tests.harness.grading.logs import array, entry, harmony_ids
from tests.harness.submission.building import files
from tests.harness.submission.edits import (
    DETAIL,
    SUMMARY,
    both,
    cut,
    error_row,
    remove,
    row,
    text,
    without_row,
    write,
)
from tests.harness.submission.trees import RESULTS, copied, unpack
from tests.kit import full_disk
from tests.runs import ROOT, SAMPLES

ACCURACY = "mlperf_log_accuracy.json"
TOKENS = range(7, 15)  # with 8 the first output shows that they are of int32; with fewer all are looked at
FORM = entry("%d", TOKENS)
ENTRIES = [FORM % (index, index) for index in range(TEST09_ROWS)]
# 8 tokens on average, too; those that are counted have 7.
HALF_COUNTED = [entry(at, [7] * (7 + at % 2 * 2), count=not at % 2) for at in range(TEST09_ROWS)]
LOG = array(ENTRIES)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """LoadGen's logs of a TEST09 run of official size."""
    return unpack(tmp_path_factory.mktemp("made_up")) / RESULTS / "Offline/TEST09/performance/run_1"


@pytest.fixture
def logs(recorded, tmp_path):
    """They, with outputs of 8 tokens each and the rates of such ones."""
    folder = cases.write_logs(copied(recorded, tmp_path / "logs"), LOG)
    row(".", result_tokens_per_second=8000.0, result_samples_per_second=1000.0)(folder)
    return folder


@pytest.fixture
def verify(capfd):
    """Exit code, stdout, stderr."""

    def run(*words):
        done = run_here(capfd, "verify", *words)
        assert "Traceback" not in done.stderr
        return done.code, done.stdout, done.stderr

    return run


@pytest.fixture
def verify09(verify, tmp_path):
    """TEST09 with bounds that 8 tokens are within."""
    low = audit(tmp_path, "TEST09", LOW09.replace("2.5", "7.5").replace("3.5", "8.5"))
    return lambda folder, *words: verify("TEST09", "--log-dir", folder, "--audit-config", low, *words)


@pytest.fixture
def into(tmp_path):
    return ("--output-dir", tmp_path / "out")


def test_pass_and_fail(logs, verify, verify09, into, tmp_path):
    out = tmp_path / "out"
    code, printed, _ = verify09(logs, *into)
    assert (code, "TEST09: TEST PASS: mean output 8.00 tokens of 6396 samples" in printed) == (0, True)
    assert files(out) == [
        f"TEST09/accuracy/{ACCURACY}",
        f"TEST09/performance/run_1/{DETAIL}",
        f"TEST09/performance/run_1/{SUMMARY}",
        "TEST09/verify_output_len.txt",
    ]
    assert (out / "TEST09/accuracy" / ACCURACY).read_bytes() == (logs / ACCURACY).read_bytes()
    code, printed, _ = verify("TEST09", "--log-dir", logs, *into)
    assert (code, "TEST09: TEST FAIL" in printed) == (5, True)
    assert (out / "TEST09/verify_output_len.txt").read_text().endswith("TEST FAIL\n")
    (aside,) = out.glob("TEST09.*")
    assert (aside / "verify_output_len.txt").read_text().endswith("TEST PASS\n")


def test_the_scenario_is_that_of_the_logs(logs, verify09):
    """Another one was left out, without a word: Interactive is Server in LoadGen's logs."""
    code, _, said = verify09(logs, "--scenario", "interactive")
    assert (code, f"--scenario interactive: the logs in {logs} are of Offline; omit" in said) == (2, True)
    assert verify09(logs, "--scenario", "offline")[0] == 0


def test_the_accuracy_dataset_has_no_references_of_test07(logs, verify):
    """The remedy names the file's own row of the manifest."""
    code, _, said = verify("TEST07", "--log-dir", logs, "--reference-data", SAMPLES / "acc_sample.parquet")
    what = re.search(r"LiveCodeBench problems, expected GPQA; .*--what (\w+)\)", said)[1]
    rows = [line.split("\t") for line in (ROOT / "datasets/manifest.tsv").read_text().splitlines()]
    (file,) = [row[3] for row in rows if row[:2] == ["gpt-oss-120b", what]]
    assert (code, file) == (2, "acc/acc_eval_compliance_gpqa.parquet")
    code, _, said = verify("TEST07", "--log-dir", logs, "--reference-data", SAMPLES / "perf_sample.parquet")
    assert code == 2
    assert f"; pass the compliance dataset (datasets/download.sh --what {what})\n" in said


@pytest.mark.parametrize(("scenario", "code"), [("Offline", 2), ("Server", 0)])
def test_an_audit_config_is_read_for_the_scenario_of_the_log(scenario, code, logs, verify09, tmp_path):
    """Without --scenario."""
    path = tmp_path / "TEST09.config"
    path.write_text(f"{path.read_text()}*.{scenario}.accuracy_log_rng_seed = 5\n")
    found, _, said = verify09(logs)
    assert (found, "the audit settings say 5" in said) == (code, code == 2)


def test_small_logs_are_not_official(verify, into, tmp_path):
    logs = cases.write_logs(tmp_path / "logs", cases.lengths_log("within"))
    code, _, said = verify("TEST09", "--log-dir", logs)
    assert (code, "6393 of 6396 " in said and "(qsl_idx 3, 4, 5, 6, 7 and 6388 more)" in said) == (2, True)
    code, printed, _ = verify("TEST09", "--log-dir", logs, "--non-official", *into)
    assert code == 0
    assert "NOT OFFICIAL: 3 samples, TEST09 has 6396" in printed
    assert "TEST09: NOT OFFICIAL PASS: mean output 1300.00" in printed
    (statement,) = (tmp_path / "out" / "TEST09").glob("verify*")
    assert statement.name == "verify_output_len.NOT_OFFICIAL.txt"
    assert "TEST PASS" not in statement.read_text()


def test_a_run_that_deviates_is_not_official(logs, verify09):
    verdict = RunVerdict("VALID", complete=True)
    replace(records.ENDED, verdict=verdict, deviations=("temperature is 0.5",)).write(logs / "run.json")
    code, printed, said = verify09(logs)
    assert (code, printed, len(said.splitlines())) == (2, "", 1)
    assert f"{logs}: the run deviates from the rules (temperature is 0.5); " in said
    code, printed, _ = verify09(logs, "--rehearsal")
    assert (code, "TEST09: NOT OFFICIAL PASS" in printed) == (0, True)


def log(*more, of=ENTRIES):
    return write(ACCURACY, array([*of, *more]))


# Edits of the logs, and what the one line of the error names.
BROKEN = {
    "no accuracy log": (remove(ACCURACY), ACCURACY),
    "missing": (log(of=ENTRIES[:-2]), r": 2 of 6396 .*\(qsl_idx 6394, 6395\)"),
    "twice": (log(ENTRIES[4]), r": 1 .*\(qsl_idx 4\)"),
    "beyond": (log(entry(6396, TOKENS), entry(-1, TOKENS)), r": 2 .* 0\.\.6395 \(qsl_idx -1, 6396\)"),
    "cut short": (write(ACCURACY, LOG[:-100]), r"byte \d+ after 6,39\d entries"),
    "not closed": (write(ACCURACY, LOG[:-2]), r"byte \d+ after 6,396 entries \(.*\]"),
    "truncated": (write(ACCURACY, f"{LOG[:4096]}\n\n...\n\n{LOG[-4096:]}"), r"'\.\.\.'"),
    "compressed": (write(ACCURACY, gzip.compress(LOG[:4096].encode())), "gzip"),
    "nested": (
        write(ACCURACY, LOG.replace("{", '{ "more" : {},', 1)),
        "byte 2: ",
    ),
    "a folder": (both(remove(SUMMARY), lambda logs: (logs / SUMMARY).mkdir()), SUMMARY),
    "no entries": (write(ACCURACY, "[\n]\n"), f"{ACCURACY}: no answer was logged; .* audit settings"),
    "half a token": (write(ACCURACY, LOG.replace('"data" : "', '"data" : "45', 1)), "byte 2: 33 "),
    "detail cut short": (cut(DETAIL), DETAIL),
    "detail empty": (write(DETAIL, ""), DETAIL),
    "summary cut short": (cut(SUMMARY, 0.9), SUMMARY),
    "no record": (write("run.json", "{"), r"run\.json"),
    "of another run": (
        row(".", result_tokens_per_second=8008.3),
        rf"{ACCURACY}: its answers have 8\.000 tokens on average, expected 8\.008, the tokens/s ÷ "
        rf"samples/s of {DETAIL}: .*; pass the logs of one run, or run the test again",
    ),
    "samples that are no number": (
        row(".", effective_samples_per_query=None),
        f"{DETAIL}: .*effective_samples_per_query was None, the audit settings say 6396",
    ),
    "accuracy run": (
        row(".", effective_test_mode="AccuracyOnly"),
        f"{DETAIL}: .*test_mode .*AccuracyOnly",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_logs(name, logs, verify09, into):
    edit, named = BROKEN[name]
    edit(logs)
    code, printed, errors = verify09(logs, *into)
    assert (code, printed) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("run_compliance.py: error: ") and re.search(named, line)
    assert str(logs) in line and line.count(str(logs / ACCURACY)) < 2
    assert not into[1].exists()


def test_logs_of_another_benchmark_than_the_flags(logs, verify):
    write("run.json", records.verdict("VALID").replace("gpt-oss-120b", "deepseek-r1"))(logs)
    code, _, errors = verify("TEST09", "--benchmark", "gpt-oss-120b", "--log-dir", logs)
    assert code == 2
    assert re.search("run.json: names the benchmark deepseek-r1, .*; pass --benchmark deepseek-r1", errors)


def test_logs_of_another_test(logs, verify09):
    dataset_rule = load_benchmark("gpt-oss-120b").dataset(accuracy=True)
    audited = ComplianceSettings(test="TEST07", dataset=dataset_rule, settings={}, text="", official=True)
    plan = replace(records.ENDED.plan, audit=audited)
    replace(records.ENDED, plan=plan).write(logs / "run.json")
    code, printed, said = verify09(logs, "--rehearsal")
    assert (code, printed) == (2, "")
    assert f"{logs}/run.json: a run of TEST07, expected TEST09; pass the folder of its run\n" in said


def test_a_run_is_judged_by_the_rules_of_its_round(logs, verify):
    """By those of v6.1 the samples of this one were drawn in another way than its own official file says."""
    run = records.ENDED
    client = replace(run.plan.client, benchmark=load_benchmark("gpt-oss-120b", "v6.0"))
    run = replace(run, plan=replace(run.plan, client=client), deviations=())
    replace(run, verdict=RunVerdict("VALID", complete=True), accuracy_log_sha256="").write(logs / "run.json")
    row(".", **{UNIQUE: False})(logs)
    for words, warnings in (((), 0), (("--round", "v6.1"), 1)):
        code, printed, _ = verify("TEST09", "--log-dir", logs, *words)
        assert (code, printed.count(UNIQUE)) == (5, warnings)  # 8 tokens are too few


def test_true_answers_have_no_effect_where_none_are_scored(logs, verify09):
    _, printed, _ = verify09(logs, "--reference-data", "nowhere.parquet")
    assert "WARNING --reference-data nowhere.parquet has no effect: TEST09 scores no answers" in printed


def ours(result, *reasons, **more):
    return write("run.json", records.verdict(result, *reasons, **more))


UNMET_DURATION = text(SUMMARY, "duration satisfied : Yes", "duration satisfied : NO")
TOO_SLOW = both(text(SUMMARY, ": VALID", ": INVALID"), UNMET_DURATION)
ERRORS, ERROR_ROW = text(SUMMARY, "No errors", "7 ERRORS"), error_row(".", "tokens were lost")
COMPLETE = ours("VALID", complete=True)
UNMET = "LoadGen reports INVALID: Min duration not satisfied"
COUNTED, LOGGED = "LoadGen counts 7 errors", "1 x LoadGen error: tokens were lost"
UNIQUE, TARGET = "effective_performance_issue_unique", "effective_accuracy_log_sampling_target"
# Edits of the logs, and warnings besides those of other bounds.
JUDGED = {
    # Logs of another harness: the verdict is the official one. Samples drawn and a target of all samples are
    # ways of earlier rounds to have each sample logged once; the log shows that it was.
    "all that is wrong": (
        both(TOO_SLOW, ERRORS, ERROR_ROW, row(".", **{UNIQUE: False, TARGET: TEST09_ROWS})),
        [LOGGED, COUNTED, UNMET, f"{TARGET} was {TEST09_ROWS}", f"{UNIQUE} was False"],
    ),
    "an accuracy log alone": (both(remove(SUMMARY), remove(DETAIL)), [f"no {DETAIL}: ", f"no {SUMMARY}: "]),
    "JSON lines, no rates": (
        both(write(ACCURACY, "\n".join(ENTRIES)), without_row(".", "result_tokens_per_second")),
        ["the log has JSON lines"],
    ),
    "half of the token counts": (write(ACCURACY, array(HALF_COUNTED)), []),
    "rounded rates": (row(".", result_tokens_per_second=8007.7), []),
    "our run, only too slow": (both(TOO_SLOW, ours("INVALID", "slow", complete=True)), [UNMET]),
}
WORTHLESS = {
    "failures": (
        ours("INVALID", "3 of 9 queries failed"),
        "run.json has the result INVALID: 3 of 9 queries failed",
    ),
    "killed": (write("run.json", records.text(verdict=None, deviations=[])), "run.json has no verdict"),
    "errors": (both(ERRORS, COMPLETE), COUNTED),
    "error rows": (both(ERROR_ROW, COMPLETE), LOGGED),
    "another log": (
        ours("VALID", complete=True, accuracy_log_sha256="0" * 64),
        "LOGS/mlperf_log_accuracy.json is not the log of the run in the run.json beside it",
    ),
}


@pytest.mark.parametrize("name", JUDGED)
def test_what_a_verdict_is_no_part_of_is_a_warning(name, logs, verify09):
    edit, warnings = JUDGED[name]
    edit(logs)
    code, printed, _ = verify09(logs)
    assert (code, "TEST09: TEST PASS" in printed) == (0, True)
    found = sorted(re.findall("^WARNING (?!test09_)(.*)", printed, re.MULTILINE))
    assert [line[: len(start)] for line, start in zip(found, warnings, strict=True)] == warnings


@pytest.mark.parametrize("name", WORTHLESS)
def test_a_run_of_ours_that_is_worth_nothing(name, logs, verify09, into):
    edit, said = WORTHLESS[name]
    edit(logs)
    code, printed, _ = verify09(logs, *into)
    assert code == 4
    assert f"TEST09 has no verdict: {said.replace('LOGS', str(logs))}" in printed
    assert "TEST PASS" not in printed
    assert not into[1].exists()


def test_a_verified_folder_is_taken_and_not_overwritten(logs, verify09, into, tmp_path):
    """As a submission has it: logs below accuracy/ and performance/run_1."""
    assert verify09(logs, *into)[0] == 0
    folder = tmp_path / "out/TEST09"
    code, printed, _ = verify09(folder)
    assert (code, "not confirmed" in printed) == (0, False)
    code, _, said = verify09(folder, *into)
    assert (code, f"{folder} " in said) == (2, True)
    assert (folder / "accuracy" / ACCURACY).is_file()


def test_the_folder_of_a_test_run_is_taken(logs, verify, verify09, into, tmp_path):
    """run_compliance.py leaves the run in run/; what was verified lies beside it, and is replaced."""
    folder = tmp_path / "out/TEST09"
    shutil.copytree(logs, folder / "run")
    assert verify("TEST09", "--log-dir", folder, "--non-official", *into)[0] == 5
    assert verify09(folder, *into)[0] == 0
    (statement,) = folder.glob("verify_*")
    assert statement.read_text().endswith("TEST PASS\n")
    assert (folder / "run" / ACCURACY).exists() and (folder / "accuracy" / ACCURACY).is_file()
    assert [path.name for path in into[1].iterdir()] == ["TEST09"]


def test_the_folder_of_a_test_that_runs_is_left_alone(logs, verify09, into):
    """It was moved aside, and the run was lost."""
    folder = into[1] / "TEST09"
    (folder / "run").mkdir(parents=True)
    with locked(folder):
        code, _, said = verify09(logs, *into)
    assert (code, f"{folder}: another run is writing there" in said) == (2, True)
    assert files(folder.parent) == [".TEST09.lock"] and (folder / "run").is_dir()
    lock = folder.with_name(".TEST09.lock")
    lock.unlink()
    lock.mkdir()
    code, _, said = verify09(logs, *into)
    assert (code, f"{folder}: cannot write there: Is a directory; choose another folder" in said) == (2, True)


def test_a_full_disk_leaves_nothing_behind(logs, verify09, into, monkeypatch):
    def full(source, target):
        if target.name == DETAIL:
            full_disk()
        return copy(source, target)

    copy = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", full)
    code, _, said = verify09(logs, *into)
    assert (code, os.strerror(errno.ENOSPC) in said) == (2, True)
    assert list((into[1] / "TEST09").iterdir()) == []


USAGE = {
    "no references": (
        ["TEST07"],
        r"--reference-data, .*, or run datasets/download\.sh --benchmark gpt-oss-120b ",
    ),
    "no scenario": (["TEST06", "--benchmark", "llama3.1-8b"], "--scenario"),
    "no such test": (
        ["TEST09", "--benchmark", "llama3.1-8b"],
        r"llama3\.1-8b .* TEST09.* TEST06 \(TEST09: --benchmark gpt-oss-120b\)",
    ),
    "small references": (
        ["TEST07", "--reference-data", SAMPLES / "compliance_sample.parquet"],
        " 30 .*TEST07 .* 990",
    ),
}


@pytest.mark.parametrize("name", USAGE)
def test_usage(name, logs, verify, nothing_downloaded):
    words, named = USAGE[name]
    both(remove(SUMMARY), remove(DETAIL))(logs)
    code, printed, errors = verify(*words, "--log-dir", logs)
    assert (code, printed) == (2, "")
    assert re.search(named, errors)


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "gpqa.parquet", TEST07_ROWS)


def answered(folder, joined=array, **shape):
    """627 of the answers that the references ask for, the others wrong."""
    said = ["ABCD"[(row + (row >= 627)) % 4] for row in range(TEST07_ROWS)]
    outputs = {letter: harmony_ids(f"**Answer:** {letter}") for letter in "ABCD"}
    rows = [entry(row, outputs[letter], **shape) for row, letter in enumerate(said)]
    return cases.write_logs(folder / "logs", joined(rows))


@pytest.mark.engine
def test_test07_scores_as_a_published_run(references, verify, into, tmp_path):
    """627 of 990, as one of the v6.0 submissions: its figures, in its words."""
    words = ("--log-dir", answered(tmp_path), "--reference-data", references, *into)
    code, printed, _ = verify("TEST07", *words)
    assert code == 0, printed
    text = (into[1] / "TEST07" / "verify_accuracy.txt").read_text()
    for line in (
        "Overall raw accuracy: 63.33% (627/990)",
        "gpqa_diamond                   627      990        5     125.40     63.33%",
        "FINAL SCORE: 63.33% (125.40/198.00)",
        "'exact_match': 63.333",
        "Accuracy score: 63.333",
        "Accuracy threshold: 60.698",
        "TEST PASS",
    ):
        assert f"{line}\n" in text


@pytest.mark.engine
def test_test07_takes_the_answers_of_the_run_alone(references, verify, into, tmp_path):
    logs, other = answered(tmp_path), tmp_path / "other.parquet"
    pq.write_table(pq.read_table(references).take([*range(1, TEST07_ROWS), 0]), other)
    record = replace(records.ENDED, verdict=RunVerdict("VALID", complete=True), deviations=())
    run = records.with_plan(record, input_file=references, dataset_sha256=sha256_of(references))
    run.write(logs / "run.json")
    words = ("TEST07", "--log-dir", logs, *into, "--reference-data")
    code, printed, said = verify(*words, other)
    assert (code, printed) == (2, "")
    assert re.search(rf"error: {other} has sha256 \w+, .* row 0 has another true answer, as 990 of 990", said)
    assert verify(*words, references)[0] == 0
    assert verify(*words[:-1])[0] == 0  # the default


ODD = {
    "JSON lines": ({"joined": "\n".join}, "Error: Could not parse accuracy score\nTEST FAIL\n"),
    "token ids of int64": ({"width": 8}, "Accuracy check pass: False\nTEST FAIL\n"),
}


@pytest.mark.engine
@pytest.mark.parametrize("form", ODD)
def test_test07_of_an_odd_log_is_the_official_verdict(form, references, verify, into, tmp_path):
    """The official evaluator calls json.load and reads int32: such logs of 627 right answers fail there."""
    shape, ending = ODD[form]
    words = ("--log-dir", answered(tmp_path, **shape), "--reference-data", references, *into)
    code, printed, _ = verify("TEST07", *words)
    assert (code, f"WARNING the log has {form}" in printed) == (5, True)
    assert (into[1] / "TEST07/verify_accuracy.txt").read_text().endswith(ending)


PUBLISHED = {  # the official checker took all of them
    "RedHat/results/8xB200-LLM-D-Openshift/gpt-oss-120b/Offline": "TEST07: TEST PASS",
    "RedHat/results/8xB200-LLM-D-Openshift/gpt-oss-120b/Server": "TEST07: TEST PASS",
    "AMD/results/8xMI355X_2xEPYC_9575F/gpt-oss-120b/Offline": "TEST07: TEST PASS",
    "AMD/results/8xMI355X_2xEPYC_9575F/gpt-oss-120b/Server": "WARNING 1 x LoadGen error",
    "Nebius/results/nebius_b200_n1/gpt-oss-120b/Interactive": "WARNING LoadGen reports INVALID",
}


@pytest.mark.engine
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_logs_with_whole_answers(name, references, verify, tmp_path):
    """Real detail and summary logs; their accuracy logs were published in part: ours has no token counts."""
    source = SUBMISSIONS / name / "TEST07" / "performance" / "run_1"
    if not source.is_dir():
        pytest.skip("the published submissions are not here")
    copied(source, tmp_path / "logs")
    logs = answered(tmp_path, count=False)
    code, printed, errors = verify("TEST07", "--log-dir", logs, "--reference-data", references)
    assert (code, errors) == (0, ""), printed
    assert PUBLISHED[name] in printed
