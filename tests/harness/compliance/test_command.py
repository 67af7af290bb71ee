"""Complete compliance runs on a stub server: real LoadGen, official counts of samples, every way to end."""

import json
import re
import signal
from types import SimpleNamespace

import pytest

from harness.compliance import compliance_command
from harness.compliance.base import TestResult
from harness.compliance.registry import find_test
from harness.compliance.verify import VerifyRequest, VerifyResult
from harness.config.benchmark import load_benchmark
from harness.errors import ConfigError
from tests.harness.compliance.program import (
    LOW07,
    LOW09,
    TEST07_ROWS,
    TEST09_ROWS,
    audit,
    dataset,
    run_compliance,
    run_here,
    start,
    user_conf,
)
from tests.harness.submission.building import files
from tests.harness.submission.recorded_runs import FACTS
from tests.kit import full_disk, wait_until
from tests.made_up.cnn import DATACENTER, EDGE
from tests.runs import PERFORMANCE, ROOT, SAMPLES, small_dataset
from tests.stub import Facts, Fault, StubServer, every, refused_url

TOKENS = 3
COMPLIANCE = SAMPLES / "compliance_sample.parquet"
QUICK = (ROOT / "configs" / "rehearsal.conf").read_text()
VERIFIED = [
    "accuracy/accuracy.txt",
    "accuracy/mlperf_log_accuracy.json",
    "performance/run_1/mlperf_log_detail.txt",
    "performance/run_1/mlperf_log_summary.txt",
    "verify_accuracy.txt",
]


@pytest.fixture(scope="module")
def gpqa_file(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "gpqa.parquet", TEST07_ROWS)


@pytest.fixture
def stub():
    with StubServer(tokens=TOKENS) as server:
        yield server


def flags(folder, stub, scenario="offline", **rate):
    conf = user_conf(folder, **rate)
    where = ("--server-url", stub if isinstance(stub, str) else stub.url, "--user-conf", conf)
    return (*where, "--scenario", scenario, "--output-dir", folder / "out")


def quick_conf(folder):
    """The shipped one, in a hurry."""
    path = folder / "quick.conf"
    path.write_text(QUICK.replace("target_qps = 10.0", "target_qps = 200.0"))
    return path


SLOW = [pytest.param(scenario, marks=pytest.mark.engine) for scenario in ("server", "interactive")]


@pytest.mark.engine
@pytest.mark.parametrize("scenario", ["offline", *SLOW])
def test_test07_passes(scenario, gpqa_file, stub, tmp_path, capfd):
    low = audit(tmp_path, "TEST07", LOW07)
    words = ("--test", "TEST07", "--input-file", gpqa_file, "--audit-config", low, "--no-report")
    done = run_here(capfd, *words, *flags(tmp_path, stub, scenario))
    assert done.code == 0, done.stdout + done.stderr
    folder = tmp_path / "out" / scenario / "TEST07"
    assert re.search(r"TEST07: TEST PASS: exact_match \S+ of 990 samples, threshold 0.0", done.stdout)
    assert "WARNING test07_accuracy_threshold is 0.0" in done.stdout
    assert [name for name in files(folder) if not name.startswith("run/")] == VERIFIED
    assert (folder / "verify_accuracy.txt").read_text().endswith("Accuracy check pass: True\nTEST PASS\n")
    log = json.loads((folder / "accuracy" / "mlperf_log_accuracy.json").read_text())
    assert sorted(entry["qsl_idx"] for entry in log) == list(range(TEST07_ROWS))
    record = json.loads((folder / "run" / "run.json").read_text())
    assert record["deviations"] == []
    assert record["plan"]["parameters"]["max_new_tokens"] == 10240
    assert len(stub.requests) == TEST07_ROWS + 1
    again = run_here(capfd, *words, *flags(tmp_path, stub, scenario))
    assert (again.code, again.stdout.split(":")[0]) == (0, "complete")
    assert "TEST07: TEST PASS" in again.stdout and len(stub.requests) == TEST07_ROWS + 1
    high = ("--test", "TEST07", "--input-file", gpqa_file, "--no-report", "--dry-run")
    failed = run_here(capfd, *high, *flags(tmp_path, stub, scenario))
    assert (failed.code, failed.stdout.split(",")[0]) == (0, "would begin anew")


