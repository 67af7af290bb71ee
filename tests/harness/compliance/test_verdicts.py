"""The verdicts on logs are those of the official scripts, to the letter."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.compliance.accuracy_check import MIN_ACCURACY
from harness.compliance.base import JudgedRun
from harness.compliance.eos_check import judge_consistency
from harness.compliance.length_check import MAX_TOKENS, MIN_TOKENS
from harness.compliance.registry import find_test
from harness.compliance.verified import read_verdict
from harness.config.benchmark import load_benchmark
from harness.config.plans import ComplianceSettings
from harness.errors import GradingError
from harness.files import unofficial
from harness.grading.evaluation.references import load_references
from harness.grading.reports.scorecard import warnings_in
from harness.loadgen_logs.accuracy_log import AccuracyLog
from tests.harness.compliance import cases, official
from tests.harness.grading.samples import REFERENCE as ACCURACY_REFERENCE
from tests.harness.grading.shared import SHARED_DATA

SUBMISSIONS = SHARED_DATA / "mlperf_v6.0" / "closed"
GPT_OSS = load_benchmark("gpt-oss-120b")
TEST06 = find_test(load_benchmark("deepseek-r1"), "TEST06")


def settings_of(test, settings=None):
    """Those of a run with the official settings, or with others."""
    settings = test.audit if settings is None else settings
    return ComplianceSettings(test=test.name, dataset=test.dataset, settings=settings, text="", official=True)


def log_of(folder: Path, text: str) -> AccuracyLog:
    return AccuracyLog(cases.write_logs(folder, text) / "mlperf_log_accuracy.json")


def scored(folder: Path, right: int, threshold: float):
    run = JudgedRun(GPT_OSS, {MIN_ACCURACY: threshold}, cases.references())
    return find_test(GPT_OSS, "TEST07").judge(log_of(folder, cases.answers_log(right)), run)


def measured(folder: Path, name: str):
    bounds = dict(zip((MIN_TOKENS, MAX_TOKENS), cases.BOUNDS, strict=True))
    log = log_of(folder, cases.lengths_log(name))
    return find_test(GPT_OSS, "TEST09").judge(log, JudgedRun(GPT_OSS, bounds))


@pytest.mark.parametrize("name", cases.LENGTHS)
def test_test09(name, tmp_path):
    verdict = measured(tmp_path, name)
    assert (verdict.verify_text, verdict.warnings) == (official.said("TEST09", name), ())
    assert verdict.passed == ("TEST PASS" in verdict.verify_text)


@pytest.mark.parametrize("width", [4, 8])
def test_test09_of_outputs_that_go_on_behind_their_end(tmp_path, width):
    """Graders read nothing there, and every token counts: 3 % more of tokens/s, well within the tolerance."""
    answer = [*[1000] * 99, 200002]
    outputs = [answer, [*answer, 200002, 5, 6], answer, [*answer, 7, 8, 9, 200002, 5, 6, 7, 8, 9]]
    log = log_of(tmp_path, cases.array(cases.entry(i, ids, width=width) for i, ids in enumerate(outputs)))
    run = JudgedRun(GPT_OSS, {MIN_TOKENS: 1.0, MAX_TOKENS: 1000.0})
    verdict = find_test(GPT_OSS, "TEST09").judge(log, run)
    (warning,) = verdict.warnings
    assert warnings_in(verdict.scorecard) == verdict.warnings
    assert "2 of 4 outputs go on behind an end of sequence, with 12 tokens in all" in warning


@pytest.mark.parametrize("name", cases.SCORES)
def test_test07(name, tmp_path):
    verdict = scored(tmp_path, *cases.SCORES[name])
    start = verdict.verify_text.index(official.SUMMARY)
    assert verdict.verify_text[start:] == official.said("TEST07", name)
    assert verdict.passed == ("TEST PASS" in verdict.verify_text)
    score = re.search(r"'exact_match': ([\d.]+)", verdict.verify_text)
    assert score and f"Accuracy score: {float(score[1])}\n" in verdict.verify_text
    assert ("Target PASS by the official rules: " in verdict.verify_text) is verdict.passed


def test_test07_of_outputs_that_are_all_alike(tmp_path):
    """150 answers of one letter: the temperature was ignored, or a cache answered."""
    rows = [(100 * part, row) for part in range(5) for row in cases.references()]
    references = tuple(replace(row, question=first + row.question) for first, row in rows)
    letters = (cases.harmony_ids("**Answer:** A") for _ in references)
    log = log_of(tmp_path, cases.array(cases.entry(index, ids) for index, ids in enumerate(letters)))
    verdict = find_test(GPT_OSS, "TEST07").judge(log, JudgedRun(GPT_OSS, {MIN_ACCURACY: 0.0}, references))
    (warning,) = verdict.warnings
    assert "have exactly as many tokens" in warning
    assert warnings_in(verdict.scorecard) == verdict.warnings


@pytest.mark.parametrize("name", cases.CONSISTENCY)
def test_eos_check(name, tmp_path):
    scenario, text = cases.CONSISTENCY[name]
    outputs = [*log_of(tmp_path / "log", text)]
    good, _ = log_of(tmp_path / "good", cases.CONSISTENCY["good"][1])
    for more in ([], [good]):  # a good output behind them makes none of them better
        verdict = judge_consistency([*outputs, *more], scenario, (cases.EOS,))
        assert verdict.verify_text == official.said("TEST06", name)
        assert verdict.passed == ("TEST06 verification complete" in verdict.verify_text)
        assert verdict.passed == TEST06.read(verdict.verify_text).passed
        assert verdict.summary.startswith(f"{len(outputs) + len(more)} outputs; ")


@pytest.mark.parametrize(("benchmark", "ends"), [("llama3.1-8b", [128008, 128009]), ("deepseek-r1", [1, 1])])
def test_eos_check_knows_every_end(benchmark, ends, tmp_path):
    """The official script compares with one id, and with none when it comes from its command line."""
    found = load_benchmark(benchmark)
    test, run = find_test(found, "TEST06"), JudgedRun(found, {}, scenario="Server")
    for last, passes in ((ends, False), (ends[-1:], True)):
        log = log_of(tmp_path, cases.array([cases.entry(0, [5, 6, *last])]))
        assert test.judge(log, run).passed is passes


def test_eos_check_warns_of_the_end_that_the_official_script_takes_by_default(tmp_path):
    """The record has FAIL for these answers: the script was run without -e."""
    scenario, text = cases.CONSISTENCY["two ends"]
    assert "EOS check pass: False" in official.said("TEST06", "two ends")
    verdict = judge_consistency(reversed([*log_of(tmp_path, text)]), scenario, (128009,))
    assert (verdict.passed, len(verdict.warnings)) == (True, 1)
    scenario, text = cases.CONSISTENCY["good"]
    assert judge_consistency(log_of(tmp_path, text), scenario, (cases.EOS,)).warnings == ()


CHECKS = "First token check pass: {}\nEOS check pass: {}\nSample length check pass: True\n"
RECHECKED = [
    ("Server", "True", "True", 0),
    ("Offline", "Skipped", "True", 0),
    ("Offline", "True", "True", 0),
    ("Server", "Skipped", "True", 1),
    ("Server", "True", "False", 1),
    ("Server", "True", "True\nEOS check pass: False", 1),
    ("Offline", "False", "None", 2),
]


@pytest.mark.parametrize(("scenario", "first", "ends", "wrong"), RECHECKED)
def test_eos_check_file_of_a_submission(scenario, first, ends, wrong):
    assert len(list(TEST06.recheck(CHECKS.format(first, ends), scenario))) == wrong


@official.needs_checkout
@pytest.mark.parametrize("test", official.SCRIPTS)
def test_the_record_is_what_the_scripts_say(test, tmp_path):
    run, names = official.SCRIPTS[test]
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run(Path(official.CHECKOUT), folder, name) == official.said(test, name), name


def test_test07_grades_no_programs():
    with pytest.raises(GradingError, match=r"^TEST07: \d+ of \d+ .*LiveCodeBench.*GPQA"):
        find_test(GPT_OSS, "TEST07").require_references(load_references(ACCURACY_REFERENCE, GPT_OSS))


def shape(text: str) -> list[str]:
    """The text without its numbers and the widths that they take."""
    return [re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "#", line)).strip() for line in text.splitlines()]


def published(name: str) -> list[Path]:
    """Files of the scenarios of all submissions."""
    found = sorted(SUBMISSIONS.glob(f"*/results/*/gpt-oss-120b/*/{name}"))
    if not found:
        pytest.skip("the published submissions are not here")
    return found


def test_our_test09_file_reads_like_the_published_ones(tmp_path):
    ours = shape(measured(tmp_path, "within").verify_text)
    files = published("*/verify_output_len.txt")
    assert [shape(path.read_text()) for path in files] == [ours] * len(files)


def test_our_test07_file_reads_like_the_published_ones(tmp_path):
    ours = shape(scored(tmp_path, 20, 60.698).verify_text)
    for path in published("*/verify_accuracy.txt"):
        lines = shape(path.read_text())
        start = lines.index("MLPerf Accuracy Evaluation Results") - 1
        assert [line for line in lines[start:] if line not in ours] == [], path
        assert lines[-6:] == ours[-6:], path


@pytest.mark.parametrize(
    ("name", "official", "passed"), [("verify_accuracy.txt", True, None), ("NOT_OFFICIAL", False, True)]
)
def test_a_rehearsal_s_verification_is_no_official_one_by_another_name(tmp_path, name, official, passed):
    test = find_test(GPT_OSS, "TEST07")
    path = tmp_path / test.verify_file
    text = f"NOT OFFICIAL: short\n\nAccuracy score: 65.0\n{test.unofficial_pass_line}\n"
    (path if name == path.name else unofficial(path)).write_text(text)
    found = read_verdict(GPT_OSS, settings_of(test), tmp_path)
    assert (found.official, found.passed, found.figure) == (official, passed, 65.0)
    assert test.verification_in(tmp_path / "nothing").name == path.name
    path.touch()
    assert test.verification_in(tmp_path) == path


@pytest.mark.parametrize(
    ("text", "official"),
    [
        ("Accuracy score: 60.7\nAccuracy threshold: 60.698\nTEST PASS\n", True),
        ("Accuracy score: 60.0\nAccuracy threshold: 10.0\nTEST PASS\n", False),
        ("Accuracy score: 60.0\nAccuracy threshold: 60.698\nTEST FAIL\n", True),
        ("Mean output tokens: 1278.20\nMin threshold: 1150.38\nMax threshold: 1406.02\nTEST PASS\n", True),
        ("Mean output tokens: 100.00\nMin threshold: 50.0\nMax threshold: 1406.02\nTEST PASS\n", False),
    ],
)
def test_a_pass_by_own_thresholds_is_not_official(tmp_path, text, official):
    """Those of an audit.config of the user's, which the official scripts take as well."""
    test = find_test(GPT_OSS, "TEST07" if "Accuracy" in text else "TEST09")
    (tmp_path / test.verify_file).write_text(text)
    found = read_verdict(GPT_OSS, settings_of(test), tmp_path)
    assert (found.official, found.passed) == (official, text.endswith("PASS\n"))


def test_a_test_that_the_benchmark_does_not_have_now_has_no_verdict(tmp_path):
    """As of a folder that another version has left."""
    assert read_verdict(GPT_OSS, settings_of(TEST06), tmp_path).passed is None


@pytest.mark.parametrize(("logged", "official"), [(100, True), (10_000, True), (99, False), (None, False)])
def test_a_pass_of_fewer_answers_is_not_official(tmp_path, logged, official):
    """The file says the same of each number of answers; the check of a submission counts those of the log."""
    text = judge_consistency((), "Offline", ()).verify_text
    (tmp_path / TEST06.verify_file).write_text(text)
    own = {"accuracy_log_sampling_target": logged} if logged else {}
    found = read_verdict(load_benchmark("deepseek-r1"), settings_of(TEST06, own), tmp_path)
    assert (found.passed, found.official) == (True, official)
