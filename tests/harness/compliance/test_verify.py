"""``run_compliance.py verify``: logs that exist already, also those of other harnesses, and broken ones."""

import errno
import json
import shutil

import pytest

import run_compliance as program
from tests import records
from tests.harness.compliance import cases
from tests.harness.compliance.program import LOW09, TEST07_ROWS, TEST09_ROWS, audit, dataset
from tests.harness.compliance.test_compliance_test import SUBMISSIONS
from tests.harness.grading.logs import array, entry, harmony_ids
from tests.runs import SAMPLES

ACCURACY, SUMMARY, DETAIL = "mlperf_log_accuracy.json", "mlperf_log_summary.txt", "mlperf_log_detail.txt"
TOKENS = [7, 8, 9]
EFFECTIVE = {
    "scenario": "Offline",
    "test_mode": "PerformanceOnly",
    "min_duration_ms": 0,
    "min_query_count": 1,
    "samples_per_query": TEST09_ROWS,
    "accuracy_log_rng_seed": 720381539243781796,
    "accuracy_log_sampling_target": 10000,
    "performance_issue_unique": True,
    "sample_concatenate_permutation": False,
}
VALID = """MLPerf Results Summary
Scenario : Offline
Mode     : PerformanceOnly
Result is : VALID
  Min duration satisfied : Yes

No errors encountered during test.
"""
ENTRIES = [entry(index, TOKENS) for index in range(TEST09_ROWS)]


def detail(changes=None, error: str = "", end: bool = True) -> str:
    def row(key, value, is_error=False):
        meta = {"is_error": is_error, "is_warning": False, "file": "", "line_no": 1, "pid": 1, "tid": 1}
        return ":::MLLOG " + json.dumps({"key": key, "value": value, "time_ms": 1.0, "metadata": meta})

    rows = [row(f"effective_{key}", value) for key, value in (EFFECTIVE | (changes or {})).items()]
    rows += [row("error_runtime", error, True)] if error else []
    last = [row("power_end", ""), row("num_errors", 0)]
    return "\n".join([*rows, *(last if end else [])]) + "\n"


@pytest.fixture
def logs(tmp_path):
    """A complete TEST09 run whose outputs have 3 tokens each."""
    folder = tmp_path / "logs"
    cases.write_logs(folder, array(ENTRIES))
    (folder / SUMMARY).write_text(VALID)
    (folder / DETAIL).write_text(detail())
    return folder


@pytest.fixture
def verify(capfd):
    """Exit code, stdout, stderr."""

    def run(*words):
        code = program.main(["verify", *map(str, words)])
        printed = capfd.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out, printed.err

    return run


@pytest.fixture
def verify09(verify, tmp_path):
    """TEST09 with bounds that 3 tokens are within."""
    low = audit(tmp_path, "TEST09", LOW09)
    return lambda folder, *words: verify("TEST09", "--log-dir", folder, "--audit-config", low, *words)


@pytest.fixture
def into(tmp_path):
    return ("--output-dir", tmp_path / "out")


def put(folder, files):
    """Write files by name; None removes one."""
    for name, text in files.items():
        (folder / name).unlink(missing_ok=True)
        if text is not None:
            (folder / name).write_text(text)


def test_pass_and_fail(logs, verify, verify09, into, tmp_path):
    out = tmp_path / "out"
    code, printed, _ = verify09(logs, *into)
    assert (code, "TEST09: TEST PASS: mean output 3.00 tokens of 6396 samples" in printed) == (0, True)
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()) == [
        f"TEST09/accuracy/{ACCURACY}",
        f"TEST09/performance/run_1/{DETAIL}",
        f"TEST09/performance/run_1/{SUMMARY}",
        "TEST09/verify_output_len.txt",
    ]
    assert (out / "TEST09/accuracy" / ACCURACY).read_bytes() == (logs / ACCURACY).read_bytes()
    code, printed, _ = verify("TEST09", "--log-dir", logs, "--output-dir", out)
    assert (code, "TEST09: TEST FAIL" in printed) == (5, True)
    assert (out / "TEST09/verify_output_len.txt").read_text().endswith("TEST FAIL\n")
    (aside,) = out.glob("TEST09.*")
    assert (aside / "verify_output_len.txt").read_text().endswith("TEST PASS\n")