@pytest.mark.engine
def test_test07_fails_and_moves_the_earlier_result_aside(gpqa_file, stub, tmp_path):
    earlier = tmp_path / "out" / "offline" / "TEST07"
    earlier.mkdir(parents=True)
    (earlier / "verify_accuracy.txt").write_text("TEST PASS\n")
    words = ("--test", "TEST07", "--input-file", gpqa_file)
    done = run_compliance(tmp_path, *words, *flags(tmp_path, stub))
    assert done.code == 5, done.stdout + done.stderr
    assert re.search(r"TEST07: TEST FAIL: exact_match \S+ of 990 samples, threshold 60.698", done.stdout)
    assert (earlier / "verify_accuracy.txt").read_text().endswith("TEST FAIL\n")
    assert "TEST07 FAIL" in (earlier / "run" / "report.html").read_text()
    (aside,) = earlier.parent.glob("TEST07.*")
    assert (aside / "verify_accuracy.txt").read_text() == "TEST PASS\n"


@pytest.mark.engine
@pytest.mark.parametrize("scenario", ["offline", "server", "interactive"])
def test_test09_at_full_size(scenario, stub, tmp_path):
    """Fails by the official bounds; the same logs pass other bounds."""
    file = dataset(tmp_path / "perf.parquet", TEST09_ROWS, "low")
    words = ("--test", "TEST09", "--input-file", file)
    # On a busy machine the stub takes 170 new connections a second.
    done = run_compliance(tmp_path, *words, *flags(tmp_path, stub, scenario, qps=120))
    assert done.code == 5, done.stdout + done.stderr
    folder = tmp_path / "out" / scenario / "TEST09"
    text = (folder / "verify_output_len.txt").read_text()
    assert "Total samples: 6396\nMean output tokens: 3.00\n" in text and text.endswith("TEST FAIL\n")
    low = audit(tmp_path, "TEST09", LOW09)
    again = run_compliance(tmp_path, "verify", "TEST09", "--log-dir", folder / "run", "--audit-config", low)
    assert (again.code, "TEST09: TEST PASS: mean output 3.00" in again.stdout) == (0, True), again


@pytest.mark.engine
def test_all_tests_of_a_benchmark_with_small_datasets(stub, tmp_path):
    """No file that the official checker would take, and no word of a pass in what there is."""
    words = ("--test", "all", "--non-official", "--max-new-tokens", TOKENS + 1)
    inputs = ("--input-file", f"TEST07={COMPLIANCE}", "--input-file", f"TEST09={PERFORMANCE}")
    low = audit(tmp_path, "TEST09", LOW09)
    done = run_compliance(
        tmp_path,
        *(*words, *inputs, "--audit-config", f"TEST09={low}", "--server-url", stub.url),
        *("--scenario", "server", "--user-conf", quick_conf(tmp_path), "--output-dir", "out"),
    )
    assert done.code == 5, done.stdout + done.stderr
    assert "TEST07: NOT OFFICIAL FAIL: exact_match 0.0 of 30 samples" in done.stdout
    assert "TEST09: NOT OFFICIAL PASS: mean output 3.00 tokens of 64 samples, bounds 2.5..3.5" in done.stdout
    table = [re.split("  +", line)[:2] for line in done.stdout.splitlines()[-3:]]
    assert table == [["test", "verdict"], ["TEST07", "NOT OFFICIAL FAIL"], ["TEST09", "NOT OFFICIAL PASS"]]
    assert done.stdout.count("generation max_new_tokens is 4") == 2  # once in the plan of each test
    statements = sorted((tmp_path / "out").rglob("verify_*"))
    found = [path.name.split(".") for path in statements]
    assert found == [[name, "NOT_OFFICIAL", "txt"] for name in ("verify_accuracy", "verify_output_len")]
    for path in (*statements, tmp_path / "out/server/TEST07/accuracy/accuracy.txt"):
        assert "NOT OFFICIAL: dataset has" in path.read_text()
        assert "TEST PASS" not in path.read_text()
    again = run_compliance(tmp_path, "verify", "TEST09", "--log-dir", tmp_path / "out/server/TEST09/run")
    assert again.code == 2
    assert "max_new_tokens is 4" in again.error