def test_an_accuracy_log_alone(logs, verify09):
    """Judged as the official script does, with a warning for what could not be confirmed."""
    put(logs, {SUMMARY: None, DETAIL: None})
    code, printed, _ = verify09(logs)
    assert (code, printed.count("is not confirmed")) == (0, 2)


def test_small_logs_are_not_official(verify, tmp_path):
    logs = cases.write_logs(tmp_path / "logs", cases.lengths_log("within"))
    code, _, said = verify("TEST09", "--log-dir", logs)
    assert (code, "6393 of 6396 samples missing (qsl_idx 3, 4, 5, 6, 7, ...)" in said) == (2, True)
    code, printed, _ = verify("TEST09", "--log-dir", logs, "--non-official", "--output-dir", tmp_path / "out")
    assert code == 0
    assert "NOT OFFICIAL: 3 samples, TEST09 has 6396" in printed
    assert "TEST09: NOT OFFICIAL PASS: mean output 1300.00" in printed
    (statement,) = (tmp_path / "out" / "TEST09").glob("verify*")
    assert statement.name == "verify_output_len.NOT_OFFICIAL.txt"
    assert "TEST PASS" not in statement.read_text()


def broken_log(entries=ENTRIES, cut: int = 0):
    text = array(entries)
    return {ACCURACY: text[: len(text) - cut]}


BROKEN = {
    "no accuracy log": ({ACCURACY: None}, "no mlperf_log_accuracy.json"),
    "missing": (broken_log(ENTRIES[:-2]), "2 of 6396 samples missing (qsl_idx 6394, 6395)"),
    "twice": (broken_log([*ENTRIES, ENTRIES[4]]), "1 logged more than once (qsl_idx 4)"),
    "beyond": (broken_log([*ENTRIES, entry(6396, TOKENS)]), "1 beyond 0..6395 (qsl_idx 6396)"),
    "cut short": (broken_log(cut=100), "cut short at byte"),
    "not closed": (broken_log(cut=2), "the closing ] is missing"),
    "truncated": (
        {ACCURACY: array(ENTRIES)[:4096] + "\n\n...\n\n" + array(ENTRIES)[-4096:]},
        "truncated for submission",
    ),
    "no entries": ({ACCURACY: "[\n]\n"}, "mlperf_log_accuracy.json: no answer was logged"),
    "half a token": (broken_log([ENTRIES[0].replace('"data" : "', '"data" : "45')]), "cut short"),
    "detail cut short": ({DETAIL: detail(end=False)}, "mlperf_log_detail.txt: cut short"),
    "detail empty": ({DETAIL: ""}, "mlperf_log_detail.txt: empty"),
    "summary cut short": ({SUMMARY: VALID[:-20]}, "mlperf_log_summary.txt: cut short"),
    "no record": ({"run.json": "{"}, "run.json is not the record of a run"),
    "accuracy run": ({DETAIL: detail({"test_mode": "AccuracyOnly"})}, "effective_test_mode was AccuracyOnly"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_logs(name, logs, verify09, into):
    files, said = BROKEN[name]
    put(logs, files)
    code, printed, errors = verify09(logs, *into)
    assert (code, printed) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("run_compliance.py: error: ") and said in line
    assert not into[1].exists()


OURS = records.verdict("VALID", complete=True)
NOTED = {
    "invalid": (
        {SUMMARY: VALID.replace(": VALID", ": INVALID").replace(": Yes", ": NO")},
        "LoadGen reports INVALID: Min duration not satisfied",
    ),
    "errors": ({SUMMARY: VALID.replace("No errors", "7 ERRORS")}, "LoadGen counts 7 errors"),
    "error rows": ({DETAIL: detail(error="tokens were lost")}, "1 x LoadGen error: tokens were lost"),
}
WORTHLESS = {
    "failures": (
        {"run.json": records.verdict("INVALID", "3 of 9 queries failed")},
        "run.json has the result INVALID: 3 of 9 queries failed",
    ),
    "killed": ({"run.json": records.text(verdict=None, deviations=[])}, "run.json has no verdict"),
    "errors": (NOTED["errors"][0] | {"run.json": OURS}, NOTED["errors"][1]),
    "error rows": (NOTED["error rows"][0] | {"run.json": OURS}, NOTED["error rows"][1]),
}


@pytest.mark.parametrize("name", NOTED)
def test_what_the_official_scripts_do_not_look_at_is_a_note(name, logs, verify09):
    """Logs of another harness: the verdict is the official one, with a warning."""
    files, said = NOTED[name]
    put(logs, files)
    code, printed, _ = verify09(logs)
    assert (code, f"WARNING {said}" in printed) == (0, True)
    assert "TEST09: TEST PASS" in printed


def test_a_run_of_ours_that_is_only_too_slow(logs, verify09):
    files, said = NOTED["invalid"]
    put(logs, files | {"run.json": records.verdict("INVALID", "slow", complete=True)})
    code, printed, _ = verify09(logs)
    assert (code, f"WARNING {said}" in printed) == (0, True)


@pytest.mark.parametrize("name", WORTHLESS)
def test_a_run_of_ours_that_is_worth_nothing(name, logs, verify09, into):
    files, said = WORTHLESS[name]
    put(logs, files)
    code, printed, _ = verify09(logs, *into)
    assert code == 4
    assert f"TEST09 has no verdict: {said}" in printed
    assert "TEST PASS" not in printed
    assert not into[1].exists()


EARLIER = {"performance_issue_unique": False, "accuracy_log_sampling_target": 6396}


@pytest.mark.parametrize("key", EARLIER)
def test_settings_of_earlier_rounds(key, logs, verify09):
    """Other ways to have each sample logged once; the log shows that it was."""
    (logs / DETAIL).write_text(detail({key: EARLIER[key]}))
    code, printed, _ = verify09(logs)
    assert (code, f"WARNING effective_{key} was {EARLIER[key]}" in printed) == (0, True)


def test_the_folder_of_the_logs_is_not_overwritten(logs, verify09, into, tmp_path):
    inside = shutil.copytree(logs, tmp_path / "out" / "TEST09" / "performance" / "run_1")
    code, _, said = verify09(inside, *into)
    assert (code, "holds the logs that are verified" in said) == (2, True)
    assert (inside / ACCURACY).exists()


def test_a_run_is_verified_again_in_its_own_folder(logs, verify, verify09, into, tmp_path):
    run = shutil.copytree(logs, tmp_path / "out" / "TEST09" / "run")
    assert verify("TEST09", "--log-dir", run, *into)[0] == 5
    assert verify09(run, *into)[0] == 0
    assert (run / ACCURACY).exists()
    assert not list((tmp_path / "out").glob("TEST09.*"))


def test_a_verified_folder_is_taken(logs, verify09, into, tmp_path):
    """As a submission has it: logs below accuracy/ and performance/run_1."""
    assert verify09(logs, *into)[0] == 0
    folder = tmp_path / "out/TEST09"
    code, printed, _ = verify09(folder)
    assert (code, "not confirmed" in printed) == (0, False)
    assert verify09(folder, *into)[0] == 2
    assert (folder / "accuracy" / ACCURACY).is_file()


def test_the_folder_of_a_test_run_is_taken(logs, verify09, tmp_path):
    """run_compliance.py leaves the run in run/; what was verified lies beside it."""
    folder = tmp_path / "TEST09"
    shutil.copytree(logs, folder / "run")
    assert verify09(folder)[0] == 0
    assert verify09(folder, "--output-dir", tmp_path)[0] == 0
    assert (folder / "accuracy" / ACCURACY).is_file()
    assert verify09(folder)[0] == 0


def test_a_full_disk_leaves_nothing_behind(logs, verify09, into, monkeypatch):
    def full(source, target):
        if target.name == DETAIL:
            raise OSError(errno.ENOSPC, "No space left on device")
        return copy(source, target)

    copy = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", full)
    code, _, said = verify09(logs, *into)
    assert (code, "No space left on device" in said) == (2, True)
    assert list((into[1] / "TEST09").iterdir()) == []


USAGE = {
    "no references": (["TEST07"], "pass --reference-data"),
    "no scenario": (["TEST06", "--benchmark", "llama3.1-8b"], "pass --scenario"),
    "no such test": (["TEST09", "--benchmark", "llama3.1-8b"], "llama3.1-8b has no TEST09; it needs TEST06"),
    "small references": (
        ["TEST07", "--reference-data", SAMPLES / "compliance_sample.parquet"],
        "30 references, TEST07 has 990",
    ),
}


@pytest.mark.parametrize("name", USAGE)
def test_usage(name, logs, verify):
    words, said = USAGE[name]
    put(logs, {SUMMARY: None, DETAIL: None})
    code, printed, errors = verify(*words, "--log-dir", logs)
    assert (code, printed) == (2, "")
    assert said in errors


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "gpqa.parquet", TEST07_ROWS)


def answered(folder, right: int, joined=array, **shape):
    """``right`` of the answers that the references ask for, the others wrong."""
    said = ["ABCD"[(row + (row >= right)) % 4] for row in range(TEST07_ROWS)]
    outputs = {letter: harmony_ids(f"**Answer:** {letter}") for letter in "ABCD"}
    rows = [entry(row, outputs[letter], **shape) for row, letter in enumerate(said)]
    return cases.write_logs(folder, joined(rows))


def test_test07_scores_as_a_published_run(references, verify, tmp_path):
    """627 of 990, as one of the v6.0 submissions: its figures, in its words."""
    logs, out = answered(tmp_path / "logs", 627), tmp_path / "out"
    words = ("--log-dir", logs, "--reference-data", references, "--output-dir", out)
    code, printed, _ = verify("TEST07", *words)
    assert code == 0, printed
    text = (out / "TEST07" / "verify_accuracy.txt").read_text()
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


ODD = {
    "JSON lines": ({"width": 4}, "\n".join, "Error: Could not parse accuracy score\nTEST FAIL\n"),
    "int64": ({"width": 8}, array, "Accuracy check pass: False\nTEST FAIL\n"),
}


@pytest.mark.parametrize("name", ODD)
def test_test07_of_an_odd_log_is_the_official_verdict(name, references, verify, tmp_path):
    """The official evaluator calls json.load and reads int32: such logs of 627 right answers fail there."""
    shape, joined, ending = ODD[name]
    logs = answered(tmp_path / "logs", 627, joined, **shape)
    words = ("--log-dir", logs, "--reference-data", references, "--output-dir", tmp_path / "out")
    code, printed, _ = verify("TEST07", *words)
    assert code == 5
    assert f"WARNING the log has {'JSON lines' if name == 'JSON lines' else 'token ids of int64'}" in printed
    assert (tmp_path / "out/TEST07/verify_accuracy.txt").read_text().endswith(ending)


@pytest.mark.parametrize("name", ["array", "JSON lines"])
def test_test09_reads_both_shapes(name, logs, verify09):
    """So does the official script."""
    if name == "JSON lines":
        (logs / ACCURACY).write_text("\n".join(ENTRIES) + "\n")
    code, printed, _ = verify09(logs)
    assert code == 0
    assert ("WARNING the log has JSON lines" in printed) == (name == "JSON lines")


PUBLISHED = {  # the official checker took all of them
    "RedHat/results/8xB200-LLM-D-Openshift/gpt-oss-120b/Offline": (0, "TEST07: TEST PASS"),
    "RedHat/results/8xB200-LLM-D-Openshift/gpt-oss-120b/Server": (0, "TEST07: TEST PASS"),
    "AMD/results/8xMI355X_2xEPYC_9575F/gpt-oss-120b/Offline": (0, "TEST07: TEST PASS"),
    "AMD/results/8xMI355X_2xEPYC_9575F/gpt-oss-120b/Server": (0, "WARNING 1 x LoadGen error"),
    "Nebius/results/nebius_b200_n1/gpt-oss-120b/Interactive": (0, "WARNING LoadGen reports INVALID"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_logs_with_whole_answers(name, references, verify, tmp_path):
    """Real detail and summary logs; their accuracy logs were published in part only."""
    source = SUBMISSIONS / name / "TEST07" / "performance" / "run_1"
    if not source.is_dir():
        pytest.skip("the published submissions are not here")
    logs = answered(tmp_path / "logs", 627)
    for file in (SUMMARY, DETAIL):
        shutil.copy(source / file, logs)
    code, printed, errors = verify("TEST07", "--log-dir", logs, "--reference-data", references)
    assert (code, errors) == (PUBLISHED[name][0], ""), printed
    assert PUBLISHED[name][1] in printed