@pytest.mark.engine
def test_eos_check_with_a_small_dataset(tmp_path):
    """Samples are repeated until there are 100; test_eos_check.py has the official size."""
    with StubServer(tokens=TOKENS, facts=FACTS) as server:
        done = run_compliance(
            tmp_path,
            *("--test", "TEST06", "--benchmark", "llama3.1-8b", "--non-official"),
            *("--input-file", small_dataset(tmp_path)[0], "--server-url", server.url),
            *("--scenario", "offline", "--user-conf", quick_conf(tmp_path), "--output-dir", tmp_path / "out"),
        )
    assert done.code == 0, done.stdout + done.stderr
    text = (tmp_path / "out" / "offline" / "TEST06" / "verify_accuracy.NOT_OFFICIAL.txt").read_text()
    assert "First token check pass: Skipped\nEOS check pass: True\nSample length check pass: True\n" in text


@pytest.mark.engine
def test_failures_give_no_verdict(gpqa_file, tmp_path):
    with StubServer(tokens=TOKENS, faults=every(100, Fault.CUT_CHUNKED, first=5)) as server:
        words = ("--test", "TEST07", "--input-file", gpqa_file, "--audit-config")
        low = audit(tmp_path, "TEST07", LOW07)
        done = run_compliance(tmp_path, *words, low, *flags(tmp_path, server))
    assert done.code == 4, done.stdout + done.stderr
    assert "TEST07 has no verdict: its run is not complete" in done.stdout
    assert {name.partition("/")[0] for name in files(tmp_path / "out/offline/TEST07")} == {"run"}


@pytest.mark.engine
def test_a_run_that_is_only_too_slow_has_a_verdict(stub, tmp_path):
    """30 queries are too few for the 99th percentile; the test asks what was answered."""
    words = ("--test", "TEST07", "--input-file", COMPLIANCE, "--non-official", "--max-new-tokens", 4)
    done = run_compliance(tmp_path, *words, *flags(tmp_path, stub, "server"))
    assert done.code == 5, done.stdout + done.stderr
    said = "WARNING LoadGen reports INVALID: Early stopping not satisfied"
    assert said in done.stdout and "NOT OFFICIAL FAIL" in done.stdout
    logs = tmp_path / "out/server/TEST07/run"
    again = ("verify", "TEST07", "--log-dir", logs, "--reference-data", COMPLIANCE, "--non-official")
    verified = run_compliance(tmp_path, *again, "--output-dir", "verified")
    assert (verified.code, said in verified.stdout) == (5, True), verified


@pytest.mark.engine
def test_the_second_test_can_be_interrupted(tmp_path):
    """The first has a verdict, the second a folder with INTERRUPTED."""
    second = tmp_path / "out" / "offline" / "TEST09" / "run"
    inputs = ("--input-file", f"TEST07={COMPLIANCE}", "--input-file", f"TEST09={PERFORMANCE}")
    with StubServer(tokens=TOKENS, event_delay_s=0.2) as server:
        words = ("--test", "all", "--non-official", *inputs, "--max-concurrency", 2)
        process = start(tmp_path, *words, *flags(tmp_path, server))
        wait_until(lambda: (second / "mlperf_log_detail.txt").exists())
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stdout + stderr
    assert "TEST07: NOT OFFICIAL FAIL" in stdout
    assert json.loads((second / "run.json").read_text())["verdict"]["result"] == "INTERRUPTED"
    assert not list(second.parent.glob("verify_*"))


@pytest.mark.parametrize(
    ("ended", "code"),
    [((0, 0), 0), ((0, 5), 5), ((5, 0), 5), ((4, 5), 4), ((5, 3), 3), ((3,), 3), ((130,), 130)],
)
def test_the_exit_code_is_that_of_the_first_test_that_did_not_pass(ended, code, monkeypatch, capsys):
    """What is neither a verdict nor its absence ends all, and is the code."""
    plan = SimpleNamespace(client=SimpleNamespace(dry_run=False))
    items = [SimpleNamespace(test=name, plan=plan) for name in ("TEST07", "TEST09")]
    left = [SimpleNamespace(exit_code=each) for each in ended]
    monkeypatch.setattr(compliance_command, "resolve_runs", lambda _: items)
    monkeypatch.setattr(
        compliance_command,
        "_verify_run",
        lambda _, record: compliance_command.TestVerdict(record.exit_code, "one", ""),
    )
    assert compliance_command.run_tests(None, lambda *_: left.pop(0)) == code
    assert left == []
    table = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert table == [["TEST07", "one"], ["TEST09", *(["one"] if len(ended) == 2 else ["not", "run"])]]


@pytest.mark.parametrize(
    ("passed", "errors", "again"),
    [(True, (), False), (True, ("LoadGen counts 7 errors",), True), (False, (), True)],
)
def test_a_test_is_run_again_unless_it_has_passed(passed, errors, again, monkeypatch):
    found = SimpleNamespace(result=SimpleNamespace(passed=passed), errors=errors)
    monkeypatch.setattr(compliance_command, "verify", lambda _: found)
    assert compliance_command._has_passed(SimpleNamespace(request=None), None) is not again


SHORT = ("it is short",)


@pytest.mark.parametrize(("own", "deviations"), [(True, ()), (True, SHORT), (False, SHORT)])
def test_why_a_result_is_not_official_is_said_once(own, deviations, tmp_path, capsys):
    """A run that was just made has named its deviations; that --rehearsal was given is none of them."""
    benchmark = load_benchmark("gpt-oss-120b")
    test = find_test(benchmark, "TEST09")
    settings = test.audit_config(None, "Offline")
    request = VerifyRequest(benchmark, test, settings, tmp_path, references=None, official=False, own=own)
    found = VerifyResult(TestResult(True, "", "", ""), (), (), test.dataset.samples, deviations)
    compliance_command._conclude(request, found, None)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("NOT OFFICIAL: ")]
    wanted = deviations or ("--rehearsal was given",)
    assert said == [f"NOT OFFICIAL: {each}" for each in wanted if not (own and deviations)]


def test_a_test_whose_logs_are_gone_is_run_again(tmp_path):
    benchmark = load_benchmark("gpt-oss-120b")
    test = find_test(benchmark, "TEST09")
    settings = test.audit_config(None, "Offline")
    request = VerifyRequest(benchmark, test, settings, tmp_path, references=None, official=True)
    assert not compliance_command._has_passed(SimpleNamespace(request=request), None)


@pytest.mark.parametrize(
    ("own", "remedy"), [(True, "and repeat the command: it verifies the same run"), (False, "choose another")]
)
def test_a_full_disk_after_the_run_asks_for_no_other_folder(own, remedy, tmp_path, monkeypatch):
    """There the repeated command would run the test again."""
    benchmark = load_benchmark("gpt-oss-120b")
    test = find_test(benchmark, "TEST09")
    settings, logs = test.audit_config(None, "Offline"), tmp_path / "TEST09/run"
    request = VerifyRequest(benchmark, test, settings, logs, references=None, official=True, own=own)
    monkeypatch.setattr(compliance_command, "_copy", full_disk)
    with pytest.raises(ConfigError, match=f"TEST09: cannot write there: No space left on device; .*{remedy}"):
        compliance_command._write(request, None, logs.parent, ())


def test_an_unreachable_server(gpqa_file, tmp_path, capfd):
    with refused_url() as url:
        words = ("--test", "TEST07", "--input-file", gpqa_file)
        done = run_here(capfd, *words, *flags(tmp_path, url))
    assert done.code == 3
    assert url in done.error
    assert not (tmp_path / "out").exists()


def test_another_model_is_not_official(gpqa_file, tmp_path, capfd):
    with StubServer(tokens=TOKENS, facts=Facts(model="other/model", served_name="other")) as server:
        words = ("--test", "TEST07", "--input-file", gpqa_file)
        done = run_here(capfd, *words, *flags(tmp_path, server))
        assert server.requests == []
    assert done.code == 2, done.stdout + done.stderr
    assert "TEST07 " in done.error and "serves other" in done.error
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def low_effort(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "low.parquet", TEST07_ROWS, "low")


# Wrong usage, one line, exit code 2, nothing written. Name: test, its files and other flags, what is named
WRONG = {
    "wrong size": ("TEST07", [COMPLIANCE], " 30 .* 990"),
    "wrong effort": ("TEST07", ["LOW"], "effort .* high"),
    "other test's": ("TEST09", ["HIGH"], "TEST09: .* 990 .* 6,396"),
    "no file": ("TEST07", ["absent.parquet"], r"absent\.parquet"),
    "two tests, one file": ("all", ["HIGH"], "--input-file TEST07=FILE"),
    "one of two files": ("all", ["TEST07=HIGH"], "no --input-file, and .*perf_eval_ref"),
    "another test's file": ("TEST07", ["TEST09=HIGH"], "TEST09 was not asked for, only TEST07"),
    "two files of a test": ("TEST07", ["HIGH", "--input-file", "TEST07=LOW"], "two files for TEST07"),
    "second is wrong": ("all", ["TEST07=HIGH", "--input-file", "TEST09=HIGH"], " TEST09: .* 990 .* 6,396"),
    "references": ("TEST07", ["HIGH", "--reference-data", COMPLIANCE], " 30 .*TEST07 .* 990"),
    "references of a rehearsal": (
        "TEST07",
        ["HIGH", "--rehearsal", "--reference-data", COMPLIANCE],
        "30 references for 990 samples",
    ),
    "audit config": ("TEST07", ["HIGH", "--audit-config", "absent"], "--audit-config absent"),
    "another parameter": ("TEST07", ["HIGH", "--max-new-tokens", 100], "max_new_tokens .* 100"),
    "another scenario": ("TEST07", ["HIGH", "--scenario", "single-stream"], "single-stream"),
    "of no test": ("TEST06", ["HIGH", "--benchmark", EDGE], f"{EDGE} .* TEST06"),
    "of TEST06": ("TEST07", ["HIGH", "--benchmark", DATACENTER], f"{DATACENTER} .* TEST07.* TEST06"),
    "crash": (
        "TEST07",
        ["HIGH", "--audit-config", "CRASH"],
        "_override = 6396, .* 990 ",
    ),
}


def test_a_benchmark_without_tests_is_no_error(stub, gpqa_file, tmp_path, capfd):
    """In a loop over benchmarks."""
    words = ("--test", "all", "--input-file", gpqa_file, "--benchmark", EDGE)
    done = run_here(capfd, *flags(tmp_path, stub), *words)
    assert (done.code, done.stdout.split(), done.stderr) == (
        0,
        [EDGE, *["needs", "no", "compliance", "test"]],
        "",
    )


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage(name, gpqa_file, low_effort, stub, tmp_path, capfd, nothing_downloaded):
    test, words, named = WRONG[name]
    crash = audit(tmp_path, "TEST07", LOW07 + "*.*.performance_sample_count_override = 6396\n")
    known = {"HIGH": gpqa_file, "LOW": low_effort, "CRASH": crash}
    given = [re.sub("HIGH|LOW|CRASH", lambda file: str(known[file[0]]), str(word)) for word in words]
    done = run_here(capfd, *flags(tmp_path, stub), "--test", test, "--input-file", *given)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == f"{done.error}\n" and re.search(named, done.error)
    assert not (tmp_path / "out").exists()
    assert stub.requests == []
